//! Calls that take a server more than one request: rounds of questions, and tasks of its own. The caller sees one call.

mod input;
mod modern;
mod modern_task;
mod needs;
mod old_task;
mod state;
mod watch;

use crate::config::{ForwardCancel, ServerConfig};
use crate::protocol::{Call, Event, Failure, Outcome, Reason, Reply, ReplySender, Retry};

pub(super) use self::modern::call as modern;
pub(super) use self::needs::Needs;
pub(super) use self::old_task::call as legacy;

/// One way to a server: a session, or a server that knows none. All requests of one call go the same way.
pub(super) trait Leg: Send + Sync + 'static {
    /// Sends a request. Returns at once.
    fn send(&self, call: Call) -> Reply;
}

/// How a server is asked to stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    forward: ForwardCancel,
    /// How long an answer is waited for then.
    grace: std::time::Duration,
}

impl Manners {
    /// As the config says.
    pub(super) fn of(config: &ServerConfig) -> Self {
        Self { forward: config.cancel, grace: config.cancel_grace }
    }
}

/// Passes the events of one request on as those of the call. `None` once nobody waits for the call any more.
async fn relay(mut reply: Reply, sender: &mut ReplySender) -> Option<Outcome> {
    let stop = sender.cancellation();
    let mut stopped = false;
    loop {
        tokio::select! {
            biased;
            () = sender.abandoned() => return None,
            () = stop.cancelled(), if !stopped => {
                stopped = true;
                reply.cancel();
            }
            event = reply.next() => match event {
                Some(Event::Done(outcome)) => return Some(outcome),
                Some(event) => sender.event(event),
                None => return Some(unknown("the reply ended without an outcome")),
            },
        }
    }
}

fn unknown(how: &str) -> Outcome {
    Outcome::Failed(Failure::outcome_unknown(how))
}

fn malformed(what: &str) -> Outcome {
    let text = format!("the server cannot be followed: {what}; the tool may have run in part");
    Outcome::Failed(Failure::new(Reason::BadAnswer, text, Retry::Unknown))
}

#[cfg(test)]
mod tests;
