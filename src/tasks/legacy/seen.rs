//! A task as a client of 2025-11-25 sees it.

use crate::clock::{Timestamp, millis};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Json, Outcome, Rope};
use crate::runner::{Live, Runner, view};
use crate::store::Committed;
use crate::task::{State, Task};
use crate::tasks::handle;

/// What the revision makes of a task that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What the record says.
    AsRecorded,
    /// The tool said that it failed, in these words: by this revision the task has failed then.
    ToolFailed(Option<String>),
}

/// Characters of what a tool says of its failure.
const WORDS: usize = 300;

/// The `Task` object.
pub(super) async fn task(runner: &Runner, task: &Committed<Task>) -> Result<Rope, Outcome> {
    let verdict = verdict(runner, task).await?;
    let live = runner.live().get(&task.id).filter(|_| !task.state.is_terminal());
    Ok(object(task, live.as_deref(), &verdict, runner.store().clock().now()))
}

/// The `Task` object of a task of which this is known.
pub(super) fn object(task: &Task, live: Option<&Live>, verdict: &Verdict, now: Timestamp) -> Rope {
    let view::Course { message, updated, poll_interval } = view::course(task, live, now);
    let (status, message) = match verdict {
        Verdict::AsRecorded => (task.state.status(), message),
        Verdict::ToolFailed(words) => ("failed", words.clone().or(message)),
    };
    let mut writer = ObjectWriter::new();
    writer.string("taskId", task.id.as_str()).string("status", status);
    if let Some(message) = message {
        writer.string("statusMessage", &message);
    }
    writer.string("createdAt", &task.created.to_string()).string("lastUpdatedAt", &updated.to_string());
    writer.number_or_null("ttl", task.ttl().map(millis));
    if !task.state.is_terminal() {
        writer.number_or_null("pollInterval", Some(millis(poll_interval)));
    } else if let Some(facts) = view::facts(task, None, now) {
        writer.raw("_meta", &facts);
    }
    writer.finish()
}

async fn verdict(runner: &Runner, task: &Committed<Task>) -> Result<Verdict, Outcome> {
    let State::Completed { .. } = task.state else { return Ok(Verdict::AsRecorded) };
    let result = runner.store().outcome(task).await.map_err(|error| handle::unreadable(&error))?;
    Ok(of_result(&result))
}

/// For tool calls `isError` means that the task has failed (2025-11-25, tasks, task status).
fn of_result(result: &Json) -> Verdict {
    if result.member("isError").is_none_or(|it| it.as_str() != "true") {
        return Verdict::AsRecorded;
    }
    let content = result.member("content");
    let first = content.as_ref().and_then(|content| {
        let texts = content.elements().ok()?;
        texts.iter().find_map(|one| Json::of(content.bytes(), one).member("text")?.read::<String>().ok())
    });
    Verdict::ToolFailed(first.map(|text| text.chars().take(WORDS).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_is_an_error_is_a_failure_in_the_words_of_the_tool() {
        let verdict = |text: &str| of_result(&Json::parse(bytes::Bytes::from(text.to_owned())).unwrap());
        let failed = |text: &str| Verdict::ToolFailed(Some(text.to_owned()));
        let long = format!(r#"{{"isError":true,"content":[{{"text":"{}"}}]}}"#, "é".repeat(400));
        assert_eq!(verdict(r#"{"isError":false,"content":[{"text":"x"}]}"#), Verdict::AsRecorded);
        assert_eq!(verdict(r#"{"content":[]}"#), Verdict::AsRecorded);
        assert_eq!(verdict(r#"{"content":[{"data":""},{"text":"no paper"}],"isError": true}"#), failed("no paper"));
        assert_eq!(verdict(r#"{"isError":true}"#), Verdict::ToolFailed(None));
        assert_eq!(verdict(&long), failed(&"é".repeat(300)));
    }
}
