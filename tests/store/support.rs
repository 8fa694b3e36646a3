//! A store in a directory of its own, under a clock that stands still.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::clock::{Clock, ManualClock, SharedClock, Timestamp};
use raincheck::config::{Durability, StoreConfig};
use raincheck::jobs::Jobs;
use raincheck::protocol::{Json, Principal};
use raincheck::store::{Committed, OpenError, Opened, Store};
use raincheck::task::{Expiry, Owner, State, Task, TaskId};
use tempfile::TempDir;

/// A store in a directory of its own.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    pub(crate) left_open: Vec<Committed<Task>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) jobs: Jobs,
    pub(crate) directory: TempDir,
}

pub(crate) const START: Timestamp = Timestamp::from_millis(1_785_234_600_000);

pub(crate) fn config(path: &Path) -> StoreConfig {
    StoreConfig {
        path: path.to_owned(),
        durability: Durability::Power,
        cache_bytes: 8 << 20,
        min_free_bytes: Some(0),
        max_tasks: 100_000,
    }
}

/// Opens the store in `path` under a clock that stands still.
pub(crate) fn open(path: &Path) -> Result<Opened, OpenError> {
    let clock: SharedClock = Arc::new(ManualClock::new(START));
    Store::open(&config(path), clock, &Jobs::new())
}

/// A small JSON text.
pub(crate) fn json(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

impl TestStore {
    pub(crate) fn new() -> Self {
        Self::with(tempfile::tempdir().unwrap(), START, |_| {})
    }

    pub(crate) fn configured(change: impl FnOnce(&mut StoreConfig)) -> Self {
        Self::with(tempfile::tempdir().unwrap(), START, change)
    }

    fn with(directory: TempDir, now: Timestamp, change: impl FnOnce(&mut StoreConfig)) -> Self {
        let clock = Arc::new(ManualClock::new(now));
        let mut config = config(&directory.path().join("store"));
        change(&mut config);
        let shared: SharedClock = clock.clone();
        let jobs = Jobs::new();
        let Opened { store, left_open } = Store::open(&config, shared, &jobs).unwrap();
        // The store's own sweep ends here: the tests sweep by hand and count what they find.
        jobs.stop();
        Self { store, left_open, clock, jobs, directory }
    }

    /// Closes the store and opens it again.
    pub(crate) async fn reopened(self) -> Self {
        self.reopened_with(|_| {}).await
    }

    /// The same, with another configuration.
    pub(crate) async fn reopened_with(self, change: impl FnOnce(&mut StoreConfig)) -> Self {
        self.jobs.stop();
        self.jobs.idle().await;
        self.store.close().await;
        Self::with(self.directory, self.clock.now(), change)
    }

    pub(crate) fn owner(&self) -> Owner {
        self.store.owner(&Principal::Named("ann".into()))
    }

    pub(crate) fn other_owner(&self) -> Owner {
        self.store.owner(&Principal::Named("bo".into()))
    }

    pub(crate) fn queued(&self, expiry: Expiry) -> Task {
        let now = self.clock.now();
        Task::queued(TaskId::generate(now), self.owner(), "reports".to_owned(), "export".to_owned(), now, expiry)
    }

    pub(crate) fn running(&self, expiry: Expiry) -> Task {
        Task { state: State::Running { started: self.clock.now() }, ..self.queued(expiry) }
    }

    /// A running task that is in the store.
    pub(crate) async fn run(&self, expiry: Expiry) -> TaskId {
        self.store.create(self.running(expiry)).await.unwrap().id
    }

    /// The status of a task, as its owner reads it.
    pub(crate) async fn status(&self, id: &TaskId) -> Option<&'static str> {
        self.store.get(&self.owner(), id).await.unwrap().map(|task| task.state.status())
    }
}

/// An expiry of `ttl` seconds, of which `keep` are for after the end.
pub(crate) const fn expiry(ttl: u64, keep: u64) -> Expiry {
    Expiry::Limited { ttl: Duration::from_secs(ttl), keep: Duration::from_secs(keep) }
}
