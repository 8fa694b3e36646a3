//! The two directions of a connection: where its messages come from, and how they are sent.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf, Bytes};
use smallvec::smallvec;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::connection::Connection;
use super::lines::Line;
use super::notes::Note;
use crate::protocol::Rope;
use crate::protocol::rope::Pieces;

/// Where messages come from.
pub(in crate::upstream) trait Inbound: Send + 'static {
    /// The next message. Cancel safe.
    fn receive(&mut self) -> impl Future<Output = Line> + Send;
}

/// How messages are sent.
pub(in crate::upstream) trait Outbound: Send + 'static {
    /// Sends a message of `connection`, or sees to it that it is sent.
    fn send(&mut self, connection: &Connection, message: Outgoing) -> impl Future<Output = Result<(), Broken>> + Send;

    /// Nothing more is sent.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

/// A message on its way out: one line.
#[derive(Debug)]
pub(in crate::upstream) enum Outgoing {
    /// A request, with its id.
    Request(u64, Rope),
    /// An answer or a notification.
    Note(Note),
}

/// Why nothing can be sent any more.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) enum Broken {
    /// Not one byte of the message went out.
    Untouched,
    /// The server has a part of it, or all.
    Within,
}

/// A byte stream to a server.
#[derive(Debug)]
pub(super) struct Pipe<W>(W);

/// Messages up to this size are put together and written at once.
const JOINED: usize = 16 << 10;

impl<W> Pipe<W> {
    /// Messages go out on `writer`.
    pub(super) fn new(writer: W) -> Self {
        Self(writer)
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Outbound for Pipe<W> {
    async fn send(&mut self, connection: &Connection, message: Outgoing) -> Result<(), Broken> {
        match message {
            Outgoing::Note(note) => self.write(in_pieces(note.into_line())).await,
            Outgoing::Request(id, line) => {
                let mut pieces = in_pieces(line);
                let Some(first) = pieces.first_mut() else { return Ok(()) };
                if !self.begin(connection, id, first).await? {
                    return Ok(());
                }
                // The server has a part of it.
                self.write(pieces).await.map_err(|_| Broken::Within)
            }
        }
    }

    async fn close(&mut self) {
        // The reader may have gone already.
        let _ = self.0.shutdown().await;
    }
}

impl<W: AsyncWrite + Unpin> Pipe<W> {
    /// Writes the first bytes of the request `id`. While the server takes none, the request waits as those behind it do;
    /// `false` if its call was stopped meanwhile.
    async fn begin(&mut self, connection: &Connection, id: u64, first: &mut Bytes) -> Result<bool, Broken> {
        let mut waits = false;
        poll_fn(|context| {
            // Counted as sent before the write: its answer may be there in the same moment.
            if waits && !connection.goes_out(id) {
                return Poll::Ready(Ok(false));
            }
            match Pin::new(&mut self.0).poll_write(context, first) {
                Poll::Ready(Ok(written @ 1..)) => {
                    first.advance(written);
                    Poll::Ready(Ok(true))
                }
                Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(Broken::Untouched)),
                Poll::Pending => {
                    connection.put_off(id);
                    waits = true;
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Writes what is left of a line.
    async fn write(&mut self, pieces: Pieces) -> Result<(), Broken> {
        let mut touched = false;
        for mut piece in pieces {
            while !piece.is_empty() {
                match self.0.write_buf(&mut piece).await {
                    Ok(1..) => touched = true,
                    Ok(0) | Err(_) => return Err(if touched { Broken::Within } else { Broken::Untouched }),
                }
            }
        }
        self.0.flush().await.map_err(|_| Broken::Within)
    }
}

fn in_pieces(line: Rope) -> Pieces {
    if line.len() <= JOINED { smallvec![line.into_bytes()] } else { line.into_pieces() }
}
