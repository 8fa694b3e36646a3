//! Who shares a session or process with whom: nobody across principals, unless the config says `share`.
//!
//! A session is opened when its first call comes, in a job of its own, so that a caller who leaves does not
//! break it off for the others. It is closed when it was unused for `session_idle`, and forgotten when it
//! ended by itself; the next call then opens a new one.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
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
    /// Wakes the session that has been idle for longest, to make room.
    pressed: Notify,
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
    visits: watch::Sender<usize>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
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
        Self(Arc::new(Inner { connector, server, slots, room, pressed: Notify::new(), jobs, closing }))
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
        self.0.pressed.notify_one();
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
            Arc::new(Slot::new(permit))
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
    async fn idle(&self) {
        let mut visits = self.slot.visits.subscribe();
        // The sender is in the slot that we hold, so waiting cannot fail.
        while visits.wait_for(|visits| *visits == 0).await.is_ok() {
            tokio::select! {
                // Also a visit that is over already.
                _ = visits.changed() => continue,
                () = tokio::time::sleep(self.sessions.server.session_idle) => {}
                // Whoever has waited longest is woken first.
                () = self.sessions.pressed.notified() => {}
            }
            let unused = |slot: &Arc<Slot<C::Session>>| Arc::ptr_eq(slot, &self.slot) && *slot.visits.borrow() == 0;
            if self.sessions.slots.remove_if(&self.key, unused).is_some() {
                return;
            }
        }
    }

    fn give_up(&self) {
        self.sessions.slots.remove_if(&self.key, |slot| Arc::ptr_eq(slot, &self.slot));
        self.slot.retire();
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
    fn new(permit: OwnedSemaphorePermit) -> Self {
        let state = watch::Sender::new(State::Connecting);
        Self { state, visits: watch::Sender::new(0), permit: Mutex::new(Some(permit)) }
    }

    fn enter(self: &Arc<Self>) -> Visit<S> {
        self.visits.send_modify(|visits| *visits += 1);
        Visit(Arc::clone(self))
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

impl<S> Drop for Visit<S> {
    fn drop(&mut self) {
        self.0.visits.send_modify(|visits| *visits = visits.saturating_sub(1));
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
