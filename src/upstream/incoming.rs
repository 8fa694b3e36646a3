//! What is done with a message that a server sends.

use super::outcome;
use super::pending::Pending;
use super::server_requests;
use super::wire::ServerEra;
use crate::protocol::{Message, Outcome, Rope};

/// What must be known of a connection to take its messages in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Which kind of revision the server speaks.
    pub(super) era: ServerEra,
    /// Whether several principals share the connection: what names no call may then be anybody's.
    pub(super) shared: bool,
}

/// Takes one message in: answers and progress go to the calls they name. Returns what is to be sent back.
pub(super) fn take_in(message: Message, pending: &Pending, peer: Peer) -> Option<Rope> {
    match message {
        Message::Result { id, result } => pending.answer(Some(&id), outcome::of_result(result)),
        Message::Error { id, error } => pending.answer(id.as_ref(), Outcome::Error(error)),
        Message::Notification { method, params } => match (method.as_str(), params) {
            ("notifications/progress", Some(params)) => pending.progress(&params),
            ("notifications/message", Some(params)) if !peer.shared => pending.log(params),
            _ => {}
        },
        Message::Request { id, method, .. } => match peer.era {
            ServerEra::Legacy => return Some(server_requests::answer(&id, &method)),
            // 2026-07-28 knows no requests of servers, and a client must not write answers (stdio, sending messages).
            ServerEra::Modern => tracing::debug!("a modern server sent a request, which it must not"),
        },
    }
    None
}
