//! Who shares a session or process with whom: nobody across principals, unless the config says `share`.
//!
//! A session is opened when its first call comes, in a job of its own, so that a caller who leaves does not
//! break it off for the others. It is closed when it was unused for `session_idle`, and forgotten when it
//! ended by itself; the next call then opens a new one.

mod opening;
mod room;
mod slot;
mod tenancy;
#[cfg(test)]
mod tests;
mod turns;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use self::opening::Key;
use self::slot::{Slot, State, Visit};
use self::tenancy::Tenancy;
use super::outcome;
use super::questions::Floor;
use super::stdio::connection::Connection;
use crate::config::{ServerConfig, SessionCount, Transport};
use crate::jobs::Jobs;
use crate::protocol::{Call, Caller, ClientSession, Failure, Method, Outcome, Principal, ReplySender, Rope, WaitsFor};
use crate::share::{NoPlace, Place, Places};
use crate::shared_map::SharedMap;

pub(super) use self::opening::{Attached, Audience, Distinction, Hearer, Opening};
pub(super) use self::slot::Lease;

/// Opens sessions.
pub(super) trait Connect: fmt::Debug + Send + Sync + 'static {
    /// What it opens.
    type Session: Session;

    /// Opens a session and shakes hands, within bounded time. The failure is what every waiting call gets:
    /// nothing of them was sent.
    fn connect(&self, opening: &Opening) -> impl Future<Output = Result<Self::Session, Failure>> + Send;

    /// What else than the principal tells callers apart who must not share a session.
    fn distinction(&self, _caller: &Caller) -> Distinction {
        Distinction::default()
    }
}

/// A session that takes calls. Clones are the same session.
pub(super) trait Session: Clone + fmt::Debug + Send + Sync + 'static {
    /// Whether it takes no calls any more.
    fn is_over(&self) -> bool;

    /// Whether it is better left alone for now: it takes calls only where there is no room for another session.
    fn is_resting(&self) -> bool {
        false
    }

    /// The connection, if a modern server is at the other end: it knows no sessions, so there is more to do for those
    /// who expect one.
    fn modern(&self) -> Option<&Connection> {
        None
    }

    /// Another session has taken its place. It is over as soon as its calls are.
    fn replaced(&self) {}

    /// Resolves when it takes no calls any more.
    fn over(&self) -> impl Future<Output = ()> + Send;

    /// Ends it in good order, within bounded time.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// A session on which we ask things of our own.
pub(super) trait Speak: Session {
    /// Who runs on it, and hears what the server says.
    fn floor(&self) -> &Floor;

    /// Sends a notification, and waits until the server has it, within bounded time.
    fn notify(&self, note: Rope) -> impl Future<Output = ()> + Send;

    /// Sends a request of our own. Its outcome comes within bounded time.
    fn request(&self, method: &'static str, params: Rope) -> impl Future<Output = Outcome> + Send;
}

/// A session that is one connection, on which messages of both sides go by.
pub(super) trait OverConnection: Session {
    /// The connection.
    fn connection(&self) -> &Connection;
}

impl<S: OverConnection> Speak for S {
    fn floor(&self) -> &Floor {
        self.connection().floor()
    }

    async fn notify(&self, note: Rope) {
        self.connection().notify(note).await;
    }

    async fn request(&self, method: &'static str, params: Rope) -> Outcome {
        self.connection().request(method, params).await
    }
}

/// The sessions with one server.
#[derive(Debug)]
pub(super) struct Sessions<C: Connect>(Arc<Inner<C>>);

#[derive(Debug)]
struct Inner<C: Connect> {
    connector: C,
    server: Arc<ServerConfig>,
    /// In the order in which they were opened.
    rows: SharedMap<Key, Vec<Arc<Slot<C::Session>>>>,
    room: Places,
    /// Somebody waits for room and no session was idle: the first that is used no more is to go.
    pressed: Arc<AtomicBool>,
    jobs: Jobs,
    closing: CancellationToken,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    opened: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
}

/// Sessions or processes with one server, for whoever watches the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFigures {
    /// Those that are open or being opened.
    pub open: u64,
    /// Those that were opened since the start of the proxy.
    pub opened: u64,
    /// Those that could not be opened.
    pub refused: u64,
    /// Those of the opened that ended by themselves: the server ended or dropped them, or its process died.
    pub lost: u64,
}

