//! Tasks whose run goes on in this process: what is known of them beyond the record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::admission::Place;
use super::board::Board;
use super::clock::RunClock;
use super::joining::Party;
use crate::clock::Timestamp;
use crate::history::{Expected, History};
use crate::protocol::{Progress, WaitsFor};
use crate::shared_map::SharedMap;
use crate::task::{Canceller, Task, TaskId};

/// All live tasks.
#[derive(Clone, Debug, Default)]
pub struct LiveRuns {
    runs: Arc<SharedMap<TaskId, Arc<Live>>>,
    history: History,
}

/// One live task.
#[derive(Debug)]
pub struct Live {
    cancel: CancellationToken,
    /// Who cancelled it, if somebody did.
    canceller: OnceLock<Canceller>,
    /// Whether the store is told that it was cancelled.
    is_wish_kept: AtomicBool,
    history: History,
    phase: Mutex<Phase>,
    /// How long it runs, once it does.
    clock: Mutex<Option<RunClock>>,
    /// Since when it is live, and how old it was by then.
    since: Instant,
    age: Duration,
    /// Told when there is new progress.
    news: watch::Sender<()>,
    /// Whether an earlier process began it.
    is_left: bool,
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
    /// It has its slot, but the server does not have it yet.
    Waits(WaitsFor),
}

impl LiveRuns {
    /// No runs yet; how long theirs take is known from `history`.
    pub(super) fn learning_from(history: History) -> Self {
        Self { runs: Arc::default(), history }
    }

    /// Adds a task whose questions are on `board`.
    pub(super) fn add(&self, id: TaskId, phase: Phase, board: Arc<Board>) -> Arc<Live> {
        self.insert(id, phase, board, None)
    }

    /// Adds a task of this age that an earlier process left.
    pub(super) fn add_left(&self, id: TaskId, age: Duration) -> Arc<Live> {
        self.insert(id, Phase::Running { progress: None }, Arc::default(), Some(age))
    }

    fn insert(&self, id: TaskId, phase: Phase, board: Arc<Board>, left_at: Option<Duration>) -> Arc<Live> {
        let (cancel, canceller) = (CancellationToken::new(), OnceLock::new());
        let (phase, history, news) = (Mutex::new(phase), self.history.clone(), watch::Sender::default());
        let (is_wish_kept, party) = (AtomicBool::new(false), Party::default());
        let (is_left, age, since, clock) =
            (left_at.is_some(), left_at.unwrap_or_default(), Instant::now(), Mutex::default());
        let live = Arc::new(Live {
            cancel,
            canceller,
            is_wish_kept,
            history,
            phase,
            clock,
            since,
            age,
            news,
            is_left,
            board,
            party,
        });
        self.runs.insert(id, Arc::clone(&live));
        live
    }

    /// Takes a task out: it is settled, or left to the next process. Who waits for it looks again.
    pub(super) fn remove(&self, id: &TaskId) {
        if let Some(live) = self.runs.remove(id) {
            live.party.is_left_alone();
            live.news.send_replace(());
        }
    }

    /// The live task `id`, if its run goes on in this process.
    pub fn get(&self, id: &TaskId) -> Option<Arc<Live>> {
        self.runs.get(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

impl Live {
    /// Asks the run to stop, for its owner.
    pub fn cancel(&self) {
        self.cancel_for(Canceller::Owner);
    }

    /// Asks the run to stop.
    pub fn cancel_for(&self, canceller: Canceller) {
        // The first counts.
        let _ = self.canceller.set(canceller);
        self.cancel.cancel();
    }

    /// For whom it was asked to stop; its owner, if it was not.
    pub(super) fn canceller(&self) -> Canceller {
        self.canceller.get().copied().unwrap_or_default()
    }

    /// Whether the store has still to be told of the cancel; says so once.
    pub(super) fn is_to_be_kept(&self) -> bool {
        !self.is_wish_kept.swap(true, Ordering::AcqRel)
    }

    /// Stops the run for somebody who wanted that of an earlier process, of which the store knows.
    pub(super) fn cancel_as_kept(&self, canceller: Canceller) {
        self.is_wish_kept.store(true, Ordering::Release);
        self.cancel_for(canceller);
    }

    /// Whether the store was told of a cancel, and is to forget it.
    pub(super) fn is_wish_kept(&self) -> bool {
        self.is_wish_kept.load(Ordering::Acquire)
    }

    /// How long a run of the tool of `task` is likely to take.
    pub(super) fn expected(&self, task: &Task) -> Option<Expected> {
        self.history.expected(&task.server, &task.tool)
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

    /// Whether an earlier process began it, so that nobody who called is on the line.
    pub(super) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Those who have joined the call.
    pub(super) fn party(&self) -> &Party {
        &self.party
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.lock().clone()
    }

    /// It has to wait before its server can have it.
    pub(super) fn waits(&self, what: WaitsFor) {
        *self.lock() = Phase::Waits(what);
        self.news.send_replace(());
    }

    /// It got its slot, or its server has it now.
    pub(super) fn runs(&self) {
        *self.lock() = Phase::Running { progress: None };
        *self.lock_clock() = None;
    }

    /// This is how long it runs.
    pub(super) fn timed(&self, clock: RunClock) {
        *self.lock_clock() = Some(clock);
    }

    /// How long it runs; `None` if it does not yet.
    pub(super) fn clock(&self) -> Option<RunClock> {
        *self.lock_clock()
    }

    /// How old the task is.
    pub(super) fn age(&self) -> Duration {
        self.age + self.since.elapsed()
    }

    /// The server got on with it.
    pub(super) fn progressed(&self, progress: Progress, now: Timestamp) {
        *self.lock() = Phase::Running { progress: Some((progress, now)) };
        self.news.send_replace(());
    }

    /// Changes with each progress that comes from now on, of which [`Live::phase`] has the last, and when it is live no more.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    fn lock_clock(&self) -> MutexGuard<'_, Option<RunClock>> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        // A phase is replaced whole, so a poisoned lock holds a good one.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
