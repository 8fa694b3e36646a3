//! Server-sent events, read byte by byte as they arrive (WHATWG HTML, server-sent events).
//!
//! LF, CRLF and CR all end a line, whole events are cut off wherever the chunks of the body end, and
//! an event that fits into one chunk is not copied.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use super::json::BYTE_ORDER_MARK;
use super::room;

/// Reads events out of the chunks of one body.
#[derive(Debug)]
pub struct SseParser {
    /// What was fed and is still to be read.
    chunk: Bytes,
    /// The start of a line whose end has not come yet.
    line: BytesMut,
    at: Place,
    /// Whether no line has ended yet: the first may start with a byte order mark.
    first: bool,
    data: Data,
    name: Option<Box<str>>,
    id: Option<Box<str>>,
    last_id: Option<Box<str>>,
    retry: Option<Duration>,
    /// Bytes of the event so far, its open line not counted.
    size: usize,
    limit: usize,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The field `event`; without it the type is `message`.
    pub name: Option<Box<str>>,
    /// The lines of `data`, joined with LF.
    pub data: Bytes,
}

/// An event is larger than the limit. Nothing can be read from the stream any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLarge {
    /// The limit, in bytes.
    pub limit: usize,
}

/// Where in a line the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a line that is kept.
    Line,
    /// Behind a CR: an LF belongs to it.
    AfterCr,
    /// In a comment, which may be of any length since none of it is kept.
    Comment,
    /// Behind an event that was too large.
    Lost,
}

/// The data of the event so far.
#[derive(Debug)]
enum Data {
    None,
    /// One line, where it was read.
    One(Bytes),
    /// Several, joined.
    Many(BytesMut),
}

impl SseParser {
    /// A parser at the start of a body, for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            chunk: Bytes::new(),
            line: BytesMut::new(),
            at: Place::Line,
            first: true,
            data: Data::None,
            name: None,
            id: None,
            last_id: None,
            retry: None,
            size: 0,
            limit,
        }
    }

    /// From now on events may have that many bytes.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Events of a body that goes on behind this one: its id is the last until another one comes.
    pub fn set_last_id(&mut self, id: &str) {
        self.last_id = Some(id.into());
    }

    /// Takes the next bytes of the body. The events in them come out of [`SseParser::next_event`].
    pub fn feed(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [self.chunk.as_ref(), chunk.as_ref()].concat().into();
        }
    }

    /// The next event; `None` when more bytes are needed.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, EventTooLarge> {
        while let Some(&byte) = self.chunk.first() {
            match self.at {
                Place::Lost => return Err(EventTooLarge { limit: self.limit }),
                Place::AfterCr => {
                    self.at = Place::Line;
                    if byte == b'\n' {
                        self.chunk.advance(1);
                    }
                    continue;
                }
                Place::Line if byte == b':' && self.line.is_empty() => self.at = Place::Comment,
                Place::Line | Place::Comment => {}
            }
            let end = self.chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = self.chunk.split_to(end.unwrap_or(self.chunk.len()));
            if self.at == Place::Line && self.size + self.line.len() + part.len() > self.limit {
                return Err(self.give_up());
            }
            if end.is_none() {
                if self.at == Place::Line {
                    room::make(&mut self.line, part.len(), self.limit);
                    self.line.extend_from_slice(&part);
                }
                return Ok(None);
            }
            let comment = self.at == Place::Comment;
            self.at = if self.chunk.first() == Some(&b'\r') { Place::AfterCr } else { Place::Line };
            self.chunk.advance(1);
            if comment {
                self.first = false;
            } else if let Some(event) = self.end_line(part) {
                return Ok(Some(event));
            }
        }
        match self.at {
            Place::Lost => Err(EventTooLarge { limit: self.limit }),
            _ => Ok(None),
        }
    }

    /// The data of an event whose end has not come: an open line counts as if it had ended. `None` if
    /// there is none. A body that ends here is no reason to drop it (some servers never send the last
    /// blank line), but only the reader knows whether it is whole.
    pub fn pending(&self) -> Option<Bytes> {
        let open = self.without_mark(&self.line);
        let mut data = match &self.data {
            Data::None => None,
            Data::One(data) => Some(data.clone()),
            Data::Many(data) => Some(Bytes::copy_from_slice(data)),
        };
        if let (b"data", value) = field(open) {
            data = Some(match data {
                None => Bytes::copy_from_slice(value),
                Some(before) => [before.as_ref(), b"\n", value].concat().into(),
            });
        }
        data.filter(|data| !data.is_empty())
    }

    /// The id of the last whole event that had one, to resume behind it.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How long the server wants us to wait before we connect again, if it said so.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    fn give_up(&mut self) -> EventTooLarge {
        self.at = Place::Lost;
        self.chunk = Bytes::new();
        self.line = BytesMut::new();
        self.data = Data::None;
        EventTooLarge { limit: self.limit }
    }

    /// Ends a line whose last part is `part`; a blank one ends the event.
    fn end_line(&mut self, part: Bytes) -> Option<SseEvent> {
        let mut line = part;
        if !self.line.is_empty() {
            room::make(&mut self.line, line.len(), self.limit);
            self.line.extend_from_slice(&line);
            line = self.line.split().freeze();
            room::leave(&mut self.line);
        }
        if self.first {
            let mark = line.len() - self.without_mark(&line).len();
            line.advance(mark);
            self.first = false;
        }
        if line.is_empty() {
            return self.end_event();
        }
        self.size += line.len() + 1;
        let (name, value) = field(&line);
        match name {
            b"data" => {
                let value = line.slice_ref(value);
                self.data.push(value, self.limit);
            }
            b"event" => self.name = Some(String::from_utf8_lossy(value).into()),
            b"id" if !value.contains(&0) => self.id = Some(String::from_utf8_lossy(value).into()),
            b"retry" => self.retry = milliseconds(value).or(self.retry),
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        self.size = 0;
        let name = self.name.take();
        if let Some(id) = self.id.take() {
            // An empty id takes the last one back.
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        let data = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => return None,
            Data::One(data) => data,
            Data::Many(data) => data.freeze(),
        };
        Some(SseEvent { name, data })
    }

    fn without_mark<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if self.first => rest,
            _ => line,
        }
    }
}

