//! What readers and the committer share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{Notify, watch};

use super::cache::OutcomeCache;
use super::codec;
use super::engine::{Engine, EngineError, ExpiryKey};
use super::files::OutcomeFiles;
use super::large::LargeOutcomes;
use super::luggage::Beside;
use super::quota::Quotas;
use super::space::Space;
use super::{Committed, ReadError, StoreFailed};
use crate::clock::{SharedClock, Timestamp};
use crate::shared_map::SharedMap;
use crate::task::{OwnerKey, Task, TaskId};

/// What readers and the committer share.
pub(super) struct Shared {
    pub(super) engine: RwLock<Slot>,
    /// Every task that has not ended, as committed. sled shows writes before they are durable, so this
    /// map is asked first, and again after sled.
    pub(super) hot: SharedMap<TaskId, Hot>,
    /// What is kept beside the records of tasks that have not ended, as committed.
    pub(super) luggage: SharedMap<TaskId, Beside>,
    pub(super) cache: OutcomeCache,
    pub(super) large: LargeOutcomes,
    /// Those in files that are not large. They have a room of their own, so that large ones keep no others waiting.
    pub(super) middling: LargeOutcomes,
    pub(super) files: OutcomeFiles,
    pub(super) space: Space,
    /// Tasks whose changes somebody waits for.
    pub(super) watched: SharedMap<TaskId, watch::Sender<()>>,
    pub(super) key: OwnerKey,
    pub(super) clock: SharedClock,
    pub(super) max_tasks: u64,
    pub(super) quotas: RwLock<Quotas>,
    /// As of the last commit.
    pub(super) counts: CommittedCounts,
    /// Tells the sweep that something goes away before it wanted to wake up.
    pub(super) sooner: Notify,
    /// Whether it was opened again since files were compared with the records: the batch that failed may have left some.
    pub(super) is_reopened: AtomicBool,
    /// Tells that there are commits which the marker does not count.
    pub(super) unmarked: Notify,
    /// When the sweep wants to wake up, in milliseconds since the Unix epoch.
    pub(super) next_sweep: AtomicU64,
}

/// Counts that others than the committer may read.
#[derive(Debug, Default)]
pub(super) struct CommittedCounts {
    pub(super) commits: AtomicU64,
    pub(super) tasks: AtomicU64,
}

/// Where the database is.
pub(super) enum Slot {
    Open(Engine),
    /// To be opened again.
    Failed(StoreFailed),
    Closed,
}

/// A task that has not ended.
#[derive(Clone, Debug)]
pub(super) enum Hot {
    /// Its record is not durable yet, so it is not there.
    Pending,
    Committed(Committed<Task>),
}

/// How often a task is looked for that is in the database only.
const LOOKS: usize = 4;

/// Tasks or outcomes that are read with another: sled keeps up to 16 in one page.
pub(super) const NEIGHBOURS: usize = 15;

impl Shared {
    /// The committed task with this id, whoever owns it, expired or not.
    pub(super) fn find(&self, id: &TaskId) -> Result<Option<Committed<Task>>, ReadError> {
        for _ in 0..LOOKS {
            if let Some(hot) = self.hot.get(id) {
                return Ok(hot.committed());
            }
            if let Some(task) = self.known_ended(id)? {
                return Ok(Some(Committed::new(Arc::new(task))));
            }
            let Some(task) = self.read(|engine| engine.task(id))? else { return Ok(None) };
            // sled may have shown a write that is not durable. Its task is in the map from before the
            // write until it ended and that is durable; so once it is not in the map, a terminal
            // state that was read before that is durable.
            match self.hot.get(id) {
                Some(hot) => return Ok(hot.committed()),
                None if task.state.is_terminal() => {
                    self.remember_ended(&task);
                    return Ok(Some(Committed::new(Arc::new(task))));
                }
                // It ended between the two looks; the next round sees how.
                None => {}
            }
        }
        // Not ended and not in the map: left by a commit that has just failed.
        Ok(None)
    }

    /// A task that is known to have ended, as long as the database could be asked.
    fn known_ended(&self, id: &TaskId) -> Result<Option<Task>, ReadError> {
        self.read(|_| Ok(()))?;
        Ok(self.cache.record(id, |record| codec::decode(*id, record).ok()).flatten())
    }

    /// Keeps a task that has ended at hand, and its neighbours while there is room for them.
    fn remember_ended(&self, task: &Task) {
        self.cache.put_record(task.id, codec::encode(task));
        if !self.cache.has_room() {
            return;
        }
        // Nobody has asked for these, so nobody is told what is wrong with them.
        let neighbours = self.read(|engine| engine.tasks_behind(&task.id, NEIGHBOURS)).unwrap_or_default();
        for task in neighbours {
            // Durable, as above.
            if task.state.is_terminal() && self.hot.get(&task.id).is_none() {
                self.cache.put_record(task.id, codec::encode(&task));
            }
        }
    }

    /// Reads from the database.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Engine) -> Result<T, EngineError>) -> Result<T, ReadError> {
        match &*self.engine.read().unwrap_or_else(PoisonError::into_inner) {
            Slot::Open(engine) => read(engine).map_err(|error| {
                if error.is_damage() {
                    tracing::error!(%error, "a part of the store is damaged; check the disk");
                    return ReadError::Damaged;
                }
                ReadError::Failed(StoreFailed::new(error))
            }),
            Slot::Failed(failed) => Err(ReadError::Failed(failed.clone())),
            Slot::Closed => Err(ReadError::Closed),
        }
    }

    /// Replaces the database; the old one is dropped when no reader uses it.
    pub(super) fn replace(&self, slot: Slot) -> Slot {
        std::mem::replace(&mut *self.engine.write().unwrap_or_else(PoisonError::into_inner), slot)
    }

    /// Tells the sweep that something is to be done at `at`.
    pub(super) fn sweep_by(&self, at: Timestamp) {
        if at.as_millis() < self.next_sweep.load(Ordering::SeqCst) {
            self.sooner.notify_one();
        }
    }

    /// The tasks that have expired, at most `limit`.
    pub(super) fn expired(&self, limit: usize) -> Result<Vec<ExpiryKey>, ReadError> {
        let now = self.clock.now();
        let mut first = self.read(|engine| engine.first_to_expire(limit))?;
        first.retain(|key| key.expires <= now);
        Ok(first)
    }
}

impl Hot {
    fn committed(self) -> Option<Committed<Task>> {
        match self {
            Self::Pending => None,
            Self::Committed(task) => Some(task),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("hot", &self.hot).finish_non_exhaustive()
    }
}
