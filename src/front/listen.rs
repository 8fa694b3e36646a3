//! `subscriptions/listen` (2026-07-28, subscriptions): a stream that stays open until the client leaves or the
//! proxy stops. Nothing is honoured yet, which the acknowledgment says.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::StatusCode;
use tokio::sync::OwnedSemaphorePermit;

use super::body::Pieces;
use super::refusal::Refusal;
use super::sse::{self, KeepAlive};
use crate::jobs::Jobs;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Json, Params, RequestId, Rope, RpcError, TaskSupport, message, meta_key};

/// An open subscription.
pub(super) struct Subscription {
    id: RequestId,
    pieces: Pieces,
    keep_alive: KeepAlive,
    /// Resolves when the proxy stops; gone after that.
    stopping: Option<BoxFuture<'static, ()>>,
    /// The place among the open streams.
    _place: OwnedSemaphorePermit,
}

/// Checks what a client wants to hear of.
pub(super) fn check(params: &Params, tasks: TaskSupport) -> Result<(), Refusal> {
    let Some(filter) = params.raw().member("notifications").filter(Json::is_object) else {
        let error = RpcError::new(code::INVALID_PARAMS, "Invalid params: notifications must be an object");
        return Err(Refusal::rpc(StatusCode::BAD_REQUEST, error));
    };
    if filter.member("taskIds").is_some() && tasks == TaskSupport::Undeclared {
        return Err(Refusal::rpc(StatusCode::BAD_REQUEST, RpcError::tasks_not_declared()));
    }
    Ok(())
}

impl Subscription {
    /// The subscription of the request `id`, which begins with its acknowledgment.
    pub(super) fn new(id: RequestId, place: OwnedSemaphorePermit, keep_alive: Duration, jobs: Jobs) -> Self {
        let mut pieces = Pieces::default();
        sse::push(&mut pieces, acknowledgment(&id));
        let stopping = Box::pin(async move { jobs.stopping().await });
        Self { id, pieces, keep_alive: KeepAlive::new(keep_alive), stopping: Some(stopping), _place: place }
    }

    /// The next bytes; `None` after the last.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop() {
                return Poll::Ready(Some(piece));
            }
            let Some(stopping) = &mut self.stopping else { return Poll::Ready(None) };
            if stopping.as_mut().poll(context).is_pending() {
                return Poll::Ready(Some(ready!(self.keep_alive.poll(context))));
            }
            self.stopping = None;
            sse::push(&mut self.pieces, completion(&self.id));
        }
    }

    /// Whether all bytes were taken.
    pub(super) fn is_over(&self) -> bool {
        self.stopping.is_none() && self.pieces.is_empty()
    }
}

fn subscription_meta(id: &RequestId) -> Rope {
    let mut meta = ObjectWriter::new();
    meta.raw(meta_key::SUBSCRIPTION_ID, id.token());
    meta.finish()
}

/// The first message of a subscription: what of its filter is honoured.
pub(super) fn acknowledgment(id: &RequestId) -> Rope {
    let mut params = ObjectWriter::new();
    params.rope("_meta", subscription_meta(id)).rope("notifications", ObjectWriter::new().finish());
    message::notification("notifications/subscriptions/acknowledged", Some(params.finish()))
}

/// Ends a subscription gracefully.
pub(super) fn completion(id: &RequestId) -> Rope {
    let mut result = ObjectWriter::new();
    result.string("resultType", "complete").rope("_meta", subscription_meta(id));
    message::result(id, result.finish())
}
