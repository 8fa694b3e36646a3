//! Lists of tools, prompts and resources are answered from the last good answer while the server is busy or down.
//!
//! A tower layer around everything that a list has to wait for: the line for a slot, the start of a server, the server
//! itself. The server is asked each time all the same; the last answer stands in only where a new one fails or is slow.
//! An answer is kept for its caller alone (or for all, where the config says that they share the server).

mod follow;
mod known;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower_layer::Layer;
use tower_service::Service;

use self::known::{Key, Known, Whose};
use crate::config::ServerConfig;
use crate::history::Meters;
use crate::jobs::Jobs;
use crate::protocol::{Call, McpService, Method, Reply};

/// Puts the last good lists around an MCP service.
#[derive(Clone, Debug)]
pub struct ListsLayer(Arc<Shared>);

/// An MCP service that answers lists while what is behind it cannot.
#[derive(Clone, Debug)]
pub struct Lists<S> {
    inner: S,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: String,
    /// Whether all callers see the same.
    share: bool,
    known: Known,
    /// Told which tools there are.
    meters: OnceLock<Meters>,
    jobs: Jobs,
}

impl ListsLayer {
    /// Lists of one server. `share`: its callers share sessions, so they see the same lists. Lists that are slow are
    /// waited for in `jobs`.
    pub fn new(server: &str, share: bool, jobs: &Jobs) -> Self {
        let known = Known::default();
        Self(Arc::new(Shared { server: server.to_owned(), share, known, meters: OnceLock::new(), jobs: jobs.clone() }))
    }

    /// With what the config of the server says.
    pub fn for_server(config: &ServerConfig, jobs: &Jobs) -> Self {
        Self::new(&config.name, config.share, jobs)
    }

    /// Tells `meters` from now on which tools the server lists. Only the first ones are told.
    pub fn tell(&self, meters: Meters) {
        // Nothing is lost with those that come later.
        let _ = self.0.meters.set(meters);
    }
}

impl<S> Layer<S> for ListsLayer {
    type Service = Lists<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Lists { inner, shared: Arc::clone(&self.0) }
    }
}

impl<S: McpService> Service<Call> for Lists<S> {
    type Response = Reply;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Reply, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let whose = || Whose::of(&call.caller, shared.share);
        match call.method {
            Method::ListTools | Method::ListPrompts | Method::ListResources | Method::ListResourceTemplates => {
                let Some(key) = Key::of(&call, whose()) else { return Either::Left(self.inner.call(call)) };
                let (sender, reply) = Reply::channel();
                shared.jobs.spawn("list", follow::list(Arc::clone(&shared), self.inner.clone(), call, key, sender));
                Either::Right(ready(Ok(reply)))
            }
            Method::Listen | Method::Attach => {
                let (sender, reply) = Reply::channel();
                let relay = follow::session(Arc::clone(&shared), self.inner.clone(), whose(), call, sender);
                shared.jobs.spawn("session", relay);
                Either::Right(ready(Ok(reply)))
            }
            Method::Discover
            | Method::CallTool
            | Method::GetTask
            | Method::UpdateTask
            | Method::CancelTask
            | Method::GetPrompt
            | Method::ReadResource
            | Method::Complete
            | Method::Notify(_)
            | Method::Resume(_)
            | Method::Other(_) => Either::Left(self.inner.call(call)),
        }
    }
}

#[cfg(test)]
mod tests;
