//! Makes a task of a call: the record first, then the handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Runner;
use super::board::Board;
use super::form::{Form, Handed, Occasion};
use super::live::Phase;
use super::run::Run;
use super::seat::{Held, Owned, Seat};
use super::settler::Settler;
use crate::clock::Timestamp;
use crate::store::CommitError;
use crate::task::{Asked, Charge, Expiry, State, Task, TaskId};

/// What a task is made of, beside the plan.
pub(super) struct Seed {
    pub(super) state: State,
    pub(super) phase: Phase,
    pub(super) asked: Asked,
    pub(super) board: Arc<Board>,
    /// What the handle looks like; `None` for as the plan says.
    pub(super) form: Option<Form>,
}

/// How long a held call waits until its promotion is tried again.
const AGAIN: Duration = Duration::from_secs(2);

impl Run {
    /// Makes a task of a call that is held. If the store cannot take it, the call stays held and the
    /// promotion is tried again: an error here would cause the second run that Raincheck exists to prevent.
    pub(super) async fn promote(&self, held: Held, seed: Seed) -> Seat {
        match self.make_task(held, seed).await {
            Ok(task) => Seat::Task(task),
            Err((held, error)) => {
                tracing::warn!(tool = self.plan.what.name(), %error, "a slow call could not be made a task; its caller is held");
                Seat::Held(Held { promote_at: Some(Instant::now() + AGAIN), ..held })
            }
        }
    }

    /// Commits the record of a task and gives the handle out; who was held comes back if that fails.
    pub(super) async fn make_task(&self, held: Held, seed: Seed) -> Result<Owned, (Held, CommitError)> {
        let shared = &self.shared;
        let task = self.record(seed.state, seed.asked, shared.store.clock().now());
        let id = task.id;
        // Before the record can be seen, so that an answer finds its question.
        let live = shared.live.add(id, seed.phase, seed.board);
        let committed = match shared.store.create(task).await {
            Ok(committed) => committed,
            Err(error) => {
                shared.live.remove(&id);
                return Err((held, error));
            }
        };
        tracing::debug!(task = ?id, tool = self.plan.what.name(), "a call became a task");
        let settler = Settler::new(id, shared.store.clone(), shared.live.clone(), shared.jobs.clone());
        let form = seed.form.as_ref().unwrap_or(&self.plan.way.form);
        let created = form.write(&Handed {
            task: &committed,
            phase: &live.phase(),
            occasion: Occasion::Made,
            usual: Runner(Arc::clone(shared)).usual(&committed),
            now: shared.store.clock().now(),
        });
        let delivery = held.hand_over(&created);
        Ok(Owned { settler, live, delivery })
    }

    fn record(&self, state: State, asked: Asked, now: Timestamp) -> Task {
        let (plan, owner) = (&self.plan, self.shared.store.owner(&self.principal));
        let expiry = match plan.policy.keep {
            None => Expiry::Never,
            Some(keep) => {
                let queue = if matches!(state, State::Queued) { plan.policy.queue_timeout } else { Duration::ZERO };
                Expiry::covering(queue, plan.policy.timeout, keep)
            }
        };
        let (server, tool) = (plan.server.as_ref().to_owned(), plan.what.name().to_owned());
        let queued = Task::queued(TaskId::generate(now), owner, server, tool, now, expiry);
        let charge = Charge::new(plan.policy.price, plan.policy.price_per_minute);
        Task { charge, asked, state, ..queued }
    }
}

impl Seed {
    /// A task that has asked nothing yet.
    pub(super) fn silent(state: State, phase: Phase) -> Self {
        Self { state, phase, asked: Asked::default(), board: Arc::default(), form: None }
    }
}
