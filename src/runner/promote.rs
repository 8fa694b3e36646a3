//! Makes a task of a call: the record first, then the handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attend::Attendance;
use super::board::Board;
use super::desk::Write;
use super::form::{Form, Occasion};
use super::joining::{NotMade, Repeat};
use super::live::Phase;
use super::run::Run;
use super::seat::{Held, Owned, Seat, Standing};
use crate::clock::Timestamp;
use crate::store::Anchored;
use crate::task::{Asked, Charge, Expiry, State, Task, TaskId};

/// What a task is made of, beside the plan.
pub(super) struct Seed {
    pub(super) state: State,
    pub(super) phase: Phase,
    pub(super) asked: Asked,
    pub(super) board: Arc<Board>,
    /// Where the run is, if that is known.
    pub(super) anchored: Option<Anchored>,
    /// What the handle looks like; `None` for as the plan says.
    pub(super) form: Option<Form>,
    /// The ID, where its caller has been told of one already; `None` for a new one.
    pub(super) id: Option<TaskId>,
    /// Why there is a record.
    pub(super) why: Why,
}

/// Why a call becomes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its tool is one of mode `task`, or its caller asked for one.
    Mode,
    /// It has taken longer than `after`, or `hold`.
    Threshold,
    /// The tool asked.
    Question,
    /// It has a key, and no handle is out yet.
    Key,
}

/// How long a held call waits until its promotion is tried again.
const AGAIN: Duration = Duration::from_secs(2);

impl Run {
    /// Makes a task of a call that is held. If the store cannot take it, the call stays held and the
    /// promotion is tried again: an error here would cause the second run that Raincheck exists to prevent. `None` if an
    /// earlier call has its key.
    pub(super) async fn promote(&self, held: Held, seed: Seed) -> Option<Seat> {
        match self.make_task(held, seed).await {
            Ok(task) => Some(Seat::Task(task)),
            Err(NotMade::NotNow(held, error)) => {
                tracing::warn!(tool = self.plan.what.name(), %error, "a slow call could not be made a task; its caller is held");
                Some(Seat::Held(Held { promote_at: Some(Instant::now() + AGAIN), ..held }))
            }
            Err(NotMade::Joined) => None,
        }
    }

    /// Commits the record of a task and gives the handle out; who was held comes back if that fails.
    pub(super) async fn make_task(&self, held: Held, seed: Seed) -> Result<Owned, NotMade> {
        let (form, why) = (seed.form.clone().unwrap_or_else(|| self.plan.way.form.clone()), seed.why);
        tracing::trace!(tool = self.plan.what.name(), "a call is to become a task");
        let (held, recorded, task) = self.commit(held, seed).await?;
        tracing::debug!(task = ?task.id, tool = self.plan.what.name(), ?why, "a call became a task");
        let live = Arc::clone(&recorded.live);
        let write = |form: &Form| self.shared.handle(form, &task, Some(&live), Occasion::Made);
        Ok(recorded.handed_over(held, &form, &write))
    }

    pub(super) fn record(&self, seed: &Seed, now: Timestamp, repeat: Option<Repeat>) -> Task {
        let (state, asked) = (seed.state.clone(), seed.asked.clone());
        let (plan, owner) = (&self.plan, self.shared.store.owner(&self.principal));
        let expiry = match (plan.policy.keep, plan.way.form.ttl()) {
            // What has a key is kept for as long as that counts.
            (keep, Some(ttl)) if repeat.is_none() => Expiry::asked(ttl, keep),
            (None, _) => Expiry::Never,
            (Some(keep), _) => {
                let keep = repeat.map_or(keep, |repeat| repeat.keep(keep));
                let queue = if matches!(state, State::Queued) { plan.policy.queue_timeout } else { Duration::ZERO };
                Expiry::covering(queue, plan.policy.timeout, keep)
            }
        };
        let (server, tool) = (plan.server.as_ref().to_owned(), plan.what.name().to_owned());
        let id = seed.id.unwrap_or_else(|| TaskId::generate(now));
        let queued = Task::queued(id, owner, server, tool, now, expiry);
        let charge = Charge { total: self.spent, ..Charge::new(plan.policy.price, plan.policy.price_per_minute) };
        Task { charge, asked, state, reruns: self.reruns, ..queued }
    }
}

impl Attendance {
    /// Gives the handle of a call out whose record has been there since before it was sent.
    pub(super) async fn hand_out(&mut self, mut held: Held, why: Why) -> Seat {
        let Some(recorded) = held.take_record() else { return Seat::Held(held) };
        let owned = recorded.without_caller();
        if let Some(desk) = &mut self.desk {
            // The record says nothing yet of what the caller was asked.
            desk.writes.extend(desk.board.questions().into_iter().map(Write::Open));
            desk.gather_until = None;
        }
        self.write(&owned).await;
        let (store, id) = (&self.run.shared.store, owned.settler.id());
        let found = store.get(&store.owner(&self.run.principal), &id).await;
        let recorded = owned.into_record();
        let Ok(Some(task)) = found else {
            let (standing, again) = (Standing::Recorded(Box::new(recorded)), Instant::now() + AGAIN);
            return Seat::Held(Held { standing, promote_at: Some(again), ..held });
        };
        tracing::debug!(task = ?id, tool = self.run.plan.what.name(), ?why, "a call became a task");
        let live = Arc::clone(&recorded.live);
        let write = |form: &Form| self.run.shared.handle(form, &task, Some(&live), Occasion::Made);
        Seat::Task(recorded.handed_over(held, &self.way.form, &write))
    }
}

impl Seed {
    /// A task that has asked nothing yet.
    pub(super) fn silent(state: State, phase: Phase, why: Why) -> Self {
        let (asked, board) = (Asked::default(), Arc::default());
        Self { state, phase, asked, board, anchored: None, form: None, id: None, why }
    }
}
