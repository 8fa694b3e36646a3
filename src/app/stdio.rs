//! The proxy over stdio: one server, one client, and a store that is opened when it is needed.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::stack::{LAST_WORDS, Stack};
use super::stores::{Leaving, Place};
use crate::config::{Config, ServerConfig, StoreOrigin};
use crate::front::stdio::StdioFront;
use crate::jobs::Jobs;
use crate::lists::Lists;
use crate::protocol::{Call, Failure, Method, Outcome, Reason, Reply, Retry};
use crate::tasks::{self, TasksService};
use crate::upstream::Upstream;

/// The host that started this process: its ends of our stdin and stdout.
#[derive(Debug)]
pub struct Host<R, W, G> {
    /// What it writes.
    pub input: R,
    /// What it reads.
    pub output: W,
    /// Resolves when it does not read any more.
    pub gone: G,
}

/// A server with tasks, whose store is opened by the first call that needs it: hosts start processes only to see
/// what a server is, and end them again.
#[derive(Clone)]
struct OnDemand(Arc<Shared>);

struct Shared {
    config: Config,
    server: ServerConfig,
    upstream: Upstream,
    place: Place,
    open: OnceCell<Open>,
}

/// What the first call opened.
struct Open {
    stack: Stack,
    service: Lists<TasksService<Upstream>>,
    path: PathBuf,
}

/// Serves one server of `config` to `host` until that is gone, or `shutdown` resolves; then stops gracefully. Should
/// `shutdown` resolve when the host is gone already, nothing is waited for any more.
pub async fn run_stdio<R, W, G>(
    config: Config,
    server: ServerConfig,
    host: Host<R, W, G>,
    shutdown: impl Future<Output = ()>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
    G: Future<Output = ()>,
{
    let [front, upstreams] = [Jobs::new(), Jobs::new()];
    let settled = CancellationToken::new();
    let grace = config.shutdown.grace;
    let limits = config.limits.clone();
    let service = OnDemand::new(config, server, &upstreams);
    let host_front = StdioFront::new(&service.0.server.name, service.clone(), limits);
    let left = host_front.left();
    let serving =
        host_front.serve(host.input, host.output, host.gone, front.clone(), grace + LAST_WORDS, settled.cancelled());
    let stopping = async {
        tokio::pin!(shutdown);
        // The host is gone and has sent the signal, in whichever order: nothing is waited for any more.
        let second = tokio::select! {
            () = shutdown.as_mut() => left.cancelled().left_future(),
            () = front.stopping() => shutdown.as_mut().right_future(),
        };
        let hurry = async {
            tokio::select! {
                () = tokio::time::sleep(grace) => {}
                () = second => {}
            }
        };
        front.stop();
        let leaving = service.drain(hurry).await;
        settled.cancel();
        leaving
    };
    let ((), leaving) = tokio::join!(serving, stopping);
    service.close(leaving).await;
    upstreams.stop();
}

impl OnDemand {
    fn new(config: Config, server: ServerConfig, upstreams: &Jobs) -> Self {
        let upstream = Upstream::new(Arc::new(server.clone()), &config.limits, upstreams);
        let place = match config.store_origin {
            StoreOrigin::Chosen => Place::Chosen,
            StoreOrigin::Default => Place::of_user(&server),
        };
        Self(Arc::new(Shared { config, server, upstream, place, open: OnceCell::new() }))
    }

    /// What the first call opened; a failure is told to each call that finds it, and tried again by the next.
    async fn open(&self) -> Result<&Open, Failure> {
        self.0.open.get_or_try_init(|| self.0.open_now()).await
    }

    /// Ends what runs: by itself until `patience` resolves. From now on the host's next process waits for this store
    /// instead of taking another.
    async fn drain(&self, patience: impl Future<Output = ()>) -> Option<Leaving> {
        let open = self.0.open.get()?;
        let leaving = Leaving::note(&open.path);
        open.stack.drain(patience).await;
        Some(leaving)
    }

    /// Gives the store back, then ends the server, which may take its time.
    async fn close(&self, leaving: Option<Leaving>) {
        if let Some(open) = self.0.open.get() {
            open.stack.halt();
            open.stack.close().await;
        }
        drop(leaving);
        self.0.upstream.close().await;
    }
}

impl Shared {
    async fn open_now(&self) -> Result<Open, Failure> {
        let (place, store) = (self.place.clone(), self.config.store.clone());
        let opened = tokio::task::spawn_blocking(move || place.open(&store)).await;
        let (fresh, path) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                tracing::error!("{error}");
                let retry = Retry::SOON;
                return Err(Failure::new(Reason::Store, format!("{error}; nothing was sent"), retry));
            }
            Err(_panic) => return Err(Failure::new(Reason::Store, "the store cannot be opened", Retry::Unknown)),
        };
        tracing::info!(store = %path.display(), "tasks are kept here");
        let stack = Stack::new(fresh, &self.config, Jobs::new());
        let service = stack.service(&self.config, &self.server, self.upstream.clone());
        stack.abandon_rest();
        Ok(Open { stack, service, path })
    }
}

impl Service<Call> for OnDemand {
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let this = self.clone();
        async move {
            if call.method == Method::Discover {
                return Ok(Reply::ready(tasks::discover(this.0.upstream.clone(), call).await));
            }
            match this.open().await {
                Ok(open) => open.service.clone().call(call).await,
                Err(failure) => Ok(Reply::ready(Outcome::Failed(failure))),
            }
        }
        .boxed()
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").field("server", &self.0.server.name).finish_non_exhaustive()
    }
}
