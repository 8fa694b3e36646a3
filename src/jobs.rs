//! Spawned jobs that have an owner: each one ends, its panic is seen, and the owner can wait for all.
//!
//! `tokio::spawn` appears here and nowhere else.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;

/// The jobs of one owner. Clones share the same set.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Jobs {
    /// An empty set of jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set whose jobs are told to stop together with this set's, but can be waited for alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { tracker: TaskTracker::new(), stop: self.stop.child_token() }
    }

    /// Runs `job` in the background. A panic in it is logged under `name` and ends only that job.
    pub fn spawn<F>(&self, name: &'static str, job: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(async move {
            if AssertUnwindSafe(job).catch_unwind().await.is_err() {
                tracing::error!(job = name, "a job panicked; its caller was told, the rest goes on");
            }
        })
    }

    /// Tells every job that asks [`Jobs::stopping`] to end.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Whether [`Jobs::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves once [`Jobs::stop`] was called.
    pub fn stopping(&self) -> WaitForCancellationFuture<'_> {
        self.stop.cancelled()
    }

    /// Resolves when no job is left. New jobs may still be spawned while waiting.
    pub async fn idle(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// How many jobs run now.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }
}
