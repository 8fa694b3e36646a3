//! What is done with a message that a server sends on a channel that many calls share.

use std::future::Future;

use super::naming::Named;
use super::outcome;
use super::pending::{Pending, Taken};
use super::questions::{Floor, Origin, Request};
use super::wire::ServerEra;
use crate::protocol::{Failure, Json, Message, Outcome, Rope};

/// What must be known of a connection to take its messages in.
#[derive(Debug)]
pub(super) struct Peer<'a> {
    /// The server's name.
    pub(super) server: &'a str,
    /// Which kind of revision the server speaks.
    pub(super) era: ServerEra,
    /// Whether several principals share the connection: what names no call may then be anybody's.
    pub(super) shared: bool,
    /// The calls that wait for an answer.
    pub(super) pending: &'a Pending,
    /// The calls whose clients can be asked.
    pub(super) floor: &'a Floor,
}

/// Takes one message in: answers and progress go to the calls they name, questions to those that ask them. Returns
/// what is to be sent back at once; what comes later goes out by `way`.
pub(super) fn take_in<W, F>(message: Message, peer: &Peer<'_>, way: W) -> Option<Rope>
where
    W: FnOnce(Rope) -> F + Send + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    match message {
        Message::Result { id, result } => peer.answered(Some(&id), outcome::of_result(result, peer.era)),
        Message::Error { id, error } => peer.answered(id.as_ref(), outcome::of_error(peer.server, error, peer.era)),
        Message::Notification { method, params } => peer.notification(method, params),
        Message::Request { id, method, params } => match peer.era {
            ServerEra::Legacy => {
                let way = |answer, _| way(answer);
                return peer.floor.request(Request { id, method, params }, Origin::Channel, way);
            }
            // 2026-07-28 knows no requests of servers, and a client must not write answers (stdio, sending messages).
            ServerEra::Modern => tracing::debug!("a modern server sent a request, which it must not"),
        },
    }
    None
}

impl Peer<'_> {
    /// Takes an answer in: its call is over.
    pub(super) fn answered(&self, id: Option<&Json>, outcome: Outcome) {
        // What the server says when it was refused what it asked may come before its call has seen why it must end.
        let unaskable = match Named::read(id) {
            Named::Call(call) => self.floor.unaskable(call),
            Named::Nobody | Named::Stranger => None,
        };
        let outcome = unaskable.map_or(outcome, Outcome::Error);
        self.taken(self.pending.answer(id, outcome));
    }

    /// Takes an answer in that breaks off before its id.
    pub(super) fn answered_unread(&self, outcome: Outcome) {
        self.taken(self.pending.answer_unread(outcome));
    }

    fn taken(&self, taken: Taken) {
        match taken {
            // Not left to whoever waits for it, who may not have looked yet when the server asks the next thing.
            Taken::ByCall(call) => self.floor.answered(call),
            Taken::ByNone(count) if count <= 10 || count.is_power_of_two() => tracing::debug!(
                server = self.server,
                count,
                "an answer of the server names no call of ours and was dropped; a call that it was for ends by its timeout"
            ),
            Taken::Late | Taken::ByAll | Taken::ByNone(_) => {}
        }
    }

    fn notification(&self, method: String, params: Option<Json>) {
        if self.era == ServerEra::Modern
            && let Some(params) = &params
            && self.pending.subscribed(&method, params)
        {
            return;
        }
        match (method.as_str(), &params) {
            ("notifications/progress", Some(params)) => {
                if let Some((token, progress)) = self.pending.progress(params) {
                    self.floor.later().progress(token, progress);
                }
            }
            ("notifications/cancelled", Some(params)) => self.floor.withdraw(params),
            ("notifications/message", Some(line)) => {
                let given = !self.shared && self.pending.log(&self.floor.untied(line.clone()));
                if !given {
                    self.floor.notification(method, params);
                }
            }
            _ => self.floor.notification(method, params),
        }
    }
}
