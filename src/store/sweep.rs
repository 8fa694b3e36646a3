//! The sweep: removes what has expired, makes the time to live of long runs longer, removes files that no
//! record names. It wakes up when the next of these is due.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::committer::MARK_EVERY;
use super::op::{Answer, Op};
use super::shared::{Hot, Shared};
use super::{CommitError, Store, StoreFailed, StoreInner};
use crate::clock::Timestamp;
use crate::jobs::Jobs;
use crate::task::{Expiry, Task};

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Tasks that had expired and are gone.
    pub purged: u64,
    /// Tasks that still run and got a longer time to live.
    pub extended: u64,
}

/// Tasks in one purge or one extension: more would keep other writes waiting.
const CHUNK: usize = 250;

/// The sweep never rests for less or for longer.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_mins(1);

/// How often files are compared with the records.
const FILES_EVERY: Duration = Duration::from_hours(1);

/// When a task that still runs gets a longer time to live.
pub(super) fn extension_due(task: &Task) -> Option<Timestamp> {
    let Expiry::Limited { ttl, keep } = task.expiry else { return None };
    let margin = keep.max(Duration::from_secs(1));
    Some(task.created.after(ttl.saturating_sub(margin)))
}

/// Runs until the store is gone or the jobs are to stop.
pub(super) async fn run(store: Weak<StoreInner>, shared: Arc<Shared>, jobs: Jobs) {
    let mut next_files = Instant::now();
    loop {
        // Until the next wake-up is known, every commit that matters leaves a permit in `sooner`.
        shared.next_sweep.store(u64::MAX, Ordering::SeqCst);
        let Some(inner) = store.upgrade() else { return };
        let store_now = Store { inner };
        let swept = store_now.sweep().await;
        if let Err(CommitError::Closed) = swept {
            return;
        }
        if Instant::now() >= next_files || shared.is_reopened.swap(false, Ordering::SeqCst) {
            store_now.sweep_files().await;
            next_files = Instant::now() + FILES_EVERY;
        }
        drop(store_now);
        let wait = if swept.is_ok() { rest(&shared) } else { LONGEST };
        let wait =
            wait.clamp(SHORTEST, LONGEST).min(next_files.saturating_duration_since(Instant::now()).max(SHORTEST));
        let rested = async {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shared.sooner.notified() => tokio::time::sleep(SHORTEST).await,
            }
        };
        tokio::select! {
            biased;
            () = jobs.stopping() => return,
            () = rested => {}
        }
    }
}

/// Has the marker written behind the last commits of a busy time, until the store is gone or the jobs are to stop.
pub(super) async fn mark(store: Weak<StoreInner>, shared: Arc<Shared>, jobs: Jobs) {
    loop {
        tokio::select! {
            () = jobs.stopping() => return,
            () = async { shared.unmarked.notified().await; tokio::time::sleep(MARK_EVERY).await } => {}
        }
        let Some(inner) = store.upgrade() else { return };
        let ops = inner.ops.clone();
        drop(inner);
        if ops.send(Op::Mark).await.is_err() {
            return;
        }
    }
}

/// How long until something is due.
fn rest(shared: &Shared) -> Duration {
    let mut next =
        shared.read(|engine| engine.first_to_expire(1)).ok().and_then(|first| first.first().map(|key| key.expires));
    shared.hot.for_each(|_, hot| {
        if let Hot::Committed(task) = hot
            && let Some(due) = extension_due(task)
        {
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    });
    let Some(next) = next else { return LONGEST };
    shared.next_sweep.store(next.as_millis(), Ordering::SeqCst);
    next.since(shared.clock.now())
}

impl Store {
    /// Removes every task that has expired, and makes the time to live of those longer that still run
    /// and come near its end. The store does this by itself; an operator may ask for it.
    pub async fn sweep(&self) -> Result<Swept, CommitError> {
        let mut swept = Swept { extended: self.extend().await?, ..Swept::default() };
        loop {
            let keys = self.inner.shared.expired(CHUNK)?;
            if keys.is_empty() {
                return Ok(swept);
            }
            tracing::trace!(tasks = keys.len(), "tasks are to be purged");
            let purged = self.ask(|answer| Op::Purge { keys, answer }).await?;
            swept.purged += purged.tasks;
            if !purged.files.is_empty() {
                let shared = Arc::clone(&self.inner.shared);
                let removal = move || purged.files.iter().for_each(|name| shared.files.remove(*name));
                // What is left over by a panic is swept later.
                let _ = tokio::task::spawn_blocking(removal).await;
            }
            tracing::trace!(tasks = purged.tasks, "tasks were purged");
        }
    }

    async fn extend(&self) -> Result<u64, CommitError> {
        let shared = &self.inner.shared;
        let now = shared.clock.now();
        let mut due = Vec::new();
        shared.hot.for_each(|id, hot| {
            if let Hot::Committed(task) = hot
                && task.extended(now).is_some()
            {
                due.push(*id);
            }
        });
        let mut extended = 0;
        for ids in due.chunks(CHUNK) {
            extended += self.ask(|answer| Op::Extend { ids: ids.to_vec(), answer }).await?;
        }
        Ok(extended)
    }

    /// Removes files that no record names, and writes the marker anew.
    async fn sweep_files(&self) {
        let shared = Arc::clone(&self.inner.shared);
        let sweep = move || {
            shared.files.sweep(|name| {
                if shared.luggage_file(&name.id) == Some(name) {
                    return true;
                }
                let found = shared.read(|engine| engine.task(&name.id));
                // What cannot be read is not known to be useless.
                found.map_or(true, |task| task.as_ref().and_then(super::outcome_file) == Some(name))
            })
        };
        match tokio::task::spawn_blocking(sweep).await {
            Ok(Ok(0)) => {}
            Ok(Ok(removed)) => tracing::info!(removed, "files that no task needs were removed"),
            Ok(Err(error)) => tracing::warn!(%error, "the files of outcomes could not be swept"),
            Err(error) => tracing::warn!(%error, "the sweep of files ended early"),
        }
        // A full inbox has enough to write; the next hour will do.
        let _ = self.inner.ops.try_send(Op::Mark);
    }

    /// Sends an operation to the committer and waits for its answer.
    pub(super) async fn ask<T, E: From<CommitError>>(&self, op: impl FnOnce(Answer<T, E>) -> Op) -> Result<T, E> {
        let (answer, answered) = oneshot::channel();
        self.inner.ops.send(op(answer)).await.map_err(|_| E::from(CommitError::Closed))?;
        answered.await.unwrap_or_else(|_| Err(lost_answer().into()))
    }
}

/// The committer ended without an answer: it was closed, or it panicked.
pub(super) fn lost_answer() -> CommitError {
    CommitError::Failed(StoreFailed::new("the writing thread ended"))
}
