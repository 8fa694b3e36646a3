//! Listens to the server and to whoever waits, until the run has ended.

use std::time::Duration;

use tokio::time::Instant;

use super::Way;
use super::admission::{Fare, Lingering};
use super::clock::RunClock;
use super::desk::Desk;
use super::given_up::{budget_used_up, idle, timed_out};
use super::held_up::no_turn;
use super::joining::left_behind;
use super::live::Phase;
use super::next::{Due, Next};
use super::parked::Counter;
use super::promote::{Seed, Why};
use super::recover::{Anchoring, Lost, is_lost};
use super::remember::end_of;
use super::request_state::Subject;
use super::responses::Responses;
use super::run::{Permits, Ready, Run};
use super::running::Running;
use super::seat::{Held, Seat, Standing, Wish};
use super::shares::Part;
use super::shown::Stage;
use crate::clock::Timestamp;
use crate::protocol::{Ask, Event, Failure, Outcome, Progress, WaitsFor};
use crate::task::{Asked, State};

/// One call on its way to the server, or there.
pub(super) struct Attendance {
    pub(super) run: Run,
    pub(super) running: Running,
    /// How the call goes on; a retry may change it.
    pub(super) way: Way,
    /// The request, if it may be retried.
    pub(super) subject: Option<Subject>,
    /// Answers that came with the call itself, for questions whose keys the server chooses.
    pub(super) ahead: Responses,
    /// Its questions, once there was one.
    pub(super) desk: Option<Box<Desk>>,
    pub(super) clock: RunClock,
    /// Questions that are asked only if the call becomes a task.
    pub(super) put_off: Vec<Ask>,
    /// What an earlier run of the same call has asked.
    pub(super) asked_before: Asked,
    /// Where the run is, once the server has told.
    pub(super) anchoring: Option<Box<Anchoring>>,
    /// Whoever waits for a run that was lost and is to be begun again.
    lost: Option<Seat>,
    /// The time of run at which the tool last gave a sign of life.
    pub(super) alive: Duration,
    /// Whether the server has the call.
    pub(super) reach: Reach,
    /// When it has waited for its turn for too long.
    pub(super) until: Instant,
    /// What it costs.
    pub(super) fare: Option<Box<Fare>>,
    /// What was reported before the promotion is where the task is.
    progress: Option<(Progress, Timestamp)>,
    /// Gone when the run has ended and only its outcome is kept.
    pub(super) permits: Option<Permits>,
    /// The slots, once the server was told to stop.
    pub(super) lingering: Option<Lingering>,
    /// Room for that outcome.
    pub(super) kept: Option<Part>,
}

/// Whether the server has a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is kept back, and whether its server can take it is not known yet. To `Waits`, or to `Sent`.
    Kept,
    /// It is kept back, and waits for this. To `Sent`.
    Waits(WaitsFor),
    /// It was let go. To `Waits` if it could not be sent after all.
    Sent,
}

impl Attendance {
    /// In a box, since it is handed from future to future.
    pub(super) fn new(run: Run, running: Running, permits: Option<Permits>, subject: Option<Subject>) -> Box<Self> {
        let until = Instant::now() + run.plan.policy.queue_timeout;
        let (way, clock) = (run.plan.way.clone(), RunClock::start(run.plan.policy.timeout));
        let ahead = Responses::default();
        Box::new(Self {
            run,
            running,
            way,
            subject,
            ahead,
            desk: None,
            clock,
            put_off: Vec::new(),
            asked_before: Asked::default(),
            anchoring: None,
            lost: None,
            alive: Duration::ZERO,
            reach: Reach::Sent,
            until,
            fare: None,
            progress: None,
            permits,
            lingering: None,
            kept: None,
        })
    }

    /// The same, for a call that came with answers.
    pub(super) fn answered_ahead(mut self: Box<Self>, ahead: Option<Responses>) -> Box<Self> {
        self.ahead = ahead.unwrap_or_default();
        self
    }

    /// The same, for a call whose earlier run has asked this.
    pub(super) fn asked_before(mut self: Box<Self>, asked_before: Asked) -> Box<Self> {
        self.asked_before = asked_before;
        self
    }

    /// The same, for a run that another process began and this one found again.
    pub(super) fn found(mut self: Box<Self>, ran: Duration) -> Box<Self> {
        self.clock = self.clock.after(ran);
        // What it has told meanwhile is still to come.
        self.alive = ran;
        self.anchoring = Some(Box::new(Anchoring::stored()));
        self
    }

    /// The same, for a call that costs something.
    pub(super) fn priced(mut self: Box<Self>, fare: Option<Box<Fare>>) -> Box<Self> {
        self.fare = fare;
        self
    }

