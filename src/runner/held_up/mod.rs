//! Calls that were let in and whose server does not have them yet: it is being started or connected to, or takes others
//! before.
//!
//! A call with a price or a record is kept back until its server can take it, any other from the moment in which it has to
//! wait. It goes only when this lets it go: its price is paid then, and its record says that it runs. Before that no time of
//! its run goes by, it costs nothing, a task of it is queued, and if it ends it was never sent. Its slot it keeps: a place
//! at the server is kept for it, which only as many calls may have as may run.
//!
//! How it waits and is let go is here; what becomes of its price and its record meanwhile is in a file each.

mod price;
mod record;

use std::time::Duration;

use tokio::time::Instant;

use super::attend::{Attendance, Reach};
use super::clock::RunClock;
use super::given_up::{not_begun_for_operator, stopped_by_operator};
use super::live::Phase;
use super::seat::Seat;
use super::shown::Stage;
use crate::history::End;
use crate::protocol::{Event, Failure, Outcome, Reason, Retry, StopCause, WaitsFor};

impl Attendance {
    /// The same, for a call that has waited since then.
    pub(super) fn waiting_since(mut self: Box<Self>, since: Instant) -> Box<Self> {
        self.until = since + self.run.plan.policy.queue_timeout;
        self
    }

    /// The same, for a call that is kept back until [`Attendance::begins`].
    pub(super) fn kept_back(mut self: Box<Self>) -> Box<Self> {
        self.reach = Reach::Kept;
        self
    }

    /// Whether the server does not have it, and gets it only when it is let go.
    pub(super) fn is_unsent(&self) -> bool {
        match self.reach {
            Reach::Kept | Reach::Waits(_) => true,
            Reach::Sent => false,
        }
    }

    /// Says how far the call is to those who look at it.
    pub(super) fn tell_stage(&self, seat: &Seat, asks: bool) {
        let showing = &self.run.showing;
        match (seat.live(), self.reach) {
            (Some(live), _) => {
                live.timed(self.clock);
                showing.hide();
            }
            (None, _) if asks => {
                let is_parked = self.desk.as_ref().is_some_and(|desk| desk.is_parked);
                self.run.show(if is_parked { Stage::Parked } else { Stage::Asking });
            }
            (None, Reach::Waits(what)) => self.run.show(Stage::Waits(what)),
            (None, Reach::Kept | Reach::Sent) => showing.set(Stage::Running),
        }
    }

    /// An operator has stopped the call.
    pub(super) async fn is_stopped_by_operator(&mut self, seat: Seat) {
        if self.is_unsent() {
            let failure = not_begun_for_operator();
            seat.is_over_for_all(&failure);
            return self.is_not_sent(seat, failure).await;
        }
        self.remember(End::Cancelled);
        if self.is_stopped_unread(StopCause::Operator).await {
            self.never_ran(&seat).await;
            let outcome = self.run.not_sent(not_begun_for_operator());
            return self.end(seat, outcome).await;
        }
        self.end(seat, Outcome::Failed(stopped_by_operator())).await;
    }

    /// The call waits for this; `None` if it has ended.
    pub(super) async fn is_held_up(&mut self, seat: Seat, what: WaitsFor) -> Option<Seat> {
        if !self.running.keep_back() {
            // It has gone to the server meanwhile.
            return Some(seat);
        }
        if let Some(live) = seat.live() {
            live.waits(what);
        }
        let before = std::mem::replace(&mut self.reach, Reach::Waits(what));
        match before {
            Reach::Waits(_) => Some(seat),
            Reach::Kept => {
                let seat = self.run.hands_out_waiting(seat, what).await;
                if seat.is_none() {
                    self.running.stop(StopCause::Caller);
                }
                seat
            }
            Reach::Sent => {
                self.waits_again(&seat).await;
                Some(seat)
            }
        }
    }

    /// The server turns out to have taken nothing of a call that was let go: it has not run, and has cost nothing.
    pub(super) async fn never_ran(&mut self, seat: &Seat) {
        self.is_as_before_its_run();
        self.run.is_recorded_as_waiting(seat, None).await;
    }

    /// The same, of a call that is to be sent later, by another process if there is a handle of it and this one ends.
    pub(super) async fn waits_again(&mut self, seat: &Seat) {
        self.is_as_before_its_run();
        let dispatch = match seat {
            Seat::Task(_) => self.run.parcel.again(),
            Seat::Held(_) | Seat::Parked(_) => None,
        };
        self.run.is_recorded_as_waiting(seat, dispatch).await;
    }

    fn is_as_before_its_run(&mut self) {
        self.clock = RunClock::start(self.run.plan.policy.timeout);
        self.alive = Duration::ZERO;
        self.price_is_given_back();
    }

    /// The call ends so. If that says that the server never took it, it has cost nothing.
    pub(super) async fn ends_with(&mut self, seat: &Seat, outcome: &Outcome) {
        if self.is_of_unsent(outcome) && self.is_charged() && !self.is_unsent() {
            self.never_ran(seat).await;
        }
    }

    /// Whether the call was kept back, and its server can take it now.
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
        is_over && self.is_unsent()
    }

    /// Lets a call go that was kept back, as soon as it is paid and its record says that it runs; `None` if it has ended.
    pub(super) async fn begins(&mut self, seat: Seat) -> Option<Seat> {
        let Some(seat) = self.run.begin_and_pay(seat, self.fare.as_deref_mut()).await else {
            self.running.stop(StopCause::Caller);
            return None;
        };
        self.reach = Reach::Sent;
        self.price_is_spent();
        self.running.let_go();
        Some(seat)
    }

    /// The caller left, and the call goes on; `None` if it has ended.
    pub(super) async fn goes_on_without_caller(&mut self, seat: Seat) -> Option<Seat> {
        let phase = match self.reach {
            Reach::Waits(what) => Phase::Waits(what),
            Reach::Kept | Reach::Sent => Phase::Running { progress: None },
        };
        let seat = self.run.goes_on_without_caller(seat, phase).await;
        if seat.is_none() {
            self.running.stop(StopCause::Caller);
        }
        seat
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
