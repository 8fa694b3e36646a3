//! The one thread that writes: the point where operations get their order, and the group commit.
//!
//! There is no timer: what comes in while one batch is made durable is the next batch.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::batch::{Batch, COUNTS, Counts, FailedBatch};
use super::directory::{Directory, Marker, MarkerState};
use super::engine::{Engine, EngineError, Writes};
use super::luggage::count_luggage;
use super::op::Op;
use super::page_cache;
use super::quiet::drop_quietly;
use super::quota::Tally;
use super::shared::{Hot, Shared, Slot};
use super::{CommitError, Committed, StoreFailed};
use crate::task::TaskId;

/// The writing side of a store.
pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: mpsc::Receiver<Op>,
    pub(super) directory: Directory,
    pub(super) cache_bytes: u64,
    pub(super) counts: Counts,
    /// Tasks whose creation was reported as failed, but which may be on the disk.
    pub(super) doubtful: Vec<TaskId>,
    pub(super) tally: Tally,
    /// When the marker was written last.
    pub(super) marked: Instant,
}

/// Why the thread stops serving.
enum Stop {
    /// It was told to.
    Closed(oneshot::Sender<()>),
    /// Nobody has the store any more.
    Forgotten,
}

/// Operations in one batch.
const MAX_OPS: usize = 256;

/// Bytes of values after which a batch takes no more operations.
const MAX_BYTES: usize = 256 << 10;

/// How often the marker is written while there are commits: after a crash a start can tell by it whether some are missing.
pub(super) const MARK_EVERY: Duration = Duration::from_secs(1);

/// How often a failed store looks at its inbox.
const LOOK: Duration = Duration::from_millis(20);

/// How long a failed store waits between two tries to open itself.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(15);

impl Committer {
    /// Serves until the store is closed or nobody has it any more; then gives the directory back.
    pub(super) fn run(mut self) {
        let stop = self.serve();
        self.inbox.close();
        while let Ok(op) = self.inbox.try_recv() {
            op.refuse(CommitError::Closed);
        }
        self.shut();
        // Whoever waits for commits to mark sees that there are no more.
        self.shared.unmarked.notify_one();
        drop(self);
        if let Stop::Closed(answer) = stop {
            let _ = answer.send(());
        }
    }

    fn serve(&mut self) -> Stop {
        loop {
            let stop = match self.inbox.blocking_recv() {
                None => Some(Stop::Forgotten),
                Some(Op::Close { answer }) => Some(Stop::Closed(answer)),
                Some(Op::Mark) => {
                    self.mark();
                    None
                }
                Some(op) => self.batch(op),
            };
            if let Some(stop) = stop {
                return stop;
            }
        }
    }

