//! The duty to end a task. Whoever holds it must settle; whoever drops it has settled as outcome unknown.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::joining::Reservation;
use super::live::LiveRuns;
use super::wishes::forget;
use crate::jobs::Jobs;
use crate::protocol::Failure;
use crate::store::{ChangeError, End, Ending, Keep, Store};
use crate::task::{Cause, KeySource, State, Task, TaskId};

/// The duty to end one task.
#[derive(Debug)]
pub(super) struct Settler {
    /// What is still owed; nothing once the task is settled.
    owed: Option<Owed>,
    id: TaskId,
}

#[derive(Debug)]
struct Owed {
    id: TaskId,
    store: Store,
    live: LiveRuns,
    jobs: Jobs,
    /// Whether its own caller knows nothing of the task.
    untold: bool,
    /// The key of the call, free again when the outcome is in the store.
    reservation: Option<Box<Reservation>>,
}

/// The first wait before an outcome is offered to the store again; it doubles up to the last.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LAST_WAIT: Duration = Duration::from_secs(5);

impl Settler {
    /// The duty to end the task `id`.
    pub(super) fn new(id: TaskId, store: Store, live: LiveRuns, jobs: Jobs) -> Self {
        Self { owed: Some(Owed { id, store, live, jobs, untold: false, reservation: None }), id }
    }

    /// The same, for a call with a key, whose caller may be held to its end.
    pub(super) fn holding(mut self, reservation: Option<Box<Reservation>>) -> Self {
        if let Some(owed) = &mut self.owed {
            owed.untold = reservation.is_some();
            owed.reservation = reservation;
        }
        self
    }

    /// Its caller gets the handle.
    pub(super) fn told(&mut self) {
        if let Some(owed) = &mut self.owed {
            owed.untold = false;
        }
    }

    /// Whether the run goes on when its caller is gone, who will come back with the key of the call.
    pub(super) fn outlives_caller(&self) -> bool {
        let reservation = self.owed.as_ref().and_then(|owed| owed.reservation.as_ref());
        reservation.is_some_and(|reservation| reservation.repeat().outlives_caller())
    }

    /// Where the key of the call comes from, while that is taken.
    pub(super) fn key(&self) -> Option<KeySource> {
        let reservation = self.owed.as_ref().and_then(|owed| owed.reservation.as_ref());
        reservation.map(|reservation| reservation.repeat().key.source())
    }

    /// The task.
    pub(super) fn id(&self) -> TaskId {
        self.id
    }

    /// Leaves the task as it is to the next process.
    pub(super) fn hand_over(mut self) {
        if let Some(owed) = self.owed.take() {
            tracing::info!(task = ?self.id, "a task is left to the next process");
            owed.live.remove(&self.id);
        }
    }

    /// Ends the task. Waits for as long as the store cannot take the outcome: what a tool has done
    /// must not be lost to a full disk.
    pub(super) async fn settle(self, ending: Ending) {
        self.settled(ending).await;
    }

    /// The same; how it has ended, unless it had before or that cannot be kept.
    pub(super) async fn settled(mut self, ending: Ending) -> Option<State> {
        let ended = match &self.owed {
            Some(owed) => owed.settle(ending).await,
            None => None,
        };
        self.owed = None;
        ended
    }
}

impl Owed {
    async fn settle(&self, ending: Ending) -> Option<State> {
        tracing::trace!(task = ?self.id, "a task is to end");
        // However long the store takes then.
        let ran = self.live.get(&self.id).and_then(|live| live.clock()).map(|clock| clock.ran());
        let (mut wait, mut waits_since) = (FIRST_WAIT, None);
        let ended = loop {
            let end = End { ending: ending.clone(), ran, keep: self.keep() };
            match self.store.settle(&self.id, end).await {
                Ok(task) => {
                    report(&task);
                    break Some(task.state.clone());
                }
                Err(ChangeError::Refused(..)) => {
                    tracing::debug!(task = ?self.id, "the task had ended before its outcome came");
                    break None;
                }
                Err(error) if error.is_final() => {
                    tracing::error!(task = ?self.id, %error, "the outcome of a task is lost");
                    break None;
                }
                Err(error) => {
                    if waits_since.is_none() {
                        waits_since = Some(Instant::now());
                        tracing::warn!(task = ?self.id, %error, "an outcome waits for the store");
                    } else {
                        tracing::debug!(task = ?self.id, %error, "an outcome still waits for the store");
                    }
                    sleep(wait).await;
                    wait = (wait * 2).min(LAST_WAIT);
                }
            }
        };
        if let Some(since) = waits_since {
            let waited = since.elapsed();
            tracing::info!(task = ?self.id, ?waited, "an outcome that waited for the store waits no longer");
        }
        tracing::trace!(task = ?self.id, "a task is settled");
        let is_wish_kept = self.live.get(&self.id).is_some_and(|live| live.is_wish_kept());
        // Only now: until then readers find the run and do not take the task for lost.
        self.live.remove(&self.id);
        if is_wish_kept {
            // After the removal, by which a cancel knows whether this may have missed it.
            forget(&self.store, self.id).await;
        }
        ended
    }
}

impl Owed {
    fn keep(&self) -> Keep {
        let has_handle = || self.live.get(&self.id).is_some_and(|live| live.party().has_handle());
        if self.untold && !has_handle() { Keep::FromItsEnd } else { Keep::AsAnnounced }
    }
}

/// Says how a task ended, for whoever watches the proxy.
fn report(task: &Task) {
    let since_handle = task.updated.since(task.created);
    let (id, tool, status) = (task.id, &task.tool, task.state.status());
    match &task.state {
        State::Failed { cause: Cause::Ours(failure) } => {
            tracing::warn!(task = ?id, tool, status, reason = %failure.reason, ?since_handle, "a task ended: {}", failure.message);
        }
        State::Failed { cause: Cause::Server { code, .. } } => {
            tracing::info!(task = ?id, tool, status, code, ?since_handle, "a task ended");
        }
        State::Queued
        | State::Running { .. }
        | State::InputRequired { .. }
        | State::Completed { .. }
        | State::Cancelled { .. } => {
            tracing::info!(task = ?id, tool, status, ?since_handle, "a task ended");
        }
    }
}

/// The run panicked or was aborted: nobody knows what the tool did.
impl Drop for Settler {
    fn drop(&mut self) {
        if let Some(owed) = self.owed.take() {
            let jobs = owed.jobs.clone();
            jobs.spawn("settle a lost run", async move {
                owed.settle(Ending::Failed(Failure::outcome_unknown("the run was lost inside Raincheck"))).await;
            });
        }
    }
}
