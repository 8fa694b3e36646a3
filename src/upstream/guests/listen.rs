//! The changes that a legacy client hears of in its session, asked of a modern server by `subscriptions/listen`.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::super::drive::Leg;
use super::super::handshake::ServerInfo;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, Event, Json, Method, Outcome, Params, Reply, ReplySender, TaskSupport};

/// What a server can tell of.
#[derive(Clone, Debug)]
struct Offers {
    /// Changes of these lists, as the filter calls them.
    lists: Vec<&'static str>,
    /// Changes of single resources.
    updates: bool,
}

/// Why a stream ended.
enum Ended {
    /// Another filter is wanted.
    Changed,
    /// By itself; whether another attempt makes sense.
    Over(bool),
}

/// The wait before a stream is opened again; it doubles while they end at once.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// A stream that stood this long was a good one.
const GOOD: Duration = Duration::from_secs(10);

/// Listens, and tells the client. Never ends.
pub(super) async fn listen<L: Leg>(
    leg: &L,
    server: &ServerInfo,
    call: &Call,
    mut resources: watch::Receiver<BTreeSet<String>>,
    sender: &ReplySender,
) {
    let offers = Offers::of(&server.capabilities);
    let mut failures = 0;
    loop {
        let Some(request) = offers.request(call, &resources.borrow_and_update()) else {
            changed(&mut resources).await;
            continue;
        };
        let began = Instant::now();
        match stream(leg.send(request), &mut resources, sender).await {
            Ended::Changed => {}
            Ended::Over(false) => changed(&mut resources).await,
            Ended::Over(true) => {
                failures = if began.elapsed() >= GOOD { 0 } else { failures + 1 };
                let wait = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(failures));
                tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
            }
        }
    }
}

async fn stream(mut reply: Reply, resources: &mut watch::Receiver<BTreeSet<String>>, sender: &ReplySender) -> Ended {
    loop {
        let event = tokio::select! {
            event = reply.next() => event,
            () = changed(resources) => return Ended::Changed,
        };
        match event {
            Some(Event::Notification(said)) if said.method == "notifications/subscriptions/acknowledged" => {}
            Some(event @ Event::Notification(_)) => sender.event(event),
            Some(Event::Done(Outcome::Error(error))) => return Ended::Over(error.code() != code::METHOD_NOT_FOUND),
            Some(Event::Done(_)) | None => return Ended::Over(true),
            // Nothing of this belongs to a subscription.
            Some(
                Event::Progress(_)
                | Event::Log(_)
                | Event::Ask(_)
                | Event::Attached(_)
                | Event::Paused
                | Event::Anchored(_)
                | Event::Began,
            ) => {}
        }
    }
}

/// Resolves when the client watches other resources.
async fn changed(resources: &mut watch::Receiver<BTreeSet<String>>) {
    if resources.changed().await.is_err() {
        // The client has gone; whoever runs this ends it.
        std::future::pending::<()>().await;
    }
}

impl Offers {
    fn of(capabilities: &Json) -> Self {
        let says = |name: &str, what: &str| {
            let said = capabilities.member(name).and_then(|capability| capability.member(what));
            said.is_some_and(|said| said.as_str() == "true")
        };
        let lists =
            [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];
        let lists = lists.into_iter().filter(|(name, _)| says(name, "listChanged")).map(|(_, list)| list);
        Self { lists: lists.collect(), updates: says("resources", "subscribe") }
    }

    /// The request for all that can be told to the client; `None` if that is nothing.
    fn request(&self, call: &Call, resources: &BTreeSet<String>) -> Option<Call> {
        let mut wanted = ObjectWriter::new();
        for list in &self.lists {
            wanted.boolean(list, true);
        }
        let updates = self.updates && !resources.is_empty();
        if updates {
            wanted.raw("resourceSubscriptions", &Json::from_value(&serde_json::json!(resources)));
        }
        if !updates && self.lists.is_empty() {
            return None;
        }
        let mut params = ObjectWriter::new();
        params.raw("notifications", &wanted.finish_json());
        let params = Params::read(&Method::Listen, Some(params.finish_json())).ok()?;
        let mut caller = call.caller.clone();
        caller.tasks = TaskSupport::Undeclared;
        caller.progress_token = None;
        Some(Call { method: Method::Listen, params, caller, arrived: Instant::now() })
    }
}
