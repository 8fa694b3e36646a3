//! Bodies of requests and of responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::direct::{Direct, Line};
use crate::protocol::Rope;
use crate::wakes;

/// A body in pieces, whose length is known.
#[derive(Debug)]
pub(in super::super) struct RopeBody {
    pieces: smallvec::IntoIter<[Bytes; 2]>,
    left: u64,
}

/// What a server sends.
pub(in super::super) struct ServerBody(Source);

enum Source {
    /// A connection with a job of its own.
    Pooled { incoming: Incoming, version: Version },
    /// A connection that is driven by whoever reads from here.
    Direct(Driven),
    /// A connection that is not needed any more. What it sent may still have to be read.
    Over(Incoming),
    /// All was read.
    End,
}

/// A body whose reader drives the connection that it comes on.
struct Driven {
    incoming: Incoming,
    line: Box<Line>,
    /// Where the connection goes when all was read.
    home: Arc<Direct>,
    turn: Turn,
}

/// What there is of such a body.
enum Step {
    Frame(Taken),
    /// The connection is over. What it gave before may still have to be read.
    Over,
}

/// Whether the connection may be driven now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Ours,
    /// Not before whoever else is in the job of the reader was looked at: a server that floods us always has more.
    Others,
}

/// A frame, or why there is none.
type Taken = Option<Result<Frame<Bytes>, hyper::Error>>;

impl RopeBody {
    /// No body.
    pub(in super::super) fn empty() -> Self {
        Self::from(Rope::default())
    }
}

impl From<Rope> for RopeBody {
    fn from(rope: Rope) -> Self {
        let left = u64::try_from(rope.len()).unwrap_or(u64::MAX);
        Self { pieces: rope.into_pieces().into_iter(), left }
    }
}

impl Body for RopeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.next();
        if let Some(piece) = &piece {
            self.left = self.left.saturating_sub(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.len() == 0
    }

    /// Exact, so that the request has a `Content-Length`: small servers cannot read chunked ones.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl ServerBody {
    /// The body of a response on a connection with a job of its own.
    pub(super) fn pooled(response: Response<Incoming>) -> Response<Self> {
        let version = response.version();
        response.map(|incoming| Self(Source::Pooled { incoming, version }))
    }

    /// The body of a response on `line`, which goes back to `home` when all of it was read.
    pub(super) fn direct(incoming: Incoming, line: Option<Box<Line>>, home: &Arc<Direct>) -> Self {
        let source = match line {
            Some(line) if incoming.is_end_stream() => {
                home.keep(line);
                Source::End
            }
            Some(line) => Source::Direct(Driven { incoming, line, home: Arc::clone(home), turn: Turn::Ours }),
            None => Source::Over(incoming),
        };
        Self(source)
    }

    /// What was read is all there is, or all that is wanted.
    fn ended(&mut self) {
        if let Source::Direct(Driven { incoming, line, home, .. }) = std::mem::replace(&mut self.0, Source::End) {
            // Without a reader the connection passes over what is left of the body, if that is there already.
            drop(incoming);
            home.keep(line);
        }
    }

    /// The connection is over, but not what came on it.
    fn cut_off(&mut self) {
        if let Source::Direct(Driven { incoming, .. }) = std::mem::replace(&mut self.0, Source::End) {
            self.0 = Source::Over(incoming);
        }
    }
}

impl Driven {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if let Poll::Ready(frame) = self.take() {
            return Poll::Ready(Step::Frame(frame));
        }
        if self.turn == Turn::Others {
            self.turn = Turn::Ours;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.line.poll(context).is_ready() {
            return Poll::Ready(Step::Over);
        }
        // Nothing but the connection gives frames, and it has just been polled.
        self.take().map(Step::Frame)
    }

    /// A frame that has come. Then it is for others to go on.
    fn take(&mut self) -> Poll<Taken> {
        let frame = wakes::poll_driven(&mut self.incoming);
        if frame.is_ready() {
            self.turn = Turn::Others;
        }
        frame
    }

    /// Whether nothing can come behind that frame.
    fn is_last(&self, frame: &Taken) -> bool {
        self.incoming.is_end_stream() || !matches!(frame, Some(Ok(_)))
    }
}

impl Body for ServerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Taken> {
        loop {
            let driven = match &mut self.0 {
                Source::Pooled { incoming, version } => return wakes::poll_frame(incoming, *version, context),
                Source::Direct(driven) => driven,
                Source::Over(incoming) => return Pin::new(incoming).poll_frame(context),
                Source::End => return Poll::Ready(None),
            };
            match ready!(driven.poll(context)) {
                Step::Frame(frame) => {
                    if driven.is_last(&frame) {
                        self.ended();
                    }
                    return Poll::Ready(frame);
                }
                Step::Over => self.cut_off(),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Pooled { incoming, .. } | Source::Direct(Driven { incoming, .. }) | Source::Over(incoming) => {
                incoming.is_end_stream()
            }
            Source::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Pooled { incoming, .. } | Source::Direct(Driven { incoming, .. }) | Source::Over(incoming) => {
                incoming.size_hint()
            }
            Source::End => SizeHint::with_exact(0),
        }
    }
}

impl Drop for ServerBody {
    fn drop(&mut self) {
        self.ended();
    }
}

impl std::fmt::Debug for ServerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Source::Pooled { .. } => "ServerBody(pooled)",
            Source::Direct(_) => "ServerBody(direct)",
            Source::Over(_) => "ServerBody(over)",
            Source::End => "ServerBody(end)",
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_body_says_its_length_and_gives_its_pieces_uncopied() {
        let piece = Bytes::from_static(b"abc");
        let mut rope = Rope::from(piece.clone());
        rope.push(Bytes::from_static(b"de"));
        let mut body = RopeBody::from(rope);
        assert_eq!(body.size_hint().exact(), Some(5));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.as_ptr(), body.size_hint().exact()), (piece.as_ptr(), Some(2)));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "de");
        assert!(RopeBody::empty().is_end_stream());
    }
}
