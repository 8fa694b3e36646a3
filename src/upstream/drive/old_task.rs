//! Tools that run as tasks of 2025-11-25 only: the task is made, watched and its result fetched, and the caller gets
//! that as the result of its plain call.

use super::state::{State, Status};
use super::watch::{Polled, Wake, Watch};
use super::{Leg, Manners, Needs, left, relay, unknown};
use crate::protocol::error::code;
use crate::protocol::{Call, Event, Method, Outcome, Reply, ReplySender, RpcError, TaskSupport};
use crate::upstream::outcome::never_sent;
use crate::upstream::wire::untied;

/// Calls a tool of a server that can run calls as tasks, to its outcome.
pub(in crate::upstream) async fn call<L: Leg>(
    leg: &L,
    needs: &Needs,
    manners: Manners,
    mut call: Call,
    sender: &mut ReplySender,
) -> Outcome {
    call.caller.tasks = TaskSupport::Undeclared;
    see_through(leg, needs, manners, &mut call, sender).await.unwrap_or_else(left)
}

async fn see_through<L: Leg>(
    leg: &L,
    needs: &Needs,
    manners: Manners,
    call: &mut Call,
    sender: &mut ReplySender,
) -> Option<Outcome> {
    let name = call.params.name().unwrap_or_default().to_owned();
    let needed = tokio::select! {
        needed = needs.task_for(leg, call, &name) => needed,
        () = sender.cancelled() => return Some(Outcome::Failed(never_sent())),
    };
    if !needed {
        let plain = relay(leg.send(call.clone()), sender).await?;
        match &plain {
            // Not one tool says so for another reason: it was refused before it ran.
            Outcome::Error(error) if wants_a_task(error) && !sender.is_cancelled() => {}
            _ => return Some(plain),
        }
        call.caller.tasks = TaskSupport::Declared;
        return match run(leg, manners, call, sender).await? {
            // The first word stands.
            Outcome::Error(_) => Some(plain),
            outcome => Some(outcome),
        };
    }
    call.caller.tasks = TaskSupport::Declared;
    run(leg, manners, call, sender).await
}

/// Whether an error of `tools/call` says that the call must be a task: -32601 by the section on tool-level
/// negotiation, -32600 by the one on errors.
fn wants_a_task(error: &RpcError) -> bool {
    let says_so = error.message().to_ascii_lowercase().contains("task");
    error.code() == code::METHOD_NOT_FOUND || (error.code() == code::INVALID_REQUEST && says_so)
}

async fn run<L: Leg>(leg: &L, manners: Manners, call: &Call, sender: &mut ReplySender) -> Option<Outcome> {
    // Held until the task has ended, so that it does not end before.
    let (open, later) = Reply::channel();
    let outcome = relay(leg.send_as_task(call.clone(), open.events()), sender).await?;
    let Outcome::Result(result) = &outcome else { return Some(outcome) };
    let Some(created) = result.member("task").as_ref().and_then(State::read) else {
        // A server that answers at once.
        return Some(bare(outcome));
    };
    let mut watch = Watch::new(leg, call, sender, manners, &created).with_progress(later);
    let mut status = created.status;
    loop {
        match status {
            Status::Working => {}
            Status::Cancelled => return Some(watch.cancelled()),
            Status::InputRequired | Status::Completed | Status::Failed => match fetch(&mut watch).await {
                Wake::Over(outcome) => return outcome,
                Wake::Ready(Some(outcome)) => return Some(bare(outcome)),
                Wake::Ready(None) => {}
            },
        }
        if let Wake::Over(outcome) = watch.pause().await {
            return outcome;
        }
        match watch.poll().await {
            Wake::Over(outcome) => return outcome,
            Wake::Ready(Polled::Lost(outcome)) => return Some(outcome),
            Wake::Ready(Polled::Task(state, _)) => status = state.status,
            Wake::Ready(Polled::Nothing) => status = Status::Working,
        }
    }
}

/// Waits for the result; what the server asks meanwhile comes on the same stream. `None` if it must be asked for again.
async fn fetch<L: Leg>(watch: &mut Watch<'_, L>) -> Wake<Option<Outcome>> {
    let mut reply = watch.leg.send(watch.request(Method::Other("tasks/result".to_owned()), None));
    let outcome = loop {
        match watch.wait(reply.next()).await {
            Wake::Over(outcome) => return Wake::Over(outcome),
            Wake::Ready(Some(Event::Done(outcome))) => break outcome,
            Wake::Ready(Some(event)) => watch.sender.event(event),
            Wake::Ready(None) => break unknown("the reply ended without an outcome"),
        }
    };
    let Outcome::Failed(failure) = outcome else { return Wake::Ready(Some(outcome)) };
    // The task outlives the connection on which it was asked after.
    Wake::Ready(match watch.failed(&failure.message) {
        Polled::Lost(outcome) => Some(outcome),
        Polled::Task(..) | Polled::Nothing => None,
    })
}

/// A result without the tie to its task.
fn bare(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Result(result) => Outcome::Result(untied(result)),
        outcome => outcome,
    }
}
