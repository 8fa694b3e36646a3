//! The job of one call, from the line to the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::admission::{Admitted, Entry, Fare, Ticket};
use super::attend::Attendance;
use super::given_up::not_begun_for_operator;
use super::joining::NotMade;
use super::live::Phase;
use super::promote::{Seed, Why};
use super::recover::Parcel;
use super::request_state::Subject;
use super::responses::Responses;
use super::running::Running;
use super::seat::{Held, Owned, Seat, Standing, Wish};
use super::shown::{Showing, Stage};
use super::{Plan, Promotion, Questions, Shared};
use crate::config::Cost;
use crate::protocol::{Call, Failure, McpService, Outcome, Principal, Reason, ReplySender, Retry};
use crate::store::ChangeError;
use crate::task::{Asked, Refusal, State};

pub(super) use super::admission::Permits;

/// The first wait before the store is asked again to record that a queued task runs.
const START_AGAIN: Duration = Duration::from_millis(100);

/// One call being run.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    pub(super) plan: Plan,
    /// Who called. The owner is made of it only if the call becomes a task.
    pub(super) principal: Principal,
    /// What another process needs to send the call.
    pub(super) parcel: Parcel,
    /// How often it was begun again.
    pub(super) reruns: u32,
    /// What its lost runs have cost, if that is not in the store.
    pub(super) spent: Cost,
    /// When the call came.
    pub(super) arrived: Instant,
    /// How operators see it while it has no record.
    pub(super) showing: Showing,
}

/// All that a call needs to be sent.
pub(super) struct Ready {
    pub(super) seat: Seat,
    /// None where a run goes on without.
    pub(super) permits: Option<Permits>,
    pub(super) fare: Option<Box<Fare>>,
    /// What an earlier run of the call has asked: keys are never used again.
    pub(super) asked: Asked,
}

impl Run {
    pub(super) fn new(shared: Arc<Shared>, plan: Plan, call: &Call, parcel: Parcel) -> Self {
        let principal = call.caller.principal.clone();
        let plan = shared.admission.bounded(&principal, plan);
        let (reruns, spent, arrived, showing) = (0, Cost::ZERO, call.arrived, Showing::default());
        Self { shared, plan, principal, parcel, reruns, spent, arrived, showing }
    }

    /// Drives the call to its end. Nothing that happens here is returned: it goes to the seat.
    pub(super) fn drive<S: McpService>(
        self,
        inner: S,
        call: Call,
        sender: ReplySender,
    ) -> impl Future<Output = ()> + Send {
        let promote_at = match self.plan.way.promotion {
            Promotion::Never | Promotion::AtOnce => None,
            Promotion::After(after) => Some(call.arrived + after),
        };
        self.drive_held(inner, call, Held::alone(sender, promote_at))
    }

    /// Drives the call of a caller who is held.
    #[expect(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice, which each call would move")]
    pub(super) fn drive_held<S: McpService>(self, inner: S, call: Call, held: Held) -> impl Future<Output = ()> + Send {
        async move {
            let Admitted { entry, fare } = match self.shared.admission.admit(&self.principal, &self.plan) {
                Ok(admitted) => admitted,
                Err(failure) => {
                    tracing::debug!(tool = self.plan.what.name(), reason = %failure.reason, "a call was refused");
                    return held.done(Outcome::Failed(failure));
                }
            };
            let until = call.arrived + self.plan.policy.queue_timeout;
            let Some((seat, permits)) = self.wait(Seat::Held(held), entry, until).await else { return };
            self.send(inner, call, Ready { seat, permits: Some(permits), fare, asked: Asked::default() }).await;
        }
    }

