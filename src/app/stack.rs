//! What stands behind any front: the store, the runner, and the tasks layer in front of the servers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tower_layer::Layer;

use crate::clock::{SharedClock, SystemClock};
use crate::config::{Config, ServerConfig, StoreConfig, ToolRule};
use crate::jobs::Jobs;
use crate::lists::{Lists, ListsLayer};
use crate::policy::Policies;
use crate::runner::{Bounds, Runner};
use crate::store::{Committed, OpenError, Opened, Store};
use crate::task::Task;
use crate::tasks::{Elsewhere, TasksLayer, TasksService};
use crate::upstream::Upstream;

/// An open store and what runs on it.
#[derive(Debug)]
pub(super) struct Stack {
    store: Store,
    runner: Runner,
    runs: Jobs,
    stores: Jobs,
    /// Lists that are waited for.
    lists: Jobs,
    /// Tasks that the last process left open, until somebody goes on with them.
    left: Mutex<Vec<Committed<Task>>>,
}

/// A store that was opened, and where its jobs run.
pub(super) type Fresh = (Opened, Jobs);

/// How long what is left gets when the grace time is over: to be told, and recorded.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// Opens a store. Blocks; to be called in a tokio runtime.
pub(super) fn open(config: &StoreConfig) -> Result<Fresh, OpenError> {
    let stores = Jobs::new();
    let clock: SharedClock = Arc::new(SystemClock);
    Ok((Store::open(config, clock, &stores)?, stores))
}

impl Stack {
    /// A runner on a store that was just opened, whose runs are among `runs`.
    pub(super) fn new((opened, stores): Fresh, config: &Config, runs: Jobs) -> Self {
        let Opened { store, left_open } = opened;
        store.warn_of_health();
        let bounds = Bounds { running: config.limits.calls, waiting: config.limits.queue, rate: config.limits.rate };
        let runner = Runner::with_owners(store.clone(), runs.clone(), bounds, config.owner_rules.clone());
        Self { store, runner, runs, stores, lists: Jobs::new(), left: Mutex::new(left_open) }
    }

    /// The server with tasks. See [`Stack::service_beside`].
    pub(super) fn service(
        &self,
        config: &Config,
        server: &ServerConfig,
        behind: Upstream,
    ) -> Lists<TasksService<Upstream>> {
        let lists = ListsLayer::for_server(server, &self.lists);
        self.service_beside(config, server, behind, &lists, Elsewhere::default())
    }

    /// The server with tasks, among them those that the last process left open. They stand right in front of it: what they run is one call to it. The last good lists stand
    /// before them, since a list may have to wait for a slot too.
    pub(super) fn service_beside(
        &self,
        config: &Config,
        server: &ServerConfig,
        behind: Upstream,
        lists: &ListsLayer,
        elsewhere: Elsewhere,
    ) -> Lists<TasksService<Upstream>> {
        let policies = Policies::for_server(&server.name, &config.defaults, &config.tools);
        let layer = TasksLayer::new(self.runner.clone(), &server.name, policies).for_server(server);
        let tasks = layer.kept_elsewhere(elsewhere).layer(behind);
        tasks.recover(self.take_left(|task| task.server == server.name));
        let meters = self.runner.history().meters();
        let of_server = |rule: &&ToolRule| rule.server.as_ref().is_none_or(|name| *name == server.name);
        let named = config.tools.iter().filter(of_server).map(|rule| rule.pattern.as_str());
        meters.know(&server.name, named.filter(|name| !name.contains('*')));
        lists.tell(meters.clone());
        lists.layer(tasks)
    }

    /// What runs on the store.
    pub(super) fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Ends the tasks that the last process left open and that belong to no server.
    pub(super) fn abandon_rest(&self) {
        self.runner.abandon(self.take_left(|_| true));
    }

    fn take_left(&self, wanted: impl Fn(&Task) -> bool) -> Vec<Committed<Task>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.extract_if(.., |task| wanted(task)).collect()
    }

    /// Starts nothing more, and ends what runs: by itself until `patience` resolves, then left to the next process if
    /// that can go on with it, else recorded as lost.
    pub(super) async fn drain(&self, patience: impl Future<Output = ()>) {
        self.runner.drain();
        tokio::select! {
            biased;
            () = self.runner.idle() => {}
            () = patience => {
                let runs = self.runs.running();
                tracing::warn!(runs, "the grace time is over; open runs are left to the next process or recorded as lost");
            }
        }
        self.runs.stop();
        let _ = timeout(LAST_WORDS, self.runner.idle()).await;
    }

    /// Ends what runs, now. To be called before the servers are closed.
    pub(super) fn halt(&self) {
        self.runner.drain();
        self.runs.stop();
        self.lists.stop();
    }

    /// Gives the store back. To be called when the servers are closed.
    pub(super) async fn close(&self) {
        self.runner.save_history().await;
        self.store.close().await;
        self.stores.stop();
    }
}
