//! The one session that a legacy client has upstream, for as long as it wants it.

use super::outcome;
use super::questions::Client;
use super::sessions::{Attached, Connect, Hearer, Opening, Session, Sessions};
use crate::protocol::{Call, Outcome, ReplySender};

/// Opens the session and keeps it while somebody holds the reply. The client is told of the opening in the course of
/// the handshake, so that nothing the server says can come before.
pub(super) async fn keep<C: Connect>(sessions: &Sessions<C>, server: &str, call: Call, mut sender: ReplySender) {
    let client = Client::new(sender.events(), call.caller.abilities.clone());
    let attached = Attached { params: call.params.raw().clone(), client: client.clone() };
    let opening = Opening { caller: call.caller, hearer: Hearer::Client(attached) };
    let opened = tokio::select! {
        opened = sessions.attach(opening) => opened,
        () = sender.abandoned() => return,
    };
    let (session, _closed_at_the_end) = match opened {
        Ok(opened) => opened,
        Err(failure) => return sender.done(Outcome::Failed(failure)),
    };
    let lost = tokio::select! {
        () = session.over() => true,
        () = sender.cancelled() => false,
    };
    client.detach();
    if lost {
        tracing::debug!(server, "the session of a legacy client was lost");
        sender.done(Outcome::Failed(outcome::session_lost(server)));
    }
}
