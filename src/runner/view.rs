//! What a client sees of a task (SEP-2663: `CreateTaskResult`, `GetTaskResult`).
//!
//! A handle is made from a committed task and nothing else.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;

use super::joining::JOINED;
use super::live::{Live, Phase};
use super::timing::Timing;
use super::{Kept, Linger, Place};
use crate::clock::{Timestamp, millis};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Failure, Json, Progress, Reason, Retry, Rope, reshape};
use crate::store::Committed;
use crate::task::{Canceller, Cause, KeySource, OpenQuestion, State, Task};

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

/// A task, with all that is known of it.
struct Seen<'a> {
    task: &'a Task,
    /// How far its run is, if that goes on here.
    phase: Option<Phase>,
    timing: Timing,
    /// What it costs so far, if it costs anything.
    cost: Option<serde_json::Value>,
}

/// Whose call a task is of, for the one who is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Own,
    /// An earlier one, which this one repeats.
    Earlier,
}

/// The `CreateTaskResult` of a task.
pub fn created(task: &Committed<Task>, live: Option<&Live>, now: Timestamp) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("resultType", "task");
    write(&mut writer, &Seen::of(task, live, now), Whose::Own);
    writer.finish()
}

/// The `CreateTaskResult` of the task of an earlier call, for a call that repeats it.
pub(super) fn joined(task: &Committed<Task>, live: Option<&Live>, now: Timestamp) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("resultType", "task");
    write(&mut writer, &Seen::of(task, live, now), Whose::Earlier);
    writer.finish()
}

/// The `GetTaskResult` of a task; `live` is there while its run goes on here.
pub fn detailed(task: &Committed<Task>, live: Option<&Live>, outcome: Outcome, now: Timestamp) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("resultType", "complete");
    details(writer, &Seen::of(task, live, now), outcome)
}

/// The `params` of `notifications/tasks`: what `tasks/get` would say (SEP-2663, task status notifications).
pub fn notified(task: &Committed<Task>, live: Option<&Live>, outcome: Outcome, now: Timestamp) -> Rope {
    details(ObjectWriter::new(), &Seen::of(task, live, now), outcome)
}

/// What is said of a task in every revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// `statusMessage`.
    pub message: Option<String>,
    /// `lastUpdatedAt`.
    pub updated: Timestamp,
    /// When to look again.
    pub poll_interval: Duration,
}

/// How a task goes on; `live` is there while its run goes on here.
pub fn course(task: &Task, live: Option<&Live>, now: Timestamp) -> Course {
    let seen = Seen::of(task, live, now);
    Course { message: seen.message(), updated: seen.updated(), poll_interval: seen.timing.poll_interval() }
}

/// The `inputRequests` of these questions (2026-07-28, multi round-trip requests).
pub(super) fn input_requests<'a>(questions: impl IntoIterator<Item = &'a OpenQuestion>) -> Rope {
    let mut requests = ObjectWriter::new();
    for question in questions {
        let mut request = ObjectWriter::new();
        let params = reshape::question(question.kind, &question.params);
        request.string("method", question.kind.method()).raw("params", &params);
        requests.rope(&question.key, request.finish());
    }
    requests.finish()
}

