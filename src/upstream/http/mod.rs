//! Servers over Streamable HTTP. To be written; the shape that the rest builds on stands.

use super::{Setup, outcome};
use crate::protocol::{Call, Caller, Outcome, Reply};

/// A client of one server over HTTP.
#[derive(Debug)]
pub(super) struct HttpUpstream {
    name: String,
}

impl HttpUpstream {
    /// A client without a session yet.
    pub(super) fn new(setup: &Setup) -> Self {
        Self { name: setup.config.name.clone() }
    }

    /// Sends a call. Returns at once.
    pub(super) fn call(&self, _call: Call) -> Reply {
        Reply::ready(Outcome::Failed(outcome::not_started(&self.name, "HTTP is not built yet")))
    }

    /// Connects for `caller`, if that has not been done; sets `Setup::last_seen`.
    pub(super) async fn prepare(&self, _caller: &Caller) {}

    /// Ends all sessions.
    pub(super) async fn close(&self) {}
}