    /// Sends the call, as soon as its server can take it, and attends it to its end; once more if its run is lost and the
    /// policy allows it. The record of a task says Queued.
    #[expect(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice, which each call would move")]
    pub(super) fn send<S: McpService>(
        mut self,
        mut inner: S,
        mut call: Call,
        mut ready: Ready,
    ) -> impl Future<Output = ()> + Send {
        async move {
            loop {
                // Boxed, as all that is rare.
                let again = self.may_run_again().then(|| Box::new((inner.clone(), call.clone())));
                let asked = self.plan.way.may_be_retried();
                // A call that its questions make a task is answered with them if the store cannot take it.
                let promoted = self.plan.way.questions == Questions::Promote;
                let subject = (asked || promoted).then(|| Subject::of(&call));
                // Answers to no question that is known here are no fault of the call.
                let ahead = asked.then(|| Responses::read(call.params.raw())).and_then(|read| read.ok().flatten());
                let Ready { seat, permits, fare, asked } = ready;
                // What it has waited for a slot counts.
                let since = if self.reruns == 0 { call.arrived } else { Instant::now() };
                let attendance = if fare.is_some() || self.is_recorded_first(&seat) {
                    let running = Running::keep(inner, call, self.plan.sends);
                    Attendance::new(self, running, permits, subject).kept_back()
                } else {
                    // Any other may have to wait for its server, and become a task meanwhile.
                    if self.plan.way.promotion == Promotion::Never {
                        self.is_sent();
                    }
                    Attendance::new(self, Running::send(inner, call), permits, subject)
                };
                let attendance = attendance.answered_ahead(ahead);
                let lost = attendance.waiting_since(since).priced(fare).asked_before(asked).attend(seat).await;
                let (Some(lost), Some(call_again)) = (lost, again) else { return };
                let Some(begun) = Box::pin(lost.begin_again()).await else { return };
                (self, ready) = begun;
                (inner, call) = *call_again;
            }
        }
    }

    /// Whether the call is not to be sent before its record says that it runs.
    fn is_recorded_first(&self, seat: &Seat) -> bool {
        match (seat, self.plan.way.promotion) {
            (Seat::Held(held), Promotion::Never | Promotion::After(_)) => match held.standing {
                Standing::Plain => false,
                Standing::Reserved(_) | Standing::Recorded(_) => true,
            },
            (Seat::Held(_), Promotion::AtOnce) | (Seat::Task(_), _) => true,
            (Seat::Parked(_), _) => false,
        }
    }

    /// A call that becomes no task is sent: what is kept of it is of use for a second run only. That of a task is of use
    /// again if its server turns out never to have read it, and takes no memory that the call on its way does not.
    fn is_sent(&mut self) {
        if !self.may_run_again() {
            self.parcel = Parcel::None;
        }
    }

    /// The slots, if they are free.
    pub(super) fn free_slots(&self) -> Option<Permits> {
        match self.shared.admission.enter_again(&self.principal, &self.plan) {
            Ok(Entry::Free(permits)) => Some(permits),
            Ok(Entry::Wait(_)) | Err(_) => None,
        }
    }

    /// Waits for the slots. A call that is to be a task at once becomes one here if it has to wait.
    pub(super) async fn wait(&self, seat: Seat, entry: Entry, until: Instant) -> Option<(Seat, Permits)> {
        match entry {
            Entry::Free(permits) => Some((seat, permits)),
            // Boxed, as all that is rare: what is in the future of a run is set aside and moved for each call.
            Entry::Wait(ticket) => Box::pin(self.queue(seat, ticket, until)).await,
        }
    }

    /// Waits in the line.
    async fn queue(&self, seat: Seat, mut ticket: Ticket, until: Instant) -> Option<(Seat, Permits)> {
        let mut seat = match (seat, self.plan.way.promotion) {
            (Seat::Held(held), Promotion::AtOnce) => {
                self.make_at_once(held, Seed::silent(State::Queued, queued_at(&ticket), Why::Mode)).await?
            }
            (seat, _) => seat,
        };
        if !seat.is_recorded() {
            self.show(Stage::Queued(ticket.watcher()));
        }
        loop {
            tokio::select! {
                biased;
                () = self.shared.draining.cancelled() => {
                    self.leave_waiting(seat).await;
                    return None;
                }
                () = self.showing.cancelled() => {
                    let failure = not_begun_for_operator();
                    seat.is_over_for_all(&failure);
                    seat.end(self.not_sent(failure)).await;
                    return None;
                }
                permits = &mut ticket => return Some((seat, permits)),
                wish = seat.wish(&self.shared.jobs) => seat = match (wish, seat) {
                    (Wish::Promote, Seat::Held(held)) => {
                        let seat = self.promote(held, Seed::silent(State::Queued, queued_at(&ticket), Why::Threshold)).await?;
                        if seat.is_recorded() {
                            self.showing.hide();
                        }
                        seat
                    }
                    (Wish::GoOn, seat) => {
                        let seat = self.goes_on_without_caller(seat, queued_at(&ticket)).await?;
                        self.showing.hide();
                        seat
                    }
                    (Wish::Promote | Wish::Stop, seat) => {
                        seat.stopped().await;
                        return None;
                    }
                },
                () = sleep_until(until) => {
                    seat.end(self.not_sent(queue_timeout(self.plan.policy.queue_timeout))).await;
                    return None;
                }
            }
        }
    }