/// What somebody wants of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// To make a call in whose course the server may ask the client.
    Call,
    /// To make another request.
    Request,
    /// To be there.
    Presence,
}

/// Who asks for a session.
#[derive(Clone, Copy, Debug)]
struct Asker<'a> {
    principal: &'a Principal,
    want: Want,
    /// Where it is told what it waits for, if it wants to know.
    told: Option<&'a ReplySender>,
}

/// How long a caller waits until an idle session has made room.
const MAKING_ROOM: Duration = Duration::from_secs(1);

impl<'a> Asker<'a> {
    fn of(call: &'a Call, sender: &'a ReplySender) -> Self {
        Self { principal: &call.caller.principal, want: Want::of(call), told: Some(sender) }
    }

    fn waits(&self, reason: WaitsFor) {
        if let Some(sender) = self.told {
            sender.waits(reason);
        }
    }
}

impl SessionFigures {
    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            open: self.open + other.open,
            opened: self.opened + other.opened,
            refused: self.refused + other.refused,
            lost: self.lost + other.lost,
        }
    }
}

impl Want {
    /// What a call wants.
    pub(super) fn of(call: &Call) -> Self {
        match call.method {
            Method::CallTool | Method::GetPrompt | Method::ReadResource => Self::Call,
            Method::Attach | Method::Listen | Method::Notify(_) => Self::Presence,
            _ => Self::Request,
        }
    }

    fn is_call(self) -> bool {
        self == Self::Call
    }

    fn waits_for_its_turn(self) -> bool {
        self != Self::Presence
    }
}

impl<C: Connect> Clone for Sessions<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Connect> Sessions<C> {
    /// No session yet. Jobs are run in `jobs`.
    pub(super) fn new(server: Arc<ServerConfig>, connector: C, jobs: Jobs) -> Self {
        let room = Places::new(server.max_sessions);
        let closing = CancellationToken::new();
        let rows = SharedMap::default();
        Self(Arc::new(Inner {
            connector,
            server,
            rows,
            room,
            pressed: Arc::default(),
            jobs,
            closing,
            counts: Counts::default(),
        }))
    }

    /// A session for `call`, opened first if there is none. That of a legacy client is never opened here. Whoever waits for
    /// the call is told through `sender` if it has to wait ([`ReplySender::waits`]).
    pub(super) async fn get_for(&self, call: &Call, sender: &ReplySender) -> Result<Lease<C::Session>, Failure> {
        self.find(&call.caller, Asker::of(call, sender), None).await
    }

    /// The same, in place of a session that is not used any more: its place is kept until there is one in the next line.
    pub(super) async fn get_for_after(
        &self,
        call: &Call,
        sender: &ReplySender,
        left: Lease<C::Session>,
    ) -> Result<Lease<C::Session>, Failure> {
        self.find(&call.caller, Asker::of(call, sender), Some(left)).await
    }

    /// A session of `caller`.
    pub(super) async fn get(&self, caller: &Caller, want: Want) -> Result<Lease<C::Session>, Failure> {
        self.find(caller, Asker { principal: &caller.principal, want, told: None }, None).await
    }

    async fn find(
        &self,
        caller: &Caller,
        asker: Asker<'_>,
        mut left: Option<Lease<C::Session>>,
    ) -> Result<Lease<C::Session>, Failure> {
        loop {
            let lease = self.find_once(caller, asker, left).await?;
            // Nothing was sent yet. Whoever comes here again has waited for another's call before.
            if !lease.came_too_late() {
                return Ok(lease);
            }
            left = Some(lease);
        }
    }

    async fn find_once(
        &self,
        caller: &Caller,
        asker: Asker<'_>,
        mut left: Option<Lease<C::Session>>,
    ) -> Result<Lease<C::Session>, Failure> {
        let key = self.key(caller);
        let visit = match caller.session {
            ClientSession::Legacy(_) => self.known(&key, asker.want)?,
            ClientSession::Stateless => {
                let owner = if self.0.server.share { &Principal::Local } else { &caller.principal };
                self.visit(&key, owner, || self.opening_of(caller), asker, &mut left).await?
            }
        };
        self.settled(visit, asker, left).await
    }

