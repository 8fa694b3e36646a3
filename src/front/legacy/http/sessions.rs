//! All sessions over HTTP: found by their id, bounded in number, ended when nobody uses them.

use std::sync::Arc;
use std::time::Duration;

use super::kept::KeptBytes;
use super::session::HttpSession;
use crate::front::legacy::Session;
use crate::protocol::Principal;
use crate::share::{NoPlace, Place, Places};
use crate::shared_map::SharedMap;

/// The open sessions. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    open: Arc<SharedMap<Box<str>, Arc<HttpSession>>>,
    places: Places,
    kept: KeptBytes,
}

/// Whose sessions may make room for one of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Its own.
    Own,
    /// Those of others too, if nobody uses them.
    Any,
}

/// How long a session of somebody else must have been idle to make room for a new one.
const IDLE_ENOUGH: Duration = Duration::from_mins(1);
/// Bytes of ended streams that are kept, of all sessions.
const KEPT: usize = 64 << 20;
/// How long a session that makes room may take to end.
const ENDING: Duration = Duration::from_secs(2);

impl Sessions {
    /// No sessions, and this many at most.
    pub(super) fn new(limit: usize) -> Self {
        Self { open: Arc::default(), places: Places::new(limit), kept: KeptBytes::new(KEPT) }
    }

    pub(super) fn limit(&self) -> usize {
        self.places.most()
    }

    /// A place for a new session of `principal`. Many clients never end theirs, so where there is none, the session that
    /// has been idle for longest makes room: one of the same principal, or one that has been idle for a while.
    pub(super) async fn place(&self, principal: &Principal) -> Result<Place, NoPlace> {
        let why = match self.places.take(principal) {
            Ok(place) => return Ok(place),
            Err(why) => why,
        };
        let whose = match why {
            NoPlace::Full => Whose::Any,
            NoPlace::Share => Whose::Own,
        };
        let place = async {
            match self.make_room(None, principal, whose)? {
                Whose::Own => Some(self.places.exchange(principal).await),
                Whose::Any => Some(self.places.wait(principal).await),
            }
        };
        tokio::time::timeout(ENDING, place).await.ok().flatten().ok_or(why)
    }

    /// Ends the session that has been idle for longest, of one server or of all, and says whose it was.
    pub(super) fn make_room(&self, server: Option<&str>, principal: &Principal, whose: Whose) -> Option<Whose> {
        let mut idlest: Option<(bool, Duration, Arc<HttpSession>)> = None;
        self.open.for_each(|_, session| {
            let Some(idle) = session.idle().filter(|_| server.is_none_or(|server| server == session.server)) else {
                return;
            };
            let is_own = session.session.principal().sharer() == principal.sharer();
            let is_better = idlest.as_ref().is_none_or(|(own, longest, _)| (is_own, idle) > (*own, *longest));
            if (is_own || (whose == Whose::Any && idle >= IDLE_ENOUGH)) && is_better {
                idlest = Some((is_own, idle, Arc::clone(session)));
            }
        });
        let (is_own, _, session) = idlest?;
        tracing::info!(
            server = session.server,
            "an idle session of a legacy client was ended to make room for another"
        );
        self.remove(&session);
        session.closing.cancel();
        Some(if is_own { Whose::Own } else { Whose::Any })
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
