//! `tasks/result`: waits for the end of a task, says when its status changes, and asks the client what the tool asks.

use super::answers::named;
use super::follow::{self, Sessions, status};
use super::questions::Asked;
use super::{tied, tied_of};
use crate::protocol::error::code;
use crate::protocol::{
    Call, Failure, Json, JsonError, Outcome, Reason, Reply, ReplySender, Retry, Rope, RpcError, reshape,
};
use crate::runner::{Responses, Runner, view};
use crate::store::Committed;
use crate::task::{Cause, State, Task, TaskId};
use crate::tasks::handle;

/// Answers with what the call itself would have been answered with. To leave ends nothing but the wait.
pub(super) fn wait(runner: &Runner, sessions: &Sessions, call: Call) -> Reply {
    let (job, sessions) = (runner.clone(), sessions.clone());
    runner.reply("wait for a task", |sender| async move {
        let cancellation = sender.cancellation();
        let outcome = tokio::select! {
            biased;
            () = cancellation.cancelled() => return,
            outcome = until_ended(&job, &sessions, &call, &sender) => outcome,
        };
        sender.done(outcome.unwrap_or_else(|refused| refused));
    })
}

async fn until_ended(
    runner: &Runner,
    sessions: &Sessions,
    call: &Call,
    events: &ReplySender,
) -> Result<Outcome, Outcome> {
    let mut task = named(runner, call).await?;
    // First the watch, then the look: no change is missed in between.
    let mut watch = runner.store().watch(&task.id);
    let (mut told, mut asked) = (task.state.status(), Asked::default());
    let waits = sessions.wait(&call.caller.session, &task.id);
    let mut news = runner.live().get(&task.id).map(|live| live.news());
    loop {
        task = named(runner, call).await?;
        if task.state.is_terminal() {
            return end(runner, &task).await;
        }
        if task.state.status() != told {
            told = task.state.status();
            events.event(status(runner, &task).await?);
        }
        asked.follow(&task, &call.caller.abilities, events);
        tokio::select! {
            biased;
            () = watch.changed() => {}
            () = follow::changed(&mut news) => {
                if let Some(progress) = waits.as_ref().and_then(|waits| waits.progress(runner)) {
                    events.event(progress);
                }
            }
            (key, answer) = asked.next() => {
                if let Err(failure) = runner.answer(&task, Responses::one(&key, answer)).await {
                    tracing::warn!(task = ?task.id, reason = %failure.reason, "an answer could not be taken");
                    asked.again(&key);
                }
            }
            // A run that ends soon is waited for; nothing else is left to wait for.
            () = runner.ending(), if runner.live().get(&task.id).is_none() => {
                let text = "Raincheck is stopping; ask for the result again when it is back";
                let retry = Retry::SOON;
                return Err(Outcome::Failed(Failure::new(Reason::Stopping, text, retry)));
            }
        }
    }
}

/// Exactly what the call would have been answered with, and the tie to the task (2025-11-25, tasks, result retrieval).
async fn end(runner: &Runner, task: &Committed<Task>) -> Result<Outcome, Outcome> {
    match &task.state {
        State::Completed { .. } => {
            let result = runner.store().outcome(task).await.map_err(|error| handle::unreadable(&error))?;
            shaped(&result, task.id).map(Outcome::Shaped).map_err(|error| {
                let text = format!("the tool's result cannot be passed on: {error}");
                Outcome::Failed(Failure::new(Reason::BadAnswer, text, Retry::No))
            })
        }
        State::Failed { cause: Cause::Server { code, message, .. } } => {
            let error = runner.store().outcome(task).await.map_err(|error| handle::unreadable(&error))?;
            let error = RpcError::from_server(error).unwrap_or_else(|_| RpcError::new(*code, message.clone()));
            Ok(Outcome::Error(error))
        }
        State::Failed { cause: Cause::Ours(failure) } => Ok(Outcome::Failed(view::told(task, failure))),
        State::Cancelled { .. } => {
            Ok(Outcome::Error(RpcError::new(code::INVALID_PARAMS, "The task was cancelled, so it has no result")))
        }
        // Not reached: it has ended.
        State::Queued | State::Running { .. } | State::InputRequired { .. } => {
            Err(Outcome::Error(RpcError::new(code::INTERNAL, "Internal error: the task has not ended")))
        }
    }
}

fn shaped(result: &Json, id: TaskId) -> Result<Rope, JsonError> {
    // A client of 2026-07-28 may have made the task, and a server of that revision have answered it.
    if result.member("resultType").is_some() {
        return tied_of(result, id, reshape::is_legacy_member, reshape::is_legacy_meta);
    }
    tied(result, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::protocol::Method;

    #[test]
    fn what_a_legacy_client_is_shown_of_a_modern_result_shares_its_bytes() {
        let id = TaskId::generate(Timestamp::from_millis(1));
        let large = "x".repeat(4096);
        let result = format!(
            r#"{{"resultType":"complete","content":["{large}"],"ttlMs":1,"_meta":{{"io.modelcontextprotocol/a":1,"b":2}}}}"#
        );
        let result = Json::parse(result.into()).unwrap();
        let shown = shaped(&result, id).unwrap();
        assert!(
            shown.clone().into_pieces().iter().any(|piece| result.bytes().as_ptr_range().contains(&piece.as_ptr()))
        );
        let legacy = reshape::legacy_result(&Method::CallTool, &result).unwrap().into_json();
        assert_eq!(shown.into_json(), tied(&legacy, id).unwrap().into_json());
        assert!(!legacy.as_str().contains("resultType") && !legacy.as_str().contains("modelcontextprotocol"));
    }
}
