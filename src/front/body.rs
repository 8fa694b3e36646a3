//! What a response carries.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::legacy::EventStream;
use super::listen::Subscription;
use super::socket::Outbox;
use super::stream::CallStream;
use crate::protocol::Rope;
use crate::protocol::reply::Delivery;
use crate::share::Place;

/// The body of a response.
pub(super) enum Body {
    /// All there, length known.
    Whole(Whole),
    /// The events of a call.
    Call(Box<CallStream>),
    /// A `subscriptions/listen` stream.
    Listen(Box<Subscription>),
    /// A stream of a legacy session.
    Legacy(Box<EventStream>),
}

/// A body that is all there.
pub(super) struct Whole {
    pieces: Pieces,
    parcel: Parcel,
}

/// Bytes in pieces, to be sent one after the other.
#[derive(Default)]
pub(super) struct Pieces {
    queue: VecDeque<Bytes>,
    left: u64,
}

/// What a response's body has to hand over when it is out: the handle in it, the place of its call.
///
/// The HTTP connection drops a body as soon as it holds its last piece and before it flushes, for both HTTP/1
/// and HTTP/2, so that is the moment to tell the [`Outbox`].
#[derive(Default)]
pub(super) struct Parcel(Contents);

#[derive(Default)]
enum Contents {
    /// There is nothing to hand over.
    #[default]
    Nothing,
    /// Some of the body is still here.
    Here(Goods, Outbox),
    /// The connection has taken the last piece.
    Taken(Goods, Outbox),
}

/// What is handed over once the connection has flushed.
#[derive(Default)]
pub(super) struct Goods {
    handle: Option<Delivery>,
    _place: Option<Place>,
}

/// Bodies up to this size go out in one piece, since more writes would cost more than the copy.
const JOINED: usize = 16 << 10;

impl Body {
    /// A body without a byte.
    pub(super) fn empty() -> Self {
        Self::Whole(Whole { pieces: Pieces::default(), parcel: Parcel::default() })
    }

    /// This text.
    pub(super) fn text(text: Rope) -> Self {
        Self::carrying(text, Parcel::default())
    }

    /// This text, with a handle in it.
    pub(super) fn carrying(text: Rope, parcel: Parcel) -> Self {
        let mut pieces = Pieces::default();
        if text.len() <= JOINED {
            pieces.push(text.into_bytes());
        } else {
            text.into_pieces().into_iter().for_each(|piece| pieces.push(piece));
        }
        Self::Whole(Whole { pieces, parcel })
    }
}

impl Pieces {
    /// Puts `piece` behind the rest.
    pub(super) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.left += piece.len() as u64;
            self.queue.push_back(piece);
        }
    }

    /// The next piece.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let piece = self.queue.pop_front()?;
        self.left -= piece.len() as u64;
        Some(piece)
    }

    /// Whether all pieces were taken.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl Parcel {
    /// A handle, to be reported to the outbox of its connection.
    pub(super) fn new(handle: Delivery, outbox: Outbox) -> Self {
        Self(Contents::Here(Goods { handle: Some(handle), _place: None }, outbox))
    }

    /// Keeps `place` taken until the body is out, or the connection is gone.
    pub(super) fn hold(&mut self, place: Place, outbox: &Outbox) {
        self.0 = match std::mem::take(&mut self.0) {
            Contents::Nothing => Contents::Here(Goods { handle: None, _place: Some(place) }, outbox.clone()),
            Contents::Here(goods, outbox) => Contents::Here(Goods { _place: Some(place), ..goods }, outbox),
            Contents::Taken(goods, outbox) => Contents::Taken(Goods { _place: Some(place), ..goods }, outbox),
        };
    }

    /// The connection has taken the last piece of the body.
    pub(super) fn taken(&mut self) {
        self.0 = match std::mem::take(&mut self.0) {
            Contents::Here(goods, outbox) | Contents::Taken(goods, outbox) => Contents::Taken(goods, outbox),
            Contents::Nothing => Contents::Nothing,
        };
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Contents::Taken(goods, outbox) = std::mem::take(&mut self.0) {
            outbox.push(goods);
        }
    }
}

impl Goods {
    /// The connection has flushed.
    pub(super) fn out(self) {
        if let Some(handle) = self.handle {
            handle.delivered();
        }
    }
}

impl From<Delivery> for Goods {
    fn from(handle: Delivery) -> Self {
        Self { handle: Some(handle), _place: None }
    }
}

impl Whole {
    fn next(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop();
        if self.pieces.is_empty() {
            self.parcel.taken();
        }
        piece
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.get_mut() {
            Self::Whole(whole) => whole.next(),
            Self::Call(stream) => std::task::ready!(stream.poll_piece(context)),
            Self::Listen(stream) => std::task::ready!(stream.poll_piece(context)),
            Self::Legacy(stream) => std::task::ready!(stream.poll_piece(context)),
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.pieces.is_empty(),
            Self::Call(stream) => stream.is_over(),
            Self::Listen(stream) => stream.is_over(),
            Self::Legacy(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => SizeHint::with_exact(whole.pieces.left),
            Self::Call(_) | Self::Listen(_) | Self::Legacy(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::front::socket::Socket;

    fn body(pieces: usize, outbox: &Outbox) -> (Body, tokio::sync::oneshot::Receiver<()>) {
        let (handle, delivered) = Delivery::new();
        let mut text = Rope::default();
        (0..pieces).for_each(|_| text.push(Bytes::from(vec![b'x'; JOINED])));
        (Body::carrying(text, Parcel::new(handle, outbox.clone())), delivered)
    }

    #[tokio::test]
    async fn a_handle_is_out_when_the_connection_has_the_last_piece_and_flushes() {
        let outbox = Outbox::default();
        let mut socket = Socket::new(tokio::io::sink(), outbox.clone(), std::time::Duration::MAX);
        let (mut body, mut delivered) = body(2, &outbox);
        assert_eq!(body.size_hint().exact(), Some(2 * JOINED as u64));
        body.frame().await.unwrap().unwrap();
        socket.flush().await.unwrap();
        body.frame().await.unwrap().unwrap();
        assert!(body.is_end_stream());
        socket.flush().await.unwrap();
        assert!(delivered.try_recv().is_err());
        drop(body);
        assert!(delivered.try_recv().is_err());
        socket.flush().await.unwrap();
        delivered.await.unwrap();
    }

    #[tokio::test]
    async fn a_body_that_is_dropped_before_its_last_piece_loses_the_handle() {
        let outbox = Outbox::default();
        let mut socket = Socket::new(tokio::io::sink(), outbox.clone(), std::time::Duration::MAX);
        let (mut body, delivered) = body(2, &outbox);
        body.frame().await.unwrap().unwrap();
        drop(body);
        socket.flush().await.unwrap();
        delivered.await.unwrap_err();
    }
}
