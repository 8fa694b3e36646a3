//! Who shares a session or process with whom: nobody across principals, unless the config says `share`.
//!
//! A session is opened when its first call comes, in a job of its own, so that a caller who leaves does not
//! break it off for the others. It is closed when it was unused for `session_idle`, and forgotten when it
//! ended by itself; the next call then opens a new one.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::outcome;
use crate::config::ServerConfig;
use crate::jobs::Jobs;
use crate::protocol::{Caller, Failure, Principal};
use crate::shared_map::SharedMap;

/// Opens sessions.
pub(super) trait Connect: fmt::Debug + Send + Sync + 'static {
    /// What it opens.
    type Session: Session;

    /// Opens a session and shakes hands, within bounded time. The failure is what every waiting call gets:
    /// nothing of them was sent.
    fn connect(&self, caller: &Caller) -> impl Future<Output = Result<Self::Session, Failure>> + Send;

    /// What else than the principal tells callers apart who must not share a session.
    fn distinction(&self, _caller: &Caller) -> Distinction {
        Distinction::default()
    }
}

/// A digest of what tells callers of one principal apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Distinction([u8; 32]);

/// A session that takes calls. Clones are the same session.
pub(super) trait Session: Clone + fmt::Debug + Send + Sync + 'static {
    /// Whether it takes no calls any more.
    fn is_over(&self) -> bool;

    /// Whether it is better left alone for now: it takes calls only where there is no room for another session.
    fn is_resting(&self) -> bool {
        false
    }

    /// Another session has taken its place. It is over as soon as its calls are.
    fn replaced(&self) {}

    /// Resolves when it takes no calls any more.
    fn over(&self) -> impl Future<Output = ()> + Send;

    /// Ends it in good order, within bounded time.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The sessions with one server.
#[derive(Debug)]
pub(super) struct Sessions<C: Connect>(Arc<Inner<C>>);

/// A session in use: while it is held, the session does not count as idle.
#[derive(Debug)]
pub(super) struct Lease<S> {
    session: S,
    _visit: Visit<S>,
}

#[derive(Debug)]
struct Inner<C: Connect> {
    connector: C,
    server: Arc<ServerConfig>,
    slots: SharedMap<Key, Arc<Slot<C::Session>>>,
    room: Arc<Semaphore>,
    /// Somebody waits for room and no session was idle: the first that is used no more is to go.
    pressed: Arc<AtomicBool>,
    jobs: Jobs,
    closing: CancellationToken,
}

/// Who uses a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// Everybody.
    Shared,
    /// One principal, and of it those that are alike in this.
    Of(Principal, Distinction),
}

#[derive(Debug)]
struct Slot<S> {
    state: watch::Sender<State<S>>,
    usage: Mutex<Usage>,
    /// It is to be closed if it is not in use.
    unwanted: Notify,
    pressed: Arc<AtomicBool>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Whether a session is in use.
#[derive(Clone, Copy, Debug)]
enum Usage {
    /// By this many.
    Visited(usize),
    /// By nobody, since then.
    Idle(Instant),
}

/// To `Open` or `Failed` from `Connecting`, once.
#[derive(Clone, Debug)]
enum State<S> {
    Connecting,
    Open(S),
    Failed(Failure),
}

/// How long a caller waits until an idle session has made room.
const MAKING_ROOM: Duration = Duration::from_secs(1);

/// One user of a slot.
#[derive(Debug)]
struct Visit<S>(Arc<Slot<S>>);

/// The supervisor's hold on its slot: whatever ends the supervisor, the slot is given up.
struct Tenancy<C: Connect> {
    sessions: Arc<Inner<C>>,
    key: Key,
    slot: Arc<Slot<C::Session>>,
}

impl Distinction {
    /// The digest of `parts`, which may be secret.
    pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            // With its length, so that no two lists of parts read alike.
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
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
        let room = Arc::new(Semaphore::new(server.max_sessions.min(Semaphore::MAX_PERMITS)));
        let closing = CancellationToken::new();
        let slots = SharedMap::default();
        Self(Arc::new(Inner { connector, server, slots, room, pressed: Arc::default(), jobs, closing }))
    }

