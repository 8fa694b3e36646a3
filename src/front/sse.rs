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

/// One message as an event, on one line: see [`single_line`].
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

/// JSON text without anything that a reader might take for the end of the line: LF and CR, which stand between
/// tokens only, are left out; U+0085, U+2028 and U+2029, which stand in strings only, are escaped, since readers
/// that split text as Python does end lines there (field case 36).
pub(super) fn single_line(text: Bytes) -> Bytes {
    let suspect = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0xc2 | 0xe2);
    let Some(at) = text.iter().position(suspect) else { return text };
    let (clean, mut rest) = text.split_at(at);
    let mut line = Vec::with_capacity(text.len() + 16);
    line.extend_from_slice(clean);
    while let Some((byte, behind)) = rest.split_first() {
        rest = match (byte, behind) {
            (b'\n' | b'\r', _) => behind,
            (0xc2, [0x85, behind @ ..]) => escape(&mut line, b"\\u0085", behind),
            (0xe2, [0x80, 0xa8, behind @ ..]) => escape(&mut line, b"\\u2028", behind),
            (0xe2, [0x80, 0xa9, behind @ ..]) => escape(&mut line, b"\\u2029", behind),
            _ => {
                line.push(*byte);
                behind
            }
        };
    }
    line.into()
}

fn escape<'a>(line: &mut Vec<u8>, escaped: &[u8], behind: &'a [u8]) -> &'a [u8] {
    line.extend_from_slice(escaped);
    behind
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
        message.push(Bytes::from_static("[\n\"b\\n\u{85}\u{2028}\u{2029}世\u{a0}–\"]}".as_bytes()));
        let text = event(message).into_bytes();
        let expected = "event: message\ndata: {\"a\": [\"b\\n\\u0085\\u2028\\u2029世\u{a0}–\"]}\n\n";
        assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
    }
}
