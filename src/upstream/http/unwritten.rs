//! Requests of calls, until their connections have written them whole.
//!
//! A server that does not read leaves a request half written. It cannot have the rest then, so that nothing runs, and there
//! is nothing to wait for when the call is stopped.

use bytes::Bytes;

use super::run::{Ended, Leave, Runner};
use crate::protocol::{EventSender, Outcome, ReplySender, Rope};
use crate::upstream::outcome;

/// The end of a request. The connection lets go of it when it is written, or when it is closed.
struct Last {
    text: Bytes,
    call: EventSender,
}

impl AsRef<[u8]> for Last {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.call.is_written();
    }
}

/// The same request, of which `call` is told when it is written.
pub(super) fn watched(request: Rope, call: Option<&EventSender>) -> Rope {
    let Some(call) = call else { return request };
    let mut pieces = request.into_pieces();
    let Some(text) = pieces.pop() else { return Rope::default() };
    call.is_to_be_written();
    let mut watched = Rope::default();
    for piece in pieces {
        watched.push(piece);
    }
    watched.push(Bytes::from_owner(Last { text, call: call.clone() }));
    watched
}

impl Runner {
    /// Ends a call whose request is not written, together with its connection: its exchange is dropped after this.
    pub(super) fn withdraw(&self, leave: &mut Leave<'_>, sender: &ReplySender) -> Ended {
        if self.0.endpoint.is_driven_by_callers() {
            // Nobody else can write the rest in between.
            leave.ended();
            return Ended::Done(Outcome::Failed(outcome::never_sent()));
        }
        drop(self.stop(leave, sender));
        super::run::unanswered("the call was stopped while its request was written, and its connection is closed")
    }
}