    /// The session of `caller`, opened first if there is none.
    pub(super) async fn get(&self, caller: &Caller) -> Result<Lease<C::Session>, Failure> {
        let key = if self.0.server.share {
            Key::Shared
        } else {
            Key::Of(caller.principal.clone(), self.0.connector.distinction(caller))
        };
        let visit = match self.visit(&key, caller, None)? {
            Some(visit) => visit,
            None => self.press(&key, caller).await?,
        };
        if let Some(session) = visit.0.session() {
            return Ok(Lease { session, _visit: visit });
        }
        let mut state = visit.0.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        let settled = settled.map(|state| state.clone());
        match settled {
            Ok(State::Open(session)) => Ok(Lease { session, _visit: visit }),
            Ok(State::Failed(failure)) => Err(failure),
            Ok(State::Connecting) | Err(_) => Err(outcome::not_started(&self.0.server.name, "connecting broke off")),
        }
    }

    /// Closes all sessions and waits for that. No new one is opened.
    pub(super) async fn close(&self) {
        self.0.closing.cancel();
        self.0.jobs.idle().await;
    }

    /// How many sessions are open or being opened.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.slots.len()
    }

    /// Has an idle session closed to make room, if there is one.
    async fn press(&self, key: &Key, caller: &Caller) -> Result<Visit<C::Session>, Failure> {
        let server = &self.0.server;
        let full = || outcome::too_many_sessions(&server.name, server.max_sessions);
        self.0.make_room();
        let room = tokio::time::timeout(MAKING_ROOM, Arc::clone(&self.0.room).acquire_owned()).await;
        let permit = room.map_err(|_| full())?.map_err(|_| full())?;
        self.visit(key, caller, Some(permit))?.ok_or_else(full)
    }

    /// `None` if there is no room for another session. `permit` is the right to open one.
    fn visit(
        &self,
        key: &Key,
        caller: &Caller,
        mut permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Visit<C::Session>>, Failure> {
        let sessions = &self.0;
        if sessions.closing.is_cancelled() {
            return Err(outcome::stopping());
        }
        // The usual case, with one look at the table.
        if let Some(Some(visit)) = sessions.slots.with(key, Slot::enter_at_once) {
            return Ok(Some(visit));
        }
        // The supervisor of a session that ended may not have seen it yet.
        if let Some(ended) = sessions.slots.remove_if(key, |slot| slot.is_over()) {
            ended.retire();
        }
        let rests = sessions.slots.with(key, |slot| slot.is_resting()).unwrap_or(false);
        if rests && let Ok(free) = Arc::clone(&sessions.room).try_acquire_owned() {
            permit = Some(free);
            if let Some(resting) = sessions.slots.remove_if(key, |slot| slot.is_resting()) {
                resting.replaced();
            }
        }
        if let Some(visit) = sessions.slots.with(key, Slot::enter) {
            return Ok(Some(visit));
        }
        let permit = permit.or_else(|| Arc::clone(&sessions.room).try_acquire_owned().ok());
        let Some(permit) = permit else { return Ok(None) };
        let mut opened = false;
        let make = || {
            opened = true;
            Arc::new(Slot::new(permit, Arc::clone(&sessions.pressed)))
        };
        let visit = sessions.slots.update_or_insert(key.clone(), make, |slot| Slot::enter(slot));
        if opened {
            let tenancy = Tenancy { sessions: Arc::clone(sessions), key: key.clone(), slot: Arc::clone(&visit.0) };
            sessions.jobs.spawn("session", tenancy.run(caller.clone()));
        }
        Ok(Some(visit))
    }
}

impl<C: Connect> Tenancy<C> {
    /// The whole life of a session.
    async fn run(self, caller: Caller) {
        let connected = tokio::select! {
            connected = self.sessions.connector.connect(&caller) => connected,
            () = self.sessions.closing.cancelled() => Err(outcome::stopping()),
        };
        drop(caller);
        let session = match connected {
            Ok(session) => session,
            Err(failure) => {
                // Given up first, so that whoever learns of the failure may try again at once.
                self.give_up();
                self.slot.state.send_replace(State::Failed(failure));
                return;
            }
        };
        self.slot.state.send_replace(State::Open(session.clone()));
        tokio::select! {
            () = session.over() => {}
            () = self.idle() => tracing::debug!(server = %self.sessions.server.name, "an idle session is closed"),
            () = self.sessions.closing.cancelled() => {}
        }
        self.give_up();
        session.close().await;
    }

