//! Ends a run before its server has answered, and keeps its slots for as long as that may still be at work.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::attend::Attendance;
use super::live::Live;
use super::remember::end_of_failure;
use super::seat::Seat;
use super::{Kept, Linger};
use crate::history::End;
use crate::protocol::{Failure, Outcome, StopCause};
use crate::task::Canceller;

/// How long a result may still win after a stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

impl Attendance {
    /// Ends the run because it cannot go on; the server is told to stop.
    pub(super) async fn give_up(&mut self, seat: Seat, failure: Failure) {
        if self.is_unsent() {
            return self.is_not_sent(seat, failure).await;
        }
        self.remember(end_of_failure(&failure));
        self.tell_to_stop(StopCause::GivenUp(failure.reason));
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
            Ok(_) | Err(_) => seat.stopped().await,
        }
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
