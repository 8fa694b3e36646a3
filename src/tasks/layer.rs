//! Puts tasks around a service.

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::service::TasksService;
use crate::config::{ForwardCancel, ServerConfig};
use crate::policy::Policies;
use crate::runner::{Linger, Runner};

/// Puts tasks around an MCP service: one that takes a [`Call`](crate::protocol::Call) and gives a
/// [`Reply`](crate::protocol::Reply).
#[derive(Clone, Debug)]
pub struct TasksLayer {
    runner: Runner,
    policies: Policies,
    server: Arc<str>,
    linger: Linger,
}

impl TasksLayer {
    /// Tasks that `runner` runs, for the server of that name, as `policies` say.
    pub fn new(runner: Runner, server: &str, policies: Policies) -> Self {
        Self { runner, policies, server: Arc::from(server), linger: Linger::AtMost(Duration::from_secs(30)) }
    }

    /// How long the slot of a stopped run stays taken while the server does not answer. 30 s unless this is called.
    #[must_use]
    pub fn linger(mut self, linger: Linger) -> Self {
        self.linger = linger;
        self
    }

    /// With what the config of the server says.
    #[must_use]
    pub fn for_server(self, config: &ServerConfig) -> Self {
        self.linger(match config.cancel {
            ForwardCancel::Forward | ForwardCancel::Never => Linger::AtMost(config.cancel_grace),
            ForwardCancel::Ignored => Linger::UntilTimeout,
        })
    }
}

impl<S> Layer<S> for TasksLayer {
    type Service = TasksService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TasksService::new(inner, self.runner.clone(), self.policies.clone(), Arc::clone(&self.server), self.linger)
    }
}
