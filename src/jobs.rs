//! Spawned jobs that have an owner: each one ends, its panic is seen, and the owner can wait for all.
//!
//! `tokio::spawn` appears here and nowhere else.

mod alarm;
mod workers;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

pub use self::alarm::Alarm;
use self::alarm::Alarms;
pub use self::workers::{Place, Seat, Workers};

/// The jobs of one owner. Clones share the same set.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    tracker: TaskTracker,
    stop: CancellationToken,
    drive: Drive,
}

/// Who drives the jobs that somebody waits for.
#[derive(Clone, Debug, Default)]
enum Drive {
    /// The runtime.
    #[default]
    Background,
    /// Whoever waits. Alarms are put off, since most calls are short.
    Waiter(Alarms),
}

/// A job that its holder polls until it sends it to the background. It counts as running all the while, and ends when
/// it is dropped.
pub struct HeldJob {
    name: &'static str,
    job: BoxFuture<'static, ()>,
    token: TaskTrackerToken,
}

/// Longer than any process lives.
const FAR: Duration = Duration::from_hours(24 * 365 * 30);

impl Jobs {
    /// An empty set of jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set whose jobs are told to stop together with this set's, but can be waited for alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { tracker: TaskTracker::new(), stop: self.stop.child_token(), drive: self.drive.clone() }
    }

    /// The same set, for users of which each polls what it waits for until it has it, drops it, or sends it to the
    /// background: a job of its own for each short call costs more than the call.
    #[must_use]
    pub fn driven_by_waiters(self) -> Self {
        Self { drive: Drive::Waiter(Alarms::default()), ..self }
    }

    /// Runs `job` in the background, on the runtime of whoever asks. A panic in it is logged under `name` and ends only
    /// that job.
    pub fn spawn<F>(&self, name: &'static str, job: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(guarded(name, job))
    }

    /// The same, on the runtime of the program, whose threads share their work.
    pub fn spawn_at_home<F>(&self, name: &'static str, job: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match workers::home() {
            Some(home) => self.tracker.spawn_on(guarded(name, job), &home),
            None => self.spawn(name, job),
        }
    }

    /// Runs `job` at a worker. The job has the seat as long as it runs.
    pub fn spawn_at<F>(&self, seat: Seat, name: &'static str, job: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = seat.runtime().clone();
        let job = async move {
            job.await;
            drop(seat);
        };
        self.tracker.spawn_on(guarded(name, job), &runtime)
    }

    /// Runs `job` in the background, or gives it back if whoever waits for it is to drive it.
    pub fn hold<F>(&self, name: &'static str, job: F) -> Option<HeldJob>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match &self.drive {
            Drive::Background => {
                self.spawn(name, job);
                None
            }
            Drive::Waiter(_) => Some(HeldJob { name, job: Box::pin(job), token: self.tracker.token() }),
        }
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

    /// Resolves at that moment, for a job that hardly ever waits so long.
    pub fn alarm(&self, until: Instant) -> Alarm {
        let alarms = match &self.drive {
            Drive::Background => None,
            Drive::Waiter(alarms) => Some(alarms.clone()),
        };
        Alarm::new(until, alarms)
    }

    /// What `work` gives, unless it takes longer than `limit`. For work that hardly ever does.
    pub async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let until = Instant::now().checked_add(limit).unwrap_or_else(|| Instant::now() + FAR);
        tokio::select! {
            biased;
            value = work => Some(value),
            () = self.alarm(until) => None,
        }
    }

    /// How many jobs run now.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }
}

impl HeldJob {
    /// Gets on with it. Not to be polled after its end.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // Guarded here and not by a future around the job, into which each job would be moved.
        let polled = catch_unwind(AssertUnwindSafe(|| self.job.as_mut().poll(context)));
        polled.unwrap_or_else(|_| {
            panicked(self.name);
            Poll::Ready(())
        })
    }

    /// Goes on in the background. Where no runtime is left to run it, it ends.
    pub fn send_to_background(self) {
        if let Some(runtime) = workers::home().or_else(|| Handle::try_current().ok()) {
            runtime.spawn(async move {
                guarded(self.name, self.job).await;
                drop(self.token);
            });
        }
    }
}

impl fmt::Debug for HeldJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldJob").finish_non_exhaustive()
    }
}

/// A panic in a job ends only that job.
fn guarded(name: &'static str, job: impl Future<Output = ()>) -> impl Future<Output = ()> {
    AssertUnwindSafe(job).catch_unwind().map(move |ended| {
        if ended.is_err() {
            panicked(name);
        }
    })
}

fn panicked(name: &'static str) {
    tracing::error!(job = name, "a job panicked; its caller was told, the rest goes on");
}
