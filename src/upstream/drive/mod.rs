//! Calls that take a server more than one request: rounds of questions, and tasks of its own. The caller sees one call.

mod connection;
mod input;
mod modern;
mod modern_task;
mod needs;
mod old_task;
mod state;
mod watch;

use crate::config::{ForwardCancel, ServerConfig};
use crate::protocol::{Call, Event, EventSender, Failure, Method, Outcome, Reason, Reply, ReplySender, Retry};
use crate::upstream::questions::Floor;

pub(super) use self::connection::on_connection;
pub(super) use self::modern::{call as modern, must_be_driven};
pub(super) use self::needs::Needs;
pub(super) use self::old_task::call as legacy;

/// Whether a call of a legacy server may have to be driven.
pub(super) fn may_be_task(call: &Call, needs: &Needs) -> bool {
    call.method == Method::CallTool && needs.any()
}

/// One way to a server: a session, or a server that knows none. All requests of one call go the same way.
pub(super) trait Leg: Send + Sync + 'static {
    /// Sends a request. Returns at once.
    fn send(&self, call: Call) -> Reply;

    /// Sends a call that becomes a task of 2025-11-25. Progress that comes under its token when it has its answer, and what the
    /// server says of its tasks, goes to `later`, for as long as anybody reads that.
    fn send_as_task(&self, call: Call, later: EventSender) -> Reply;

    /// Where the server's questions are placed; `None` where it cannot ask.
    fn floor(&self) -> Option<&Floor>;

    /// Resolves when nothing can be sent on this way any more.
    fn over(&self) -> impl Future<Output = ()> + Send;
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

/// One request of a call. Wherever it is dropped: if the call goes on for another process, its server is not told to
/// stop.
struct Relayed {
    /// Gone only when this is being dropped.
    reply: Option<Reply>,
    call: EventSender,
}

/// Passes the events of one request on as those of the call. `None` once nobody waits for the call any more.
async fn relay(reply: Reply, sender: &mut ReplySender) -> Option<Outcome> {
    let stop = sender.cancellation();
    let mut stopped = false;
    let mut relayed = Relayed { reply: Some(reply), call: sender.events() };
    loop {
        tokio::select! {
            biased;
            () = sender.abandoned() => return None,
            () = stop.cancelled(), if !stopped => {
                stopped = true;
                relayed.reply.as_ref().inspect(|reply| reply.cancel_for(stop.cause()));
            }
            event = relayed.next() => match event {
                Some(Event::Done(outcome)) => return Some(outcome),
                Some(event) => sender.event(event),
                None => return Some(unknown("the reply ended without an outcome")),
            },
        }
    }
}

impl Relayed {
    async fn next(&mut self) -> Option<Event> {
        self.reply.as_mut()?.next().await
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take().filter(|_| self.call.is_left_running()) {
            reply.leave_running();
        }
    }
}

fn unknown(how: &str) -> Outcome {
    Outcome::Failed(Failure::outcome_unknown(how))
}

/// The outcome of a call for which nobody waits any more.
fn left() -> Outcome {
    unknown("the caller left")
}

fn malformed(what: &str) -> Outcome {
    let text = format!("the server cannot be followed: {what}; the tool may have run in part");
    Outcome::Failed(Failure::new(Reason::BadAnswer, text, Retry::Unknown))
}

#[cfg(test)]
mod tests;
