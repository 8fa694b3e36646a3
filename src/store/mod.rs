//! Durable tasks in sled.
//!
//! The contract, which any other engine would have to keep too:
//!
//! - **Durable before visible.** A write is answered, and seen by any reader, only after it would survive a power
//!   cut (or, by config, the end of the process). [`Committed`] is the proof.
//! - **Terminal is final.** Of several ends of a task the first wins; the others are refused with the task as it is.
//! - **Foreign, unknown and expired read alike**, at once, whether or not the record is still on the disk.
//! - **A failed commit leaves nothing visible**, and the store opens itself again when it can.
//!
//! One thread writes (`committer`); readers ask the map of open tasks, then sled. Outcomes that are too large for
//! sled are files. See the modules for the rest.

mod batch;
mod cache;
mod codec;
mod committed;
mod committer;
mod directory;
mod durability;
mod engine;
mod error;
mod figures;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod keys;
mod large;
mod listing;
mod luggage;
mod op;
mod open;
mod open_error;
mod original;
mod outcome;
mod page_cache;
mod questions;
mod quiet;
mod quota;
mod shared;
mod shelf;
mod space;
mod sweep;
mod watch;

#[cfg(test)]
mod tests;

pub use committed::Committed;
pub use directory::{Holder, holder, remove_unused};
pub use durability::{count_durable_flush, flush};
pub use error::{ChangeError, CommitError, Health, LowSpace, ReadError, StoreFailed};
pub use figures::Figures;
pub use keys::{Claim, Claimed};
pub use listing::{Filter, Page, Status};
pub use luggage::{Anchored, Dispatch, Luggage};
pub use open_error::{Damage, NotAStore, OpenCause, OpenError};
pub use outcome::{End, Ending, INLINE, Keep};
pub use quota::Quotas;
pub use shelf::Shelf;
pub use sweep::Swept;
pub use watch::Watch;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::{mpsc, oneshot};

use self::luggage::Packed;
use self::op::Op;
use self::outcome::{Prepared, outcome_file};
use self::shared::{Shared, Slot};
use self::space::Room;
use crate::clock::SharedClock;
use crate::config::StoreConfig;
use crate::jobs::Jobs;
use crate::protocol::{Json, Principal};
use crate::task::{Change, OpenQuestion, Owner, Task, TaskId};

/// An open store. Clones share it. When the last clone is gone it closes itself; [`Store::close`] also waits for that.
#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

struct StoreInner {
    shared: Arc<Shared>,
    ops: mpsc::Sender<Op>,
}

/// Why a question is not open any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It was answered.
    Answered,
    /// The tool does not want an answer any more.
    Withdrawn,
}

/// A store that was just opened.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Tasks of an earlier process that have not ended: `Queued`, `Running` or `InputRequired`.
    pub left_open: Vec<Committed<Task>>,
}

impl Store {
    /// Opens the store in `config.path`, or makes one if there is nothing. Blocks, for about a second in a million
    /// tasks. Must be called in a tokio runtime: the sweep is one of `jobs`.
    pub fn open(config: &StoreConfig, clock: SharedClock, jobs: &Jobs) -> Result<Opened, OpenError> {
        let failed = |cause| OpenError { path: config.path.clone(), cause };
        let parts = open::open(config, clock).map_err(failed)?;
        let committer = parts.committer;
        std::thread::Builder::new()
            .name("raincheck-store".to_owned())
            .spawn(move || committer.run())
            .map_err(|error| failed(error.into()))?;
        let store = Self { inner: Arc::new(StoreInner { shared: parts.shared, ops: parts.ops }) };
        let sweep = sweep::run(Arc::downgrade(&store.inner), Arc::clone(&store.inner.shared), jobs.clone());
        jobs.spawn("store sweep", sweep);
        let mark = sweep::mark(Arc::downgrade(&store.inner), Arc::clone(&store.inner.shared), jobs.clone());
        jobs.spawn("store marker", mark);
        Ok(Opened { store, left_open: parts.left_open })
    }

    /// The owner that `principal` is in this store.
    pub fn owner(&self, principal: &Principal) -> Owner {
        self.inner.shared.key.owner(principal)
    }

    /// From now on owners may have so many tasks; until this is called, as many as the store takes.
    pub fn limit_owners(&self, quotas: Quotas) {
        *self.inner.shared.quotas.write().unwrap_or_else(PoisonError::into_inner) = quotas;
    }

    /// The clock of everything in this store.
    pub fn clock(&self) -> &SharedClock {
        &self.inner.shared.clock
    }

    /// Keeps a new task, `Queued` or `Running`. Refused at once when too many writes wait. If the returned
    /// future is dropped, the task may be made all the same.
    pub async fn create(&self, task: Task) -> Result<Committed<Task>, CommitError> {
        self.create_packed(task, Box::default()).await
    }

