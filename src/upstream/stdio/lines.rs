//! Lines out of a byte stream. Only 0x0A ends a line; a line that is too long does not end the stream.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::pipes::Inbound;
use super::scan::{Addressee, Scan};
use crate::protocol::room;

/// Reads lines of bounded length.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    buffer: BytesMut,
    /// How much of the buffer was searched for the end of the line.
    searched: usize,
    limit: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Within a line that may be kept. To `Skipping` when it gets too long.
    Keeping,
    /// Within a line that is thrown away. To `Keeping` at its end.
    Skipping { scan: Box<Scan>, skipped: usize, told: Told },
    /// The stream has ended.
    Over,
}

/// What was reported of a line that is too long.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// Nothing yet.
    Nothing,
    /// That there is one.
    Growing,
    /// That it names nobody, or not soon enough.
    Unnamed,
    /// Whose it is.
    Named,
}

/// What comes out of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its end.
    Whole(Bytes),
    /// What stood behind the last end of a line when the stream ended: a line without its end, or a part of one.
    Rest(Bytes),
    /// A line has become too long, and does not yet tell whom it is for. [`Line::TooLong`] follows for the same line if
    /// it tells after all, or goes on without an end.
    Growing,
    /// A line that was too long, and whom it was for as far as that can be told.
    TooLong(Addressee),
    /// Nothing more.
    End,
}

/// What to do next.
enum Step {
    /// Give this out.
    Line(Line),
    /// Look at the rest of the buffer.
    Again,
    /// Read more.
    Read,
}

/// Room for one read.
const CHUNK: usize = 16 << 10;
/// How many times the limit a line is searched for its id before the call that is most likely meant is told.
const SEARCHED: usize = 8;

