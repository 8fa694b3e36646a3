//! How an earlier call ended, for a caller who repeats it.

use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    ClientSession, Failure, Json, JsonError, Outcome, Reason, Retry, Rope, RpcError, meta_key, reshape,
};
use crate::store::{Committed, INLINE, ReadError, Store};
use crate::task::{Canceller, Cause, KeySource, State, Task};

/// The member of `_meta` that says that an answer is of an earlier call.
pub(in crate::runner) const JOINED: &str = "dev.raincheck/joined";

/// The outcome of a task that has ended, for a client with this session.
pub(super) async fn of(store: &Store, task: &Committed<Task>, session: &ClientSession) -> Outcome {
    match &task.state {
        State::Completed { .. } => match store.outcome(task).await {
            Ok(result) => joined(result, session),
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
        Canceller::Owner => "the call was cancelled on request",
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
    marked(ObjectWriter::new(), &round, |_| true).unwrap_or_else(|_| round.into())
}

/// The result, marked. What is large keeps its bytes, and with them its room: it is not put together.
fn joined(result: Json, session: &ClientSession) -> Outcome {
    let is_large = result.len() > INLINE;
    let marked = match session {
        ClientSession::Stateless if is_large => modern(&result),
        ClientSession::Stateless | ClientSession::Legacy(_) => marked(ObjectWriter::new(), &result, |_| true),
    };
    match marked {
        Ok(marked) if is_large => Outcome::Shaped(marked),
        Ok(marked) => Outcome::Result(marked.into_json()),
        Err(_) => Outcome::Result(result),
    }
}

/// As [`reshape::complete`] would write what is marked.
fn modern(result: &Json) -> Result<Rope, JsonError> {
    let mut whole = ObjectWriter::new();
    if reshape::result_type(result).is_none() {
        whole.string("resultType", "complete");
    }
    marked(whole, result, |name| name != meta_key::RELATED_TASK)
}

/// The result, with a word in its `_meta` that it is of an earlier call, and of what is there what `keep` accepts.
fn marked(mut whole: ObjectWriter, result: &Json, keep: impl Fn(&str) -> bool) -> Result<Rope, JsonError> {
    let mut meta = ObjectWriter::new();
    if let Some(old) = result.members()?.get("_meta").map(|old| Json::of(result.bytes(), old)) {
        meta.members_of(&old, |name| name != JOINED && keep(name))?;
    }
    meta.boolean(JOINED, true);
    whole.members_of(result, |name| name != "_meta")?.rope("_meta", meta.finish());
    Ok(whole.finish())
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
            let Outcome::Result(joined) = joined(result, &ClientSession::Stateless) else { panic!() };
            assert_eq!(joined.as_str(), expected);
        }
        assert!(marked(ObjectWriter::new(), &Json::null(), |_| true).is_err());
    }

    #[test]
    fn a_large_result_is_marked_where_it_is_and_looks_as_a_small_one_would() {
        let sessions = [ClientSession::Stateless, ClientSession::Legacy(1)];
        let large = "x".repeat(INLINE);
        let tie = meta_key::RELATED_TASK;
        let heads = ["", r#""resultType":"complete","#, &format!(r#""_meta":{{"a":1.0,"{tie}":{{}}}},"#)];
        for (head, session) in heads.into_iter().flat_map(|head| sessions.iter().map(move |session| (head, session))) {
            let result = Json::parse(format!(r#"{{{head}"content":["{large}"],"n":1E2}}"#).into()).unwrap();
            let small = marked(ObjectWriter::new(), &result, |_| true).unwrap().into_json();
            let expected = match session {
                ClientSession::Stateless => reshape::complete(&small).unwrap().into_json(),
                ClientSession::Legacy(_) => small,
            };
            let Outcome::Shaped(joined) = joined(result.clone(), session) else { panic!("it was copied") };
            let own: usize = joined
                .clone()
                .into_pieces()
                .iter()
                .filter(|piece| !shares(piece, &result))
                .map(bytes::Bytes::len)
                .sum();
            assert!(own < 1024, "{own} bytes were copied");
            assert_eq!(joined.into_json(), expected, "{head}");
        }
    }

    fn shares(piece: &bytes::Bytes, result: &Json) -> bool {
        result.bytes().as_ptr_range().contains(&piece.as_ptr())
    }

    #[test]
    fn how_the_owner_cancelled_is_not_told_since_there_are_several_ways() {
        // A task of its own, the notification of a legacy client, a companion tool.
        for (sent, expected) in
            [(true, "cancelled on request; the tool may"), (false, "cancelled on request before it")]
        {
            let message = cancelled(Canceller::Owner, sent).message;
            assert!(message.contains(expected), "{message}");
        }
    }
}
