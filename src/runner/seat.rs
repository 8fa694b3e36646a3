//! Who waits for a run: the caller, held on the line, the owner of a handle, or somebody who may come back with answers.

use std::sync::Arc;

use futures_util::future::{SelectOk, select_ok};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::form::Form;
use super::joining::{Reservation, cancelled};
use super::live::Live;
use super::settler::Settler;
use super::twin::Twin;
use crate::clock::Timestamp;
use crate::jobs::Jobs;
use crate::protocol::reply::Delivery;
use crate::protocol::{Event, Failure, Handle, Json, Outcome, Question, Reason, ReplySender, Retry, Rope, reshape};
use crate::store::Ending;
use crate::task::{State, TaskId};

/// Who waits for a run.
#[derive(Debug)]
pub(super) enum Seat {
    /// The caller is held on the line. To `Task` when the call is promoted, to `Parked` when the caller is asked.
    Held(Held),
    /// Somebody has the handle of a task.
    Task(Owned),
    /// The caller was sent away with questions and is to come back with answers. To `Held` then.
    Parked(Parked),
}

/// A caller on the line.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) sender: ReplySender,
    /// Copies of the same retry, which get the same outcome.
    pub(super) joined: Vec<Twin>,
    /// When the call is to become a task; `None` for never.
    pub(super) promote_at: Option<Instant>,
    /// Whether others may join the call.
    pub(super) standing: Standing,
}

/// Whether others may join a call whose caller is held.
#[derive(Debug)]
pub(super) enum Standing {
    /// It has no key.
    Plain,
    /// It has a key. To `Recorded` before it is sent.
    Reserved(Box<Reservation>),
    /// It has a key, and a record of which its own caller knows nothing.
    Recorded(Box<Recorded>),
}

/// A call that is in the store.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) settler: Settler,
    pub(super) live: Arc<Live>,
}

/// A caller who was asked.
#[derive(Debug)]
pub(super) struct Parked {
    /// When the run is given up.
    pub(super) until: Instant,
    /// How the run ended meanwhile, if it did.
    pub(super) ended: Option<Outcome>,
    /// Its record, if the call has a key, until it ends.
    pub(super) record: Option<Box<Recorded>>,
}

/// A task in the store.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) settler: Settler,
    pub(super) live: Arc<Live>,
    pub(super) delivery: HandleDelivery,
}

/// Whether the handle is out.
#[derive(Debug)]
pub(super) enum HandleDelivery {
    /// It is on its way, perhaps to several. To `Out` with the first.
    Under(SelectOk<oneshot::Receiver<()>>),
    /// The last byte was given to the socket, or the call goes on in any case.
    Out,
    /// The caller left; the call goes on for those who have joined it.
    Left,
}

/// What the side that waits wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The call has taken long enough: make it a task.
    Promote,
    /// The caller left, but the call is to go on.
    GoOn,
    /// Stop: the caller hung up or did not come back, the handle never went out, or its owner cancelled the task.
    Stop,
}

impl Seat {
    /// The next thing that the side that waits wants. Cancel safe.
    pub(super) async fn wish(&mut self, jobs: &Jobs) -> Wish {
        match self {
            Self::Held(held) => held.wish(jobs).await,
            Self::Task(owned) => owned.wish().await,
            Self::Parked(parked) => {
                sleep_until(parked.until).await;
                Wish::Stop
            }
        }
    }

    /// Passes on what happens in the course of the run. Progress of a task is kept, its logs are not:
    /// SEP-2663 has no notifications for them.
    pub(super) fn pass(&self, event: Event, now: Timestamp) {
        match (self, event) {
            (Self::Held(held), event) => {
                if let (Standing::Recorded(recorded), Event::Progress(progress)) = (&held.standing, &event) {
                    recorded.live.progressed(progress.clone(), now);
                }
                held.sender.event(event);
            }
            (Self::Task(owned), Event::Progress(progress)) => owned.live.progressed(progress, now),
            // Nobody is there to hear of it.
            (Self::Parked(_), Event::Progress(_))
            | (
                Self::Task(_) | Self::Parked(_),
                Event::Log(_)
                | Event::Ask(_)
                | Event::Notification(_)
                | Event::Attached(_)
                | Event::Paused
                | Event::Anchored(_)
                | Event::Waits(_)
                | Event::Began
                | Event::Done(_),
            ) => {}
        }
    }

    /// Whether somebody is to be stopped already: nobody is left who could answer a question.
    pub(super) fn is_stopping(&self) -> bool {
        match self {
            Self::Held(held) => match &held.standing {
                Standing::Recorded(recorded) if recorded.live.is_cancelled() => true,
                _ => held.is_deserted() && !held.goes_on(),
            },
            Self::Task(owned) => owned.live.is_cancelled(),
            Self::Parked(_) => false,
        }
    }

    /// Whether another copy of the retry that waits declares that it can be asked this.
    pub(super) fn has_twin_for(&self, question: &Question) -> bool {
        matches!(self, Self::Held(held) if held.joined.iter().any(|twin| twin.way.abilities.covers(question)))
    }

    /// Hands over how the run ended.
    pub(super) async fn end(self, outcome: Outcome) {
        match self {
            Self::Held(held) => held.end(passed_on(outcome)).await,
            Self::Task(owned) => Box::pin(owned.settler.settle(ending(outcome))).await,
            Self::Parked(Parked { record: Some(record), .. }) => {
                Box::pin(record.settler.settle(ending(outcome))).await;
            }
            Self::Parked(Parked { record: None, .. }) => {}
        }
    }

    /// The call ends so also for those who have joined it, and have no record yet to see that by: none of them begins it.
    pub(super) fn is_over_for_all(&self, failure: &Failure) {
        if let Self::Held(Held { standing: Standing::Reserved(reservation), .. }) = self {
            reservation.ended(failure);
        }
    }

