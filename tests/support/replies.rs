//! What comes out of a call that goes to an upstream.

use std::time::Duration;

use raincheck::protocol::{Ask, Event, Outcome, Reply};
use serde_json::Value;
use tokio::time::timeout;

/// No step of a call takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The next event that says more than that the call begins.
pub(crate) async fn next(reply: &mut Reply) -> Event {
    loop {
        match timeout(PATIENCE, reply.next()).await.expect("nothing comes").unwrap() {
            Event::Waits(_) | Event::Began => {}
            event => return event,
        }
    }
}

pub(crate) async fn asked(reply: &mut Reply) -> Ask {
    match next(reply).await {
        Event::Ask(ask) => ask,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn outcome(reply: Reply) -> Outcome {
    timeout(PATIENCE, reply.outcome()).await.expect("the call hangs")
}

pub(crate) async fn result(reply: Reply) -> Value {
    match outcome(reply).await {
        Outcome::Result(result) => result.read().unwrap(),
        other => panic!("{other:?}"),
    }
}
