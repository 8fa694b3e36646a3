//! Calls that were let in and wait for their server: it is being started or connected to, or takes others before.
//!
//! Nothing of such a call is at the server, and it goes there only when this lets it go. So no time of its run goes by, it
//! costs nothing, it gives its slot back until its server has time, its record says that it is queued, and if it ends it was
//! never sent.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::admission::Entry;
use super::attend::Attendance;
use super::given_up::{not_begun_for_operator, stopped_by_operator};
use super::run::{Permits, Run};
use super::seat::{Held, Seat, Standing};
use super::shown::Stage;
use crate::history::End;
use crate::protocol::{Event, Failure, Outcome, Reason, Retry, StopCause, WaitsFor};

/// How long the record waits for the store before the call is attended again.
const PATIENCE: Duration = Duration::from_secs(1);

impl Attendance {
    /// The same, for a call that has waited since then.
    pub(super) fn waiting_since(mut self: Box<Self>, since: Instant) -> Box<Self> {
        self.until = since + self.run.plan.policy.queue_timeout;
        self
    }

    /// Says how far the call is to those who look at it.
    pub(super) fn tell_stage(&self, seat: &Seat, asks: bool) {
        let showing = &self.run.showing;
        match (seat.live(), self.waits) {
            (Some(live), _) => {
                live.timed(self.clock);
                showing.hide();
            }
            (None, _) if asks => {
                let is_parked = self.desk.as_ref().is_some_and(|desk| desk.is_parked);
                self.run.show(if is_parked { Stage::Parked } else { Stage::Asking });
            }
            (None, Some(what)) => self.run.show(Stage::Waits(what)),
            (None, None) => showing.set(Stage::Running),
        }
    }

    /// An operator has stopped the call.
    pub(super) async fn is_stopped_by_operator(&mut self, seat: Seat) {
        if self.waits.is_some() {
            return self.is_not_sent(seat, not_begun_for_operator()).await;
        }
        self.remember(End::Cancelled);
        self.tell_to_stop(StopCause::Operator);
        self.end(seat, Outcome::Failed(stopped_by_operator())).await;
    }

    /// The call waits for this; `None` if no more may wait.
    pub(super) async fn is_held_up(&mut self, seat: Seat, what: WaitsFor) -> Option<Seat> {
        if !self.running.keep_back() {
            // It has gone to the server meanwhile.
            return Some(seat);
        }
        let before = self.waits.replace(what);
        if let Some(live) = seat.live() {
            live.waits(what);
        }
        // What a lost run has cost is not given back.
        if let Some(fare) = self.fare.as_mut().filter(|_| before.is_none() && self.run.reruns == 0) {
            fare.held_up();
        }
        if let Some(permits) = &mut self.permits {
            let Run { shared, principal, plan, .. } = &self.run;
            if let Err(refused) = shared.admission.set_aside(principal, plan, permits, what) {
                self.is_not_sent(seat, refused).await;
                return None;
            }
        }
        if before.is_some() {
            return Some(seat);
        }
        if let Some(id) = seat.record() {
            // If it is not written, the next process takes the run for a lost one: that is safe.
            match timeout(PATIENCE, self.run.shared.store.wait(&id)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(task = ?id, %error, "that a call waits for its server is not recorded");
                }
                Err(_) => tracing::debug!(task = ?id, "that a call waits for its server is not recorded in time"),
            }
        }
        Some(seat)
    }

    /// Whether the call waited, and does not any more.
    pub(super) fn is_past_wait(&self, event: &Event) -> bool {
        let is_over = match event {
            Event::Waits(_)
            | Event::Log(_)
            | Event::Notification(_)
            | Event::Attached(_)
            | Event::Done(Outcome::Failed(_)) => false,
            Event::Began
            | Event::Progress(_)
            | Event::Ask(_)
            | Event::Paused
            | Event::Anchored(_)
            | Event::Done(Outcome::Result(_) | Outcome::Shaped(_) | Outcome::Error(_) | Outcome::Task(_)) => true,
        };
        is_over && self.waits.is_some()
    }

    /// Lets a call go that waited, as soon as it has a slot again and its record says that it runs; `None` if it has ended.
    pub(super) async fn begins(&mut self, seat: Seat) -> Option<Seat> {
        self.waits = None;
        let seat = match self.permits.take() {
            Some(permits) => match self.run.wait_again(seat, permits.come_back(), self.until).await {
                Some((seat, permits)) => {
                    self.permits = Some(permits);
                    Some(seat)
                }
                None => None,
            },
            None => Some(seat),
        };
        let begun = match seat {
            Some(seat) => self.run.start_again(seat).await,
            None => None,
        };
        let Some(seat) = begun else {
            self.running.stop(StopCause::Caller);
            return None;
        };
        if let Some(fare) = &mut self.fare {
            fare.begun();
        }
        self.running.let_go();
        Some(seat)
    }

    /// Leaves a call that waits to the next process, if that can send it; else it ends.
    pub(super) async fn leave_unsent(&mut self, seat: Seat) {
        self.running.stop(StopCause::GivenUp(Reason::Stopping));
        self.run.leave_waiting(seat).await;
    }

    /// Ends a call that waits: it is not sent any more.
    pub(super) async fn is_not_sent(&mut self, seat: Seat, failure: Failure) {
        self.running.stop(StopCause::GivenUp(failure.reason));
        let outcome = self.run.not_sent(failure);
        self.end(seat, outcome).await;
    }
}

impl Run {
    /// Waits for the slots of a call whose server would take it now.
    async fn wait_again(&self, seat: Seat, entry: Entry, until: Instant) -> Option<(Seat, Permits)> {
        if let (Entry::Wait(ticket), Some(live)) = (&entry, seat.live()) {
            live.queued(ticket.watcher());
        }
        self.wait(seat, entry, until).await
    }

    /// Makes sure that the record, if there is one, says that the call runs.
    async fn start_again(&self, seat: Seat) -> Option<Seat> {
        match seat {
            Seat::Task(owned) => self.start(owned).await,
            Seat::Held(mut held) => {
                let Some(recorded) = held.take_record() else { return Some(Seat::Held(held)) };
                match self.start(recorded.without_caller()).await {
                    Some(Seat::Task(owned)) => {
                        let standing = Standing::Recorded(Box::new(owned.into_record()));
                        Some(Seat::Held(Held { standing, ..held }))
                    }
                    Some(Seat::Held(_) | Seat::Parked(_)) | None => {
                        held.done(self.not_sent(not_recorded()));
                        None
                    }
                }
            }
            seat @ Seat::Parked(_) => Some(seat),
        }
    }
}

/// The turn of a call has not come in time.
pub(super) fn no_turn(limit: Duration) -> Failure {
    let limit = humantime::format_duration(limit);
    Failure::new(
        Reason::QueueTimeout,
        format!(
            "the server takes one call at a time (serial), and the turn of this one did not come within {limit} \
             (queue_timeout); the call was not sent, call the tool again later"
        ),
        Retry::SOON,
    )
}

fn not_recorded() -> Failure {
    Failure::new(Reason::NotStarted, "the call could not be recorded in time, and was not sent", Retry::SOON)
}
