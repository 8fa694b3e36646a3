//! What a client sees of a task (SEP-2663: `CreateTaskResult`, `GetTaskResult`).
//!
//! A handle is made from a committed task and nothing else.

use std::time::Duration;

use super::joining::JOINED;
use super::live::Phase;
use crate::clock::{Timestamp, millis};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Failure, Json, Progress, Retry, Rope};
use crate::store::Committed;
use crate::task::{Cause, OpenQuestion, State, Task};

/// The least and the greatest `pollIntervalMs`. Low at first, since clients wait that long before
/// they look for the first time.
const POLL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// What stands in a task beside its record.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing: it has not ended, or was cancelled.
    Nothing,
    /// The result, in the shape of 2026-07-28.
    Result(Rope),
    /// The JSON-RPC error.
    Error(Json),
}

/// Whose call a task is of, for the one who is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Own,
    /// An earlier one, which this one repeats.
    Earlier,
}

/// The `CreateTaskResult` of a task.
pub fn created(task: &Committed<Task>, phase: &Phase, now: Timestamp) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("resultType", "task");
    write(&mut writer, task, Some(phase), Whose::Own, now);
    writer.finish()
}

/// The `CreateTaskResult` of the task of an earlier call, for a call that repeats it.
pub(super) fn joined(task: &Committed<Task>, phase: Option<&Phase>, now: Timestamp) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("resultType", "task");
    write(&mut writer, task, phase, Whose::Earlier, now);
    writer.finish()
}

/// The `GetTaskResult` of a task; `phase` is known while its run goes on here.
pub fn detailed(task: &Committed<Task>, phase: Option<&Phase>, outcome: Outcome, now: Timestamp) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("resultType", "complete");
    details(writer, task, phase, outcome, now)
}

/// The `params` of `notifications/tasks`: what `tasks/get` would say (SEP-2663, task status notifications).
pub fn notified(task: &Committed<Task>, phase: Option<&Phase>, outcome: Outcome, now: Timestamp) -> Rope {
    details(ObjectWriter::new(), task, phase, outcome, now)
}

/// The `inputRequests` of these questions (2026-07-28, multi round-trip requests).
pub(super) fn input_requests<'a>(questions: impl IntoIterator<Item = &'a OpenQuestion>) -> Rope {
    let mut requests = ObjectWriter::new();
    for question in questions {
        let mut request = ObjectWriter::new();
        request.string("method", question.kind.method()).raw("params", &question.params);
        requests.rope(&question.key, request.finish());
    }
    requests.finish()
}

fn details(mut writer: ObjectWriter, task: &Task, phase: Option<&Phase>, outcome: Outcome, now: Timestamp) -> Rope {
    write(&mut writer, task, phase, Whose::Own, now);
    if let State::InputRequired { questions, .. } = &task.state {
        writer.rope("inputRequests", input_requests(questions));
    }
    match outcome {
        Outcome::Nothing => {}
        Outcome::Result(result) => {
            writer.rope("result", result);
        }
        Outcome::Error(error) => {
            writer.raw("error", &error);
        }
    }
    writer.finish()
}

/// The empty acknowledgement of `tasks/update` and `tasks/cancel`. Some clients refuse any other member.
pub fn acknowledged() -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("resultType", "complete");
    writer.finish()
}

fn write(writer: &mut ObjectWriter, task: &Task, phase: Option<&Phase>, whose: Whose, now: Timestamp) {
    writer.string("taskId", task.id.as_str()).string("status", task.state.status());
    let message = status_message(task, phase, now);
    let message = match whose {
        Whose::Own => message,
        Whose::Earlier => Some(repeats(task, message.as_deref())),
    };
    if let Some(message) = message {
        writer.string("statusMessage", &message);
    }
    writer.string("createdAt", &task.created.to_string());
    writer.string("lastUpdatedAt", &updated(task, phase).to_string());
    writer.number_or_null("ttlMs", task.ttl().map(millis));
    writer.number_or_null("pollIntervalMs", Some(millis(poll_interval(task, now))));
    let mut facts = facts(task, phase, now);
    if whose == Whose::Earlier {
        facts.insert(JOINED.to_owned(), true.into());
    }
    if !facts.is_empty() {
        writer.raw("_meta", &Json::from_value(&facts.into()));
    }
}