    /// Commits `first` and what waits behind it.
    fn batch(&mut self, first: Op) -> Option<Stop> {
        let shared = Arc::clone(&self.shared);
        let mut last = None;
        let done = {
            let slot = shared.engine.read().unwrap_or_else(PoisonError::into_inner);
            let Slot::Open(engine) = &*slot else {
                // A failed store is mended before this is called again.
                first.refuse(CommitError::Closed);
                return None;
            };
            let mut batch = Batch::new(&shared, engine, self.counts, &mut self.tally);
            batch.add(first);
            let mut ops = 1;
            while ops < MAX_OPS && batch.bytes() < MAX_BYTES {
                match self.inbox.try_recv() {
                    Ok(op @ (Op::Close { .. } | Op::Mark)) => {
                        last = Some(op);
                        break;
                    }
                    Ok(op) => batch.add(op),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
                ops += 1;
            }
            batch.commit()
        };
        let stop = match done {
            Ok(counts) => {
                self.counts = counts;
                if self.marked.elapsed() >= MARK_EVERY {
                    self.mark();
                } else {
                    self.shared.unmarked.notify_one();
                }
                None
            }
            Err(failed) => {
                self.doubtful.extend(&failed.created);
                self.tally.clear();
                self.mend(failed)
            }
        };
        match last {
            Some(Op::Close { answer }) => Some(Stop::Closed(answer)),
            Some(Op::Mark) => {
                self.mark();
                stop
            }
            _ => stop,
        }
    }

    /// Takes the database away and opens it again, as soon as that works.
    fn mend(&mut self, batch: FailedBatch) -> Option<Stop> {
        let mut failed = match &batch.error {
            CommitError::Failed(failed) => failed.clone(),
            other => StoreFailed::new(other),
        };
        tracing::error!(error = %failed, "a commit failed; nothing of it is visible, no new tasks until the store is open again");
        // First the mark, then the answers: whoever is told looks at the store's health.
        let broken = self.shared.replace(Slot::Failed(failed.clone()));
        batch.answer();
        drop_quietly(broken);
        let mut wait = FIRST_RETRY;
        let mut next_try = Instant::now() + wait;
        loop {
            loop {
                match self.inbox.try_recv() {
                    Ok(Op::Close { answer }) => return Some(Stop::Closed(answer)),
                    Ok(op) => op.refuse(CommitError::Failed(failed.clone())),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Some(Stop::Forgotten),
                }
            }
            if Instant::now() >= next_try && self.shared.space.allows_opening() {
                match self.reopen() {
                    Ok(()) => {
                        tracing::info!("the store is open again");
                        return None;
                    }
                    Err(error) => {
                        failed = StoreFailed::new(error);
                        tracing::error!(error = %failed, "the store could not be opened again");
                        drop_quietly(self.shared.replace(Slot::Failed(failed.clone())));
                        wait = (wait * 2).min(LAST_RETRY);
                        next_try = Instant::now() + wait;
                    }
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// Opens the database again and makes the map of open tasks what the database says. Whether a failed
    /// batch is on the disk is not known: tasks that it made were refused, so they go; an end
    /// that it wrote stands.
    pub(super) fn reopen(&mut self) -> Result<(), EngineError> {
        page_cache::forget_closed(self.directory.path())?;
        self.directory.remove_torn()?;
        let engine = Engine::open(self.directory.path(), self.cache_bytes)?;
        let mut counts = engine.meta(COUNTS)?.map(Counts::read).ok_or(EngineError::Key)?;
        let mut writes = Writes::default();
        for id in &self.doubtful {
            if let Some(task) = engine.task(id)? {
                if let Some(key) = task.key
                    && engine.keyed(&key)?.is_some_and(|keyed| keyed.id == *id)
                {
                    writes.remove_key(&key);
                }
                engine.remove_questions(id, &mut writes)?;
                writes.remove_luggage(id, (true, true));
                writes.remove_task(&task);
                counts.tasks = counts.tasks.saturating_sub(1);
            }
        }
        counts.commits += 1;
        // Written in any case: it shows that the disk takes writes again.
        writes.put_meta(COUNTS, &counts.bytes()).map_err(|_| EngineError::Key)?;
        engine.commit(&writes)?;
        self.doubtful.clear();
        self.counts = counts;
        counts.show(&self.shared);
        let active = engine.active()?;
        let mut ended = Vec::new();
        self.shared.hot.for_each(|id, _| ended.push(*id));
        let ids: std::collections::HashSet<TaskId> = active.iter().map(|task| task.id).collect();
        for task in active {
            self.shared.hot.insert(task.id, Hot::Committed(Committed::new(Arc::new(task))));
        }
        count_luggage(&self.shared.luggage, &engine)?;
        drop_quietly(self.shared.replace(Slot::Open(engine)));
        for id in ended.iter().filter(|id| !ids.contains(*id)) {
            self.shared.hot.remove(id);
        }
        self.shared.is_reopened.store(true, Ordering::SeqCst);
        self.shared.sooner.notify_one();
        Ok(())
    }

    /// Writes down how many commits are durable, so that a later start can tell if some were lost.
    fn mark(&mut self) {
        self.marked = Instant::now();
        let marker = Marker { state: MarkerState::Open, commits: self.counts.commits, bytes: 0 };
        if let Err(error) = self.directory.write_marker(marker) {
            tracing::warn!(%error, "the store's marker could not be written");
        }
    }

    /// Takes the database away for good and leaves the marker of a store that was closed well.
    fn shut(&mut self) {
        let before = self.shared.replace(Slot::Closed);
        let was_open = matches!(before, Slot::Open(_));
        drop_quietly(before);
        if !was_open {
            return;
        }
        let path = self.directory.path().join("db");
        // Threads of the database may shorten its file until the last of them has let go of it.
        let is_settled = File::open(path).is_ok_and(|file| {
            (0..100).any(|_| {
                let taken = file.try_lock().is_ok();
                if !taken {
                    thread::sleep(LOOK);
                }
                taken
            })
        });
        if !is_settled {
            return self.mark();
        }
        let closed = self.directory.database_bytes().and_then(|bytes| {
            let marker = Marker { state: MarkerState::Closed, commits: self.counts.commits, bytes };
            self.directory.write_marker(marker)
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "the store's marker could not be written");
        }
    }
}
