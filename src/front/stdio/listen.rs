//! `subscriptions/listen` on the shared channel (2026-07-28, subscriptions).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::in_flight::Ticket;
use super::outbox::Outbox;
use crate::front::asked::Request;
use crate::front::listen;
use crate::front::refusal::Refusal;
use crate::jobs::Jobs;
use crate::protocol::{Caller, RequestId};

/// A place for the subscription that `request` asks for, if it may be had.
pub(super) fn check(
    request: &Request,
    caller: &Caller,
    streams: &Arc<Semaphore>,
) -> Result<OwnedSemaphorePermit, Refusal> {
    listen::check(&request.params, caller.tasks)?;
    Arc::clone(streams)
        .try_acquire_owned()
        .map_err(|_| Refusal::busy("too many open subscriptions at once (limits.streams); try again later".to_owned()))
}

/// Keeps a subscription until it is cancelled, or `jobs` stop: then it ends with its answer.
pub(super) async fn run(ticket: Ticket, place: OwnedSemaphorePermit, id: RequestId, outbox: Outbox, jobs: Jobs) {
    outbox.send(listen::acknowledgment(&id)).await;
    tokio::select! {
        biased;
        () = ticket.cancelled() => {}
        () = jobs.stopping() => outbox.send(listen::completion(&id)).await,
    }
    drop(place);
}
