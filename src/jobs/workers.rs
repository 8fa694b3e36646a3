//! Threads that serve connections, each with a runtime of its own.
//!
//! A short call is done by the job of its client's connection, which drives the connection to the server as well. Threads
//! that take work from each other move such a job from core to core, and the memory that it has just used with it, which
//! costs a call about as much as it does. So a connection stays with the thread that it was given to, and so does what its
//! calls start, such as a child process, which each wake on another thread would make slower. A call that became a task,
//! and streams of HTTP/2, of which one connection may carry all, go to the runtime of the program.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The threads. Clones share them; with the last one they end, and with them what still runs there.
#[derive(Clone, Debug, Default)]
pub struct Workers(Arc<Crew>);

/// The place of a connection at one of them.
#[derive(Debug)]
pub struct Seat(Arc<Worker>);

/// Whose thread this is: what waits for input here is woken without a change of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// That of the program's runtime, or somebody else's.
    Shared,
    /// That of the worker with this number.
    Worker(usize),
}

#[derive(Debug, Default)]
struct Crew {
    workers: Vec<Arc<Worker>>,
    /// Ends the threads. None without threads.
    _end: Option<DropGuard>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Connections that it serves.
    seats: AtomicUsize,
}

/// What a worker's thread knows of itself.
#[derive(Debug)]
struct Badge {
    number: usize,
    /// The runtime of the program.
    home: Handle,
}

thread_local! {
    static BADGE: OnceCell<Badge> = const { OnceCell::new() };
}

impl Workers {
    /// As many as this runtime, that of the program, has. Each does `first` before all else.
    pub fn start(first: fn()) -> io::Result<Self> {
        let home = Handle::current();
        let end = CancellationToken::new();
        let start = |number| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let worker = Worker { runtime: runtime.handle().clone(), seats: AtomicUsize::new(0) };
            let (badge, end) = (Badge { number, home: home.clone() }, end.clone());
            let serve = move || serve(runtime, badge, first, &end);
            thread::Builder::new().name(format!("worker-{number}")).spawn(serve)?;
            Ok(Arc::new(worker))
        };
        let workers = (0..home.metrics().num_workers()).map(start).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Crew { workers, _end: Some(end.drop_guard()) })))
    }

    /// A place at the worker with the fewest connections. None if there are no workers.
    pub fn seat(&self) -> Option<Seat> {
        let worker = self.0.workers.iter().min_by_key(|worker| worker.seats.load(Ordering::Relaxed))?;
        worker.seats.fetch_add(1, Ordering::Relaxed);
        Some(Seat(Arc::clone(worker)))
    }
}

fn serve(runtime: Runtime, badge: Badge, first: fn(), end: &CancellationToken) {
    BADGE.with(|own| _ = own.set(badge));
    first();
    runtime.block_on(end.cancelled());
    // What still runs has had its time.
    runtime.shutdown_background();
}

/// Where what outlives a call is to run, if that is not here.
pub(super) fn home() -> Option<Handle> {
    BADGE.with(|badge| badge.get().map(|badge| badge.home.clone()))
}

impl Seat {
    /// What `make` gives, tied to the runtime of this worker.
    pub fn enter<T>(&self, make: impl FnOnce() -> T) -> T {
        let _entered = self.0.runtime.enter();
        make()
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.seats.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Place {
    /// That of the thread that asks.
    pub fn here() -> Self {
        BADGE.with(|badge| badge.get().map_or(Self::Shared, |badge| Self::Worker(badge.number)))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use tokio::sync::oneshot;

    use super::*;
    use crate::jobs::Jobs;

    fn here() -> (Place, ThreadId) {
        (Place::here(), thread::current().id())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_stays_at_the_worker_with_the_fewest_and_what_outlives_its_calls_goes_home() {
        let (workers, jobs) = (Workers::start(|| ()).unwrap(), Jobs::new());
        let seats = [(); 3].map(|()| workers.seat().unwrap());
        let held =
            |workers: &Workers| workers.0.workers.iter().map(|it| it.seats.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(held(&workers), [2, 1]);
        let mut places = Vec::new();
        for seat in seats {
            let (told, tale) = oneshot::channel();
            let inner = jobs.clone();
            jobs.spawn_at(seat, "connection", async move {
                let before = here();
                tokio::task::yield_now().await;
                let (home, of_home) = oneshot::channel();
                inner.spawn_at_home("stream", async move { home.send(here()).unwrap() });
                let (held, of_held) = oneshot::channel();
                let job = inner.clone().driven_by_waiters().hold("call", async move { held.send(here()).unwrap() });
                job.unwrap().send_to_background();
                let (stays, of_staying) = oneshot::channel();
                inner.spawn("child", async move { stays.send(here()).unwrap() });
                let gone = [of_home.await.unwrap(), of_held.await.unwrap()];
                told.send((before, [here(), of_staying.await.unwrap()], gone)).unwrap();
            });
            let (before, after, gone) = tale.await.unwrap();
            assert_eq!(after, [before; 2]);
            assert!(gone.iter().all(|(place, thread)| *place == Place::Shared && *thread != before.1));
            places.push(before.0);
        }
        assert_eq!(places, [Place::Worker(0), Place::Worker(1), Place::Worker(0)]);
        jobs.idle().await;
        assert_eq!(held(&workers), [0, 0]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn with_the_last_of_the_workers_their_jobs_end() {
        let (workers, jobs) = (Workers::start(|| ()).unwrap(), Jobs::new());
        let (began, has_begun) = oneshot::channel();
        let (_held, is_dropped) = oneshot::channel::<()>();
        let job = jobs.spawn_at(workers.seat().unwrap(), "connection", async move {
            began.send(()).unwrap();
            let _ = is_dropped.await;
        });
        has_begun.await.unwrap();
        let other = workers.clone();
        drop(workers);
        assert!(!job.is_finished());
        drop(other);
        assert!(job.await.unwrap_err().is_cancelled());
        assert!(Workers::default().seat().is_none());
    }
}
