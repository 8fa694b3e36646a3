//! The composition root: config in, a running proxy out.

mod stack;
mod stdio;
mod stores;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::net::TcpListener;

use self::stack::{LAST_WORDS, Stack};
use crate::admin::Admin;
use crate::config::Config;
use crate::front::{Front, Mount, ResourceMetadata, keep_date};
use crate::jobs::{Jobs, Workers};
use crate::store::OpenError;
use crate::upstream::Upstream;

pub use self::stdio::{Host, run_stdio};

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
    /// The listener for operators cannot be had.
    BindAdmin {
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
    let admin = bind_admin(&config).await?;
    // Kept until all is closed: what has come out of a connection's calls may wait there.
    let workers = Workers::start(keep_date).map_err(AppError::Serve)?;

    // The front polls each call, or lets go of it, and so does a run with its call to the server.
    let [fronts, connections, runs, upstreams] = std::array::from_fn(|_| Jobs::new().driven_by_waiters());
    let stack = Stack::new(stack::open(&config.store).map_err(AppError::Store)?, &config, runs);
    let mut servers = Vec::new();
    let (mut mounts, mut resources) = (Vec::new(), HashMap::new());
    for server in &config.servers {
        let upstream = Upstream::new(Arc::new(server.clone()), &config.limits, &upstreams);
        let behind = upstream.clone();
        let metadata = ResourceMetadata::new(move || {
            let behind = behind.clone();
            Box::pin(async move { behind.resource_metadata().await })
        });
        resources.insert(server.name.clone(), metadata);
        mounts.push(Mount { name: server.name.clone(), service: stack.service(&config, server, upstream.clone()) });
        servers.push(upstream);
    }
    stack.abandon_rest();
    tracing::info!(store = %config.store.path.display(), "tasks are kept here");
    let front = Front::new(config.listen.clone(), config.limits.clone(), config.owner.clone(), mounts)
        .with_resources(resources)
        .with_workers(workers.clone());

    let operators = Jobs::new();
    if let (Some((listener, local)), Some(door)) = (admin, &config.admin) {
        tracing::info!(address = %local, "operators are served");
        let admin = Admin::new(stack.runner().clone(), door, local)
            .with_servers(servers.clone())
            .with_owners(&config.owner_rules);
        operators.spawn("operators", admin.serve(listener, operators.clone()));
    }

    let grace = config.shutdown.grace;
    // While runs go on, clients can ask after their tasks; a caller who is held must be told before its connection is
    // closed.
    let serving = front.serve_until(listener, fronts.clone(), connections.clone(), LAST_WORDS);
    let stopping = async {
        shutdown.await;
        fronts.stop();
        stack.drain(tokio::time::sleep(grace)).await;
        connections.stop();
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
    stack.halt();
    // One that is slow to end must not keep the next from its own time.
    join_all(servers.iter().map(Upstream::close)).await;
    upstreams.stop();
    operators.stop();
    operators.idle().await;
    stack.close().await;
    drop(workers);
    served.map_err(AppError::Serve)
}

/// The listener for operators, if there is to be one.
async fn bind_admin(config: &Config) -> Result<Option<(TcpListener, SocketAddr)>, AppError> {
    let Some(admin) = &config.admin else { return Ok(None) };
    let error = |source| AppError::BindAdmin { address: admin.http, source };
    let listener = TcpListener::bind(admin.http).await.map_err(error)?;
    let local = listener.local_addr().map_err(error)?;
    Ok(Some((listener, local)))
}

impl AppError {
    /// The exit code of the process: 69 for the listener, 70 to 77 for the store (see [`OpenError`]).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Bind { .. } | Self::BindAdmin { .. } | Self::Serve(_) => 69,
            Self::Store(error) => error.exit_code(),
        }
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, source } => {
                write!(f, "cannot listen on {address}: {source}")
            }
            Self::BindAdmin { address, source } => {
                write!(f, "cannot listen on {address}: {source}; stop what listens there or choose another admin.http")
            }
            Self::Store(error) => error.fmt(f),
            Self::Serve(source) => write!(f, "the listener broke: {source}"),
        }
    }
}

impl std::error::Error for AppError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } | Self::BindAdmin { source, .. } | Self::Serve(source) => Some(source),
            Self::Store(error) => Some(error),
        }
    }
}
