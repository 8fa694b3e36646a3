//! Tasks whose run goes on in this process: what is known of them beyond the record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::admission::Place;
use super::board::Board;
use super::joining::Party;
use crate::clock::Timestamp;
use crate::protocol::Progress;
use crate::shared_map::SharedMap;
use crate::task::TaskId;

/// All live tasks.
#[derive(Clone, Debug, Default)]
pub struct LiveRuns(Arc<SharedMap<TaskId, Arc<Live>>>);

/// One live task.
#[derive(Debug)]
pub struct Live {
    cancel: CancellationToken,
    phase: Mutex<Phase>,
    /// Its open questions.
    board: Arc<Board>,
    /// Those who have joined the call.
    party: Party,
}

/// How far a live task is.
#[derive(Clone, Debug)]
pub enum Phase {
    /// It waits for a slot.
    Queued(Place),
    /// It runs.
    Running {
        /// The last progress that the server reported, and when.
        progress: Option<(Progress, Timestamp)>,
    },
}

impl LiveRuns {
    /// Adds a task whose questions are on `board`.
    pub(super) fn add(&self, id: TaskId, phase: Phase, board: Arc<Board>) -> Arc<Live> {
        let live = Arc::new(Live {
            cancel: CancellationToken::new(),
            phase: Mutex::new(phase),
            board,
            party: Party::default(),
        });
        self.0.insert(id, Arc::clone(&live));
        live
    }

    /// Takes a task out.
    pub(super) fn remove(&self, id: &TaskId) {
        self.0.remove(id);
    }

    /// The live task `id`, if its run goes on in this process.
    pub fn get(&self, id: &TaskId) -> Option<Arc<Live>> {
        self.0.get(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Live {
    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Resolves when the run is to stop.
    pub(super) fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.cancel.cancelled()
    }

    /// Whether it was asked to stop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Its open questions.
    pub(super) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Those who have joined the call.
    pub(super) fn party(&self) -> &Party {
        &self.party
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.lock().clone()
    }

    /// It got its slot.
    pub(super) fn runs(&self) {
        *self.lock() = Phase::Running { progress: None };
    }

    /// The server got on with it.
    pub(super) fn progressed(&self, progress: Progress, now: Timestamp) {
        *self.lock() = Phase::Running { progress: Some((progress, now)) };
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        // A phase is replaced whole, so a poisoned lock holds a good one.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