    /// Attends the run until it has ended; what comes back was lost and may be run again.
    pub(super) async fn attend(mut self: Box<Self>, mut seat: Seat) -> Option<Lost> {
        loop {
            let waiting = self.is_waiting(&seat);
            self.clock.pause_if(waiting || self.is_unsent());
            self.tell_stage(&seat, waiting);
            if let Some(desk) = self.desk.as_mut().filter(|_| !waiting) {
                desk.place = None;
            }
            let next = self.next(&mut seat, waiting).await;
            match self.act(seat, next).await {
                Some(next) => seat = next,
                None => break,
            }
        }
        // Whoever asked and was not answered is refused, and retries find nothing.
        let asked = match self.desk.take() {
            Some(desk) => {
                desk.board.clear();
                desk.asked
            }
            None => std::mem::take(&mut self.asked_before),
        };
        if let Some(seat) = self.lost.take() {
            if self.count().is_err() {
                let how = "a run was lost, and it was not begun again: the owner's budget was used up during the run";
                Box::pin(seat.end(Outcome::Failed(Failure::outcome_unknown(how)))).await;
                return None;
            }
            let ran = self.clock.ran();
            let ready = Ready { seat, permits: self.permits, fare: self.fare, asked };
            return Some(Lost { run: self.run, ready, ran });
        }
        // Its caller has been told; what is left is a slot.
        self.run.showing.hide();
        if !self.running.is_over() {
            Box::pin(self.linger()).await;
        }
        // Nothing is left that could be stopped.
        let _ = self.count();
        None
    }

    /// Counts what the run has cost so far.
    fn count(&mut self) -> Result<(), Failure> {
        match &mut self.fare {
            Some(fare) => {
                let left = fare.count(self.clock.ran());
                left.map_err(|budget| budget_used_up(budget, self.run.plan.linger))
            }
            None => Ok(()),
        }
    }

    /// Whether an answer is awaited.
    fn is_waiting(&self, seat: &Seat) -> bool {
        matches!(seat, Seat::Parked(_)) || self.desk.as_ref().is_some_and(|desk| !desk.board.is_empty())
    }

    /// Does what is to be done; `None` when the run is over.
    async fn act(&mut self, seat: Seat, next: Next) -> Option<Seat> {
        if let (Next::Draining | Next::Stopping, Some(anchoring)) = (&next, &mut self.anchoring) {
            Box::pin(anchoring.arrived()).await;
        }
        match next {
            Next::Event(event) => self.event(seat, event).await,
            Next::Wish(wish) => match (wish, seat) {
                // Rare ends are boxed, so that their state is not part of every call's.
                (Wish::Promote, Seat::Held(held)) => Box::pin(self.promote(held, Why::Threshold)).await,
                (Wish::GoOn, seat) => Box::pin(self.goes_on_without_caller(seat)).await,
                (Wish::Promote | Wish::Stop, seat) => {
                    Box::pin(self.stop(seat)).await;
                    None
                }
            },
            Next::Operator => {
                Box::pin(self.is_stopped_by_operator(seat)).await;
                None
            }
            Next::Desk(event) => Box::pin(self.at_desk(seat, event)).await,
            Next::Due(due) => {
                let linger = self.run.plan.linger;
                let given_up = match due {
                    Due::Timeout => Err(timed_out(self.run.plan.policy.timeout, linger)),
                    Due::Idle => Err(idle(self.run.plan.idle_timeout().unwrap_or_default(), linger)),
                    Due::Count => self.count(),
                    Due::NoTurn => Err(no_turn(self.run.plan.policy.queue_timeout)),
                    Due::Show => {
                        self.run.show(Stage::Running);
                        Ok(())
                    }
                };
                let Err(failure) = given_up else { return Some(seat) };
                Box::pin(self.give_up(seat, failure)).await;
                None
            }
            Next::Anchored => Some(seat),
            Next::Known => {
                let Run { shared, principal, .. } = &self.run;
                if let Some(permits) = &mut self.permits {
                    shared.admission.is_known(principal, permits);
                }
                Some(seat)
            }
            Next::Draining | Next::Stopping if self.is_unsent() => {
                Box::pin(self.leave_unsent(seat)).await;
                None
            }
            Next::Stopping if self.may_be_unread() => {
                Box::pin(self.leave_unread(seat)).await;
                None
            }
            Next::Draining | Next::Stopping if self.may_be_left(&seat) => {
                self.leave(seat);
                None
            }
            Next::Draining => {
                let how = "Raincheck was stopped while the tool waited for an answer";
                Box::pin(self.give_up(seat, Failure::outcome_unknown(how))).await;
                None
            }
            Next::Stopping => {
                Box::pin(self.is_lost_at_stop(seat)).await;
                None
            }
        }
    }

