//! The state machine: `Queued -> Running <-> InputRequired -> Completed | Failed | Cancelled`.
//!
//! On the wire Queued and Running are both `working`.

use std::fmt;
use std::time::Duration;

use super::question::{self, OpenQuestion};
use crate::clock::Timestamp;
use crate::protocol::Failure;

/// How far a task is. Each arm names what may follow it; `Running` and `InputRequired` go back to `Queued` once, where a lost
/// run may be run again, and `Running` where the call was not sent after all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a free slot, or for its server; nothing was sent. To `Running` when it gets one, to `Failed` when it
    /// waited too long or was lost before it was sent, to `Cancelled` on request.
    Queued,
    /// Runs upstream. To `InputRequired`, `Completed`, `Failed` or `Cancelled`.
    Running {
        /// When the call was sent; later by the time it has waited for input, so what it has run counts from here.
        started: Timestamp,
    },
    /// The tool asks. To `Running` when no question is left, to `Completed`, `Failed` or `Cancelled`.
    InputRequired {
        /// As in `Running`, without the wait that goes on.
        started: Timestamp,
        /// Since when at least one question has been open.
        since: Timestamp,
        /// The open questions, in the order in which they were asked; never none.
        questions: Vec<OpenQuestion>,
    },
    /// The tool answered, well or with `isError`. Final.
    Completed {
        /// Where its result is.
        result: Stored,
    },
    /// The run ended with a JSON-RPC error or was lost. Final.
    Failed {
        /// Why.
        cause: Cause,
    },
    /// It was stopped. Final.
    Cancelled {
        /// By whom.
        by: Canceller,
        /// Whether its server may have had the call.
        sent: bool,
    },
}

/// Who stopped a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Canceller {
    /// Its owner, or a caller that went before it had the handle.
    #[default]
    Owner,
    /// An operator.
    Operator,
}

/// What happens to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It got a slot, and the call is about to be sent.
    Start,
    /// The call was not sent after all: its server has to be started first, or takes others before.
    Wait,
    /// The tool asks.
    Ask(OpenQuestion),
    /// The question with this key was answered.
    Answer(String),
    /// The tool does not want an answer to the question with this key any more.
    Withdraw(String),
    /// Its run was lost, and it may be run again. So long the lost one ran.
    Rerun(Duration),
    /// The server answered with a result.
    Complete(Stored),
    /// The server answered with an error, or the run came to nothing.
    Fail(Cause),
    /// It was stopped.
    Cancel(Canceller),
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The server's JSON-RPC error, word for word.
    Server {
        /// Its code.
        code: i64,
        /// The beginning of its message, for `statusMessage`.
        message: String,
        /// Where the whole error object is.
        error: Stored,
    },
    /// A failure of ours.
    Ours(Failure),
}

/// Where the text of an outcome is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its length in bytes.
    pub len: u64,
    /// CRC-32 of its bytes.
    pub checksum: u32,
    /// The revision in the name of its file; `None` if it is small enough for the store itself.
    pub file: Option<u32>,
}

impl Stored {
    /// Whether this is the text that was kept.
    pub fn describes(&self, text: &[u8]) -> bool {
        text.len() as u64 == self.len && crc32fast::hash(text) == self.checksum
    }
}

/// Why a change may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The task has ended; a terminal state never changes.
    Ended,
    /// The task already runs.
    Running,
    /// The task has not been started, so it has no outcome and no questions.
    NotStarted,
    /// No such question is open: it never was, or it was answered or withdrawn.
    NotAsked,
    /// The key, or the number, was used before.
    KeyUsed,
    /// More is open already than one task may ask.
    TooMuchAsked,
    /// It was run again before.
    RunAgain,
}

