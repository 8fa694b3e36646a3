//! The life of one `subscriptions/listen`.

use std::time::Duration;

use super::filter::Filter;
use super::hub::Hub;
use crate::protocol::{Call, Event, Failure, Json, Outcome, ReplySender};
use crate::upstream::beside::Seen;
use crate::upstream::sessions::{Connect, Lease, Session, Sessions, Speak, Want};

/// The wait before a lost session is opened again; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Attempts to open it again, without success in between.
const ATTEMPTS: u32 = 6;

/// Acknowledges what the server can say, passes that on, and keeps a session alive for it. Ends in good order when
/// the server is gone for good, so that the client may listen again.
pub(in crate::upstream) async fn listen<C>(sessions: &Sessions<C>, hub: &Hub, call: Call, sender: ReplySender) -> Seen
where
    C: Connect,
    C::Session: Speak,
{
    let wanted = Filter::of(&call.params);
    if wanted.is_empty() {
        // It may be about tasks alone, which is not for the server.
        sender.event(Event::Notification(wanted.acknowledgement()));
        tokio::select! {
            () = sender.cancelled() => {}
            () = sessions.closing() => sender.done(Outcome::Result(Json::empty_object())),
        }
        return Seen::Through;
    }
    let opened = tokio::select! {
        opened = sessions.get(&call.caller, Want::Presence) => opened,
        () = sender.cancelled() => return Seen::Through,
    };
    let mut session = match opened {
        Ok(session) => session,
        Err(failure) => return Seen::NotOpened(call, sender, failure),
    };
    if session.modern().is_some() {
        // It has subscriptions itself.
        return Seen::Plain(call, sender);
    }
    let promised = subscribe(&*session, wanted.within(&session.floor().capabilities())).await;
    sender.event(Event::Notification(promised.acknowledgement()));
    let place = hub.add(sessions.audience(&call.caller), promised.clone(), sender.events());
    loop {
        let lost = tokio::select! {
            () = session.over() => true,
            () = sender.cancelled() => false,
        };
        if !lost {
            break;
        }
        let again = tokio::select! {
            again = open_again(sessions, &call) => again.ok(),
            () = sessions.closing() => None,
            () = sender.cancelled() => return Seen::Through,
        };
        let Some(opened) = again else {
            sender.done(Outcome::Result(Json::empty_object()));
            return Seen::Through;
        };
        session = opened;
        subscribe(&*session, promised.clone()).await;
        for list in promised.lists() {
            sender.event(Event::Notification(list));
        }
    }
    drop(place);
    drop(sender);
    for uri in &promised.uris {
        session.floor().subscriptions().remove(&*session, uri).await;
    }
    Seen::Through
}

/// Subscribes to the resources in `promised`, and drops from it what the server does not take.
async fn subscribe<S: Speak>(session: &S, mut promised: Filter) -> Filter {
    for uri in std::mem::take(&mut promised.uris) {
        if session.floor().subscriptions().add(session, &uri).await {
            promised.uris.insert(uri);
        }
    }
    promised
}

async fn open_again<C: Connect>(sessions: &Sessions<C>, call: &Call) -> Result<Lease<C::Session>, Failure> {
    let mut attempt = 0;
    loop {
        tokio::time::sleep(FIRST_WAIT * 2_u32.saturating_pow(attempt)).await;
        attempt += 1;
        match sessions.get(&call.caller, Want::Presence).await {
            Err(failure) if attempt >= ATTEMPTS => return Err(failure),
            Err(_) => {}
            Ok(session) => return Ok(session),
        }
    }
}
