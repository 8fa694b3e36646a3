//! Servers over HTTP+SSE, the transport of 2024-11-05: one event stream on which all answers come, and POSTs to an
//! address that its first event names. It is a connection on which messages go both ways, as stdio is.

mod connect;
mod post;
mod stream;

use std::sync::Arc;

use self::connect::SseConnect;
use super::connect::HttpConnect;
use super::endpoint::Endpoint;
use crate::protocol::{Call, Caller, Outcome, ReplySender};
use crate::upstream::beside::{self, Seen};
use crate::upstream::sessions::{OverConnection, SessionFigures, Sessions, Want};
use crate::upstream::stdio::connection::Handed;
use crate::upstream::{Setup, drive, log_level, outcome};

pub(super) use self::connect::{Found, Nothing, look};

/// A client of one server over HTTP+SSE. Clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct SseUpstream {
    setup: Setup,
    endpoint: Arc<Endpoint>,
    sessions: Sessions<SseConnect>,
}

/// How often a call is handed to a new connection when it was not taken by the last one.
const ATTEMPTS: u32 = 3;

impl SseUpstream {
    /// A client without a connection yet. `http` is told when the server does not speak this any more.
    pub(super) fn new(setup: &Setup, endpoint: Arc<Endpoint>, http: HttpConnect) -> Self {
        let connect = SseConnect::new(setup, Arc::clone(&endpoint), http);
        let sessions = Sessions::new(Arc::clone(&setup.config), connect, setup.jobs.clone());
        Self { setup: setup.clone(), endpoint, sessions }
    }

    /// Runs one call to its outcome.
    pub(super) async fn run(&self, call: Call, sender: ReplySender) {
        match beside::see_to(&self.sessions, &self.setup, call, sender).await {
            Seen::Through => {}
            Seen::Plain(call, sender) => self.see_through(&call, sender).await,
            Seen::NotOpened(_, sender, failure) => sender.done(Outcome::Failed(failure)),
        }
    }

    /// Sees a call through, on a new connection if the one that was there ended before it took the call.
    async fn see_through(&self, call: &Call, mut sender: ReplySender) {
        let server = &self.setup.config.name;
        for _ in 0..ATTEMPTS {
            let lease = tokio::select! {
                lease = self.sessions.get_for(call, &sender) => lease,
                () = sender.cancelled() => Err(outcome::never_sent()),
            };
            let session = match lease {
                Ok(session) => session,
                Err(failure) => return sender.done(Outcome::Failed(failure)),
            };
            session.renew(&self.endpoint.forwarded(&call.caller.credentials));
            log_level::ask(&*session, call).await;
            if !sender.begins().await {
                return sender.done(Outcome::Failed(outcome::never_sent()));
            }
            match drive::on_connection(session.connection(), call, sender).await {
                Handed::Over => return,
                Handed::NotTaken(back) => sender = back,
            }
        }
        sender.done(Outcome::Failed(outcome::not_started(server, "it did not take the call in several attempts")));
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
