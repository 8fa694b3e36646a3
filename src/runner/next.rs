//! What happens next to a call on its way: what the server says, what those want who wait, and what is due.

use tokio::time::Instant;

use super::Questions;
use super::attend::{Attendance, Reach};
use super::desk::DeskEvent;
use super::seat::{Seat, Wish};
use super::shown::SHOW_AFTER;
use crate::protocol::{Event, WaitsFor};

/// What happens next.
pub(super) enum Next {
    Event(Event),
    Wish(Wish),
    /// An operator stops a held call.
    Operator,
    Desk(DeskEvent),
    /// The run has come to a moment that was waited for.
    Due(Due),
    /// The store knows where the run is.
    Anchored,
    /// A server has taken the credentials of the caller.
    Known,
    /// Nothing more is started, and nobody will answer.
    Draining,
    /// The jobs are to end.
    Stopping,
}

/// What is to be done at a moment of the run.
#[derive(Clone, Copy)]
pub(super) enum Due {
    /// It has taken too long.
    Timeout,
    /// The tool gave no sign of life for too long.
    Idle,
    /// Its cost is to be counted.
    Count,
    /// Its turn at the server has not come in time.
    NoTurn,
    /// Operators are to see the call, which is held.
    Show,
}

impl Attendance {
    /// What happens next. Cancel safe.
    pub(super) async fn next(&mut self, seat: &mut Seat, waiting: bool) -> Next {
        let shared = &self.run.shared;
        // A legacy client who is held can still answer.
        let is_asked_itself = matches!((&*seat, self.way.questions), (Seat::Held(_), Questions::PassOn));
        let (due, is_unsent) = (self.due(seat), self.is_unsent());
        let has_ended = matches!(seat, Seat::Parked(parked) if parked.ended.is_some());
        let desk = async {
            match &mut self.desk {
                Some(desk) => desk.next().await,
                None => std::future::pending().await,
            }
        };
        let record = seat.record();
        let anchoring = async {
            match (&mut self.anchoring, record) {
                (Some(anchoring), Some(id)) => anchoring.write(&shared.store, id).await,
                _ => std::future::pending().await,
            }
        };
        // Who is held has nobody else who could send the call: it has the time that a stop leaves.
        let may_leave = (waiting && !is_asked_itself) || (is_unsent && seat.is_recorded());
        let due = async {
            match due {
                Some((at, due)) => {
                    shared.jobs.alarm(at).await;
                    due
                }
                None => std::future::pending().await,
            }
        };
        let newcomer = self.permits.as_ref().filter(|permits| permits.of_newcomers()).map(|_| &self.run.principal);
        let known = async {
            match newcomer {
                // Boxed, as all that is rare.
                Some(newcomer) => Box::pin(newcomer.proved()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.running.next(), if !has_ended => Next::Event(event),
            wish = seat.wish(&shared.jobs) => Next::Wish(wish),
            () = self.run.showing.cancelled() => Next::Operator,
            event = desk => Next::Desk(event),
            due = due => Next::Due(due),
            () = anchoring => Next::Anchored,
            () = known => Next::Known,
            () = shared.draining.cancelled(), if may_leave => Next::Draining,
            () = shared.jobs.stopping() => Next::Stopping,
        }
    }

    /// What is to be done next, and when.
    fn due(&self, seat: &Seat) -> Option<(Instant, Due)> {
        if self.reach == Reach::Waits(WaitsFor::Turn) {
            return Some((self.until, Due::NoTurn));
        }
        let idle = self.run.plan.idle_timeout().map(|limit| (self.alive.saturating_add(limit), Due::Idle));
        let count = self.fare.as_ref().map(|fare| (fare.look_at(), Due::Count));
        let is_to_be_shown = !(self.run.showing.has_begun() || seat.is_recorded());
        let show = is_to_be_shown.then_some((SHOW_AFTER, Due::Show));
        let all = [Some((self.clock.limit(), Due::Timeout)), idle, count, show];
        let (ran, due) = all.into_iter().flatten().min_by_key(|(ran, _)| *ran)?;
        Some((self.clock.when(ran)?, due))
    }
}
