//! The two directions of a connection: where its messages come from, and how they are sent.

use std::future::Future;

use smallvec::smallvec;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::connection::Connection;
use super::lines::Line;
use crate::protocol::Rope;

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
    Note(Rope),
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
    async fn send(&mut self, _: &Connection, message: Outgoing) -> Result<(), Broken> {
        let (Outgoing::Request(_, line) | Outgoing::Note(line)) = message;
        write(&mut self.0, line).await
    }

    async fn close(&mut self) {
        // The reader may have gone already.
        let _ = self.0.shutdown().await;
    }
}

/// Writes one line whole.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, line: Rope) -> Result<(), Broken> {
    let mut touched = false;
    let pieces = if line.len() <= JOINED { smallvec![line.into_bytes()] } else { line.into_pieces() };
    for mut piece in pieces {
        while !piece.is_empty() {
            match writer.write_buf(&mut piece).await {
                Ok(1..) => touched = true,
                Ok(0) | Err(_) => return Err(if touched { Broken::Within } else { Broken::Untouched }),
            }
        }
    }
    let flushed = writer.flush().await;
    flushed.map_err(|_| Broken::Within)
}
