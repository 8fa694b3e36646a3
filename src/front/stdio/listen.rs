//! `subscriptions/listen` on the shared channel (2026-07-28, subscriptions).

use std::future::Future;

use super::in_flight::Ticket;
use super::outbox::Outbox;
use super::refused;
use crate::front::asked::Request;
use crate::front::listen::{Feed, Filter};
use crate::front::refusal::{self, Refusal};
use crate::jobs::Jobs;
use crate::protocol::{Caller, Reply, RequestId};
use crate::share::{Place, Places};

/// A place for the subscription that `request` asks for, if it may be had, and what it wants to hear of.
pub(super) fn check(request: &Request, caller: &Caller, streams: &Places) -> Result<(Place, Filter), Refusal> {
    let filter = Filter::read(&request.params, caller.tasks)?;
    let place = streams.take(&caller.principal);
    let busy = |why| Refusal::failed(&refusal::crowded(why, "open subscriptions", "limits.streams"));
    Ok((place.map_err(busy)?, filter))
}

/// Keeps a subscription until it is cancelled, or `jobs` stop or the server ends it: then it ends with its answer.
pub(super) async fn run(
    ticket: Ticket,
    (place, filter): (Place, Filter),
    id: RequestId,
    reply: impl Future<Output = Reply> + Send + 'static,
    outbox: Outbox,
    jobs: Jobs,
) {
    let opened = tokio::select! {
        () = ticket.cancelled() => return,
        opened = Feed::open(id.clone(), filter, reply, jobs) => opened,
    };
    match opened {
        Ok(mut feed) => loop {
            let message = tokio::select! {
                biased;
                () = ticket.cancelled() => break,
                message = feed.next() => message,
            };
            match message {
                Some(message) => tokio::select! {
                    biased;
                    () = ticket.cancelled() => break,
                    () = outbox.send(message) => {}
                },
                None => break,
            }
        },
        Err(refusal) => outbox.send(refused::by_rule(refusal.to(Some(&id)))).await,
    }
    drop(place);
}
