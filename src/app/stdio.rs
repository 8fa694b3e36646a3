//! The proxy over stdio: one server, one client, and a store that is opened when it is needed.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared as SharedFuture};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;
use tower_service::Service;

use super::stack::Fresh;
use super::stack::{LAST_WORDS, Stack};
use super::stores::{self, Found, Leaving, Place};
use crate::config::{Config, ServerConfig, StoreOrigin};
use crate::front::stdio::StdioFront;
use crate::jobs::Jobs;
use crate::lists::{Lists, ListsLayer};
use crate::policy::Policies;
use crate::protocol::{Call, Failure, Method, Outcome, Reason, Reply, Retry};
use crate::tasks::{self, Elsewhere, Storeless, TasksService};
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
    open: OnceLock<Open>,
    /// The opening that goes on now, if one does.
    attempt: Mutex<Option<Attempt>>,
    opening: Jobs,
    /// Cancelled once a store is waited for.
    waits: CancellationToken,
    /// Lists are the same before and after.
    lists: ListsLayer,
    following: Jobs,
    /// What is answered while a store is waited for.
    meanwhile: Storeless<Upstream>,
}

/// An opening: why it came to nothing, if it did.
type Attempt = SharedFuture<oneshot::Receiver<Option<Failure>>>;

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
    let service = OnDemand::new(config, server, &upstreams, &front.child());
    let host_front = StdioFront::new(&service.0.server.name, service.clone(), limits);
    let left = host_front.left();
    let serving =
        host_front.serve(host.input, host.output, host.gone, front.clone(), grace + LAST_WORDS, settled.cancelled());
    let shutdown = shutdown.shared();
    // The host is gone and has sent the signal, in whichever order: nothing is waited for any more.
    let hurried = async { _ = tokio::join!(left.cancelled(), shutdown.clone()) }.shared();
    let stopping = async {
        tokio::select! {
            () = shutdown.clone() => {}
            () = front.stopping() => {}
        }
        let hurry = async {
            tokio::select! {
                () = tokio::time::sleep(grace) => {}
                () = hurried.clone() => {}
            }
        };
        front.stop();
        let leaving = service.drain(hurry).await;
        settled.cancel();
        leaving
    };
    let ((), leaving) = tokio::join!(serving, stopping);
    service.give_back(leaving).await;
    tokio::select! {
        biased;
        () = service.0.upstream.close() => {}
        // The server is told, and left to its guard, which ends it when this process has ended.
        () = hurried.clone() => {}
    }
    upstreams.stop();
}

impl OnDemand {
    fn new(config: Config, server: ServerConfig, upstreams: &Jobs, opening: &Jobs) -> Self {
        let upstream = Upstream::new(Arc::new(server.clone()), &config.limits, upstreams);
        let place = match config.store_origin {
            StoreOrigin::Chosen => Place::Chosen,
            StoreOrigin::Default => Place::of_user(&server),
        };
        let following = Jobs::new();
        let lists = ListsLayer::for_server(&server, &following);
        let policies = Policies::for_server(&server.name, &config.defaults, &config.tools);
        let meanwhile = Storeless::new(upstream.clone(), &server, policies, &following);
        Self(Arc::new(Shared {
            config,
            server,
            upstream,
            place,
            open: OnceLock::new(),
            attempt: Mutex::default(),
            opening: opening.clone(),
            waits: CancellationToken::new(),
            lists,
            following,
            meanwhile,
        }))
    }

    /// What the first call opened; a failure is told to each call that finds it, and tried again by the next.
    async fn open(&self) -> Result<&Open, Failure> {
        if let Some(open) = self.0.open.get() {
            return Ok(open);
        }
        let failed = self.attempt().await;
        self.0.open.get().ok_or_else(|| {
            let panicked = || Failure::new(Reason::Store, "the store cannot be opened", Retry::Unknown);
            failed.ok().flatten().unwrap_or_else(panicked)
        })
    }

