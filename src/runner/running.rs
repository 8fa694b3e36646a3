//! A call that was sent.

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use tower::ServiceExt;

use super::Sends;
use crate::protocol::{Call, Event, Failure, McpService, Outcome, Reply, StopCause};

/// A call that is sent, or kept back until it is let go. To `Over` with its outcome.
pub(super) enum Running {
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

impl Running {
    /// Gives `call` to `inner`, as soon as this is polled, so that it is sent only after [`Running::let_go`].
    /// [`Event::Began`] asks for that.
    pub(super) fn keep<S: McpService>(inner: S, call: Call, sends: Sends) -> Self {
        let sending = Box::pin(inner.oneshot(call));
        match sends {
            Sends::AtOnce => Self::Kept(sending),
            Sends::WhenLetGo => Self::Asking(sending),
        }
    }

    /// Sends `call` to `inner`, as soon as this is polled.
    pub(super) fn send<S: McpService>(inner: S, call: Call) -> Self {
        Self::Sending(Box::pin(inner.oneshot(call)))
    }

    /// The next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Event {
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

    /// Asks the server to stop, and goes on listening.
    pub(super) fn stop(&mut self, cause: StopCause) {
        match self {
            Self::Kept(_) | Self::Asking(_) | Self::Sending(_) => *self = Self::Over,
            Self::Replying(reply) => {
                reply.cancel_for(cause);
                // What comes next may be a wait for the store.
                reply.send_to_background();
            }
            Self::Over => {}
        }
    }

    /// Whether nothing of the call has gone to the server, which it does not do then before [`Running::let_go`].
    pub(super) fn keep_back(&self) -> bool {
        match self {
            Self::Replying(reply) => reply.keep_back(),
            Self::Kept(_) | Self::Asking(_) => true,
            Self::Sending(_) | Self::Over => false,
        }
    }

    /// The call may go to the server.
    pub(super) fn let_go(&mut self) {
        if let Self::Replying(reply) = self {
            return reply.let_go();
        }
        *self = match std::mem::replace(self, Self::Over) {
            Self::Kept(sending) | Self::Asking(sending) => Self::Sending(sending),
            other @ (Self::Sending(_) | Self::Replying(_) | Self::Over) => other,
        };
    }

    /// Lets go of the run, which goes on at the server for another process.
    pub(super) fn leave(&mut self) {
        if let Self::Replying(reply) = std::mem::replace(self, Self::Over) {
            reply.leave_running();
        }
    }

    /// From now on the call goes on although this is not polled.
    pub(super) fn send_to_background(&mut self) {
        if let Self::Replying(reply) = self {
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
