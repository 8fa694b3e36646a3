//! How an earlier call ended, for a caller who repeats it.

use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Failure, Json, JsonError, Outcome, Reason, Retry, Rope, RpcError};
use crate::store::{Committed, ReadError, Store};
use crate::task::{Canceller, Cause, KeySource, State, Task};

/// The member of `_meta` that says that an answer is of an earlier call.
pub(in crate::runner) const JOINED: &str = "dev.raincheck/joined";

/// The outcome of a task that has ended.
pub(super) async fn of(store: &Store, task: &Committed<Task>) -> Outcome {
    match &task.state {
        State::Completed { .. } => match store.outcome(task).await {
            Ok(result) => Outcome::Result(marked(&result).unwrap_or(result)),
            Err(error) => unreadable(&error),
        },
        State::Failed { cause: Cause::Server { .. } } => match store.outcome(task).await {
            Ok(error) => match RpcError::from_server(error) {
                Ok(error) => Outcome::Error(error),
                Err(error) => Outcome::Failed(Failure::outcome_unknown(&error.to_string())),
            },
            Err(error) => unreadable(&error),
        },
        State::Failed { cause: Cause::Ours(failure) } => {
            let mut failure = failure.clone();
            let earlier = match task.key.map(|key| key.source()) {
                // Whoever calls again begins a new run.
                Some(_) if failure.retry.retryable() == Some(true) => "; this is how an earlier call of the same ended",
                Some(KeySource::Caller) => {
                    "; this is how an earlier call with the same key ended, a new run needs another key"
                }
                Some(KeySource::Running | KeySource::Window(_)) => {
                    "; this is how an earlier call of the same ended, which this one joined (dedupe)"
                }
                None => "",
            };
            failure.message.push_str(earlier);
            Outcome::Failed(failure)
        }
        State::Cancelled { by, sent } => Outcome::Failed(cancelled(*by, *sent)),
        State::Queued | State::Running { .. } | State::InputRequired { .. } => {
            Outcome::Failed(Failure::outcome_unknown("the earlier call has not ended"))
        }
    }
}

/// What those who are held are told when their call was cancelled as a task, which its server may have had or not.
pub(in crate::runner) fn cancelled(by: Canceller, sent: bool) -> Failure {
    let who = match by {
        Canceller::Owner => "the call was cancelled on request (tasks/cancel)",
        Canceller::Operator => "the operator has cancelled the call",
    };
    let (reason, what) = if sent {
        (Reason::OutcomeUnknown, "; the tool may have done part of its work, check before calling it again")
    } else {
        (Reason::NotStarted, " before it was sent; the tool has not run")
    };
    Failure::new(reason, format!("{who}{what}; where it had a key, a new run needs another"), Retry::No)
}

/// A round of questions that was put to an earlier caller, marked like all that is joined.
pub(super) fn of_round(round: Rope) -> Rope {
    let round = round.into_json();
    marked(&round).unwrap_or(round).into()
}

/// The result, with a word in its `_meta` that it is of an earlier call.
fn marked(result: &Json) -> Result<Json, JsonError> {
    let part = |value| Json::of(result.bytes(), value);
    let members = result.members()?;
    let mut meta = ObjectWriter::new();
    let old = members.get("_meta").map(part);
    if let Some(old) = &old {
        for (name, value) in old.members()?.iter().filter(|(name, _)| *name != JOINED) {
            meta.raw(name, &part(value));
        }
    }
    meta.raw(JOINED, &Json::from_value(&true.into()));
    let mut whole = ObjectWriter::new();
    for (name, value) in members.iter().filter(|(name, _)| *name != "_meta") {
        whole.raw(name, &part(value));
    }
    whole.rope("_meta", meta.finish());
    Ok(whole.finish_json())
}

fn unreadable(error: &ReadError) -> Outcome {
    let (reason, retry) = match error {
        ReadError::Busy => (Reason::Busy, Retry::SOON),
        _ => (Reason::Store, Retry::Unknown),
    };
    let message = format!("{error}; the tool has run for an earlier call with the same key");
    Outcome::Failed(Failure::new(reason, message, retry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_marked_and_keeps_its_spelling() {
        let table = [
            (r#"{"content":[],"n":1E2}"#, r#"{"content":[],"n":1E2,"_meta":{"dev.raincheck/joined":true}}"#),
            (
                r#"{"_meta":{"a":{"b":1.0}},"content":[]}"#,
                r#"{"content":[],"_meta":{"a":{"b":1.0},"dev.raincheck/joined":true}}"#,
            ),
            ("{}", r#"{"_meta":{"dev.raincheck/joined":true}}"#),
        ];
        for (result, expected) in table {
            let result = Json::parse(result.as_bytes().into()).unwrap();
            assert_eq!(marked(&result).unwrap().as_str(), expected);
        }
        assert!(marked(&Json::null()).is_err());
    }
}