    /// Makes a task of a call that is to be one at once; `None` if it was refused. Nothing was sent for it yet.
    pub(super) async fn make_at_once(&self, held: Held, seed: Seed) -> Option<Seat> {
        match self.make_task(held, seed).await {
            Ok(task) => Some(Seat::Task(task)),
            Err(NotMade::NotNow(held, error)) => {
                held.done(Outcome::Failed(error.to_failure()));
                None
            }
            Err(NotMade::Joined) => None,
        }
    }

    /// Begins, and makes durable what it costs, before the first byte goes to the server.
    pub(super) async fn begin_and_pay(&self, seat: Seat, fare: Option<&mut Fare>) -> Option<Seat> {
        let Some(fare) = fare else { return self.begin(seat).await };
        if let Err(failure) = fare.pay() {
            Box::pin(seat.end(self.not_sent(failure))).await;
            return None;
        }
        // Both in one commit.
        let (seat, ()) = Box::pin(futures_util::future::join(self.begin(seat), fare.written())).await;
        seat
    }

    /// Makes sure that the record says Running before the first byte goes to the server.
    async fn begin(&self, seat: Seat) -> Option<Seat> {
        match (seat, self.plan.way.promotion) {
            (Seat::Held(held), Promotion::AtOnce) => {
                let state = State::Running { started: self.shared.store.clock().now() };
                Box::pin(self.make_at_once(held, Seed::silent(state, Phase::Running { progress: None }, Why::Mode)))
                    .await
            }
            (Seat::Held(mut held), Promotion::Never | Promotion::After(_)) => match held.standing {
                Standing::Reserved(reservation) => {
                    held.standing = Standing::Plain;
                    Box::pin(self.record_intent(held, reservation)).await
                }
                Standing::Plain | Standing::Recorded(_) => Box::pin(self.start_held(held)).await,
            },
            (Seat::Task(task), _) => Box::pin(self.start(task)).await,
            // Nothing was sent yet, so nothing was asked.
            (Seat::Parked(_), _) => None,
        }
    }

    /// Records that a queued task runs, however long the store takes.
    pub(super) async fn start(&self, task: Owned) -> Option<Seat> {
        let (id, live) = (task.settler.id(), Arc::clone(&task.live));
        let (mut seat, mut wait) = (Seat::Task(task), START_AGAIN);
        loop {
            if seat.is_stopping() {
                seat.stopped().await;
                return None;
            }
            match self.shared.store.start(&id).await {
                // That it runs is refused where it was to be recorded as waiting, which could not be written.
                Ok(_) | Err(ChangeError::Refused(Refusal::Running, _)) => {
                    live.runs();
                    return Some(seat);
                }
                Err(error) if error.is_final() => {
                    seat.end(self.not_sent(error.to_failure())).await;
                    return None;
                }
                Err(error) => tracing::warn!(task = ?id, %error, "a queued task waits for the store"),
            }
            tokio::select! {
                () = sleep(wait) => wait = (wait * 2).min(Duration::from_secs(5)),
                _ = seat.wish(&self.shared.jobs) => {
                    seat.stopped().await;
                    return None;
                }
                () = self.shared.jobs.stopping() => {
                    self.leave_waiting(seat).await;
                    return None;
                }
            }
        }
    }
}

fn queued_at(ticket: &Ticket) -> Phase {
    Phase::Queued(ticket.watcher())
}

fn queue_timeout(limit: Duration) -> Failure {
    let limit = humantime::format_duration(limit);
    Failure::new(
        Reason::QueueTimeout,
        format!("no slot was free within {limit} (queue_timeout); the call was not sent, call the tool again later"),
        Retry::SOON,
    )
}
