//! What the committer is asked to do, and how it answers.

use std::time::Duration;

use tokio::sync::oneshot;

use super::engine::ExpiryKey;
use super::files::{FileName, InFlight};
use super::keys::{Claim, Claimed};
use super::luggage::Packed;
use super::shelf::Shelf;
use super::{ChangeError, CommitError, Committed, Keep};
use crate::protocol::Json;
use crate::task::{Change, KeyDigest, Task, TaskId};

/// One operation. Each is answered after it is durable, or when it is refused.
pub(super) enum Op {
    Create {
        task: Task,
        record: Vec<u8>,
        luggage: Box<Packed>,
        answer: Answer<Committed<Task>, CommitError>,
    },
    /// Makes a task under a key, unless another has that.
    Claim {
        task: Task,
        record: Vec<u8>,
        luggage: Box<Packed>,
        key: KeyDigest,
        claim: Claim,
        answer: Answer<Claimed, CommitError>,
    },
    Change {
        id: TaskId,
        change: Change,
        /// How long the run took, by a clock that does not jump, if that is known.
        ran: Option<Duration>,
        outcome: Outcome,
        keep: Keep,
        answer: Answer<Committed<Task>, ChangeError>,
    },
    /// The call of a task was not sent after all, and waits; with what another process needs to send it, if that is not kept.
    Wait {
        id: TaskId,
        luggage: Box<Packed>,
        answer: Answer<Committed<Task>, ChangeError>,
    },
    /// Makes the time to live of those longer that still run and need it; answers how many.
    Extend {
        ids: Vec<TaskId>,
        answer: Answer<u64, CommitError>,
    },
    /// Keeps where the run of a task is.
    Anchor {
        id: TaskId,
        value: Vec<u8>,
        answer: Answer<(), CommitError>,
    },
    /// Puts something on a shelf, or takes it away.
    Shelve {
        shelf: Shelf,
        name: String,
        value: Option<Vec<u8>>,
        answer: Answer<(), CommitError>,
    },
    /// Removes those that have expired; answers with how many and which files are of no use any more.
    Purge {
        keys: Vec<ExpiryKey>,
        answer: Answer<Purged, CommitError>,
    },
    /// Writes the marker anew, with what is durable now.
    Mark,
    Close {
        answer: oneshot::Sender<()>,
    },
}

/// Where the text of an outcome comes from.
pub(super) enum Outcome {
    /// There is none.
    None,
    /// It goes into the database with the record.
    Inline(Json),
    /// It is in a file already, to be kept from the sweep until the record names it.
    File(InFlight),
}

impl Outcome {
    /// The file that it is in, if it is in one.
    pub(super) fn into_file(self) -> Option<InFlight> {
        match self {
            Self::File(file) => Some(file),
            Self::None | Self::Inline(_) => None,
        }
    }
}

pub(super) type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// What a purge removed.
#[derive(Debug, Default)]
pub(super) struct Purged {
    pub(super) tasks: u64,
    pub(super) files: Vec<FileName>,
}

impl Op {
    /// Answers that nothing was done.
    pub(super) fn refuse(self, error: CommitError) {
        // Whoever asked may have gone.
        match self {
            Self::Create { answer, .. } => drop(answer.send(Err(error))),
            Self::Claim { answer, .. } => drop(answer.send(Err(error))),
            Self::Change { answer, .. } | Self::Wait { answer, .. } => drop(answer.send(Err(error.into()))),
            Self::Extend { answer, .. } => drop(answer.send(Err(error))),
            Self::Anchor { answer, .. } | Self::Shelve { answer, .. } => drop(answer.send(Err(error))),
            Self::Purge { answer, .. } => drop(answer.send(Err(error))),
            Self::Mark => {}
            Self::Close { answer } => drop(answer.send(())),
        }
    }
}
