//! Who waits for a run: the caller, held on the line, or the owner of a handle.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::live::Live;
use super::settler::Settler;
use crate::clock::Timestamp;
use crate::protocol::{Event, Failure, Json, Outcome, Reason, ReplySender, Retry, reshape};
use crate::store::Ending;

/// Who waits for a run.
#[derive(Debug)]
pub(super) enum Seat {
    /// The caller is held on the line. To `Task` when the call is promoted.
    Held(Held),
    /// Somebody has the handle of a task.
    Task(Owned),
}

/// A caller on the line.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) sender: ReplySender,
    /// When the call is to become a task; `None` for never.
    pub(super) promote_at: Option<Instant>,
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
    /// It is on its way. To `Out`.
    Under(oneshot::Receiver<()>),
    /// The last byte was given to the socket.
    Out,
}

/// What the side that waits wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The call has taken long enough: make it a task.
    Promote,
    /// Stop: the caller hung up, the handle never went out, or its owner cancelled the task.
    Stop,
}

impl Seat {
    /// The next thing that the side that waits wants. Cancel safe.
    pub(super) async fn wish(&mut self) -> Wish {
        match self {
            Self::Held(held) => {
                let promotion = async {
                    match held.promote_at {
                        Some(at) => sleep_until(at).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = held.sender.cancelled() => Wish::Stop,
                    () = promotion => Wish::Promote,
                }
            }
            Self::Task(owned) => {
                owned.stop_wanted().await;
                Wish::Stop
            }
        }
    }

    /// When the call is to become a task; `None` for never.
    pub(super) fn promote_at(&self) -> Option<Instant> {
        match self {
            Self::Held(held) => held.promote_at,
            Self::Task(_) => None,
        }
    }

    /// Resolves when the side that waits wants a stop. Cancel safe.
    pub(super) async fn stop_wanted(&mut self) {
        match self {
            Self::Held(held) => held.sender.cancelled().await,
            Self::Task(owned) => owned.stop_wanted().await,
        }
    }

    /// Passes on what happens in the course of the run. Progress of a task is kept, its logs are not:
    /// SEP-2663 has no notifications for them.
    pub(super) fn pass(&self, event: Event, now: Timestamp) {
        match (self, event) {
            (Self::Held(held), event) => held.sender.event(event),
            (Self::Task(owned), Event::Progress(progress)) => owned.live.progressed(progress, now),
            (
                Self::Task(_),
                Event::Log(_) | Event::Ask(_) | Event::Notification(_) | Event::Attached(_) | Event::Done(_),
            ) => {}
        }
    }

    /// Hands over how the run ended.
    pub(super) async fn end(self, outcome: Outcome) {
        match self {
            Self::Held(held) => held.sender.done(passed_on(outcome)),
            Self::Task(owned) => Box::pin(owned.settler.settle(ending(outcome))).await,
        }
    }

    /// Ends what was asked to stop. Nobody is on the line any more.
    pub(super) async fn stopped(self) {
        match self {
            Self::Held(_) => {}
            Self::Task(owned) => owned.settler.settle(Ending::Cancelled).await,
        }
    }
}

impl Owned {
    async fn stop_wanted(&mut self) {
        if let HandleDelivery::Under(delivered) = &mut self.delivery {
            tokio::select! {
                biased;
                delivered = delivered => match delivered {
                    Ok(()) => self.delivery = HandleDelivery::Out,
                    Err(_) => return,
                },
                () = self.live.cancelled() => return,
            }
        }
        self.live.cancelled().await;
    }
}

/// A server that answers with a task of its own was not asked for one, and nobody could reach it: its handle must not
/// be taken for one of ours.
fn passed_on(outcome: Outcome) -> Outcome {
    let is_handle = |result: &Json| {
        let kind = b"\"task\"";
        // The search is far cheaper than reading every result once more.
        memchr::memmem::find(result.bytes(), kind).is_some()
            && result.member("resultType").is_some_and(|it| it.bytes().as_ref() == kind)
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
    match result.member("resultType") {
        Some(kind) if kind.as_str() != "\"complete\"" => bad("it asks for something that this client was not offered"),
        _ => Ending::Completed(result),
    }
}

fn ending(outcome: Outcome) -> Ending {
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