impl Data {
    fn push(&mut self, line: Bytes, most: usize) {
        let mut joined = match std::mem::replace(self, Self::None) {
            Self::None => {
                *self = Self::One(line);
                return;
            }
            Self::One(before) => BytesMut::from(before.as_ref()),
            Self::Many(joined) => joined,
        };
        room::make(&mut joined, line.len() + 1, most);
        joined.extend_from_slice(b"\n");
        joined.extend_from_slice(&line);
        *self = Self::Many(joined);
    }
}

/// The name and the value of a line; one space behind the colon does not count.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = line.splitn(2, |byte| *byte == b':');
    let name = parts.next().unwrap_or_default();
    let value = parts.next().unwrap_or_default();
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

/// Digits only, as the standard wants it.
fn milliseconds(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?.map(Duration::from_millis)
}

impl fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event of the server is larger than the limit of {} bytes", self.limit)
    }
}

impl std::error::Error for EventTooLarge {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(parser: &mut SseParser, into: &mut Vec<(String, String)>) {
        while let Some(event) = parser.next_event().unwrap() {
            let name = event.name.map(String::from).unwrap_or_default();
            into.push((name, String::from_utf8(event.data.to_vec()).unwrap()));
        }
    }

    /// The events of `chunks`, and the parser behind them.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<(String, String)>, SseParser) {
        let (mut parser, mut events) = (SseParser::new(1000), Vec::new());
        for chunk in chunks {
            parser.feed(Bytes::copy_from_slice(chunk));
            drain(&mut parser, &mut events);
        }
        (events, parser)
    }

    fn events(text: &str) -> Vec<(String, String)> {
        read([text.as_bytes()]).0
    }

    #[test]
    fn every_line_ending_ends_a_line_and_every_split_gives_the_same_events() {
        let lines =
            [": hello", "event: message", "id: 7", "retry: 20", "data: {\"a\":", "data:1}", "", "data: two", ""];
        let expected = [("message".to_owned(), "{\"a\":\n1}".to_owned()), (String::new(), "two".to_owned())];
        for ending in ["\n", "\r\n", "\r"] {
            let text: String = lines.iter().flat_map(|line| [*line, ending]).collect();
            for at in 0..=text.len() {
                let (head, tail) = text.as_bytes().split_at(at);
                let (events, parser) = read([head, tail]);
                assert_eq!(events, expected, "{ending:?} split at {at}");
                assert_eq!(parser.last_id(), Some("7"));
                assert_eq!(parser.retry(), Some(Duration::from_millis(20)));
            }
        }
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        let cases: [(&str, &[(&str, &str)]); 12] = [
            ("data: a\n\n", &[("", "a")]),
            ("data:a\n\n", &[("", "a")]),
            ("data:  a\n\n", &[("", " a")]),
            ("data\n\n", &[("", "")]),
            ("id: x\ndata: \n\n", &[("", "")]),
            ("id: x\n\ndata: a\n\n", &[("", "a")]),
            ("data: a\nevent: odd\nunknown: b\n\n", &[("odd", "a")]),
            ("event: odd\n\ndata: a\n\n", &[("", "a")]),
            (":\n:ping\n\n", &[]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &[("", "a")]),
            ("data: a\n: between\nretry: 5\nid: 3\ndata: b\n\n", &[("", "a\nb")]),
            ("data: a: b\n\n", &[("", "a: b")]),
        ];
        for (text, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!(events(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_id_counts_once_its_event_is_whole() {
        let (_, parser) = read([b"id: 1\n\nid: 2\ndata: open".as_slice()]);
        assert_eq!(parser.last_id(), Some("1"));
        let (_, parser) = read([b"id: 1\n\nid: a\0b\n\nretry: 1x\n\n".as_slice()]);
        assert_eq!((parser.last_id(), parser.retry()), (Some("1"), None));
        let (_, parser) = read([b"id: 1\n\nid\n\n".as_slice()]);
        assert_eq!(parser.last_id(), None);
    }

    #[test]
    fn an_event_without_its_end_can_still_be_read() {
        for text in ["data: {\"a\":\ndata: 1}", "data: {\"a\":\ndata: 1}\n", "data: {\"a\":\r\ndata: 1}\r"] {
            let (events, parser) = read([text.as_bytes()]);
            assert_eq!(events, []);
            assert_eq!(parser.pending().unwrap().as_ref(), b"{\"a\":\n1}", "{text:?}");
        }
        for text in ["", "data: a\n\n", ": comment", "event: x\nid: 5", "dat", "data:"] {
            assert_eq!(read([text.as_bytes()]).1.pending(), None, "{text:?}");
        }
    }

    #[test]
    fn an_event_past_the_limit_ends_the_stream_and_a_comment_never_does() {
        let one_line = format!("data: {}", "x".repeat(1000));
        let many_lines = "data\n".repeat(300);
        for text in [one_line, many_lines] {
            let mut parser = SseParser::new(1000);
            let mut failed = false;
            for chunk in text.as_bytes().chunks(100) {
                parser.feed(Bytes::copy_from_slice(chunk));
                failed = parser.next_event().is_err();
            }
            assert!(failed);
            parser.feed(Bytes::from_static(b"\n\ndata: a\n\n"));
            assert_eq!(parser.next_event(), Err(EventTooLarge { limit: 1000 }));
        }
        let comment = format!(":{}\ndata: a\n\n", "x".repeat(10_000));
        assert_eq!(read(comment.as_bytes().chunks(100)).0.len(), 1);
    }

    #[test]
    fn an_event_in_one_chunk_is_not_copied() {
        let chunk = Bytes::from_static(b"event: message\r\ndata: {\"jsonrpc\":\"2.0\"}\r\n\r\n");
        let mut parser = SseParser::new(1000);
        parser.feed(chunk.clone());
        let event = parser.next_event().unwrap().unwrap();
        assert!(chunk.as_ptr_range().contains(&event.data.as_ptr()));
    }

    proptest! {
        #[test]
        fn any_cut_of_any_text_gives_the_same_events(
            text in r"((data|event|id|retry|:|x)?(: ?)?[a\u{feff}0-9]{0,3}(\n|\r\n|\r|\n\n|\r\r)?){0,12}",
            cuts in proptest::collection::vec(1_usize..5, 0..40),
        ) {
            let (whole, parser) = read([text.as_bytes()]);
            let (mut rest, mut chunks) = (text.as_bytes(), Vec::new());
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            chunks.push(rest);
            let (cut, cut_parser) = read(chunks);
            prop_assert_eq!(whole, cut);
            prop_assert_eq!(parser.last_id(), cut_parser.last_id());
            prop_assert_eq!(parser.pending(), cut_parser.pending());
        }
    }
}
