//! The composition root: config in, a running proxy out.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tower_layer::Layer;

use crate::clock::{SharedClock, SystemClock};
use crate::config::Config;
use crate::front::{Front, Mount};
use crate::jobs::Jobs;
use crate::lists::ListsLayer;
use crate::policy::Policies;
use crate::protocol::{Failure, Reason, Retry};
use crate::runner::{Bounds, Runner};
use crate::store::{Committed, Ending, OpenError, Opened, Store};
use crate::task::{State, Task};
use crate::tasks::TasksLayer;
use crate::upstream::Upstream;

/// Why the proxy does not start, or stopped by itself.
#[derive(Debug)]
#[non_exhaustive]
pub enum AppError {
    /// The listener cannot be had.
    Bind {
        /// The address in the config.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The store cannot be opened.
    Store(OpenError),
    /// The listener broke.
    Serve(io::Error),
}

/// How long what is left gets when the grace time is over: to be told, and recorded.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Lost tasks that are settled at the same time: enough for one group commit, few enough for the store's queue.
const AT_ONCE: usize = 64;

/// Runs a proxy until `shutdown` resolves, then stops it gracefully. `ready` is called with the
/// address once clients can come.
pub async fn run(
    config: Config,
    shutdown: impl Future<Output = ()>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), AppError> {
    let bind_error = |source| AppError::Bind { address: config.listen.http, source };
    let listener = TcpListener::bind(config.listen.http).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;

    let [fronts, runs, upstreams, stores] = [Jobs::new(), Jobs::new(), Jobs::new(), Jobs::new()];
    let clock: SharedClock = Arc::new(SystemClock);
    let Opened { store, left_open } = Store::open(&config.store, clock, &stores).map_err(AppError::Store)?;
    settle_lost(&store, left_open).await;

    let bounds = Bounds { running: config.limits.calls, waiting: config.limits.queue };
    let runner = Runner::new(store.clone(), runs.clone(), bounds);
    let lists = Jobs::new();
    let mut servers = Vec::new();
    let mut mounts = Vec::new();
    for server in &config.servers {
        let upstream = Upstream::new(Arc::new(server.clone()), &config.limits, &upstreams);
        let policies = Policies::for_server(&server.name, &config.defaults, &config.tools);
        // Tasks stand right in front of the server: what they run is one call to it.
        let service =
            TasksLayer::new(runner.clone(), &server.name, policies).for_server(server).layer(upstream.clone());
        let service = ListsLayer::for_server(server, &lists).layer(service);
        mounts.push(Mount { name: server.name.clone(), service });
        servers.push(upstream);
    }
    let front = Front::new(config.listen.clone(), config.limits.clone(), config.owner.clone(), mounts);

    let grace = config.shutdown.grace;
    // A caller who is held must be told before its connection is closed.
    let serving = front.serve(listener, fronts.clone(), grace + LAST_WORDS);
    let stopping = async {
        shutdown.await;
        fronts.stop();
        runner.drain();
        if timeout(grace, runner.idle()).await.is_err() {
            tracing::warn!(runs = runs.running(), "the grace time is over; open runs are recorded as lost");
        }
        runs.stop();
        let _ = timeout(LAST_WORDS, runner.idle()).await;
    };
    ready(address);
    let (served, ()) = {
        let serving = async {
            let served = serving.await;
            if served.is_err() {
                fronts.stop();
            }
            served
        };
        tokio::pin!(serving, stopping);
        tokio::select! {
            () = &mut stopping => (serving.await, ()),
            served = &mut serving => match served {
                Ok(()) => (Ok(()), stopping.await),
                Err(error) => (Err(error), ()),
            },
        }
    };
    runner.drain();
    runs.stop();
    lists.stop();
    for server in servers {
        server.close().await;
    }
    upstreams.stop();
    store.close().await;
    stores.stop();
    served.map_err(AppError::Serve)
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

impl AppError {
    /// The exit code of the process: 69 for the listener, 70 to 79 for the store (see [`OpenError`]).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Bind { .. } | Self::Serve(_) => 69,
            Self::Store(error) => error.exit_code(),
        }
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, source } => {
                write!(f, "cannot listen on {address}: {source}; stop what listens there or choose another listen.http")
            }
            Self::Store(error) => error.fmt(f),
            Self::Serve(source) => write!(f, "the listener broke: {source}"),
        }
    }
}

impl std::error::Error for AppError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } | Self::Serve(source) => Some(source),
            Self::Store(error) => Some(error),
        }
    }
}
