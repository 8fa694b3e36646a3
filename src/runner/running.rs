//! A call that was sent.

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use tower::ServiceExt;
use tower_service::Service;

use crate::protocol::{Call, Event, Failure, Outcome, Reply, StopCause};

/// A call that was sent. To `Replying` when the service has taken it, to `Over` with its outcome.
pub(super) enum Running {
    /// The service has not taken it yet (or is one that answers when all is done).
    Sending(BoxFuture<'static, Result<Reply, Infallible>>),
    /// Events come in.
    Replying(Reply),
    /// The outcome was taken, or the call was stopped before the service had taken it.
    Over,
}

impl Running {
    /// Sends `call` to `inner`, as soon as this is polled.
    pub(super) fn send<S>(inner: S, call: Call) -> Self
    where
        S: Service<Call, Response = Reply, Error = Infallible> + Send + 'static,
        S::Future: Send,
    {
        Self::Sending(Box::pin(inner.oneshot(call)))
    }

    /// The next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            match self {
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
            Self::Sending(_) => *self = Self::Over,
            Self::Replying(reply) => {
                reply.cancel_for(cause);
                // What comes next may be a wait for the store.
                reply.send_to_background();
            }
            Self::Over => {}
        }
    }

    /// Whether the call waits before it goes to the server, which it does not do then before [`Running::let_go`].
    pub(super) fn keep_back(&self) -> bool {
        match self {
            Self::Replying(reply) => reply.keep_back(),
            Self::Sending(_) | Self::Over => false,
        }
    }

    /// The call may go to the server.
    pub(super) fn let_go(&self) {
        if let Self::Replying(reply) = self {
            reply.let_go();
        }
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
