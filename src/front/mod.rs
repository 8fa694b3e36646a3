//! The servers for the clients in front: over HTTP (2026-07-28, Streamable HTTP), and over stdio ([`stdio`]).
//!
//! Generic over the service that answers calls, so it knows neither tasks nor servers. A front answers, it does
//! not err: every request gets an answer, and leaving is the one way to cancel.

mod asked;
mod batch;
mod body;
mod call_key;
mod date;
mod exchange;
mod gate;
mod intake;
mod jwt;
mod legacy;
mod listen;
mod listener;
mod log_level;
mod media;
mod param_headers;
mod principal;
mod refusal;
mod resource;
mod running;
mod socket;
mod sse;
mod stall;
pub mod stdio;
mod stream;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use self::exchange::Shared;
use self::gate::Gate;
use self::intake::Intake;
use self::legacy::Legacy;
use self::param_headers::ToolHeaders;
use self::principal::Identity;
use self::resource::Resources;
use crate::config::{Limits, Listen, OwnerConfig};
use crate::jobs::{Jobs, Workers};
use crate::protocol::McpService;
use crate::share::Places;

pub use self::date::keep_date;
pub use self::resource::ResourceMetadata;

/// The client side: one endpoint for each mounted server.
pub struct Front<S> {
    listen: Listen,
    limits: Limits,
    owner: OwnerConfig,
    mounts: Vec<Mount<S>>,
    resources: HashMap<String, ResourceMetadata>,
    workers: Workers,
}

/// A server at its path, `/NAME/mcp`; a single one is at `/mcp` too.
#[derive(Clone, Debug)]
pub struct Mount<S> {
    /// The name in the path.
    pub name: String,
    /// Answers the calls.
    pub service: S,
}

impl<S> Front<S> {
    /// A front for these servers.
    pub fn new(listen: Listen, limits: Limits, owner: OwnerConfig, mounts: Vec<Mount<S>>) -> Self {
        Self { listen, limits, owner, mounts, resources: HashMap::new(), workers: Workers::default() }
    }

    /// The same, telling clients how to log in to these servers, by their names (RFC 9728).
    #[must_use]
    pub fn with_resources(self, resources: HashMap<String, ResourceMetadata>) -> Self {
        Self { resources, ..self }
    }

    /// The same, whose connections are served by these threads.
    #[must_use]
    pub fn with_workers(self, workers: Workers) -> Self {
        Self { workers, ..self }
    }
}

impl<S: McpService + Sync> Front<S> {
    /// Serves until [`Jobs::stop`] is called on `jobs`; then nothing is accepted any more, open exchanges may end
    /// within `grace`, and `subscriptions/listen` streams get their last message. What is open after that is cut,
    /// which cancels its call. An error only if the listener has no address.
    pub async fn serve(self, listener: TcpListener, jobs: Jobs, grace: Duration) -> io::Result<()> {
        let connections = jobs.child();
        self.serve_until(listener, jobs, connections, grace).await
    }

    /// The same, in two steps: from a stop of `jobs` on, `subscriptions/listen` streams and sessions of legacy clients
    /// end, and all else, such as `tasks/get`, is answered until a stop of `connections`.
    pub async fn serve_until(
        self,
        listener: TcpListener,
        jobs: Jobs,
        connections: Jobs,
        grace: Duration,
    ) -> io::Result<()> {
        let address = listener.local_addr()?;
        let loopback = address.ip().to_canonical().is_loopback();
        let issuer = self.owner.jwt.as_ref().map(|jwt| jwt.issuer.clone());
        let public_url = self.listen.public_url.as_ref();
        let (calls, streams) = (Places::new(self.limits.held()), Places::new(self.limits.streams));
        let mounts = self.mounts.iter().map(|mount| (mount.name.clone(), legacy::calls_to(mount.service.clone())));
        let (calls_too, streams_too) = (calls.clone(), streams.clone());
        let shared = Shared {
            legacy: Legacy::new(mounts.collect(), &self.listen, &self.limits, calls_too, streams_too, jobs.clone()),
            gate: Gate::new(&self.listen, loopback),
            resources: Resources::new(public_url, address, issuer.as_deref(), self.resources),
            identity: Identity::new(self.owner, loopback, &jobs),
            intake: Intake::new(&self.limits),
            keep_alive: self.listen.keep_alive,
            calls,
            streams,
            tool_headers: ToolHeaders::default(),
            limits: self.limits,
            mounts: self.mounts,
            jobs,
        };
        if let Some(verifier) = shared.identity.verifier() {
            shared.jobs.spawn("keys of the issuer", async move { verifier.warm().await });
        }
        listener::serve(Arc::new(shared), listener, connections, (self.workers, grace)).await
    }
}

impl<S> fmt::Debug for Front<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.mounts.iter().map(|mount| &mount.name).collect();
        f.debug_struct("Front").field("listen", &self.listen).field("mounts", &names).finish_non_exhaustive()
    }
}
