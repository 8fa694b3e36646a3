//! The stream of one call: comments while nothing happens, notifications that the client asked for, the answer.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::body::{Parcel, Pieces};
use super::running::{Answer, Running, Step};
use super::socket::Outbox;
use super::sse::{self, KeepAlive};
use crate::protocol::{Method, RequestId, Rope};

/// The events of one call. Nothing is made ahead of what the client reads: while it does not read, notifications
/// pile up in the [`crate::protocol::Reply`], which drops them.
pub(super) struct CallStream {
    id: RequestId,
    method: Method,
    outbox: Outbox,
    state: State,
    pieces: Pieces,
    keep_alive: KeepAlive,
}

enum State {
    /// The call runs.
    Open(Box<Running>),
    /// The answer is among the pieces; here is the handle in it, if there is one.
    Answered(Parcel),
}

impl CallStream {
    /// The stream of `running`, which begins with a comment, so that a byte is out at once.
    pub(super) fn new(id: RequestId, method: Method, running: Running, outbox: Outbox, keep_alive: Duration) -> Self {
        let mut pieces = Pieces::default();
        pieces.push(sse::COMMENT);
        Self {
            id,
            method,
            outbox,
            state: State::Open(Box::new(running)),
            pieces,
            keep_alive: KeepAlive::new(keep_alive),
        }
    }

    /// Puts a notification in front of what is still to come.
    pub(super) fn push(&mut self, notification: Rope) {
        sse::push(&mut self.pieces, notification);
    }

    /// The next bytes; `None` after the last.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop() {
                self.keep_alive.reset();
                if self.pieces.is_empty()
                    && let State::Answered(parcel) = &mut self.state
                {
                    parcel.taken();
                }
                return Poll::Ready(Some(piece));
            }
            let State::Open(running) = &mut self.state else { return Poll::Ready(None) };
            match running.poll_step(context) {
                Poll::Ready(Step::Notification(notification)) => self.push(notification),
                Poll::Ready(Step::Done(outcome)) => {
                    let mut answer = Answer::new(&self.id, &self.method, outcome, &self.outbox);
                    answer.hold(running.take_place(), &self.outbox);
                    sse::push(&mut self.pieces, answer.text);
                    self.state = State::Answered(answer.parcel);
                }
                Poll::Pending => return Poll::Ready(Some(ready!(self.keep_alive.poll(context)))),
            }
        }
    }

    /// Whether all bytes were taken.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Answered(_)) && self.pieces.is_empty()
    }
}
