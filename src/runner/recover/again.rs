//! A run that was lost, and may be run again.

use std::time::Duration;

use tokio::time::sleep;

use super::super::run::{Ready, Run};
use super::super::seat::{Owned, Seat, Standing};
use super::super::stopping;
use crate::config::OnLost;
use crate::protocol::{Failure, Outcome, Reason};
use crate::task::{Charge, MOST_RERUNS};

/// A run that was lost, with all that it had.
pub(in crate::runner) struct Lost {
    pub(in crate::runner) run: Run,
    pub(in crate::runner) ready: Ready,
    /// How long it ran.
    pub(in crate::runner) ran: Duration,
}

/// The waits before the store is asked again.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(5);

impl Run {
    /// Whether the policy has the call sent again if its run is lost.
    pub(in crate::runner) fn may_run_again(&self) -> bool {
        self.plan.policy.on_lost == OnLost::Rerun && self.reruns < MOST_RERUNS
    }

    /// What is said of a call that was not sent: of a second run, that nobody knows what became of the first.
    pub(in crate::runner) fn not_sent(&self, failure: Failure) -> Outcome {
        if self.reruns == 0 {
            return Outcome::Failed(failure);
        }
        not_begun_again(cause(&failure.message))
    }

    /// An outcome as the caller is to hear of it: that a second run was never sent says nothing of the first.
    pub(in crate::runner) fn told_of(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Failed(failure) if self.reruns > 0 && failure.retry.retryable() == Some(true) => {
                self.not_sent(failure)
            }
            outcome => outcome,
        }
    }

    /// Leaves a task that waits to the next process, if that can send its call; else it ends. What the store has counts: what
    /// this process has may not have been written.
    pub(in crate::runner) async fn leave_waiting(&self, seat: Seat) {
        match seat {
            Seat::Task(owned) if self.shared.store.has_dispatch(&owned.settler.id()) => owned.settler.hand_over(),
            seat => seat.end(self.not_sent(stopping())).await,
        }
    }

    /// Records that a lost run is to begin again.
    async fn recorded_again(&mut self, owned: Owned, ran: Duration) -> Option<Owned> {
        let Seat::Task(owned) = self.record_rerun(owned, ran).await? else { return None };
        self.reruns += 1;
        Some(owned)
    }

    /// Records that a lost run begins again, however long the store takes. `None` if it does not.
    pub(in crate::runner) async fn record_rerun(&self, owned: Owned, ran: Duration) -> Option<Seat> {
        let id = owned.settler.id();
        let (mut seat, mut wait) = (Seat::Task(owned), FIRST_WAIT);
        loop {
            match self.shared.store.rerun(&id, ran).await {
                Ok(_) => return Some(seat),
                Err(error) if error.is_final() => {
                    tracing::debug!(task = ?id, %error, "a lost run is not begun again");
                    seat.end(Outcome::Failed(Failure::outcome_unknown("the run was lost"))).await;
                    return None;
                }
                Err(error) => tracing::warn!(task = ?id, %error, "a lost run waits for the store"),
            }
            tokio::select! {
                () = sleep(wait) => wait = (wait * 2).min(LAST_WAIT),
                _ = seat.wish(&self.shared.jobs) => {
                    seat.stopped().await;
                    return None;
                }
                () = self.shared.jobs.stopping() => {
                    // The record says what it said before: the next process finds a lost run.
                    if let Seat::Task(owned) = seat {
                        owned.settler.hand_over();
                    }
                    return None;
                }
            }
        }
    }
}

impl Lost {
    /// Makes all ready for the second run, on the slots of the first. `None` if there will be none.
    pub(in crate::runner) async fn begin_again(self) -> Option<(Run, Ready)> {
        let Self { mut run, ready: Ready { seat, permits, fare, asked }, ran } = self;
        let tool = run.plan.what.name();
        tracing::warn!(tool, "a run was lost and is begun again, as the policy says (on_lost)");
        let seat = match seat {
            Seat::Task(owned) => Seat::Task(run.recorded_again(owned, ran).await?),
            Seat::Held(mut held) => {
                if let Some(recorded) = held.take_record() {
                    let owned = run.recorded_again(recorded.without_caller(), ran).await?;
                    held.standing = Standing::Recorded(Box::new(owned.into_record()));
                } else {
                    run.reruns += 1;
                    run.spent = Charge::new(run.plan.policy.price, run.plan.policy.price_per_minute).with_run(ran);
                }
                Seat::Held(held)
            }
            seat @ Seat::Parked(_) => seat,
        };
        Some((run, Ready { seat, permits, fare, asked }))
    }
}

/// Nobody knows what became of a run, and there is no second one.
pub(super) fn not_begun_again(why: &str) -> Outcome {
    Outcome::Failed(Failure::outcome_unknown(&format!("a run was lost, and it was not begun again: {why}")))
}

/// Why a call was not sent, without what that says of trying again: the first run may have done the work.
fn cause(message: &str) -> &str {
    const ADVICE: [&str; 2] = ["; nothing was ", "; the call was not sent"];
    let end = ADVICE.iter().filter_map(|advice| message.rfind(advice)).min();
    end.and_then(|end| message.get(..end)).unwrap_or(message)
}

/// Whether an outcome says that nobody knows what became of the run.
pub(in crate::runner) fn is_lost(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(failure) if failure.reason == Reason::OutcomeUnknown)
}
