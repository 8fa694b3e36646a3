//! A call that was sent.

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use tower::ServiceExt;

use super::Sends;
use crate::protocol::{Call, Event, Failure, McpService, Outcome, Reply, StopCause};

/// A call that is sent, or kept back until it is let go, and what comes of it.
pub(super) struct Running {
    sent: Sent,
    /// Events that were taken since whoever else waits for the call was looked at.
    in_a_row: u8,
}

/// To `Over` with the outcome.
enum Sent {
    /// The service is not to have it yet. To `Sending` when it is let go.
    Kept(Sending),
    /// The service is to ask before it sends it. To `Replying` when it has taken it.
    Asking(Sending),
    /// The service has not taken it yet (or is one that answers when all is done). To `Replying`.
    Sending(Sending),
    /// Events come in.
    Replying(Reply),
    /// The outcome was taken, or the call was stopped before the service had taken it.
    Over,
}

type Sending = BoxFuture<'static, Result<Reply, Infallible>>;

/// How many events are taken before others are looked at: a server that floods us always has one more, and neither a
/// limit nor a cancel may wait for the end of it.
const IN_A_ROW: u8 = 8;

impl Running {
    /// Gives `call` to `inner`, as soon as this is polled, so that it is sent only after [`Running::let_go`].
    /// [`Event::Began`] asks for that.
    pub(super) fn keep<S: McpService>(inner: S, call: Call, sends: Sends) -> Self {
        let sending = Box::pin(inner.oneshot(call));
        Self::new(match sends {
            Sends::AtOnce => Sent::Kept(sending),
            Sends::WhenLetGo => Sent::Asking(sending),
        })
    }

    /// Sends `call` to `inner`, as soon as this is polled.
    pub(super) fn send<S: McpService>(inner: S, call: Call) -> Self {
        Self::new(Sent::Sending(Box::pin(inner.oneshot(call))))
    }

    /// One of which nothing is to come.
    pub(super) const fn over() -> Self {
        Self::new(Sent::Over)
    }

    /// Whether nothing is to come.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.sent, Sent::Over)
    }

    const fn new(sent: Sent) -> Self {
        Self { sent, in_a_row: 0 }
    }

    /// The next event. Cancel safe. It lets others go first now and then, although there is one.
    pub(super) async fn next(&mut self) -> Event {
        if self.in_a_row == IN_A_ROW {
            tokio::task::yield_now().await;
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        self.sent.next().await
    }

    /// Asks the server to stop, and goes on listening.
    pub(super) fn stop(&mut self, cause: StopCause) {
        match &mut self.sent {
            Sent::Kept(_) | Sent::Asking(_) | Sent::Sending(_) => self.sent = Sent::Over,
            Sent::Replying(reply) => {
                reply.cancel_for(cause);
                // What comes next may be a wait for the store.
                reply.send_to_background();
            }
            Sent::Over => {}
        }
    }

    /// Whether its request waits until the server reads it: what comes of a stop then is soon known.
    pub(super) fn is_unwritten(&self) -> bool {
        match &self.sent {
            Sent::Replying(reply) => reply.is_unwritten(),
            Sent::Kept(_) | Sent::Asking(_) | Sent::Sending(_) | Sent::Over => false,
        }
    }

    /// Whether nothing of the call has gone to the server, which it does not do then before [`Running::let_go`].
    pub(super) fn keep_back(&self) -> bool {
        match &self.sent {
            Sent::Replying(reply) => reply.keep_back(),
            Sent::Kept(_) | Sent::Asking(_) => true,
            Sent::Sending(_) | Sent::Over => false,
        }
    }

    /// The call may go to the server.
    pub(super) fn let_go(&mut self) {
        if let Sent::Replying(reply) = &self.sent {
            return reply.let_go();
        }
        self.sent = match std::mem::replace(&mut self.sent, Sent::Over) {
            Sent::Kept(sending) | Sent::Asking(sending) => Sent::Sending(sending),
            other @ (Sent::Sending(_) | Sent::Replying(_) | Sent::Over) => other,
        };
    }

    /// Lets go of the run, which goes on at the server for another process.
    pub(super) fn leave(&mut self) {
        if let Sent::Replying(reply) = std::mem::replace(&mut self.sent, Sent::Over) {
            reply.leave_running();
        }
    }

    /// From now on the call goes on although this is not polled.
    pub(super) fn send_to_background(&mut self) {
        if let Sent::Replying(reply) = &mut self.sent {
            reply.send_to_background();
        }
    }

    /// The outcome; what comes before it is dropped.
    pub(super) async fn outcome(&mut self) -> Outcome {
        loop {
            if let Event::Done(outcome) = self.next().await {
                return outcome;
            }
        }
    }
}

impl Sent {
    /// The next event. Cancel safe.
    async fn next(&mut self) -> Event {
        loop {
            match self {
                Self::Kept(_) => return Event::Began,
                Self::Asking(sending) => {
                    let Ok(reply) = sending.await;
                    reply.keep_back();
                    *self = Self::Replying(reply);
                }
                Self::Sending(sending) => {
                    let Ok(reply) = sending.await;
                    *self = Self::Replying(reply);
                }
                Self::Replying(reply) => match reply.next().await {
                    Some(Event::Done(outcome)) => {
                        *self = Self::Over;
                        return Event::Done(outcome);
                    }
                    Some(event) => return event,
                    None => *self = Self::Over,
                },
                Self::Over => {
                    return Event::Done(Outcome::Failed(Failure::outcome_unknown("the call was stopped")));
                }
            }
        }
    }
}