impl<R: AsyncRead + Unpin + Send + 'static> Inbound for Lines<R> {
    async fn receive(&mut self) -> Line {
        self.next().await
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of up to `limit` bytes.
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self { reader, buffer: BytesMut::new(), searched: 0, limit, state: State::Keeping }
    }

    /// The next line. An error of the stream reads as its end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Line {
        loop {
            let step = match &self.state {
                State::Keeping => self.keep(),
                State::Skipping { .. } => self.skip(),
                State::Over => return Line::End,
            };
            match step {
                Step::Line(line) => return line,
                Step::Again => continue,
                Step::Read => {}
            }
            room::make(&mut self.buffer, CHUNK, self.limit.saturating_add(CHUNK));
            match self.reader.read_buf(&mut self.buffer).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return self.end(),
            }
        }
    }

    /// The line that is complete in the buffer, if there is one.
    fn keep(&mut self) -> Step {
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        if let Some(at) = memchr::memchr(b'\n', unsearched) {
            let len = self.searched + at;
            self.searched = 0;
            let line = self.buffer.split_to(len + 1).freeze();
            room::leave(&mut self.buffer);
            if len > self.limit {
                let mut scan = Scan::default();
                scan.feed(&line);
                return Step::Line(Line::TooLong(scan.addressee()));
            }
            return Step::Line(Line::Whole(line.slice(..len)));
        }
        self.searched = self.buffer.len();
        if self.searched <= self.limit {
            return Step::Read;
        }
        self.state = State::Skipping { scan: Box::default(), skipped: 0, told: Told::Nothing };
        self.searched = 0;
        Step::Again
    }

    /// Throws away what is in the buffer, up to the end of the line.
    fn skip(&mut self) -> Step {
        let State::Skipping { scan, skipped, told } = &mut self.state else { return Step::Again };
        let end = memchr::memchr(b'\n', &self.buffer);
        let chunk = self.buffer.split_to(end.map_or(self.buffer.len(), |at| at + 1));
        scan.feed(&chunk);
        *skipped += chunk.len();
        if self.buffer.is_empty() {
            // The room of a huge line is given back.
            self.buffer = BytesMut::new();
        }
        let addressee = if end.is_some() { scan.addressee() } else { scan.likely_addressee() };
        let named = matches!(addressee, Addressee::Call(_) | Addressee::Us(Some(_)));
        let is_endless = *skipped / SEARCHED > self.limit;
        if matches!(told, Told::Nothing) && !named && end.is_none() && !is_endless {
            *told = Told::Growing;
            return Step::Line(Line::Growing);
        }
        let tell = match told {
            Told::Nothing | Told::Growing => named || end.is_some() || is_endless,
            // The id has come after all.
            Told::Unnamed => named,
            Told::Named => false,
        };
        if tell {
            *told = if named { Told::Named } else { Told::Unnamed };
        }
        if end.is_some() {
            self.state = State::Keeping;
        }
        match (tell, end) {
            (true, _) => Step::Line(Line::TooLong(addressee)),
            (false, Some(_)) => Step::Again,
            (false, None) => Step::Read,
        }
    }

    /// The end of the stream.
    fn end(&mut self) -> Line {
        let state = std::mem::replace(&mut self.state, State::Over);
        let rest = std::mem::take(&mut self.buffer).freeze();
        match state {
            State::Keeping if !rest.is_empty() => Line::Rest(rest),
            State::Skipping { scan, told: Told::Nothing | Told::Growing, .. } => Line::TooLong(scan.addressee()),
            State::Keeping | State::Skipping { .. } | State::Over => Line::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_test_reader::Chunks;

    use super::*;
    use crate::protocol::Json;

    /// A reader that gives its bytes in chunks of one size.
    mod tokio_test_reader {
        use std::pin::Pin;
        use std::task::{Context, Poll};

        use tokio::io::{AsyncRead, ReadBuf};

        pub(super) struct Chunks<'a>(pub(super) &'a [u8], pub(super) usize);

        impl AsyncRead for Chunks<'_> {
            fn poll_read(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                into: &mut ReadBuf<'_>,
            ) -> Poll<std::io::Result<()>> {
                let len = self.1.min(self.0.len()).min(into.remaining());
                let (now, later) = self.0.split_at(len);
                into.put_slice(now);
                self.0 = later;
                Poll::Ready(Ok(()))
            }
        }
    }

    async fn all(text: &[u8], chunk: usize, limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(Chunks(text, chunk), limit);
        let mut seen = Vec::new();
        loop {
            match lines.next().await {
                Line::End => return seen,
                line => seen.push(line),
            }
        }
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::from(text.to_owned()))
    }

    fn too_long(id: &str) -> Line {
        Line::TooLong(Addressee::Call(Json::parse(Bytes::from(id.to_owned())).unwrap()))
    }

    #[tokio::test]
    async fn only_a_line_feed_ends_a_line_however_the_bytes_arrive() {
        let text = "a\u{2028}b\u{85}\r\n\n\u{2029}c\x0b\x0c\rd\nlast";
        let expected = [whole("a\u{2028}b\u{85}\r"), whole(""), whole("\u{2029}c\x0b\x0c\rd")];
        let last = Line::Rest(Bytes::from_static(b"last"));
        for chunk in [1, 2, 3, 7, 1000] {
            let mut seen = all(text.as_bytes(), chunk, 100).await;
            assert_eq!(seen.pop().as_ref(), Some(&last), "{chunk}");
            assert_eq!(seen, expected, "{chunk}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_told_with_its_id_and_the_next_is_found() {
        let filler = "x".repeat(500);
        let text = format!(
            "{{\"id\":1}}\n{{\"result\":\"{filler}\",\"jsonrpc\":\"2.0\",\"id\":2}}\n{{\"id\":3,\"r\":\"{filler}\"}}\n{{}}\n"
        );
        let expected = [whole("{\"id\":1}"), too_long("2"), too_long("3"), whole("{}")];
        for chunk in [1, 10, 64, 10_000] {
            let seen = all(text.as_bytes(), chunk, 100).await;
            let seen: Vec<_> = seen.into_iter().filter(|line| *line != Line::Growing).collect();
            assert_eq!(seen, expected, "{chunk}");
        }
    }

    #[tokio::test]
    async fn a_line_of_exactly_the_limit_is_kept_and_of_one_more_is_not() {
        let text = format!("{}\n{}\n", "x".repeat(100), "y".repeat(101));
        for chunk in [1, 100, 101, 1000] {
            let seen = all(text.as_bytes(), chunk, 100).await;
            let seen: Vec<_> = seen.into_iter().filter(|line| *line != Line::Growing).collect();
            assert_eq!(seen, [whole(&"x".repeat(100)), Line::TooLong(Addressee::Nobody)], "{chunk}");
        }
    }

    #[tokio::test]
    async fn the_id_behind_a_huge_result_is_found_even_after_the_line_was_told() {
        let text = format!("{{\"result\":\"{}\",\"jsonrpc\":\"2.0\",\"id\":2}}\n{{}}\n", "x".repeat(5000));
        let expected = [Line::Growing, Line::TooLong(Addressee::Unnamed), too_long("2"), whole("{}")];
        assert_eq!(all(text.as_bytes(), 64, 100).await, expected);
    }

    #[tokio::test]
    async fn a_line_that_never_ends_is_told_once_and_takes_no_memory() {
        let mut text = br#"{"jsonrpc":"2.0","result":""#.to_vec();
        text.resize(10_000, b'x');
        let mut lines = Lines::new(Chunks(&text, 10), 100);
        assert_eq!(lines.next().await, Line::Growing);
        assert_eq!(lines.next().await, Line::TooLong(Addressee::Unnamed));
        assert_eq!(lines.next().await, Line::End);
        assert!(lines.buffer.capacity() <= 2 * CHUNK);
    }
}
