//! Requests that are not answered yet, by their ids, so that each can be cancelled.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::protocol::{Json, RequestId};
use crate::shared_map::SharedMap;

/// The requests of one connection. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    requests: Arc<SharedMap<RequestId, CancellationToken>>,
    all: CancellationToken,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    id: RequestId,
    among: InFlight,
    cancelled: CancellationToken,
}

impl InFlight {
    /// No requests yet. All that come are cancelled with `all`.
    pub(super) fn new(all: CancellationToken) -> Self {
        Self { requests: Arc::default(), all }
    }

    /// Notes a request; `None` if there is one of the same id, whose answer could not be told from its own. Not to
    /// be called by two at a time.
    pub(super) fn begin(&self, id: &RequestId) -> Option<Ticket> {
        if self.requests.with(id, |_| ()).is_some() {
            return None;
        }
        let cancelled = self.all.child_token();
        self.requests.insert(id.clone(), cancelled.clone());
        Some(Ticket { id: id.clone(), among: self.clone(), cancelled })
    }

    /// Cancels the request that `id` spells; whether there is one.
    pub(super) fn cancel(&self, id: Json) -> bool {
        RequestId::read(id).is_some_and(|id| self.requests.with(&id, CancellationToken::cancel).is_some())
    }
}

impl Ticket {
    /// The token behind [`Ticket::cancelled`], which outlives the ticket.
    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancelled.clone()
    }

    /// Resolves when the request is cancelled.
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.among.requests.remove(&self.id);
    }
}
