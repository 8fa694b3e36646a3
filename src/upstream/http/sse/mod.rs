//! Servers over HTTP+SSE, the transport of 2024-11-05: one event stream on which all answers come, and POSTs to an
//! address that its first event names. It is a connection on which messages go both ways, as stdio is.

mod again;
mod connect;
mod post;
mod stream;

use std::sync::Arc;

use self::connect::{SseConnect, SseSession};
use super::connect::HttpConnect;
use super::endpoint::Endpoint;
use crate::protocol::{Call, Caller, ReplySender};
use crate::upstream::sessions::{SessionFigures, Sessions, Want};
use crate::upstream::{Setup, attempts};

pub(super) use self::connect::{Found, Nothing, look};

/// A client of one server over HTTP+SSE. Clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct SseUpstream {
    setup: Setup,
    endpoint: Arc<Endpoint>,
    sessions: Sessions<SseConnect>,
}

impl SseUpstream {
    /// A client without a connection yet. `http` is told when the server does not speak this any more.
    pub(super) fn new(setup: &Setup, endpoint: Arc<Endpoint>, http: HttpConnect) -> Self {
        let connect = SseConnect::new(setup, Arc::clone(&endpoint), http);
        let sessions = Sessions::new(Arc::clone(&setup.config), connect, setup.jobs.clone());
        Self { setup: setup.clone(), endpoint, sessions }
    }

    /// Runs one call to its outcome.
    pub(super) async fn run(&self, call: Call, sender: ReplySender) {
        let renew = |session: &SseSession, call: &Call| {
            session.renew(&self.endpoint.forwarded(&call.caller.credentials));
        };
        let not_taken = "it did not take the call in several attempts";
        attempts::see_through(&self.sessions, &self.setup, call, sender, renew, not_taken).await;
    }

    /// Connects for `caller`, if there is no connection.
    pub(super) async fn prepare(&self, caller: &Caller) {
        // Calls are told on their own why it failed.
        let _ = self.sessions.get(caller, Want::Presence).await;
    }

    /// How many connections there are and were.
    pub(super) fn figures(&self) -> SessionFigures {
        self.sessions.figures()
    }

    /// Ends all connections.
    pub(super) async fn close(&self) {
        self.sessions.close().await;
    }
}