fn details(mut writer: ObjectWriter, seen: &Seen<'_>, outcome: Outcome) -> Rope {
    write(&mut writer, seen, Whose::Own);
    if let State::InputRequired { questions, .. } = &seen.task.state {
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

impl<'a> Seen<'a> {
    fn of(task: &'a Task, live: Option<&Live>, now: Timestamp) -> Self {
        let timing = Timing::of(task, live, now);
        let cost = (!task.charge.is_free()).then(|| task.cost(timing.ran()).to_string());
        let cost = cost.and_then(|cost| serde_json::from_str(&cost).ok());
        Self { task, phase: live.map(Live::phase), timing, cost }
    }
}

/// What `statusMessage` says of a task (SEP-2663).
pub fn status_message(task: &Task, live: Option<&Live>, now: Timestamp) -> Option<String> {
    Seen::of(task, live, now).message()
}

/// The vendor's members of `_meta` of a task.
pub fn facts(task: &Task, live: Option<&Live>, now: Timestamp) -> Option<Json> {
    let facts = Seen::of(task, live, now).facts();
    (!facts.is_empty()).then(|| Json::from_value(&facts.into()))
}

fn write(writer: &mut ObjectWriter, seen: &Seen<'_>, whose: Whose) {
    let task = seen.task;
    writer.string("taskId", task.id.as_str()).string("status", task.state.status());
    let message = match whose {
        Whose::Own => seen.message(),
        Whose::Earlier => Some(repeats(task, seen.message().as_deref())),
    };
    if let Some(message) = message {
        writer.string("statusMessage", &message);
    }
    writer.string("createdAt", &task.created.to_string());
    writer.string("lastUpdatedAt", &seen.updated().to_string());
    writer.number_or_null("ttlMs", task.ttl().map(millis));
    writer.number_or_null("pollIntervalMs", Some(millis(seen.timing.poll_interval())));
    let mut facts = seen.facts();
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

impl Seen<'_> {
    /// Progress counts as an update, a poll does not.
    fn updated(&self) -> Timestamp {
        match &self.phase {
            Some(Phase::Running { progress: Some((_, at)) }) => self.task.updated.max(*at),
            _ => self.task.updated,
        }
    }

    fn message(&self) -> Option<String> {
        match &self.task.state {
            State::Queued => Some(match &self.phase {
                Some(Phase::Queued(place)) => queued(place),
                Some(Phase::Waits(what)) => what.describe().to_owned(),
                _ => "queued for a free slot".to_owned(),
            }),
            State::Running { .. } => {
                if let Some(Phase::Waits(what)) = &self.phase {
                    return Some(what.describe().to_owned());
                }
                let mut message = self.timing.running();
                if let Some(Phase::Running { progress: Some((progress, _)) }) = &self.phase {
                    message.push_str("; progress ");
                    message.push_str(&progress.describe());
                }
                Some(message)
            }
            State::InputRequired { questions, .. } => {
                let waiting = self.timing.waiting();
                Some(match questions.len() {
                    1 => format!("{waiting}: the tool has a question"),
                    open => format!("{waiting}: the tool has {open} questions"),
                })
            }
            State::Completed { .. } => None,
            State::Failed { cause: Cause::Server { message, .. } } => Some(message.clone()),
            State::Failed { cause: Cause::Ours(failure) } => Some(told(self.task, failure).message),
            State::Cancelled { by, sent } => {
                let how = match by {
                    Canceller::Owner => "cancelled on request",
                    Canceller::Operator => "cancelled by the operator",
                };
                let what = if *sent { "" } else { " before it was sent; the tool has not run" };
                Some(format!("{how}{what}"))
            }
        }
    }

    /// `_meta` with the vendor's members: why it failed and whether to try again, the numbers of its progress and of its
    /// time, what it costs.
    fn facts(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut meta = serde_json::Map::new();
        match (&self.task.state, &self.phase) {
            (State::Failed { cause: Cause::Ours(failure) }, _) => failure_facts(&mut meta, failure),
            (State::Failed { cause: Cause::Server { .. } }, _) => {
                meta.insert("dev.raincheck/reason".to_owned(), "server_error".into());
            }
            (State::Completed { .. } | State::Cancelled { .. }, _) => {}
            (State::Running { .. } | State::InputRequired { .. }, phase) => {
                if let Some(Phase::Running { progress: Some((progress, _)) }) = phase
                    && let Some(facts) = progress_facts(progress)
                {
                    meta.insert("dev.raincheck/progress".to_owned(), facts);
                }
                self.timing.facts(&mut meta);
            }
            (State::Queued, phase) => {
                if let Some(Phase::Queued(place)) = phase
                    && let Some(place) = place.now()
                {
                    meta.insert("dev.raincheck/place".to_owned(), place.into());
                }
                self.timing.facts(&mut meta);
            }
        }
        if let Some(cost) = &self.cost {
            meta.insert("dev.raincheck/cost".to_owned(), cost.clone());
        }
        meta
    }
}

/// A failure of ours as those are told it who look at `task`: a call with a key that may have run is not run again
/// under that key, whatever its caller finds out, and with `dedupe` not within its window if it was lost.
pub fn told(task: &Task, failure: &Failure) -> Failure {
    told_under(task.key.map(|key| key.source()), failure)
}

/// The same, of a call whose key comes from there.
pub(super) fn told_under(key: Option<KeySource>, failure: &Failure) -> Failure {
    let mut told = failure.clone();
    match key {
        Some(KeySource::Caller) if failure.retry.retryable() != Some(true) => {
            told.message.push_str("; the same key leads to this end again, a new run needs a new key");
        }
        Some(KeySource::Window(window)) if failure.reason == Reason::OutcomeUnknown => {
            let window = humantime::format_duration(window);
            // Writing into a string cannot fail.
            let _ =
                write!(told.message, "; the same call within {window} of its start leads to this end again (dedupe)");
        }
        Some(_) | None => {}
    }
    told
}

/// Where a call is in the line.
fn queued(place: &Place) -> String {
    match place.now() {
        Some(1) => format!("queued: next in line for a free slot{}", kept(place)),
        Some(number) => format!("queued: number {number} in line for a free slot{}", kept(place)),
        None => "queued: about to start".to_owned(),
    }
}

/// That a call in the line waits for a server that was told to stop, to be put behind its place; else nothing.
pub fn kept(place: &Place) -> String {
    let Some(Kept { until, rule }) = place.kept() else { return String::new() };
    let left = until.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000);
    let left = humantime::format_duration(Duration::from_secs(u64::try_from(left).unwrap_or(u64::MAX)));
    let rule = match rule {
        Linger::AtMost(_) | Linger::Untold(_) => "cancel_grace",
        Linger::UntilTimeout => "cancel = \"ignored\"",
    };
    format!("; one is kept for a run that was stopped, until its server has answered, for up to {left} ({rule})")
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
