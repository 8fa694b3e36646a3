//! Ends a run before its server has answered, and keeps its slots for as long as that may still be at work.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::attend::Attendance;
use super::given_up::never_read;
use super::live::Live;
use super::remember::end_of_failure;
use super::running::Running;
use super::seat::Seat;
use super::{Kept, Linger};
use crate::history::End;
use crate::protocol::{Failure, Outcome, Reason, StopCause};
use crate::task::Canceller;

/// How long a result may still win after a stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

impl Attendance {
    /// Ends the run because it cannot go on; the server is told to stop.
    pub(super) async fn give_up(&mut self, seat: Seat, failure: Failure) {
        if self.is_unsent() {
            return self.is_not_sent(seat, failure).await;
        }
        if self.is_stopped_unread(StopCause::GivenUp(failure.reason)).await {
            self.remember(End::Failed);
            self.never_ran(&seat).await;
            let outcome = self.run.not_sent(never_read(failure.how()));
            return self.end(seat, outcome).await;
        }
        self.remember(end_of_failure(&failure));
        self.end(seat, Outcome::Failed(failure)).await;
    }

    /// Stops the run. A result that is already on its way may still win.
    pub(super) async fn stop(&mut self, seat: Seat) {
        self.remember(End::Cancelled);
        let asks = self.desk.as_ref().is_some_and(|desk| !desk.board.is_empty());
        self.tell_to_stop(match seat.live().map(Live::canceller) {
            Some(Canceller::Operator) => StopCause::Operator,
            Some(Canceller::Owner) | None => StopCause::Caller,
        });
        if !seat.is_recorded() {
            return;
        }
        seat.call_off();
        if asks {
            // Its questions are refused after this: what the tool makes of that is no result of its work.
            return seat.stopped().await;
        }
        match timeout(STOP_GRACE, self.running.outcome()).await {
            Ok(outcome @ (Outcome::Result(_) | Outcome::Shaped(_))) => seat.end(self.run.plan.fitting(outcome)).await,
            Ok(outcome) if self.is_of_unsent(&outcome) => {
                // Its record is to say so.
                self.never_ran(&seat).await;
                seat.stopped().await;
            }
            Ok(_) | Err(_) => seat.stopped().await,
        }
    }

    /// Tells the server to stop; whether it never got the call. Waits only where that may be: while the request is not read.
    pub(super) async fn is_stopped_unread(&mut self, cause: StopCause) -> bool {
        let is_unwritten = self.running.is_unwritten();
        self.tell_to_stop(cause);
        if !is_unwritten {
            return false;
        }
        match timeout(STOP_GRACE, self.running.outcome()).await {
            Ok(outcome) => self.is_of_unsent(&outcome),
            Err(_) => false,
        }
    }

    /// Whether it may be that the server never got the call: its request is not read yet.
    pub(super) fn may_be_unread(&self) -> bool {
        self.is_first() && self.running.is_unwritten()
    }

    /// Ends a call whose request is not read when the proxy stops. If it can be withdrawn, the call is one that waits: a task
    /// is left to the next process.
    pub(super) async fn leave_unread(&mut self, seat: Seat) {
        if self.is_stopped_unread(StopCause::GivenUp(Reason::Stopping)).await {
            self.waits_again(&seat).await;
            return self.run.leave_waiting(seat).await;
        }
        if self.may_be_left(&seat) {
            return self.leave(seat);
        }
        self.is_lost_at_stop(seat).await;
    }

    /// Ends a call with which nobody can go on when the proxy stops.
    pub(super) async fn is_lost_at_stop(&mut self, seat: Seat) {
        self.remember(End::Failed);
        self.running = Running::over();
        seat.end(Outcome::Failed(Failure::outcome_unknown("Raincheck was stopped during the run"))).await;
    }

    /// Whether an outcome says that the server never had the call.
    pub(super) fn is_of_unsent(&self, outcome: &Outcome) -> bool {
        self.is_first() && matches!(outcome, Outcome::Failed(failure) if failure.reason.is_of_unsent())
    }

    /// A run that was found again, or that is the second one, was taken before.
    fn is_first(&self) -> bool {
        self.run.reruns == 0 && self.anchoring.is_none()
    }

    /// Keeps the slots while the server may still be at work, so that a loop of cancels cannot multiply runs.
    pub(super) async fn linger(&mut self) {
        let until = self.lingering.as_ref().map_or_else(|| self.lingers_until(), |slots| slots.kept().until);
        tokio::select! {
            _ = self.running.outcome() => {}
            () = sleep_until(until) => {
                let tool = self.run.plan.what.name();
                tracing::debug!(tool, "the server has not answered since it was told to stop; the slot is free now");
            }
            () = self.run.shared.draining.cancelled() => {}
        }
        (self.lingering, self.permits) = (None, None);
    }

    /// Tells the server to stop. From now on whoever waits for the slots is told why.
    pub(super) fn tell_to_stop(&mut self, cause: StopCause) {
        self.running.stop(cause);
        if !self.running.is_over() {
            let kept = Kept { until: self.lingers_until(), rule: self.run.plan.linger };
            self.lingering = self.permits.take().map(|permits| permits.linger(kept));
        }
    }

    fn lingers_until(&self) -> Instant {
        let most = match self.run.plan.linger {
            Linger::AtMost(grace) | Linger::Untold(grace) => grace,
            Linger::UntilTimeout => self.clock.left(),
        };
        Instant::now() + most
    }
}
