//! The state machine: `Queued -> Running -> Completed | Failed | Cancelled`.
//!
//! On the wire Queued and Running are both `working`.

use std::fmt;

use crate::clock::Timestamp;
use crate::protocol::Failure;

/// How far a task is. Each arm names what may follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a free slot; nothing was sent. To `Running` when it gets one, to `Failed` when it
    /// waited too long or was lost before it was sent, to `Cancelled` on request.
    Queued,
    /// Runs upstream. To `Completed`, `Failed` or `Cancelled`.
    Running {
        /// When the call was sent.
        started: Timestamp,
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
    /// The owner stopped it. Final.
    Cancelled,
}

/// What happens to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It got a slot, and the call is about to be sent.
    Start,
    /// The server answered with a result.
    Complete(Stored),
    /// The server answered with an error, or the run came to nothing.
    Fail(Cause),
    /// The owner stopped it.
    Cancel,
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
    /// The task has not been started, so it has no outcome.
    NotStarted,
}

impl State {
    /// The state after `change`, or why that may not be.
    pub fn apply(&self, change: Change, now: Timestamp) -> Result<Self, Refusal> {
        match (self, change) {
            (Self::Queued, Change::Start) => Ok(Self::Running { started: now }),
            (Self::Queued, Change::Complete(_)) => Err(Refusal::NotStarted),
            (Self::Running { .. }, Change::Start) => Err(Refusal::Running),
            (Self::Running { .. }, Change::Complete(result)) => Ok(Self::Completed { result }),
            (Self::Queued | Self::Running { .. }, Change::Fail(cause)) => Ok(Self::Failed { cause }),
            (Self::Queued | Self::Running { .. }, Change::Cancel) => Ok(Self::Cancelled),
            (
                Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled,
                Change::Start | Change::Complete(_) | Change::Fail(_) | Change::Cancel,
            ) => Err(Refusal::Ended),
        }
    }

    /// Whether nothing can follow.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Queued | Self::Running { .. } => false,
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled => true,
        }
    }

    /// `status` on the wire (SEP-2663, task status).
    pub fn status(&self) -> &'static str {
        match self {
            Self::Queued | Self::Running { .. } => "working",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the task has ended",
            Self::Running => "the task already runs",
            Self::NotStarted => "the task has not been started",
        })
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Failure, Reason, Retry};

    const NOW: Timestamp = Timestamp::from_millis(5);

    fn stored() -> Stored {
        Stored { len: 2, checksum: 7, file: None }
    }

    fn cause() -> Cause {
        Cause::Ours(Failure::new(Reason::Timeout, "late", Retry::Unknown))
    }

    fn states() -> Vec<State> {
        vec![
            State::Queued,
            State::Running { started: NOW },
            State::Completed { result: stored() },
            State::Failed { cause: cause() },
            State::Cancelled,
        ]
    }

    fn changes() -> Vec<Change> {
        vec![Change::Start, Change::Complete(stored()), Change::Fail(cause()), Change::Cancel]
    }

    #[test]
    fn every_state_meets_every_change_as_the_table_says() {
        let table = [
            ["working", "not started", "failed", "cancelled"],
            ["runs", "completed", "failed", "cancelled"],
            ["ended", "ended", "ended", "ended"],
            ["ended", "ended", "ended", "ended"],
            ["ended", "ended", "ended", "ended"],
        ];
        for (state, row) in states().iter().zip(table) {
            for (change, expected) in changes().into_iter().zip(row) {
                let seen = match state.apply(change.clone(), NOW) {
                    Ok(next) => next.status(),
                    Err(Refusal::Ended) => "ended",
                    Err(Refusal::Running) => "runs",
                    Err(Refusal::NotStarted) => "not started",
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
}
