//! Makes a task of a call: the record first, then the handle.

use std::time::Duration;

use tokio::time::Instant;

use super::live::Phase;
use super::run::Run;
use super::seat::{HandleDelivery, Held, Owned, Seat};
use super::settler::Settler;
use super::view;
use crate::clock::Timestamp;
use crate::protocol::reply::Delivery;
use crate::protocol::{Handle, Outcome, ReplySender};
use crate::store::CommitError;
use crate::task::{Expiry, State, Task, TaskId};

/// How long a held call waits until its promotion is tried again.
const AGAIN: Duration = Duration::from_secs(2);

impl Run {
    /// Makes a task of a call that is held. If the store cannot take it, the call stays held and the
    /// promotion is tried again: an error here would cause the second run that Raincheck exists to prevent.
    pub(super) async fn promote(&self, held: Held, state: State, phase: Phase) -> Seat {
        match self.make_task(held.sender, state, phase).await {
            Ok(task) => Seat::Task(task),
            Err((sender, error)) => {
                tracing::warn!(tool = self.plan.tool, %error, "a slow call could not be made a task; its caller is held");
                Seat::Held(Held { sender, promote_at: Some(Instant::now() + AGAIN) })
            }
        }
    }

    /// Commits the record of a task and gives the handle out; the sender comes back if that fails.
    pub(super) async fn make_task(
        &self,
        sender: ReplySender,
        state: State,
        phase: Phase,
    ) -> Result<Owned, (ReplySender, CommitError)> {
        let shared = &self.shared;
        let task = self.record(state, shared.store.clock().now());
        let id = task.id;
        let live = shared.live.add(id, phase);
        let committed = match shared.store.create(task).await {
            Ok(committed) => committed,
            Err(error) => {
                shared.live.remove(&id);
                return Err((sender, error));
            }
        };
        tracing::debug!(task = ?id, tool = self.plan.tool, "a call became a task");
        let settler = Settler::new(id, shared.store.clone(), shared.live.clone(), shared.jobs.clone());
        let (delivery, delivered) = Delivery::new();
        let created = view::created(&committed, &live.phase(), shared.store.clock().now());
        sender.done(Outcome::Task(Handle { created, delivery }));
        Ok(Owned { settler, live, delivery: HandleDelivery::Under(delivered) })
    }

    fn record(&self, state: State, now: Timestamp) -> Task {
        let (plan, owner) = (&self.plan, self.shared.store.owner(&self.principal));
        let expiry = match plan.keep {
            None => Expiry::Never,
            Some(keep) => {
                let queue = if matches!(state, State::Queued) { plan.queue_timeout } else { Duration::ZERO };
                Expiry::covering(queue, plan.timeout, keep)
            }
        };
        let (server, tool) = (plan.server.as_ref().to_owned(), plan.tool.clone());
        let queued = Task::queued(TaskId::generate(now), owner, server, tool, now, expiry);
        Task { state, ..queued }
    }
}
