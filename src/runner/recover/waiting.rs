//! Tasks of an earlier process whose call is to be sent.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::admission::{Admitted, Entry, Fare};
use super::super::run::{Ready, Run};
use super::super::seat::{Owned, Seat};
use super::again::not_begun_again;
use super::{Parcel, call, not_started};
use crate::protocol::{Call, McpService, Method, Retry};
use crate::store::Committed;
use crate::task::{Asked, Task, TaskId};

/// The waits before a task that a limit refuses is let in again.
const LEAST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Run {
    /// Sends the call of a task that waited, as soon as there is a slot.
    pub(super) async fn send_left<S: McpService>(self, inner: S, owned: Owned, task: Committed<Task>) {
        // What it waited before counts.
        let waited = self.shared.store.clock().now().since(task.created);
        let now = Instant::now();
        self.run_left(inner, owned, task.asked.clone(), now.checked_sub(waited).unwrap_or(now)).await;
    }

    /// Sends the call of a lost run again. That this is the second time is durable before it is sent.
    pub(super) async fn send_again<S: McpService>(mut self, inner: S, owned: Owned, task: Committed<Task>) {
        let tool = self.plan.what.name();
        tracing::warn!(tool, "a run was lost and is begun again, as the policy says (on_lost)");
        let ran = self.shared.admission.ran_as_written(&self.principal, &task);
        if let Some(Seat::Task(owned)) = self.record_rerun(owned, ran).await {
            self.reruns += 1;
            self.run_left(inner, owned, task.asked.clone(), Instant::now()).await;
        }
    }

    /// Runs a task that is Queued, and came at `arrived`.
    async fn run_left<S: McpService>(mut self, inner: S, owned: Owned, asked: Asked, arrived: Instant) {
        let id = owned.settler.id();
        let until = arrived + self.plan.policy.queue_timeout;
        let Some((seat, entry, fare)) = self.let_in(Seat::Task(owned), until).await else { return };
        let Some((seat, permits)) = self.wait(seat, entry, until).await else { return };
        // Only now: a line of large calls is not to fill the memory.
        let Some(mut call) = self.kept_call(id).await else {
            let why = "its parameters cannot be read";
            let outcome = if self.reruns == 0 { self.not_sent(not_started(why)) } else { not_begun_again(why) };
            return seat.end(outcome).await;
        };
        call.arrived = arrived;
        self.send(inner, call, Ready { seat, permits: Some(permits), fare, asked }).await;
    }

    /// Lets a task in that was let in before: what refuses it now is waited for.
    async fn let_in(&self, mut seat: Seat, until: Instant) -> Option<(Seat, Entry, Option<Box<Fare>>)> {
        loop {
            let admission = &self.shared.admission;
            let admitted = match self.reruns {
                0 => admission.admit_left(&self.principal, &self.plan),
                _ => admission.admit_again(&self.principal, &self.plan),
            };
            let failure = match admitted {
                Ok(Admitted { entry, fare }) => return Some((seat, entry, fare)),
                Err(failure) => failure,
            };
            let again = match failure.retry {
                Retry::After(wait) => Instant::now() + wait.clamp(LEAST_WAIT, LONGEST_WAIT),
                Retry::Yes => Instant::now() + LEAST_WAIT,
                // It is never let in.
                Retry::No | Retry::Unknown => until,
            };
            if again >= until {
                seat.end(self.not_sent(failure)).await;
                return None;
            }
            tokio::select! {
                biased;
                () = self.shared.draining.cancelled() => {
                    self.leave_waiting(seat).await;
                    return None;
                }
                _ = seat.wish(&self.shared.jobs) => {
                    seat.stopped().await;
                    return None;
                }
                () = sleep_until(again) => {}
            }
        }
    }

    /// The call of a task, as it is in the store. Its client can be asked what it could be asked then.
    pub(super) async fn kept_call(&mut self, id: TaskId) -> Option<Call> {
        let dispatch = match self.shared.store.dispatch(&id).await {
            Ok(dispatch) => dispatch?,
            Err(error) => {
                tracing::error!(task = ?id, %error, "the call of a task cannot be read");
                return None;
            }
        };
        self.plan.way.abilities = dispatch.abilities.clone();
        let call = call(Method::CallTool, dispatch.params.clone(), dispatch.abilities.clone(), self);
        // It goes out of the store when the call is sent.
        self.parcel = Parcel::Here(Box::new(dispatch));
        call
    }
}
