//! One call of a modern client, from its request to its answer.

use std::future::Future;

use tokio_util::task::task_tracker::TaskTrackerToken;

use super::in_flight::Ticket;
use super::outbox::Outbox;
use crate::front::asked::Request;
use crate::front::exchange;
use crate::front::running::{self, Step, Wanted, Written};
use crate::protocol::{Call, Json, McpService, Method, Reply, RequestId};
use crate::share::Place;

/// A call that runs.
pub(super) struct Answering {
    id: RequestId,
    method: Method,
    running: running::Running,
    ticket: Ticket,
}

/// Gives the call to the service. `on_its_way` is dropped when the service has taken it.
pub(super) async fn ask<S: McpService>(service: S, call: Call, on_its_way: TaskTrackerToken) -> Reply {
    let reply = exchange::ask(service, call).await;
    drop(on_its_way);
    reply
}

impl Answering {
    /// The call that `reply` will answer.
    pub(super) fn new(
        server: &str,
        request: Request,
        progress: Option<Json>,
        reply: impl Future<Output = Reply> + Send + 'static,
        place: Option<Place>,
        ticket: Ticket,
    ) -> Self {
        let Request { id, method, params, log_level } = request;
        let span = running::span(server, &method, params.name());
        let wanted = Wanted { progress, log: log_level };
        let running = running::Running::new(reply, &method, wanted, place, span);
        Self { id, method, running, ticket }
    }

    /// Sends what belongs to the call, then its answer. Once it is cancelled, nothing more is sent for it
    /// (2026-07-28, stdio, cancellation).
    pub(super) async fn run(self, outbox: Outbox) {
        let Self { id, method, mut running, ticket } = self;
        let answered = async {
            loop {
                match running.step().await {
                    Step::Notification(notification) => outbox.offer(notification),
                    Step::Done(outcome) => break Written::new(&id, &method, outcome),
                }
            }
        };
        let cancelled = ticket.cancellation();
        let answer = tokio::select! {
            biased;
            () = cancelled.cancelled() => None,
            ready = async { (answered.await, outbox.place().await) } => Some(ready),
        };
        let Some((written, place)) = answer else {
            // A call with a key would outlive a caller who just left.
            return running.cancel();
        };
        // From the answer on its id may be used again.
        drop(ticket);
        if let Some(place) = place {
            place.send(outbox.fitting(&id, written.text), written.handle);
        }
    }
}
