//! The one session that a legacy client has upstream, for as long as it wants it.

use std::fmt;

use super::questions::Client;
use super::sessions::{Attached, Connect, Opening, Session, Sessions};
use super::{Setup, outcome};
use crate::protocol::{Call, Failure, Outcome, ReplySender};

/// A session could not be opened. The call may go another way.
pub(super) struct NotOpened {
    /// Why not.
    pub(super) failure: Failure,
    /// The call that attaches the client.
    pub(super) call: Call,
    /// Its reply.
    pub(super) sender: ReplySender,
}

/// Opens the session and keeps it while somebody holds the reply. The client is told of the opening in the course of
/// the handshake, so that nothing the server says can come before.
pub(super) async fn keep<C: Connect>(
    sessions: &Sessions<C>,
    setup: &Setup,
    call: Call,
    mut sender: ReplySender,
) -> Result<(), NotOpened> {
    let client = Client::new(sender.events(), call.caller.abilities.clone());
    let attached = Attached { params: call.params.raw().clone(), client: client.clone() };
    let opening = Opening { caller: call.caller.clone(), attached: Some(attached) };
    let opened = tokio::select! {
        opened = sessions.attach(opening) => opened,
        () = sender.abandoned() => return Ok(()),
    };
    let (session, _closed_at_the_end) = match opened {
        Ok(opened) => opened,
        Err(failure) => return Err(NotOpened { failure, call, sender }),
    };
    let left = async {
        match (session.modern(), setup.last_seen.get()) {
            (Some(connection), Some(server)) => setup.guests.host(connection, &server, &call, &sender).await,
            _ => sender.cancelled().await,
        }
    };
    let lost = tokio::select! {
        () = session.over() => true,
        () = left => false,
    };
    client.detach();
    if lost {
        let server = &setup.config.name;
        tracing::debug!(server, "the session of a legacy client was lost");
        sender.done(Outcome::Failed(outcome::session_lost(server)));
    }
    Ok(())
}

impl NotOpened {
    /// Tells the client.
    pub(super) fn tell(self) {
        self.sender.done(Outcome::Failed(self.failure));
    }
}

/// Shows why only.
impl fmt::Debug for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NotOpened").field(&self.failure).finish()
    }
}
