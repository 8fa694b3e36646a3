//! Servers over Streamable HTTP: 2025-03-26, 2025-06-18 and 2025-11-25 with sessions, 2026-07-28 without.

mod answer;
mod client;
mod connect;
mod delivery;
mod doubt;
mod endpoint;
mod events;
mod exchange;
mod failures;
mod ids;
mod leg;
mod listen;
mod own;
mod param_headers;
mod reconnect;
mod resource;
mod resume;
mod run;
mod session;
mod sse;
mod telling;
mod turns;
mod unwritten;
mod wish;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::endpoint::{Endpoint, EndpointError};
use self::resource::Resource;
use self::run::Runner;
use super::sessions::SessionFigures;
use super::{Callers, Look, Setup, outcome};
use crate::config::Transport;
use crate::jobs::Jobs;
use crate::protocol::{Call, Caller, Json, Outcome, Reply};

/// A client of one server over HTTP.
#[derive(Debug)]
pub(super) struct HttpUpstream {
    runner: Result<Runner, EndpointError>,
    resource: Option<Resource>,
    name: String,
    jobs: Jobs,
    closing: CancellationToken,
}

impl HttpUpstream {
    /// A client without a session yet.
    pub(super) fn new(setup: &Setup) -> Self {
        let closing = CancellationToken::new();
        let endpoint = endpoint(setup).map(Arc::new);
        let resource = endpoint.as_ref().ok().map(|endpoint| Resource::new(Arc::clone(endpoint)));
        let runner = endpoint.map(|endpoint| Runner::new(setup, endpoint, closing.clone()));
        Self { runner, resource, name: setup.config.name.clone(), jobs: setup.jobs.clone(), closing }
    }

    /// Sends a call. Returns at once.
    pub(super) fn call(&self, call: Call) -> Reply {
        let runner = match &self.runner {
            Ok(runner) => runner.clone(),
            Err(error) => return Reply::ready(Outcome::Failed(outcome::not_started(&self.name, &error.to_string()))),
        };
        if self.closing.is_cancelled() {
            return Reply::ready(Outcome::Failed(outcome::stopping()));
        }
        Reply::driven_gated(&self.jobs, "call over HTTP", |sender| runner.run(call, sender))
    }

    /// Connects for `caller`, if that has not been done; sets `Setup::last_seen`.
    pub(super) async fn prepare(&self, caller: &Caller) {
        if let Ok(runner) = &self.runner {
            runner.prepare(caller).await;
        }
    }

    /// What the server says of who may use it (RFC 9728), if it does and its callers log in themselves.
    pub(super) async fn resource_metadata(&self) -> Option<Json> {
        self.resource.as_ref()?.metadata().await
    }

    /// How many sessions there are and were.
    pub(super) fn figures(&self) -> SessionFigures {
        self.runner.as_ref().map_or_else(
            |_| SessionFigures::default(),
            |runner| runner.0.sessions.figures().and(runner.0.sse.figures()),
        )
    }

    /// Ends all calls, as outcome unknown, and all sessions.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        if let Ok(runner) = &self.runner {
            runner.close().await;
        }
    }
}

/// Looks at a server over HTTP, without a call.
pub(super) async fn look(setup: &Setup, callers: Callers) -> Look {
    connect::look(setup, endpoint(setup), callers).await
}

fn endpoint(setup: &Setup) -> Result<Endpoint, EndpointError> {
    match &setup.config.transport {
        Transport::Http { url, headers, forward } | Transport::Sse { url, headers, forward } => {
            Endpoint::new(url, headers, forward, setup.config.connect_timeout)
                .map(|endpoint| endpoint.named(&setup.config.name))
        }
        Transport::Stdio { .. } => Err(EndpointError::Scheme("stdio".to_owned())),
    }
}

#[cfg(test)]
#[path = "http2_tests.rs"]
mod tests;