    /// Opens the session of a legacy client. It is closed when the guard is dropped, also while it is being opened.
    pub(super) async fn attach(&self, opening: Opening) -> Result<(Lease<C::Session>, DropGuard), Failure> {
        let key = self.key(&opening.caller);
        let principal = &opening.caller.principal;
        let asker = Asker { principal, want: Want::Presence, told: None };
        let visit = self.visit(&key, principal, || opening.clone(), asker, &mut None).await?;
        let guard = visit.slot.dismissed.clone().drop_guard();
        Ok((self.settled(visit, asker, None).await?, guard))
    }

    /// Closes all sessions and waits for that. No new one is opened.
    pub(super) async fn close(&self) {
        self.0.closing.cancel();
        self.0.jobs.idle().await;
    }

    /// Resolves when no session is opened any more.
    pub(super) async fn closing(&self) {
        self.0.closing.cancelled().await;
    }

    /// Numbers about them.
    pub(super) fn figures(&self) -> SessionFigures {
        let Counts { opened, refused, lost } = &self.0.counts;
        let [opened, refused, lost] = [opened, refused, lost].map(|count| count.load(Ordering::Relaxed));
        SessionFigures { open: self.count() as u64, opened, refused, lost }
    }

    /// How many sessions are open or being opened.
    fn count(&self) -> usize {
        let mut count = 0;
        self.0.rows.for_each(|_, row| count += row.len());
        count
    }

    /// Who listens together with `caller`.
    pub(super) fn audience(&self, caller: &Caller) -> Audience {
        Audience::of(caller, self.0.server.share, || self.0.connector.distinction(caller))
    }

    fn opening_of(&self, caller: &Caller) -> Opening {
        Opening { caller: caller.clone(), hearer: Hearer::Audience(self.audience(caller)) }
    }

    /// What has to be there before a session is.
    fn waits_for(&self) -> WaitsFor {
        match &self.0.server.transport {
            Transport::Stdio { .. } => WaitsFor::Start,
            Transport::Http { .. } | Transport::Sse { .. } => WaitsFor::Connection,
        }
    }

    fn key(&self, caller: &Caller) -> Key {
        Key::of(caller, self.0.server.share, || self.0.connector.distinction(caller))
    }

    /// The session behind a visit, once it is open and it is this visit's turn. `left` is what the asker had before.
    async fn settled(
        &self,
        visit: Visit<C::Session>,
        asker: Asker<'_>,
        left: Option<Lease<C::Session>>,
    ) -> Result<Lease<C::Session>, Failure> {
        let broken = || outcome::not_started(&self.0.server.name, "connecting broke off");
        // Before the session is open, so that those who wait for that get to it in the order in which they came.
        let serial = self.0.server.serial && asker.want.waits_for_its_turn();
        let entry = serial.then(|| visit.slot.turns.enter(asker.principal));
        // Now those come who were behind it in the line before.
        drop(left);
        if let Some(session) = visit.slot.session() {
            return Ok(visit.take_turn(session, entry, asker).await);
        }
        asker.waits(self.waits_for());
        let mut state = visit.slot.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        let settled = settled.map(|state| state.clone());
        match settled {
            Ok(State::Open(session)) => Ok(visit.take_turn(session, entry, asker).await),
            Ok(State::Failed(failure)) => Err(failure),
            Ok(State::Connecting) | Err(_) => Err(broken()),
        }
    }

    /// The session of a legacy client.
    fn known(&self, key: &Key, want: Want) -> Result<Visit<C::Session>, Failure> {
        let enter =
            |row: &Vec<Arc<Slot<C::Session>>>| row.first().filter(|slot| !slot.is_over()).map(|slot| slot.enter(want));
        let visit = self.0.rows.with(key, enter).flatten();
        visit.ok_or_else(|| outcome::not_started(&self.0.server.name, "the client's session with it has ended"))
    }

