//! The events of one response body, one JSON text at a time.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::client::{ServerBody, why};
use crate::protocol::sse::SseParser;

/// An open event stream.
#[derive(Debug)]
pub(super) struct EventStream {
    body: Body,
    parser: SseParser,
    /// When an event without its end is looked at: servers exist that never send the blank line.
    look: Look,
    /// The type of the event that came out last.
    name: Option<Box<str>>,
}

/// What comes next on an event stream.
#[derive(Debug)]
pub(super) enum Item {
    /// The data of a whole event.
    Event(Bytes),
    /// An event without data, which carries an id or a `retry` only.
    Mark,
    /// The data of an event whose end has not come for a while, or will not come. Whoever knows what it
    /// waits for may take it.
    Unfinished(Bytes),
    /// The stream is over, for this reason.
    End(End),
}

/// Why an event stream is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server closed it in order.
    Closed,
    /// The connection broke.
    Broken(String),
    /// An event is larger than this many bytes.
    TooLarge(usize),
}

#[derive(Debug)]
enum Body {
    Open(ServerBody),
    Over(End),
}

#[derive(Clone, Copy, Debug)]
enum Look {
    /// At this moment, unless more bytes come.
    At(Instant),
    /// When more bytes have come.
    Later,
}

/// How long an event without its end may be silent before it is looked at (field case 20).
const QUIET: Duration = Duration::from_secs(2);

impl EventStream {
    /// The events in `body`, each of at most `limit` bytes.
    pub(super) fn new(body: ServerBody, limit: usize) -> Self {
        Self { body: Body::Open(body), parser: SseParser::new(limit), look: Look::Later, name: None }
    }

    /// The same, of a stream that goes on behind the event with this id.
    pub(super) fn behind(mut self, id: Option<&str>) -> Self {
        if let Some(id) = id {
            self.parser.set_last_id(id);
        }
        self
    }

    /// Events that come from now on may have that many bytes.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.parser.set_limit(limit);
    }

    /// What comes next. Cancel safe.
    pub(super) async fn next(&mut self) -> Item {
        loop {
            match self.parser.next_event() {
                Ok(Some(event)) if event.data.is_empty() => return Item::Mark,
                Ok(Some(event)) => {
                    self.name = event.name;
                    return Item::Event(event.data);
                }
                Ok(None) => {}
                Err(error) => self.body = Body::Over(End::TooLarge(error.limit)),
            }
            let body = match &mut self.body {
                Body::Open(body) => body,
                Body::Over(end) => return Item::End(end.clone()),
            };
            let frame = match self.look {
                Look::Later => body.frame().await,
                Look::At(moment) => {
                    let Ok(frame) = tokio::time::timeout_at(moment, body.frame()).await else {
                        self.look = Look::Later;
                        match self.parser.pending() {
                            Some(data) => return Item::Unfinished(data),
                            None => continue,
                        }
                    };
                    frame
                }
            };
            let end = match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.parser.feed(data);
                        self.look = Look::At(Instant::now() + QUIET);
                    }
                    continue;
                }
                Some(Err(error)) => End::Broken(why(&error)),
                None => End::Closed,
            };
            self.body = Body::Over(end);
            if let Some(data) = self.parser.pending() {
                return Item::Unfinished(data);
            }
        }
    }

    /// The type of the last whole event, if it named one.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The id of the last whole event that had one; `None` if the server took that back by an empty one.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.parser.last_id()
    }

    /// How long the server wants us to wait before we connect again.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.parser.retry()
    }
}
