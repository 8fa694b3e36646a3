//! `tasks/get`, `tasks/cancel`, `tasks/list` and `tasks/result` of 2025-11-25, answered from the store.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::follow::Sessions;
use super::{list, result, seen};
use crate::protocol::error::code;
use crate::protocol::{Call, Method, Outcome, Reply, RpcError, TaskSupport};
use crate::runner::Runner;
use crate::store::Committed;
use crate::task::{Canceller, Task, TaskId};
use crate::tasks::handle;

/// How long the end of a task is waited for that was told to stop: a result that is on its way may still win.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether this is a request of 2025-11-25 for tasks, in a session that has them.
pub(in crate::tasks) fn is_ours(call: &Call) -> bool {
    call.caller.tasks == TaskSupport::Augmenting
        && match &call.method {
            Method::GetTask | Method::UpdateTask | Method::CancelTask => true,
            Method::Other(name) => name == "tasks/result" || name == "tasks/list",
            _ => false,
        }
}

/// Answers one of them.
pub(in crate::tasks) async fn answer(runner: &Runner, sessions: &Sessions, call: Call) -> Reply {
    let answered = match &call.method {
        Method::GetTask => get(runner, &call).await,
        Method::CancelTask => cancel(runner, &call).await,
        Method::Other(name) if name == "tasks/list" => list::list(runner, &call).await,
        Method::Other(name) if name == "tasks/result" => return result::wait(runner, sessions, call),
        method => Err(Outcome::Error(RpcError::method_not_found(method.name()))),
    };
    Reply::ready(answered.unwrap_or_else(|refused| refused))
}

async fn get(runner: &Runner, call: &Call) -> Result<Outcome, Outcome> {
    let task = named(runner, call).await?;
    Ok(Outcome::Shaped(seen::task(runner, &task).await?))
}

/// Stops the task and waits until it has ended (2025-11-25, tasks, task cancellation).
async fn cancel(runner: &Runner, call: &Call) -> Result<Outcome, Outcome> {
    let task = named(runner, call).await?;
    if task.state.is_terminal() {
        let text = format!("Cannot cancel task: already in terminal status '{}'", task.state.status());
        return Err(Outcome::Error(RpcError::new(code::INVALID_PARAMS, text)));
    }
    let deadline = Instant::now() + PATIENCE;
    let mut watch = runner.store().watch(&task.id);
    runner.cancel(&task, Canceller::Owner).await.map_err(Outcome::Failed)?;
    let mut task = named(runner, call).await?;
    while !task.state.is_terminal() {
        tokio::select! {
            biased;
            () = watch.changed() => task = named(runner, call).await?,
            () = sleep_until(deadline) => break,
        }
    }
    Ok(Outcome::Shaped(seen::task(runner, &task).await?))
}

/// The task that the request names. One of somebody else is as unknown as one that never was.
pub(super) async fn named(runner: &Runner, call: &Call) -> Result<Committed<Task>, Outcome> {
    let invalid = |text: &str| Outcome::Error(RpcError::new(code::INVALID_PARAMS, text));
    let Some(id) = call.params.raw().member("taskId").and_then(|id| id.read::<String>().ok()) else {
        return Err(invalid("Invalid params: taskId, a string, is missing"));
    };
    let unknown = || invalid("Failed to retrieve task: Task not found");
    let id = id.parse::<TaskId>().map_err(|_| unknown())?;
    let owner = runner.store().owner(&call.caller.principal);
    match runner.store().get(&owner, &id).await {
        Ok(found) => found.ok_or_else(unknown),
        Err(error) => Err(handle::unreadable(&error)),
    }
}