    /// `owner` is whose place a new session takes. `left` is let go if there is no room: those behind are to hear of it too.
    async fn visit(
        &self,
        key: &Key,
        owner: &Principal,
        opening: impl Fn() -> Opening,
        asker: Asker<'_>,
        left: &mut Option<Lease<C::Session>>,
    ) -> Result<Visit<C::Session>, Failure> {
        let why = match self.enter(key, owner, &opening, asker.want, None)? {
            Ok(visit) => return Ok(visit),
            Err(why) => why,
        };
        *left = None;
        asker.waits(self.waits_for());
        // An idle session is closed to make room, if there is one.
        let room = &self.0.room;
        let place = async {
            match why {
                NoPlace::Full => {
                    self.0.make_room();
                    room.wait(owner).await
                }
                NoPlace::Share if self.0.make_room_of(owner) => room.exchange(owner).await,
                NoPlace::Share => room.wait(owner).await,
            }
        };
        let place = tokio::time::timeout(MAKING_ROOM, place).await.map_err(|_| self.refusal(why))?;
        self.enter(key, owner, &opening, asker.want, Some(place))?.map_err(|why| self.refusal(why))
    }

    fn refusal(&self, why: NoPlace) -> Failure {
        let server = &self.0.server;
        match why {
            NoPlace::Full => outcome::too_many_sessions(&server.name, server.max_sessions),
            NoPlace::Share => outcome::too_many_sessions_of_owner(&server.name, server.max_sessions),
        }
    }

    /// Says why if there is no session and no room for one. `place` is the right to open one.
    fn enter(
        &self,
        key: &Key,
        owner: &Principal,
        opening: impl Fn() -> Opening,
        want: Want,
        place: Option<Place>,
    ) -> Result<Result<Visit<C::Session>, NoPlace>, Failure> {
        let sessions = &self.0;
        if sessions.closing.is_cancelled() {
            return Err(outcome::stopping());
        }
        let alone = want.is_call() && self.calls_run_alone(key);
        // The usual case, with one look at the table.
        let at_once = |row: &Vec<Arc<Slot<_>>>| {
            let slot = row.iter().find(|slot| !(self.is_resting(slot) || alone && slot.calls() > 0))?;
            row.iter().all(|slot| !slot.is_over()).then(|| slot.enter(want))
        };
        if let Some(Some(visit)) = sessions.rows.with(key, at_once) {
            return Ok(Ok(visit));
        }
        let mut opened = None;
        let visit = sessions.rows.update_or_insert(key.clone(), Vec::new, |row| {
            // The supervisor of a session that ended may not have seen it yet.
            for ended in row.extract_if(.., |slot| slot.is_over()) {
                ended.retire();
            }
            let taken = |slot: &Slot<_>| self.is_resting(slot) || (alone && slot.calls() > 0);
            if let Some(slot) = row.iter().find(|slot| !taken(slot)) {
                return Ok(slot.enter(want));
            }
            let place = place.map_or_else(|| sessions.room.take(owner), Ok);
            let why = match place {
                Ok(place) => {
                    for resting in row.extract_if(.., |slot| self.is_resting(slot)) {
                        resting.replaced();
                    }
                    let slot = Arc::new(Slot::new(place, owner.clone(), Arc::clone(&sessions.pressed)));
                    row.push(Arc::clone(&slot));
                    let visit = slot.enter(want);
                    opened = Some(slot);
                    return Ok(visit);
                }
                Err(why) => why,
            };
            // Beside other calls, where there is no room to be alone.
            row.iter().min_by_key(|slot| slot.calls()).map(|slot| slot.enter(want)).ok_or(why)
        });
        if visit.is_err() {
            sessions.rows.remove_if(key, Vec::is_empty);
        }
        if let Some(slot) = opened {
            let tenancy = Tenancy { sessions: Arc::clone(sessions), key: key.clone(), slot };
            sessions.jobs.spawn("session", tenancy.run(opening()));
        }
        Ok(visit)
    }

    /// Whether others get another session in its place. Not where calls are taken one at a time: whoever comes while a
    /// stopped call has its turn would pass those in the line, and a loop of cancels would multiply runs.
    fn is_resting(&self, slot: &Slot<C::Session>) -> bool {
        !self.0.server.serial && slot.is_resting()
    }

    /// Whether a call gets another session rather than a busy one.
    fn calls_run_alone(&self, key: &Key) -> bool {
        match self.0.server.sessions {
            SessionCount::One => false,
            SessionCount::Pool => true,
            SessionCount::Auto => key.can_be_asked(),
        }
    }
}
