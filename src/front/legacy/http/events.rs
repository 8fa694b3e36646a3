//! A stream of a session as the body of a response.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::channel::{Event, Reader};
use super::session::Use;
use crate::front::body::Pieces;
use crate::front::sse::{self, KeepAlive};
use crate::share::Place;

/// The events of a stream, with ids by which a client can come back to it.
pub(in crate::front) struct EventStream {
    reader: Reader,
    pieces: Pieces,
    /// What was read before the stream began.
    first: VecDeque<Event>,
    keep_alive: KeepAlive,
    state: State,
    /// A session with an open stream is not idle.
    _usage: Use,
    /// The place among the open streams, if it counts as one.
    _place: Option<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Over,
}

/// How an event is named: the stream, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) stream: u64,
    pub(super) place: u64,
}

/// How a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// With a comment, so that a byte is out at once.
    Comment,
    /// With an event that has an id and no data, so that the client can come back from the first moment on.
    Priming(EventId),
}

/// Milliseconds that a client is asked to wait before it comes back.
const RETRY: u64 = 1000;

impl EventStream {
    pub(super) fn new(
        reader: Reader,
        beginning: Beginning,
        first: Option<Event>,
        keep_alive: Duration,
        usage: Use,
        place: Option<Place>,
    ) -> Self {
        let mut pieces = Pieces::default();
        pieces.push(match beginning {
            Beginning::Comment => sse::COMMENT,
            Beginning::Priming(id) => Bytes::from(format!("id: {}\nretry: {RETRY}\ndata: \n\n", id.text())),
        });
        Self {
            reader,
            pieces,
            first: first.into_iter().collect(),
            keep_alive: KeepAlive::new(keep_alive),
            state: State::Open,
            _usage: usage,
            _place: place,
        }
    }

    /// The next bytes; `None` after the last.
    pub(in crate::front) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop() {
                self.keep_alive.reset();
                return Poll::Ready(Some(piece));
            }
            if self.state == State::Over {
                return Poll::Ready(None);
            }
            let event = match self.first.pop_front() {
                Some(event) => Poll::Ready(Some(event)),
                None => self.reader.poll_next(context),
            };
            match event {
                Poll::Ready(Some(event)) => self.push(event),
                Poll::Ready(None) => self.state = State::Over,
                Poll::Pending => return Poll::Ready(Some(ready!(self.keep_alive.poll(context)))),
            }
        }
    }

    /// Whether all bytes were taken.
    pub(in crate::front) fn is_over(&self) -> bool {
        self.state == State::Over && self.pieces.is_empty()
    }

    fn push(&mut self, event: Event) {
        let id = EventId { stream: self.reader.channel().number(), place: event.place };
        self.pieces.push(Bytes::from(format!("id: {}\n", id.text())));
        sse::push(&mut self.pieces, event.text);
    }
}

impl EventId {
    /// Reads what a client gives back.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (stream, place) = text.split_once('-')?;
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then(|| text.parse().ok()).flatten()
        };
        Some(Self { stream: number(stream)?, place: number(place)? })
    }

    fn text(self) -> String {
        format!("{}-{}", self.stream, self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_reads_as_it_was_written_and_nothing_else_does() {
        let id = EventId { stream: 3, place: 17 };
        assert_eq!(EventId::read(&id.text()), Some(id));
        for text in ["", "-", "3", "3-", "-3", "+3-1", "3--1", "3-1-1", " 3-1", "x-1", "3-99999999999999999999999"] {
            assert_eq!(EventId::read(text), None, "{text}");
        }
    }
}
