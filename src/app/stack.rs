//! What stands behind any front: the store, the runner, and the tasks layer in front of the servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::timeout;
use tower_layer::Layer;

use crate::clock::{SharedClock, SystemClock};
use crate::config::{Config, ServerConfig, StoreConfig};
use crate::jobs::Jobs;
use crate::lists::{Lists, ListsLayer};
use crate::policy::Policies;
use crate::protocol::{Failure, Reason, Retry};
use crate::runner::{Bounds, Runner};
use crate::store::{Committed, Ending, OpenError, Opened, Store};
use crate::task::{State, Task};
use crate::tasks::{TasksLayer, TasksService};
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
}

/// A store that was opened, and the tasks that nobody runs any more.
pub(super) type Fresh = (Opened, Jobs);

/// How long what is left gets when the grace time is over: to be told, and recorded.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// Lost tasks that are settled at the same time: enough for one group commit, few enough for the store's queue.
const AT_ONCE: usize = 64;

/// Opens a store. Blocks; to be called in a tokio runtime.
pub(super) fn open(config: &StoreConfig) -> Result<Fresh, OpenError> {
    let stores = Jobs::new();
    let clock: SharedClock = Arc::new(SystemClock);
    Ok((Store::open(config, clock, &stores)?, stores))
}

impl Stack {
    /// A runner on a store that was just opened, whose runs are among `runs`. Tasks that the last process left open are settled first.
    pub(super) async fn new((opened, stores): Fresh, config: &Config, runs: Jobs) -> Self {
        let Opened { store, left_open } = opened;
        settle_lost(&store, left_open).await;
        let bounds = Bounds { running: config.limits.calls, waiting: config.limits.queue };
        let runner = Runner::with_owners(store.clone(), runs.clone(), bounds, config.owner_rules.clone());
        Self { store, runner, runs, stores, lists: Jobs::new() }
    }

    /// The server with tasks. They stand right in front of it: what they run is one call to it. The last good lists stand
    /// before them, since a list may have to wait for a slot too.
    pub(super) fn service(
        &self,
        config: &Config,
        server: &ServerConfig,
        behind: Upstream,
    ) -> Lists<TasksService<Upstream>> {
        let policies = Policies::for_server(&server.name, &config.defaults, &config.tools);
        let tasks = TasksLayer::new(self.runner.clone(), &server.name, policies).for_server(server).layer(behind);
        ListsLayer::for_server(server, &self.lists).layer(tasks)
    }

    /// What runs on the store.
    pub(super) fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Starts nothing more, and ends what runs: by itself until `patience` resolves, then recorded as lost.
    pub(super) async fn drain(&self, patience: impl Future<Output = ()>) {
        self.runner.drain();
        tokio::select! {
            biased;
            () = self.runner.idle() => {}
            () = patience => {
                let runs = self.runs.running();
                tracing::warn!(runs, "the grace time is over; open runs are recorded as lost");
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

/// Ends the tasks that an earlier process left open: nothing runs for them any more.
async fn settle_lost(store: &Store, left_open: Vec<Committed<Task>>) {
    if left_open.is_empty() {
        return;
    }
    tracing::warn!(tasks = left_open.len(), "tasks were open when the last process ended; they are settled as lost");
    let settle = |task: Committed<Task>| async move {
        let failure = match task.state {
            State::Queued => Failure::new(
                Reason::NotStarted,
                "Raincheck was restarted before the call was sent; nothing was run, call the tool again",
                Retry::Yes,
            ),
            _ => Failure::outcome_unknown("Raincheck was restarted during the run"),
        };
        if let Err(error) = store.settle(&task.id, Ending::Failed(failure)).await {
            tracing::error!(task = ?task.id, %error, "a lost task could not be settled");
        }
    };
    stream::iter(left_open).for_each_concurrent(AT_ONCE, settle).await;
}