    /// Whether there is a task to be ended in the store.
    pub(super) fn is_recorded(&self) -> bool {
        self.record().is_some()
    }

    /// The task in the store that is to be ended.
    pub(super) fn record(&self) -> Option<TaskId> {
        match self {
            Self::Held(held) => held.record(),
            Self::Parked(parked) => parked.record.as_ref().map(|recorded| recorded.settler.id()),
            Self::Task(owned) => Some(owned.settler.id()),
        }
    }

    /// Says that the run is being stopped: nobody is to join it any more who has no key for it.
    pub(super) fn call_off(&self) {
        if let Some(live) = self.live() {
            live.cancel();
        }
    }

    /// The task, as long as it is live.
    pub(super) fn live(&self) -> Option<&Live> {
        match self {
            Self::Held(Held { standing: Standing::Recorded(recorded), .. })
            | Self::Parked(Parked { record: Some(recorded), .. }) => Some(&recorded.live),
            Self::Task(owned) => Some(&owned.live),
            Self::Held(_) | Self::Parked(_) => None,
        }
    }

    /// Ends what was asked to stop. Nobody is on the line any more.
    pub(super) async fn stopped(self) {
        match self {
            Self::Held(Held { standing: Standing::Recorded(recorded), sender, joined, promote_at }) => {
                let by = recorded.live.canceller();
                let sent = match recorded.settler.settled(Ending::cancelled(by)).await {
                    Some(State::Cancelled { sent, .. }) => sent,
                    _ => true,
                };
                let told = Outcome::Failed(cancelled(by, sent));
                Held { sender, joined, promote_at, standing: Standing::Plain }.done(told);
            }
            Self::Parked(Parked { record: Some(record), .. }) => {
                let how = "the tool asked its caller, who did not come back in time";
                record.settler.settle(Ending::Failed(Failure::outcome_unknown(how))).await;
            }
            Self::Held(_) | Self::Parked(_) => {}
            Self::Task(owned) => {
                let ending = Ending::cancelled(owned.live.canceller());
                owned.settler.settle(ending).await;
            }
        }
    }
}

impl Held {
    /// A caller who is alone on the line.
    pub(super) fn alone(sender: ReplySender, promote_at: Option<Instant>) -> Self {
        Self { sender, joined: Vec::new(), promote_at, standing: Standing::Plain }
    }

    /// Ends the call for all who are on the line.
    pub(super) fn done(self, outcome: Outcome) {
        for joined in self.joined {
            joined.sender.done(copy(&outcome));
        }
        self.sender.done(outcome);
    }

    /// Gives the handle to all who are on the line and can take one, in the form that each takes.
    pub(super) fn hand_over(self, form: &Form, write: &dyn Fn(&Form) -> Rope) -> HandleDelivery {
        let (delivery, delivered) = Delivery::new();
        self.sender.done(Outcome::Task(Handle { created: write(form), delivery }));
        let twins = self.joined.into_iter().filter_map(|twin| twin.handed(write));
        HandleDelivery::Under(select_ok(std::iter::once(delivered).chain(twins)))
    }
}

/// The same outcome for somebody else. Handles are given out in another way.
pub(super) fn copy(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Result(result) => Outcome::Result(result.clone()),
        Outcome::Shaped(result) => Outcome::Shaped(result.clone()),
        Outcome::Error(error) => Outcome::Error(error.clone()),
        Outcome::Failed(failure) => Outcome::Failed(failure.clone()),
        Outcome::Task(_) => Outcome::Failed(Failure::outcome_unknown("the call goes on for another caller")),
    }
}

/// About how many bytes an outcome keeps.
pub(super) fn size(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Result(result) => result.len(),
        Outcome::Shaped(result) => result.len(),
        Outcome::Error(error) => error.raw().len(),
        Outcome::Failed(failure) => failure.message.len(),
        Outcome::Task(_) => 0,
    }
}

/// A server that answers with a task of its own was not asked for one, and nobody could reach it: its handle must not
/// be taken for one of ours.
pub(super) fn passed_on(outcome: Outcome) -> Outcome {
    let is_handle = |result: &Json| {
        reshape::result_type(result).is_some_and(|kind| kind.part().string().as_deref() == Some("task"))
    };
    match outcome {
        Outcome::Result(result) if is_handle(&result) => {
            let message = "the server answered with a task of its own, which it was not asked for; the tool may run";
            Outcome::Failed(Failure::new(Reason::BadAnswer, message, Retry::Unknown))
        }
        other => other,
    }
}

/// A result that no client could read must not be found out at each `tasks/get`.
fn completed(result: Json) -> Ending {
    let bad = |why: &str| {
        let message = format!("the tool's result cannot be passed on: {why}; the tool has run");
        Ending::Failed(Failure::new(Reason::BadAnswer, message, Retry::No))
    };
    if let Err(error) = reshape::complete(&result) {
        return bad(&error.to_string());
    }
    match reshape::result_type(&result) {
        Some(kind) if kind.part().string().as_deref() != Some("complete") => {
            bad("it asks for something that this client was not offered")
        }
        _ => Ending::Completed(result),
    }
}

pub(super) fn ending(outcome: Outcome) -> Ending {
    match outcome {
        Outcome::Result(result) => completed(result),
        Outcome::Shaped(rope) => completed(rope.into_json()),
        Outcome::Error(error) => Ending::ServerError(error),
        Outcome::Failed(failure) => Ending::Failed(failure),
        Outcome::Task(_) => {
            Ending::Failed(Failure::outcome_unknown("the server made a task of its own out of the call"))
        }
    }
}
