//! Puts tasks around a service.

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::companion::Companions;
use super::elsewhere::Elsewhere;
use super::forwards::Forwards;
use super::legacy::Sessions;
use super::service::TasksService;
use crate::config::{CompanionNames, ForwardCancel, ServerConfig};
use crate::policy::Policies;
use crate::runner::{Linger, Runner, Sends};

/// Puts tasks around an MCP service: one that takes a [`Call`](crate::protocol::Call) and gives a
/// [`Reply`](crate::protocol::Reply).
#[derive(Clone, Debug)]
pub struct TasksLayer {
    runner: Runner,
    policies: Policies,
    server: Arc<str>,
    linger: Linger,
    sends: Sends,
    strange_states: StrangeStates,
    forwards: Forwards,
    companion_names: CompanionNames,
    elsewhere: Elsewhere,
}

/// What becomes of a call whose `requestState` is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StrangeStates {
    /// It goes on: the service may have issued it.
    PassOn,
    /// It is refused with -32602: the service never issues any.
    Refuse,
}

impl TasksLayer {
    /// Tasks that `runner` runs, for the server of that name, as `policies` say.
    pub fn new(runner: Runner, server: &str, policies: Policies) -> Self {
        Self {
            runner,
            policies,
            server: Arc::from(server),
            linger: Linger::AtMost(Duration::from_secs(30)),
            sends: Sends::AtOnce,
            strange_states: StrangeStates::PassOn,
            forwards: Forwards::Any,
            companion_names: CompanionNames::default(),
            elsewhere: Elsewhere::default(),
        }
    }

    /// How long the slot of a stopped run stays taken while the server does not answer. 30 s unless this is called.
    #[must_use]
    pub fn linger(mut self, linger: Linger) -> Self {
        self.linger = linger;
        self
    }

    /// When the service sends what it is called with; it gets a call with a price or a record only when that is paid and
    /// recorded, unless it asks first.
    #[must_use]
    pub fn sends(mut self, sends: Sends) -> Self {
        self.sends = sends;
        self
    }

    /// For a service that asks by [`Event::Ask`](crate::protocol::Event) only and never with results: a `requestState` that
    /// was not issued here is refused with -32602, in the place of a new run.
    #[must_use]
    pub fn refuse_strange_states(mut self) -> Self {
        self.strange_states = StrangeStates::Refuse;
        self
    }

    /// What the tools are called that are listed beside those of the service, where a tool has the fallback
    /// [`Handle`](crate::config::Fallback). A name that the service has itself is given a prefix.
    #[must_use]
    pub fn companion_tools(mut self, names: CompanionNames) -> Self {
        self.companion_names = names;
        self
    }

    /// Where else a handle may be kept that is unknown here: who asks for it by a companion tool is told so.
    #[must_use]
    pub fn kept_elsewhere(mut self, elsewhere: Elsewhere) -> Self {
        self.elsewhere = elsewhere;
        self
    }

    /// With what the config of the server says. Our upstreams ask by events, and whether a call may go.
    #[must_use]
    pub fn for_server(mut self, config: &ServerConfig) -> Self {
        self.forwards = Forwards::of(config);
        let named =
            self.sends(Sends::WhenLetGo).refuse_strange_states().companion_tools(config.companion_tools.clone());
        named.linger(match config.cancel {
            ForwardCancel::Forward => Linger::AtMost(config.cancel_grace),
            ForwardCancel::Never => Linger::Untold(config.cancel_grace),
            ForwardCancel::Ignored => Linger::UntilTimeout,
        })
    }
}

impl<S> Layer<S> for TasksLayer {
    type Service = TasksService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let (runner, policies, server) = (self.runner.clone(), self.policies.clone(), Arc::clone(&self.server));
        let companions = Companions::new(self.companion_names.clone(), policies.clone())
            .kept_elsewhere(self.elsewhere.clone())
            .lingering(self.linger);
        let forwards = self.forwards.clone();
        let (linger, sends, strange_states) = (self.linger, self.sends, self.strange_states);
        let sessions = Sessions::default();
        TasksService { inner, runner, policies, server, linger, sends, strange_states, forwards, companions, sessions }
    }
}