    async fn event(&mut self, seat: Seat, event: Event) -> Option<Seat> {
        if self.run.plan.idle_timeout().is_some() {
            self.alive = self.clock.ran();
        }
        let event = match event {
            Event::Done(outcome) => Event::Done(self.run.told_of(self.run.plan.fitting(outcome))),
            event => event,
        };
        if let Event::Done(outcome) = &event {
            self.remember(end_of(outcome));
            if let Outcome::Failed(_) = outcome {
                Box::pin(self.ends_with(&seat, outcome)).await;
            }
        }
        let seat = if self.is_past_wait(&event) { Box::pin(self.begins(seat)).await? } else { seat };
        match (event, seat) {
            (Event::Done(outcome), Seat::Parked(parked)) => {
                Some(Seat::Parked(Box::pin(self.keep(parked, outcome)).await))
            }
            (Event::Done(outcome), seat) if self.is_lost(&seat, &outcome) => {
                self.lost = Some(seat);
                None
            }
            (Event::Done(outcome), seat) => {
                self.end(seat, outcome).await;
                None
            }
            (Event::Anchored(anchor), seat) => {
                self.anchoring.get_or_insert_default().take(anchor, &self.way.abilities);
                Some(seat)
            }
            (Event::Waits(what), seat) => Box::pin(self.is_held_up(seat, what)).await,
            (Event::Began, seat) => Some(seat),
            (Event::Ask(ask), seat) => Box::pin(self.ask(seat, ask)).await,
            (
                event @ (Event::Progress(_)
                | Event::Log(_)
                | Event::Notification(_)
                | Event::Attached(_)
                | Event::Paused),
                seat,
            ) => {
                let now = self.run.shared.store.clock().now();
                if let (Event::Progress(reported), Seat::Held(_) | Seat::Parked(_)) = (&event, &seat) {
                    self.progress = Some((reported.clone(), now));
                }
                seat.pass(event, now);
                Some(seat)
            }
        }
    }

    /// Makes a task of the call, with all questions that are open; `None` if the run is over.
    pub(super) async fn promote(&mut self, held: Held, why: Why) -> Option<Seat> {
        // The server must not have to wait for the store.
        self.running.send_to_background();
        if let Standing::Recorded(_) = &held.standing {
            let seat = self.hand_out(held, why).await;
            self.take_back(&seat).await;
            self.ask_put_off(&seat).await;
            return Some(seat);
        }
        let now = self.run.shared.store.clock().now();
        // Later by the time that it has waited for input.
        let ran = u64::try_from(self.clock.ran().as_millis()).unwrap_or(u64::MAX);
        let started = Timestamp::from_millis(now.as_millis().saturating_sub(ran));
        let mut seed = match self.reach {
            Reach::Waits(what) => Seed::silent(State::Queued, Phase::Waits(what), why),
            Reach::Kept => Seed::silent(State::Queued, Phase::Running { progress: None }, why),
            Reach::Sent => {
                Seed::silent(State::Running { started }, Phase::Running { progress: self.progress.clone() }, why)
            }
        };
        seed.anchored = self.anchoring.as_ref().and_then(|anchoring| anchoring.fresh());
        seed.asked.clone_from(&self.asked_before);
        seed.form = Some(self.way.form.clone());
        if let Some(desk) = &mut self.desk {
            let questions = desk.board.questions();
            seed.asked = desk.asked.clone();
            seed.board = desk.board.clone();
            seed.id = desk.counter.as_mut().and_then(Counter::id_for_record);
            desk.gather_until = None;
            if !questions.is_empty() {
                seed.state = State::InputRequired { started, since: now, questions };
            }
        }
        let seat = self.run.promote(held, seed).await?;
        if let (Seat::Task(_), Some(anchoring)) = (&seat, &mut self.anchoring) {
            anchoring.is_written();
        }
        self.take_back(&seat).await;
        self.ask_put_off(&seat).await;
        Some(seat)
    }

    /// Whether the run was lost, and is to be begun again.
    fn is_lost(&self, seat: &Seat, outcome: &Outcome) -> bool {
        let ends = self.run.shared.draining.is_cancelled() || self.run.shared.jobs.is_stopping();
        // A caller who has answered questions would be asked them again, out of turn.
        let may_begin = match seat {
            Seat::Held(_) => self.desk.is_none(),
            Seat::Task(_) => true,
            Seat::Parked(_) => false,
        };
        is_lost(outcome) && !self.is_unsent() && may_begin && self.run.may_run_again() && !ends && !seat.is_stopping()
    }

    /// Whether the next process can go on with the run: find it at the server, or begin it again.
    pub(super) fn may_be_left(&self, seat: &Seat) -> bool {
        let found = self.anchoring.as_ref().is_some_and(|anchoring| anchoring.is_durable());
        let begun_again = self.run.may_run_again() && self.run.parcel.is_kept();
        match seat {
            Seat::Task(_) => found || begun_again,
            // Its caller can come back for it.
            Seat::Held(held) => (found || begun_again) && matches!(held.standing, Standing::Recorded(_)),
            Seat::Parked(parked) => (found || begun_again) && parked.record.is_some(),
        }
    }

    /// Leaves the run to the next process.
    pub(super) fn leave(&mut self, seat: Seat) {
        if self.anchoring.as_ref().is_some_and(|anchoring| anchoring.is_durable()) {
            self.running.leave();
        } else {
            self.running = Running::over();
        }
        match seat {
            Seat::Task(owned) => owned.settler.hand_over(),
            Seat::Held(mut held) => {
                if let Some(recorded) = held.take_record() {
                    recorded.settler.hand_over();
                }
                held.done(Outcome::Failed(left_behind()));
            }
            Seat::Parked(parked) => {
                if let Some(record) = parked.record {
                    record.settler.hand_over();
                }
            }
        }
    }
}