    /// The opening that goes on, or a new one. It goes on when the call that began it is gone.
    fn attempt(&self) -> Attempt {
        let mut attempt = self.0.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = &*attempt {
            return attempt.clone();
        }
        let (tell, told) = oneshot::channel();
        let this = self.clone();
        self.0.opening.spawn("open the store", async move {
            let failed = if this.0.open.get().is_some() {
                None
            } else {
                this.0.open_now().await.map(|open| drop(this.0.open.set(open))).err()
            };
            this.0.attempt.lock().unwrap_or_else(PoisonError::into_inner).take();
            let _ = tell.send(failed);
        });
        attempt.insert(told.shared()).clone()
    }

    /// Ends what runs: by itself until `patience` resolves. From now on the host's next process waits for this store
    /// instead of taking another.
    async fn drain(&self, patience: impl Future<Output = ()>) -> Option<Leaving> {
        let open = self.0.open.get()?;
        let leaving = Leaving::note(&open.path, self.0.config.shutdown.grace + LAST_WORDS * 2);
        open.stack.drain(patience).await;
        Some(leaving)
    }

    /// Gives the store back. To be called before the server is ended, which may take its time.
    async fn give_back(&self, leaving: Option<Leaving>) {
        if let Some(open) = self.0.open.get() {
            open.stack.halt();
            open.stack.close().await;
        }
        self.0.following.stop();
        drop(leaving);
    }
}

impl Shared {
    async fn open_now(&self) -> Result<Open, Failure> {
        let (fresh, path) = self.find().await?;
        tracing::info!(store = %path.display(), "tasks are kept here");
        let stack = Stack::new(fresh, &self.config, Jobs::new());
        let elsewhere = match self.place {
            Place::Chosen => Elsewhere::default(),
            Place::FirstFree(_) => Elsewhere::of({
                let path = path.clone();
                move || stores::others_are_held(&path)
            }),
        };
        let (config, server, behind) = (&self.config, &self.server, self.upstream.clone());
        let service = stack.service_beside(config, server, behind, &self.lists, elsewhere);
        stack.abandon_rest();
        Ok(Open { stack, service, path })
    }

    /// Opens the first store that is free, or becomes so while it is waited for.
    async fn find(&self) -> Result<(Fresh, PathBuf), Failure> {
        let mut passed = Vec::new();
        loop {
            let (place, store, skipped) = (self.place.clone(), self.config.store.clone(), passed.clone());
            match tokio::task::spawn_blocking(move || place.open(&store, &skipped)).await {
                Ok(Ok(Found::Open(fresh, path))) => return Ok((*fresh, path)),
                Ok(Ok(Found::Leaving(path, until))) => {
                    tracing::info!(store = %path.display(), "the process before this one is ending; its store is waited for");
                    self.waits.cancel();
                    let is_free = tokio::select! {
                        is_free = stores::is_free_by(&path, until) => is_free,
                        () = self.opening.stopping() => {
                            let text = "Raincheck is stopping; nothing was sent";
                            return Err(Failure::new(Reason::Stopping, text, Retry::SOON));
                        }
                    };
                    if !is_free {
                        passed.push(path);
                    }
                }
                Ok(Err(error)) => {
                    tracing::error!("{error}");
                    return Err(Failure::new(Reason::Store, format!("{error}; nothing was sent"), Retry::SOON));
                }
                Err(_panic) => return Err(Failure::new(Reason::Store, "the store cannot be opened", Retry::Unknown)),
            }
        }
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
            let opened = if this.0.meanwhile.answers(&call) {
                tokio::select! {
                    biased;
                    opened = this.open() => opened,
                    () = this.0.waits.cancelled() => {
                        return this.0.lists.layer(this.0.meanwhile.clone()).call(call).await;
                    }
                }
            } else {
                this.open().await
            };
            match opened {
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