    /// Resolves when nobody has used the session for `session_idle`; it is out of the table then.
    ///
    /// It looks when the session may have been idle for long enough, so that no call has to wake it.
    async fn idle(&self) {
        let patience = self.sessions.server.session_idle;
        let mut look = Instant::now() + patience;
        loop {
            let unwanted = tokio::select! {
                () = tokio::time::sleep_until(look) => false,
                () = self.slot.unwanted.notified() => true,
            };
            let is_over = |usage: Usage| match usage {
                Usage::Visited(_) => false,
                Usage::Idle(since) => unwanted || since.elapsed() >= patience,
            };
            let unused = |slot: &Arc<Slot<C::Session>>| Arc::ptr_eq(slot, &self.slot) && is_over(*slot.usage());
            if self.sessions.slots.remove_if(&self.key, unused).is_some() {
                return;
            }
            if unwanted {
                // A call came first.
                self.sessions.make_room();
            }
            look = match *self.slot.usage() {
                Usage::Visited(_) => Instant::now() + patience,
                Usage::Idle(since) => since + patience,
            };
        }
    }

    fn give_up(&self) {
        self.sessions.slots.remove_if(&self.key, |slot| Arc::ptr_eq(slot, &self.slot));
        self.slot.retire();
    }
}

impl<C: Connect> Inner<C> {
    /// Has the session that has been idle for longest closed, or else the first that is used no more.
    fn make_room(&self) {
        let mut longest: Option<(Instant, Arc<Slot<C::Session>>)> = None;
        self.pressed.store(true, Ordering::SeqCst);
        self.slots.for_each(|_, slot| {
            if let Usage::Idle(since) = *slot.usage()
                && longest.as_ref().is_none_or(|(other, _)| since < *other)
            {
                longest = Some((since, Arc::clone(slot)));
            }
        });
        if let Some((_, slot)) = longest
            && self.pressed.swap(false, Ordering::SeqCst)
        {
            slot.unwanted.notify_one();
        }
    }
}

impl<C: Connect> Drop for Tenancy<C> {
    fn drop(&mut self) {
        self.give_up();
        let broken = outcome::not_started(&self.sessions.server.name, "connecting broke off");
        self.slot.state.send_if_modified(|state| {
            let connecting = matches!(state, State::Connecting);
            if connecting {
                *state = State::Failed(broken);
            }
            connecting
        });
    }
}

impl<S: Session> Slot<S> {
    fn new(permit: OwnedSemaphorePermit, pressed: Arc<AtomicBool>) -> Self {
        Self {
            state: watch::Sender::new(State::Connecting),
            usage: Mutex::new(Usage::Visited(0)),
            unwanted: Notify::new(),
            pressed,
            permit: Mutex::new(Some(permit)),
        }
    }

    fn enter(self: &Arc<Self>) -> Visit<S> {
        let mut usage = self.usage();
        *usage = match *usage {
            Usage::Visited(visits) => Usage::Visited(visits + 1),
            Usage::Idle(_) => Usage::Visited(1),
        };
        Visit(Arc::clone(self))
    }

    /// Enters a session that is open, and neither over nor resting.
    fn enter_at_once(self: &Arc<Self>) -> Option<Visit<S>> {
        match &*self.state.borrow() {
            State::Open(session) if !session.is_over() && !session.is_resting() => Some(self.enter()),
            State::Open(_) | State::Connecting | State::Failed(_) => None,
        }
    }

    /// The session, if it is open.
    fn session(&self) -> Option<S> {
        match &*self.state.borrow() {
            State::Open(session) => Some(session.clone()),
            State::Connecting | State::Failed(_) => None,
        }
    }

    fn is_over(&self) -> bool {
        match &*self.state.borrow() {
            State::Connecting => false,
            State::Open(session) => session.is_over(),
            State::Failed(_) => true,
        }
    }

    fn is_resting(&self) -> bool {
        match &*self.state.borrow() {
            State::Open(session) => session.is_resting(),
            State::Connecting | State::Failed(_) => false,
        }
    }

    fn replaced(&self) {
        if let State::Open(session) = &*self.state.borrow() {
            session.replaced();
        }
    }

    /// Makes room for another session.
    fn retire(&self) {
        drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl<S> Slot<S> {
    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Drop for Visit<S> {
    fn drop(&mut self) {
        let slot = &self.0;
        let is_last = {
            let mut usage = slot.usage();
            let left = match *usage {
                Usage::Visited(visits) => visits.saturating_sub(1),
                Usage::Idle(_) => 0,
            };
            *usage = if left == 0 { Usage::Idle(Instant::now()) } else { Usage::Visited(left) };
            left == 0
        };
        if is_last && slot.pressed.swap(false, Ordering::SeqCst) {
            slot.unwanted.notify_one();
        }
    }
}

impl<S> Deref for Lease<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