    async fn create_packed(&self, task: Task, luggage: Box<Packed>) -> Result<Committed<Task>, CommitError> {
        let record = codec::encode(&task);
        let (answer, answered) = oneshot::channel();
        self.offer(Op::Create { task, record, luggage, answer })?;
        answered.await.unwrap_or_else(|_| Err(sweep::lost_answer()))
    }

    /// Asks the committer for something, unless too many writes wait.
    fn offer(&self, op: Op) -> Result<(), CommitError> {
        self.inner.ops.try_send(op).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CommitError::Busy,
            mpsc::error::TrySendError::Closed(_) => CommitError::Closed,
        })
    }

    /// `Queued -> Running`. Waits while too many writes wait. If the returned future is dropped, the change may
    /// be made all the same.
    pub async fn start(&self, id: &TaskId) -> Result<Committed<Task>, ChangeError> {
        self.change(id, Change::Start).await
    }

    /// Opens a question of a task. Waits while too many writes wait. If the returned future is dropped, the question
    /// may be opened all the same.
    pub async fn open_question(&self, id: &TaskId, question: OpenQuestion) -> Result<Committed<Task>, ChangeError> {
        self.change(id, Change::Ask(question)).await
    }

    /// Takes the question with this key out, once: of several who answer it the others are refused with
    /// [`Refusal::NotAsked`](crate::task::Refusal). Waits while too many writes wait. If the returned future is
    /// dropped, the question may be taken out all the same.
    pub async fn close_question(&self, id: &TaskId, key: &str, why: Closing) -> Result<Committed<Task>, ChangeError> {
        let key = key.to_owned();
        let change = match why {
            Closing::Answered => Change::Answer(key),
            Closing::Withdrawn => Change::Withdraw(key),
        };
        self.change(id, change).await
    }

    /// A seal on `parts` that only this store can make.
    pub fn seal(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.inner.shared.key.seal(purpose, parts)
    }

    /// Ends a task, once: if it has ended already, [`ChangeError::Refused`] says so and holds it. Waits while too
    /// many writes wait. If the returned future is dropped, the task may be ended all the same.
    pub async fn settle(&self, id: &TaskId, end: impl Into<End>) -> Result<Committed<Task>, ChangeError> {
        let (id, End { ending, ran, keep }) = (*id, end.into());
        let prepared = self.prepare(id, ending).await?;
        let (file, luggage) = (prepared.file(), self.inner.shared.luggage_file(&id));
        let Prepared { change, outcome } = prepared;
        let settled = self.ask(|answer| Op::Change { id, change, ran, outcome, keep, answer }).await;
        if let (Err(ChangeError::Refused(..) | ChangeError::Unknown), Some(file)) = (&settled, file) {
            self.unlink(file).await;
        }
        self.unload(&id, luggage).await;
        settled
    }

    /// The task with this id, if `owner` owns it and it has not expired.
    #[expect(clippy::unused_async, reason = "an engine over a network would wait here")]
    pub async fn get(&self, owner: &Owner, id: &TaskId) -> Result<Option<Committed<Task>>, ReadError> {
        let Some(task) = self.inner.shared.find(id)? else { return Ok(None) };
        let is_expired = task.expires().is_some_and(|expires| expires <= self.clock().now());
        Ok((task.owner == *owner && !is_expired).then_some(task))
    }

    /// The stored outcome of a task: the result if it completed, the server's error object if the server answered with
    /// one. [`ReadError::NoOutcome`] for other states.
    pub async fn outcome(&self, task: &Committed<Task>) -> Result<Json, ReadError> {
        outcome::read(&self.inner.shared, task).await
    }

    /// How the store is now.
    pub fn health(&self) -> Health {
        let shared = &self.inner.shared;
        match &*shared.engine.read().unwrap_or_else(PoisonError::into_inner) {
            Slot::Open(_) => match shared.space.room() {
                Room::Enough if shared.counts.tasks.load(Ordering::Relaxed) >= shared.max_tasks => {
                    Health::Full { max: shared.max_tasks }
                }
                Room::Enough => Health::Ready,
                Room::Low(low) => Health::LowSpace(low),
                Room::Gone => Health::Failed(StoreFailed::gone()),
            },
            Slot::Failed(failed) => Health::Failed(failed.clone()),
            Slot::Closed => Health::Closed,
        }
    }

    /// Says in the log what keeps it from taking new tasks, if anything does.
    pub fn warn_of_health(&self) {
        match self.health() {
            Health::Ready | Health::Closed => {}
            Health::LowSpace(low) => {
                tracing::warn!("{low}; until then calls are held, and those of mode \"task\" refused");
            }
            Health::Full { max } => tracing::warn!("{}", CommitError::Full { max }),
            Health::Failed(failed) => tracing::warn!("{failed}"),
        }
    }

    /// Finishes what was asked for before, closes the database and gives the directory back. Later writes and reads
    /// are refused.
    pub async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        if self.inner.ops.send(Op::Close { answer }).await.is_ok() {
            let _ = answered.await;
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.shared.fmt(f)
    }
}
