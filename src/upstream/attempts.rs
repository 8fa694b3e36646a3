//! Calls on a server at the other end of one connection, which may end before it takes them.

use super::beside::{self, Seen};
use super::sessions::{Connect, OverConnection, Sessions};
use super::stdio::connection::Handed;
use super::{Setup, drive, log_level, outcome};
use crate::protocol::{Call, Outcome, ReplySender};

/// How often a call is handed to a new connection when it was not taken by the last one.
const ATTEMPTS: u32 = 3;

/// Sees a call through, on a new connection if the one that was there ended before it took the call. `renew` makes a
/// connection ready for it; `not_taken` says what came of it where none took the call.
pub(super) async fn see_through<C>(
    sessions: &Sessions<C>,
    setup: &Setup,
    call: Call,
    sender: ReplySender,
    renew: impl Fn(&C::Session, &Call) + Send,
    not_taken: &str,
) where
    C: Connect<Session: OverConnection>,
{
    let (call, mut sender) = match beside::see_to(sessions, setup, call, sender).await {
        Seen::Through => return,
        Seen::Plain(call, sender) => (call, sender),
        Seen::NotOpened(_, sender, failure) => return sender.done(Outcome::Failed(failure)),
    };
    for _ in 0..ATTEMPTS {
        let lease = tokio::select! {
            lease = sessions.get_for(&call, &sender) => lease,
            () = sender.cancelled() => Err(outcome::never_sent()),
        };
        let session = match lease {
            Ok(session) => session,
            Err(failure) => return sender.done(Outcome::Failed(failure)),
        };
        renew(&session, &call);
        log_level::ask(&*session, &call).await;
        if !sender.begins().await {
            return sender.done(Outcome::Failed(outcome::never_sent()));
        }
        match drive::on_connection(session.connection(), &call, sender).await {
            Handed::Over => return,
            Handed::NotTaken(back) => sender = back,
        }
    }
    sender.done(Outcome::Failed(outcome::not_started(&setup.config.name, not_taken)));
}