/// Says that nothing new was started.
fn repeats(task: &Task, message: Option<&str>) -> String {
    let how = if task.state.is_terminal() { "has ended" } else { "goes on" };
    let message = message.map_or_else(String::new, |message| format!("; {message}"));
    format!("this repeats an earlier call, which {how}{message}")
}

/// A tenth of the age, within bounds.
fn poll_interval(task: &Task, now: Timestamp) -> Duration {
    let (least, greatest) = POLL;
    (now.since(task.created) / 10).clamp(least, greatest)
}

/// Progress counts as an update, a poll does not.
fn updated(task: &Task, phase: Option<&Phase>) -> Timestamp {
    match phase {
        Some(Phase::Running { progress: Some((_, at)) }) => task.updated.max(*at),
        _ => task.updated,
    }
}

fn status_message(task: &Task, phase: Option<&Phase>, now: Timestamp) -> Option<String> {
    match &task.state {
        State::Queued => Some(match phase {
            Some(Phase::Queued(place)) => match place.now() {
                Some(1) => "queued: next in line for a free slot".to_owned(),
                Some(place) => format!("queued: number {place} in line for a free slot"),
                None => "queued: about to start".to_owned(),
            },
            _ => "queued for a free slot".to_owned(),
        }),
        State::Running { started } => {
            let seconds = Duration::from_secs(now.since(*started).as_secs());
            let mut message = format!("running for {}", humantime::format_duration(seconds));
            if let Some(Phase::Running { progress: Some((progress, _)) }) = phase {
                message.push_str("; progress ");
                message.push_str(&progress.describe());
            }
            Some(message)
        }
        State::InputRequired { since, questions, .. } => {
            let seconds = Duration::from_secs(now.since(*since).as_secs());
            let waiting = humantime::format_duration(seconds);
            Some(match questions.len() {
                1 => format!("waiting for input for {waiting}: the tool has a question"),
                open => format!("waiting for input for {waiting}: the tool has {open} questions"),
            })
        }
        State::Completed { .. } => None,
        State::Failed { cause: Cause::Server { message, .. } } => Some(message.clone()),
        State::Failed { cause: Cause::Ours(failure) } => Some(failure.message.clone()),
        State::Cancelled => Some("cancelled on request".to_owned()),
    }
}

/// `_meta` with the vendor's members: why it failed and whether to try again, the numbers of its progress, what it costs.
fn facts(task: &Task, phase: Option<&Phase>, now: Timestamp) -> serde_json::Map<String, serde_json::Value> {
    let mut meta = serde_json::Map::new();
    match (&task.state, phase) {
        (State::Failed { cause: Cause::Ours(failure) }, _) => failure_facts(&mut meta, failure),
        (State::Failed { cause: Cause::Server { .. } }, _) => {
            meta.insert("dev.raincheck/reason".to_owned(), "server_error".into());
        }
        (
            State::Running { .. } | State::InputRequired { .. },
            Some(Phase::Running { progress: Some((progress, _)) }),
        ) => {
            meta.extend(progress_facts(progress).map(|facts| ("dev.raincheck/progress".to_owned(), facts)));
        }
        (State::Queued, Some(Phase::Queued(place))) => {
            meta.extend(place.now().map(|place| ("dev.raincheck/place".to_owned(), place.into())));
        }
        _ => {}
    }
    if !task.charge.is_free()
        && let Ok(cost) = serde_json::from_str(&task.cost(now).to_string())
    {
        meta.insert("dev.raincheck/cost".to_owned(), cost);
    }
    meta
}

fn failure_facts(meta: &mut serde_json::Map<String, serde_json::Value>, failure: &Failure) {
    meta.insert("dev.raincheck/reason".to_owned(), serde_json::json!(failure.reason));
    if let Some(retryable) = failure.retry.retryable() {
        meta.insert("dev.raincheck/retryable".to_owned(), retryable.into());
    }
    if let Retry::After(wait) = failure.retry {
        meta.insert("dev.raincheck/retryAfterMs".to_owned(), millis(wait).into());
    }
}

fn progress_facts(progress: &Progress) -> Option<serde_json::Value> {
    let mut facts = serde_json::Map::new();
    facts.insert("progress".to_owned(), progress.progress.read().ok()?);
    if let Some(total) = &progress.total {
        facts.insert("total".to_owned(), total.read().ok()?);
    }
    if let Some(message) = &progress.message {
        facts.insert("message".to_owned(), message.chars().take(300).collect::<String>().into());
    }
    Some(facts.into())
}
