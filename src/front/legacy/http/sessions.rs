//! All sessions over HTTP: found by their id, bounded in number, ended when nobody uses them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::session::{HttpSession, KeptBytes};
use crate::front::legacy::Session;
use crate::protocol::Principal;
use crate::shared_map::SharedMap;

/// The open sessions. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    open: Arc<SharedMap<Box<str>, Arc<HttpSession>>>,
    places: Arc<Semaphore>,
    limit: usize,
    kept: KeptBytes,
}

/// How long a session of somebody else must have been idle to make room for a new one.
const IDLE_ENOUGH: Duration = Duration::from_mins(1);
/// How long a session that makes room may take to end.
const ENDING: Duration = Duration::from_secs(2);

impl Sessions {
    /// No sessions, and this many at most.
    pub(super) fn new(limit: usize) -> Self {
        let places = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        Self { open: Arc::default(), places, limit, kept: KeptBytes::default() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// A place for a new session of `principal`. Many clients never end theirs, so where there is none, the session that
    /// has been idle for longest makes room: one of the same principal, or one that has been idle for a while.
    pub(super) async fn place(&self, principal: &Principal) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        if !self.make_room(None, principal) {
            return None;
        }
        let place = Arc::clone(&self.places).acquire_owned();
        tokio::time::timeout(ENDING, place).await.ok()?.ok()
    }

    /// Ends the session that has been idle for longest, of one server or of all; false if there is none that may be.
    pub(super) fn make_room(&self, server: Option<&str>, principal: &Principal) -> bool {
        let mut idlest: Option<(bool, Duration, Arc<HttpSession>)> = None;
        self.open.for_each(|_, session| {
            let Some(idle) = session.idle().filter(|_| server.is_none_or(|server| server == session.server)) else {
                return;
            };
            let is_own = session.session.principal() == principal;
            let is_better = idlest.as_ref().is_none_or(|(own, longest, _)| (is_own, idle) > (*own, *longest));
            if (is_own || idle >= IDLE_ENOUGH) && is_better {
                idlest = Some((is_own, idle, Arc::clone(session)));
            }
        });
        let Some((_, _, session)) = idlest else { return false };
        tracing::info!(
            server = session.server,
            "an idle session of a legacy client was ended to make room for another"
        );
        self.remove(&session);
        session.closing.cancel();
        true
    }

    /// Takes in a session that was opened.
    pub(super) fn insert(&self, server: &str, session: Session) -> Arc<HttpSession> {
        let session = HttpSession::new(server.to_owned(), session, self.kept.clone());
        self.open.insert(session.id.clone(), Arc::clone(&session));
        session
    }

    /// The session of that id, if it is with this server and belongs to this principal. A foreign one is as unknown as
    /// one that never was.
    pub(super) fn find(&self, id: &str, server: &str, principal: &Principal) -> Option<Arc<HttpSession>> {
        let session = self.open.get(id)?;
        (session.server == server && session.session.principal() == principal).then_some(session)
    }

    /// From now on nobody finds it.
    pub(super) fn remove(&self, session: &HttpSession) {
        self.open.remove(&session.id);
    }
}