impl State {
    /// The state after `change`, or why that may not be. Whether a key is free is for the task to say.
    pub fn apply(&self, change: Change, now: Timestamp) -> Result<Self, Refusal> {
        match (self, change) {
            (Self::Queued, Change::Start) => Ok(Self::Running { started: now }),
            (Self::Queued, Change::Complete(_) | Change::Ask(_) | Change::Rerun(_) | Change::Wait) => {
                Err(Refusal::NotStarted)
            }
            (Self::Queued | Self::Running { .. }, Change::Answer(_) | Change::Withdraw(_)) => Err(Refusal::NotAsked),
            (Self::Running { .. }, Change::Start) | (Self::InputRequired { .. }, Change::Start | Change::Wait) => {
                Err(Refusal::Running)
            }
            (Self::Running { .. }, Change::Rerun(_) | Change::Wait)
            | (Self::InputRequired { .. }, Change::Rerun(_)) => Ok(Self::Queued),
            (Self::Running { started }, Change::Ask(question)) => Self::asking(*started, now, vec![question]),
            (Self::InputRequired { started, since, questions }, Change::Ask(question)) => {
                Self::asking(*started, *since, questions.iter().cloned().chain([question]).collect())
            }
            (Self::InputRequired { started, since, questions }, Change::Answer(key) | Change::Withdraw(key)) => {
                let left: Vec<_> = questions.iter().filter(|question| question.key != key).cloned().collect();
                if left.len() == questions.len() {
                    return Err(Refusal::NotAsked);
                }
                if left.is_empty() {
                    return Ok(Self::Running { started: started.after(now.since(*since)) });
                }
                Ok(Self::InputRequired { started: *started, since: *since, questions: left })
            }
            (Self::Running { .. } | Self::InputRequired { .. }, Change::Complete(result)) => {
                Ok(Self::Completed { result })
            }
            (Self::Queued | Self::Running { .. } | Self::InputRequired { .. }, Change::Fail(cause)) => {
                Ok(Self::Failed { cause })
            }
            (Self::Queued, Change::Cancel(by)) => Ok(Self::Cancelled { by, sent: false }),
            (Self::Running { .. } | Self::InputRequired { .. }, Change::Cancel(by)) => {
                Ok(Self::Cancelled { by, sent: true })
            }
            (
                Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. },
                Change::Start
                | Change::Ask(_)
                | Change::Answer(_)
                | Change::Withdraw(_)
                | Change::Rerun(_)
                | Change::Wait
                | Change::Complete(_)
                | Change::Fail(_)
                | Change::Cancel(_),
            ) => Err(Refusal::Ended),
        }
    }

    fn asking(started: Timestamp, since: Timestamp, questions: Vec<OpenQuestion>) -> Result<Self, Refusal> {
        if !question::fit(&questions) {
            return Err(Refusal::TooMuchAsked);
        }
        Ok(Self::InputRequired { started, since, questions })
    }

    /// The open questions; none in other states than `InputRequired`.
    pub fn questions(&self) -> &[OpenQuestion] {
        match self {
            Self::InputRequired { questions, .. } => questions,
            Self::Queued
            | Self::Running { .. }
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. } => &[],
        }
    }

    /// How long it has run, without the time that input was awaited; `None` if it does not run.
    pub(super) fn ran(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Running { started } => Some(now.since(*started)),
            Self::InputRequired { started, since, .. } => Some(since.since(*started)),
            Self::Queued | Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. } => None,
        }
    }

    /// Whether nothing can follow.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Queued | Self::Running { .. } | Self::InputRequired { .. } => false,
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. } => true,
        }
    }

    /// `status` on the wire (SEP-2663, task status).
    pub fn status(&self) -> &'static str {
        match self {
            Self::Queued | Self::Running { .. } => "working",
            Self::InputRequired { .. } => "input_required",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the task has ended",
            Self::Running => "the task already runs",
            Self::NotStarted => "the task has not been started",
            Self::NotAsked => "no such question is open",
            Self::KeyUsed => "the key of the question was used before",
            Self::TooMuchAsked => "the task asks too much at once",
            Self::RunAgain => "the task was run again before",
        })
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Failure, Json, QuestionKind, Reason, Retry};

    const NOW: Timestamp = Timestamp::from_millis(5);

    fn stored() -> Stored {
        Stored { len: 2, checksum: 7, file: None }
    }

    fn cause() -> Cause {
        Cause::Ours(Failure::new(Reason::Timeout, "late", Retry::Unknown))
    }

    fn question(number: u32, key: &str) -> OpenQuestion {
        let params = Json::empty_object();
        OpenQuestion { number, key: key.to_owned(), kind: QuestionKind::Roots, params }
    }

    fn asking(keys: &[&str]) -> State {
        let questions = (1..).zip(keys).map(|(number, key)| question(number, key)).collect();
        State::InputRequired { started: NOW, since: NOW, questions }
    }

    fn states() -> Vec<State> {
        vec![
            State::Queued,
            State::Running { started: NOW },
            asking(&["a"]),
            asking(&["a", "b"]),
            State::Completed { result: stored() },
            State::Failed { cause: cause() },
            State::Cancelled { by: Canceller::Owner, sent: true },
        ]
    }

    fn changes() -> Vec<Change> {
        vec![
            Change::Start,
            Change::Ask(question(3, "c")),
            Change::Answer("a".to_owned()),
            Change::Withdraw("a".to_owned()),
            Change::Answer("x".to_owned()),
            Change::Complete(stored()),
            Change::Fail(cause()),
            Change::Cancel(Canceller::Operator),
            Change::Rerun(Duration::ZERO),
            Change::Wait,
        ]
    }

    #[test]
    fn every_state_meets_every_change_as_the_table_says() {
        let asks = "input_required";
        let ended = ["ended"; 10];
        let table = [
            [
                "working",
                "not started",
                "not asked",
                "not asked",
                "not asked",
                "not started",
                "failed",
                "cancelled",
                "not started",
                "not started",
            ],
            [
                "runs",
                asks,
                "not asked",
                "not asked",
                "not asked",
                "completed",
                "failed",
                "cancelled",
                "working",
                "working",
            ],
            ["runs", asks, "working", "working", "not asked", "completed", "failed", "cancelled", "working", "runs"],
            ["runs", asks, asks, asks, "not asked", "completed", "failed", "cancelled", "working", "runs"],
            ended,
            ended,
            ended,
        ];
        for (state, row) in states().iter().zip(table) {
            for (change, expected) in changes().into_iter().zip(row) {
                let seen = match state.apply(change.clone(), NOW) {
                    Ok(next) => next.status(),
                    Err(Refusal::Ended) => "ended",
                    Err(Refusal::Running) => "runs",
                    Err(Refusal::NotStarted) => "not started",
                    Err(Refusal::NotAsked) => "not asked",
                    Err(Refusal::KeyUsed) => "key used",
                    Err(Refusal::TooMuchAsked) => "too much",
                    Err(Refusal::RunAgain) => "run again",
                };
                assert_eq!(seen, expected, "{state:?} {change:?}");
            }
        }
    }

    #[test]
    fn a_terminal_state_is_one_that_refuses_everything() {
        for state in states() {
            let refuses_all = changes().into_iter().all(|change| state.apply(change, NOW) == Err(Refusal::Ended));
            assert_eq!(state.is_terminal(), refuses_all, "{state:?}");
        }
    }

    #[test]
    fn the_time_that_input_is_awaited_does_not_count_as_running() {
        let at = Timestamp::from_millis;
        let running = State::Running { started: at(1000) };
        let asked = running.apply(Change::Ask(question(1, "a")), at(1500)).unwrap();
        let more = asked.apply(Change::Ask(question(2, "b")), at(2000)).unwrap();
        let one_left = more.apply(Change::Answer("a".to_owned()), at(3000)).unwrap();
        assert_eq!(one_left.questions().iter().map(|open| open.key.as_str()).collect::<Vec<_>>(), ["b"]);
        let goes_on = one_left.apply(Change::Withdraw("b".to_owned()), at(11_500)).unwrap();
        // Half a second before the question, and none during the ten seconds of it.
        assert_eq!(goes_on, State::Running { started: at(11_000) });
    }

    #[test]
    fn a_task_cannot_ask_without_bound() {
        let mut state = State::Running { started: NOW };
        let large = OpenQuestion {
            params: Json::string(&"x".repeat(question::MOST_QUESTION_BYTES / 2)),
            ..question(1, "large")
        };
        state = state.apply(Change::Ask(large.clone()), NOW).unwrap();
        let second = OpenQuestion { number: 2, key: "b".to_owned(), ..large };
        assert_eq!(state.apply(Change::Ask(second), NOW), Err(Refusal::TooMuchAsked));
        let mut state = State::Running { started: NOW };
        for number in 0..u32::try_from(question::MOST_QUESTIONS).unwrap() {
            state = state.apply(Change::Ask(question(number, &number.to_string())), NOW).unwrap();
        }
        assert_eq!(state.apply(Change::Ask(question(99, "z")), NOW), Err(Refusal::TooMuchAsked));
    }

    #[test]
    fn what_a_run_has_taken_stands_still_while_it_asks() {
        let at = Timestamp::from_millis;
        let running = State::Running { started: at(1000) };
        assert_eq!(running.ran(at(1500)), Some(Duration::from_millis(500)));
        let asked = running.apply(Change::Ask(question(1, "a")), at(1500)).unwrap();
        assert_eq!(asked.ran(at(9000)), Some(Duration::from_millis(500)));
        let goes_on = asked.apply(Change::Answer("a".to_owned()), at(9000)).unwrap();
        assert_eq!(goes_on.ran(at(9100)), Some(Duration::from_millis(600)));
    }
}
