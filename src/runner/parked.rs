//! Runs that wait for a retry of their call (2026-07-28, multi round-trip requests).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::Way;
use super::request_state::{AS_RECORDED, Claim};
use super::responses::Responses;
use crate::clock::Timestamp;
use crate::protocol::ReplySender;
use crate::shared_map::SharedMap;
use crate::task::TaskId;

/// All runs that were parked and have not ended.
#[derive(Debug, Default)]
pub(super) struct ParkedRuns {
    runs: SharedMap<TaskId, mpsc::Sender<Resume>>,
}

/// Where retries for one run come in. While this lives, they find the run.
#[derive(Debug)]
pub(super) struct Counter {
    /// The task that the run has, or is to have.
    id: TaskId,
    /// Whether a record was tried to be made under that id.
    is_used: bool,
    /// How often the caller was asked.
    pub(super) round: u32,
    /// When the last round ends.
    pub(super) expires: Timestamp,
    calls: mpsc::Receiver<Resume>,
    runs: Arc<ParkedRuns>,
}

/// A retry.
#[derive(Debug)]
pub(super) struct Resume {
    pub(super) sender: ReplySender,
    /// The round that it answers.
    pub(super) round: u32,
    pub(super) responses: Responses,
    pub(super) arrived: Instant,
    pub(super) way: Way,
}

/// Why a retry was not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// The run has ended, was given up, or was one of an earlier process.
    Gone,
    /// Too many copies of the retry wait already.
    Busy,
}

/// How long a run is parked at most. Nobody polls it, so nobody could be told that it still waits; and it keeps its
/// slot.
pub(super) const LONGEST: Duration = Duration::from_mins(10);

/// Retries of one round that may wait to be seen.
const WAITING: usize = 8;

impl ParkedRuns {
    /// A place for retries of the run whose task is `id`, or will be. There are no more than there are slots, and runs
    /// that wait (see `shares`).
    pub(super) fn open(self: &Arc<Self>, id: TaskId) -> Counter {
        let (sender, calls) = mpsc::channel(WAITING);
        self.runs.insert(id, sender);
        Counter {
            id,
            is_used: false,
            round: AS_RECORDED,
            expires: Timestamp::from_millis(0),
            calls,
            runs: Arc::clone(self),
        }
    }

    /// Hands a retry to its run.
    pub(super) fn resume(&self, id: &TaskId, resume: Resume) -> Result<(), Unheard> {
        let run = self.runs.get(id).ok_or(Unheard::Gone)?;
        run.try_send(resume).map_err(|error| match error {
            TrySendError::Full(_) => Unheard::Busy,
            TrySendError::Closed(_) => Unheard::Gone,
        })
    }
}

impl Counter {
    /// What the caller's state of the last round says.
    pub(super) fn claim(&self) -> Claim {
        Claim { task: self.id, round: self.round, expires: self.expires }
    }

    /// The id for a record of the run; nothing the second time: a write that has failed may be in the store all the same.
    pub(super) fn id_for_record(&mut self) -> Option<TaskId> {
        (!std::mem::replace(&mut self.is_used, true)).then_some(self.id)
    }

    /// No more retries come in.
    pub(super) fn close(&mut self) {
        self.calls.close();
    }

    /// A retry that has come already.
    pub(super) fn waiting(&mut self) -> Option<Resume> {
        self.calls.try_recv().ok()
    }

    /// The next retry. Cancel safe.
    pub(super) async fn next(&mut self) -> Resume {
        match self.calls.recv().await {
            Some(resume) => resume,
            // The map holds the other end for as long as this lives.
            None => pending().await,
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.runs.runs.remove(&self.id);
    }
}
