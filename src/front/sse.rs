//! Server-sent events, as they are written to a client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response};
use tokio::time::{Instant, Sleep};

use super::body::{Body, Pieces};
use super::media;
use crate::protocol::Rope;

/// Sends a comment whenever a stream has been silent for a while, so that nobody on the way takes it for dead.
#[derive(Debug)]
pub(super) struct KeepAlive {
    every: Duration,
    tick: Pin<Box<Sleep>>,
}

/// A comment: clients ignore it.
pub(super) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

const BEGIN: Bytes = Bytes::from_static(b"event: message\ndata: ");
const END: Bytes = Bytes::from_static(b"\n\n");
/// Tells reverse proxies not to hold events back.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

impl KeepAlive {
    /// One comment after each silence of this length.
    pub(super) fn new(every: Duration) -> Self {
        Self { every, tick: Box::pin(tokio::time::sleep(every)) }
    }

    /// Something was sent: the silence begins anew.
    pub(super) fn reset(&mut self) {
        self.tick.as_mut().reset(Instant::now() + self.every);
    }

    /// The comment, once it is due.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        ready!(self.tick.as_mut().poll(context));
        self.reset();
        Poll::Ready(COMMENT)
    }
}

/// One message as an event. White space between JSON tokens may hold line ends, which would end the `data` line;
/// inside strings JSON has none.
pub(super) fn event(message: Rope) -> Rope {
    let mut event = Rope::from(BEGIN);
    message.into_pieces().into_iter().for_each(|piece| event.push(single_line(piece)));
    event.push(END);
    event
}

/// Puts one message behind the rest as an event.
pub(super) fn push(pieces: &mut Pieces, message: Rope) {
    let event = event(message);
    if event.len() <= COPIED {
        pieces.push(event.into_bytes());
    } else {
        event.into_pieces().into_iter().for_each(|piece| pieces.push(piece));
    }
}

/// Events up to this size go out in one piece.
const COPIED: usize = 16 << 10;

fn single_line(text: Bytes) -> Bytes {
    let is_line_end = |byte: u8| matches!(byte, b'\n' | b'\r');
    if !text.iter().copied().any(is_line_end) {
        return text;
    }
    text.iter().copied().filter(|byte| !is_line_end(*byte)).collect()
}

/// The response that carries a stream.
pub(super) fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media::EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_line_ends_between_its_tokens_is_one_event() {
        let mut message = Rope::from(Bytes::from_static(b"{\"a\":\r\n "));
        message.push(Bytes::from_static("[\n\"b\\n\u{2028}\"]}".as_bytes()));
        let text = event(message).into_bytes();
        assert_eq!(std::str::from_utf8(&text).unwrap(), "event: message\ndata: {\"a\": [\"b\\n\u{2028}\"]}\n\n");
    }
}
