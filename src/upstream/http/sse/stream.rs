//! The event stream of a server: where it wants to be written to, and then all that it says.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::Uri;
use url::Url;

use super::super::answer;
use super::super::events::{End, EventStream, Item};
use crate::protocol::Message;
use crate::upstream::stdio::lines::Line;
use crate::upstream::stdio::pipes::Inbound;

/// Messages out of an event stream.
#[derive(Debug)]
pub(super) struct Events {
    stream: EventStream,
    depth: usize,
    /// How it ended, for whoever waits for an answer.
    how: Arc<OnceLock<String>>,
}

/// Why an event stream is none of HTTP+SSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoEndpoint {
    /// It ended before it named the address.
    Ended,
    /// An event is larger than this many bytes.
    TooLarge(usize),
    /// The address is none.
    Unreadable,
    /// The address is on another origin, where this server's credentials must not go.
    OtherOrigin(String),
}

impl Events {
    /// The messages of `stream`, behind the event `endpoint`.
    pub(super) fn new(stream: EventStream, depth: usize) -> Self {
        Self { stream, depth, how: Arc::default() }
    }

    /// How the stream ended, once it has.
    pub(super) fn how(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.how)
    }

    /// An event whose end has not come is a message if it is a whole answer.
    fn is_answer(&self, data: &Bytes) -> bool {
        let messages = answer::messages(data, self.depth).unwrap_or_default();
        messages.iter().any(|message| matches!(message, Ok(Message::Result { .. } | Message::Error { .. })))
    }
}

impl Inbound for Events {
    async fn receive(&mut self) -> Line {
        loop {
            match self.stream.next().await {
                Item::Event(data) => return Line::Whole(data),
                Item::Unfinished(data) if self.is_answer(&data) => return Line::Whole(data),
                Item::Unfinished(_) | Item::Mark => {}
                Item::End(end) => {
                    let how = match end {
                        End::Closed => "the server closed its event stream".to_owned(),
                        End::Broken(why) => format!("the server's event stream broke: {why}"),
                        End::TooLarge(limit) => format!("an event of the server is larger than {limit} bytes"),
                    };
                    let _ = self.how.set(how);
                    return Line::End;
                }
            }
        }
    }
}

/// Waits for the event `endpoint`, and resolves the address in it. Others that come before it do not count.
pub(super) async fn endpoint(stream: &mut EventStream, base: &Uri) -> Result<Uri, NoEndpoint> {
    loop {
        match stream.next().await {
            Item::Event(data) if stream.name() == Some("endpoint") => return resolve(&data, base),
            Item::Event(_) | Item::Mark | Item::Unfinished(_) => {}
            Item::End(End::TooLarge(limit)) => return Err(NoEndpoint::TooLarge(limit)),
            Item::End(End::Closed | End::Broken(_)) => return Err(NoEndpoint::Ended),
        }
    }
}

/// The address that `data` names, which must be of the origin of `base` (2024-11-05, transports, HTTP with SSE).
fn resolve(data: &[u8], base: &Uri) -> Result<Uri, NoEndpoint> {
    let text = std::str::from_utf8(data).map_err(|_| NoEndpoint::Unreadable)?.trim();
    let base = Url::parse(&base.to_string()).map_err(|_| NoEndpoint::Unreadable)?;
    let mut there = base.join(text).map_err(|_| NoEndpoint::Unreadable)?;
    if there.origin() != base.origin() {
        return Err(NoEndpoint::OtherOrigin(there.origin().ascii_serialization()));
    }
    there.set_fragment(None);
    // The origin is the same, so these cannot fail; credentials are headers here.
    let _ = there.set_username("");
    let _ = there.set_password(None);
    there.as_str().parse().map_err(|_| NoEndpoint::Unreadable)
}

impl std::fmt::Display for NoEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended => f.write_str("its event stream ended without an endpoint"),
            Self::TooLarge(limit) => {
                write!(
                    f,
                    "its event stream begins with an event that is larger than {limit} bytes, and names no endpoint"
                )
            }
            Self::Unreadable => f.write_str("the endpoint that its event stream names is no address"),
            Self::OtherOrigin(origin) => {
                write!(f, "the endpoint that its event stream names is at {origin}, which is another server")
            }
        }
    }
}

impl std::error::Error for NoEndpoint {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_resolved_within_its_own_origin_only() {
        let base: Uri = "http://host:81/a/sse?x=1".parse().unwrap();
        let cases = [
            ("/messages?sessionId=1", Ok("http://host:81/messages?sessionId=1")),
            ("messages/?s=2", Ok("http://host:81/a/messages/?s=2")),
            ("?s=3", Ok("http://host:81/a/sse?s=3")),
            (" http://host:81/m \n", Ok("http://host:81/m")),
            ("http://u:p@host:81/m#f", Ok("http://host:81/m")),
            ("http://host/m", Err(NoEndpoint::OtherOrigin("http://host".to_owned()))),
            ("https://host:81/m", Err(NoEndpoint::OtherOrigin("https://host:81".to_owned()))),
            ("//evil.example/m", Err(NoEndpoint::OtherOrigin("http://evil.example".to_owned()))),
            ("http://[", Err(NoEndpoint::Unreadable)),
        ];
        for (text, expected) in cases {
            let found = resolve(text.as_bytes(), &base).map(|uri| uri.to_string());
            assert_eq!(found, expected.map(str::to_owned), "{text}");
        }
        assert_eq!(resolve(b"\xff", &base), Err(NoEndpoint::Unreadable));
    }
}
