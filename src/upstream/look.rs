//! Looking at a server over HTTP before there is a call for it, for whoever sets one up.

use std::sync::Arc;

use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::handshake::LastSeen;
use super::{Setup, Shared, http};
use crate::config::{Limits, ServerConfig, Transport};
use crate::jobs::Jobs;

/// What a look at a server shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// MCP is spoken there.
    Fine,
    /// Nothing can be said: it is no server over HTTP, does not answer now, or talks to callers with credentials only.
    Unknown,
    /// A call would fail as things are: why, and what to do. No secrets.
    Odd(String),
}

/// Whether those who call can bring credentials of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Over HTTP they can.
    LogIn,
    /// The one host on stdin cannot.
    Nameless,
}

/// Looks at what is at the address of a server over HTTP. No session of it stays, and no call is made.
pub async fn look(config: &ServerConfig, limits: &Limits, callers: Callers) -> Look {
    if matches!(config.transport, Transport::Stdio { .. }) {
        return Look::Unknown;
    }
    let setup = Setup {
        config: Arc::new(config.clone()),
        limits: Arc::new(limits.clone()),
        jobs: Jobs::new(),
        last_seen: LastSeen::default(),
        shared: Shared::default(),
    };
    // What it finds is said by the first call again, which goes on with it.
    http::look(&setup, callers).with_subscriber(NoSubscriber::new()).await
}
