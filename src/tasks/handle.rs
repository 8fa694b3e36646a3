//! `tasks/get`, `tasks/update` and `tasks/cancel`, answered from the store; the server is not asked.

use std::sync::Arc;

use crate::protocol::error::code;
use crate::protocol::reshape;
use crate::protocol::{Call, Failure, Json, Method, Outcome, Reason, Retry, Rope, RpcError, TaskSupport};
use crate::runner::{Live, Responses, Runner, view};
use crate::store::{Committed, ReadError};
use crate::task::{Canceller, Cause, State, Task, TaskId};

/// Answers one of the three. The capability is checked before the id, so that a client without it
/// learns nothing about ids; a foreign id reads like an unknown one.
pub(super) async fn answer(runner: &Runner, call: &Call) -> Outcome {
    if call.caller.tasks == TaskSupport::Undeclared {
        return Outcome::Error(RpcError::tasks_not_declared());
    }
    let Some(name) = call.params.name() else {
        return Outcome::Error(RpcError::new(
            code::INVALID_PARAMS,
            format!("Invalid params: {} needs params.taskId, a string", call.method),
        ));
    };
    let owner = runner.store().owner(&call.caller.principal);
    let Ok(id) = name.parse::<TaskId>() else { return Outcome::Error(RpcError::unknown_task()) };
    let task = match runner.store().get(&owner, &id).await {
        Ok(Some(task)) => task,
        Ok(None) => return Outcome::Error(RpcError::unknown_task()),
        Err(error) => return unreadable(&error),
    };
    match call.method {
        Method::UpdateTask => update(runner, call, &task).await,
        Method::CancelTask => cancel(runner, &task).await,
        _ => get(runner, &task).await,
    }
}

async fn get(runner: &Runner, task: &Committed<Task>) -> Outcome {
    match look(runner, task).await {
        Ok((live, outcome)) => {
            Outcome::Shaped(view::detailed(task, live.as_deref(), outcome, runner.store().clock().now()))
        }
        Err(outcome) => outcome,
    }
}

/// The `params` of `notifications/tasks` for a task; `None` if it cannot be read now.
pub(super) async fn notification(runner: &Runner, task: &Committed<Task>) -> Option<Rope> {
    let (live, outcome) = look(runner, task).await.ok()?;
    Some(view::notified(task, live.as_deref(), outcome, runner.store().clock().now()))
}

/// What stands in a task beside its record, or what is said in place of it.
async fn look(runner: &Runner, task: &Committed<Task>) -> Result<(Option<Arc<Live>>, view::Outcome), Outcome> {
    if !task.state.is_terminal() {
        return Ok((runner.live().get(&task.id), view::Outcome::Nothing));
    }
    let outcome = match &task.state {
        State::Completed { .. } => match runner.store().outcome(task).await {
            Ok(result) => view::Outcome::Result(completed(&result).map_err(Outcome::Failed)?),
            Err(error) => return Err(unreadable(&error)),
        },
        State::Failed { cause: Cause::Server { .. } } => match runner.store().outcome(task).await {
            Ok(error) => view::Outcome::Error(server_error(error)),
            Err(error) => return Err(unreadable(&error)),
        },
        State::Failed { cause: Cause::Ours(failure) } => {
            view::Outcome::Error(RpcError::from(&view::told(task, failure)).raw().clone())
        }
        State::Queued | State::Running { .. } | State::InputRequired { .. } | State::Cancelled { .. } => {
            view::Outcome::Nothing
        }
    };
    Ok((None, outcome))
}

fn completed(result: &Json) -> Result<Rope, Failure> {
    reshape::complete(result).map_err(|error| {
        Failure::new(Reason::BadAnswer, format!("the tool's result cannot be passed on: {error}"), Retry::No)
    })
}

fn server_error(error: Json) -> Json {
    match RpcError::from_server(error.clone()) {
        Ok(read) => reshape::error(read).raw().clone(),
        Err(_) => error,
    }
}

/// Acknowledged once every question that is answered is durably out of the record and its answer on its way.
async fn update(runner: &Runner, call: &Call, task: &Committed<Task>) -> Outcome {
    let open = task.state.questions();
    let is_open = |key: &str| open.iter().any(|question| question.key == key);
    let read = Responses::read(call.params.raw());
    let responses = match read.and_then(|read| read.map(|responses| responses.checked(is_open)).transpose()) {
        Ok(Some(responses)) => responses,
        Ok(None) => {
            return Outcome::Error(RpcError::new(
                code::INVALID_PARAMS,
                "Invalid params: tasks/update needs params.inputResponses, an object",
            ));
        }
        Err(error) => return Outcome::Error(error),
    };
    match runner.answer(task, responses).await {
        Ok(_) => Outcome::Shaped(view::acknowledged()),
        Err(failure) => Outcome::Failed(failure),
    }
}

/// Acknowledges in any case: the stop is cooperative, and a task that has ended stays as it is.
async fn cancel(runner: &Runner, task: &Committed<Task>) -> Outcome {
    match runner.cancel(task, Canceller::Owner).await {
        Ok(()) => Outcome::Shaped(view::acknowledged()),
        Err(failure) => Outcome::Failed(failure),
    }
}

/// What is said in the place of a task that cannot be read now.
pub(super) fn unreadable(error: &ReadError) -> Outcome {
    let reason = match error {
        ReadError::Busy => Reason::Busy,
        // It is opened again as soon as that works.
        ReadError::Failed(_) => Reason::Store,
        // Want of descriptors passes, and so may trouble with the disk.
        ReadError::Io(_) => {
            tracing::warn!(%error, "a task cannot be read");
            Reason::Store
        }
        ReadError::Closed => Reason::Stopping,
        ReadError::NoOutcome | ReadError::Damaged => {
            tracing::error!(%error, "a task cannot be read");
            let message = format!(
                "{error}; what became of the task cannot be read any more, and to call the tool again may run it a second time"
            );
            return Outcome::Failed(Failure::new(Reason::Store, message, Retry::No));
        }
    };
    Outcome::Failed(Failure::new(reason, error.to_string(), Retry::SOON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_be_read_now_says_why_and_when_to_come_again() {
        let io = ReadError::Io(std::io::ErrorKind::Other.into());
        for (error, reason) in
            [(ReadError::Busy, Reason::Busy), (ReadError::Closed, Reason::Stopping), (io, Reason::Store)]
        {
            let Outcome::Failed(failure) = unreadable(&error) else { panic!("{error}") };
            assert_eq!((failure.reason, failure.retry), (reason, Retry::SOON));
        }
        for lost in [ReadError::Damaged, ReadError::NoOutcome] {
            let Outcome::Failed(failure) = unreadable(&lost) else { panic!("{lost}") };
            assert_eq!((failure.reason, failure.retry), (Reason::Store, Retry::No), "it would be lost again");
            assert!(failure.message.contains("run it a second time"), "{}", failure.message);
        }
    }
}
