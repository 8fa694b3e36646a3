//! What goes to a legacy server beside plain calls: the sessions of legacy clients and their notifications, and
//! subscriptions of modern clients.

use super::listening;
use super::questions::Client;
use super::sessions::{Attached, Connect, Hearer, Opening, Session, Sessions, Speak, Want};
use super::{Setup, outcome, wire};
use crate::protocol::{Call, Failure, Json, Method, Outcome, ReplySender};

/// What became of a call.
#[derive(Debug)]
pub(super) enum Seen {
    /// It has its outcome, or nobody waits for it any more.
    Through,
    /// It is a plain call, for others to see through.
    Plain(Call, ReplySender),
    /// No session could be opened for it.
    NotOpened(Call, ReplySender, Failure),
}

/// Whether [`see_to`] has nothing to do for a call.
pub(super) fn is_plain(call: &Call) -> bool {
    !matches!(call.method, Method::Attach | Method::Listen | Method::Notify(_))
}

/// Sees a call through if it is no plain one.
pub(super) async fn see_to<C>(sessions: &Sessions<C>, setup: &Setup, call: Call, sender: ReplySender) -> Seen
where
    C: Connect,
    C::Session: Speak,
{
    match &call.method {
        Method::Attach => keep(sessions, setup, call, sender).await,
        Method::Listen => listening::listen(sessions, &setup.shared.hub, call, sender).await,
        Method::Notify(_) => {
            notify(sessions, &call, sender).await;
            Seen::Through
        }
        _ => Seen::Plain(call, sender),
    }
}

/// Opens the session of a legacy client and keeps it while somebody holds the reply. The client is told of the
/// opening in the course of the handshake, so that nothing the server says can come before.
async fn keep<C: Connect>(sessions: &Sessions<C>, setup: &Setup, call: Call, mut sender: ReplySender) -> Seen {
    let client = Client::new(sender.events(), call.caller.abilities.clone());
    let attached = Attached { params: call.params.raw().clone(), client: client.clone() };
    let opening = Opening { caller: call.caller.clone(), hearer: Hearer::Client(attached) };
    let opened = tokio::select! {
        opened = sessions.attach(opening) => opened,
        () = sender.abandoned() => return Seen::Through,
    };
    let (session, _closed_at_the_end) = match opened {
        Ok(opened) => opened,
        Err(failure) => return Seen::NotOpened(call, sender, failure),
    };
    let left = async {
        match (session.modern(), setup.last_seen.get()) {
            (Some(connection), Some(info)) => setup.shared.guests.host(connection, &info, &call, &sender).await,
            _ => sender.cancelled().await,
        }
    };
    let lost = tokio::select! {
        () = session.over() => true,
        () = left => false,
    };
    client.detach();
    if !lost {
        // A handle outlives the session that it was given on: what goes on as a job ends first.
        tokio::select! {
            () = session.calls_over() => {}
            () = session.over() => {}
            () = sessions.closing() => {}
        }
    }
    if lost {
        let server = &setup.config.name;
        tracing::debug!(%server, "the session of a legacy client was lost");
        sender.done(Outcome::Failed(outcome::session_lost(server)));
    }
    Seen::Through
}

/// Passes a notification of a legacy client on.
async fn notify<C>(sessions: &Sessions<C>, call: &Call, sender: ReplySender)
where
    C: Connect,
    C::Session: Speak,
{
    match sessions.get(&call.caller, Want::Presence).await {
        Ok(session) => {
            if let Some(note) = wire::notification(call).filter(|_| session.modern().is_none()) {
                session.notify(note).await;
            }
            sender.done(Outcome::Result(Json::empty_object()));
        }
        Err(failure) => sender.done(Outcome::Failed(failure)),
    }
}
