//! A client's socket: it says when what was written has gone out, and gives up on a client that does not read.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::body::Goods;

/// Handles whose last byte lies in the buffers of the HTTP connection. They count as delivered when the
/// connection flushes the socket, which it does only once its buffers are empty.
///
/// The limits of this proof: the operating system has the bytes, the client need not have read them; and over
/// HTTP/2 bytes that wait for flow control do not keep another stream's flush from counting.
#[derive(Clone, Default)]
pub(super) struct Outbox(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    any: AtomicBool,
    /// A write waits for the client.
    stalled: AtomicBool,
    goods: Mutex<Vec<Goods>>,
}

/// The socket of one connection.
pub(super) struct Socket<T> {
    inner: T,
    outbox: Outbox,
    patience: Duration,
    /// Runs while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Outbox {
    /// What they stand for was put into the connection's buffers.
    pub(super) fn push(&self, goods: Goods) {
        self.0.goods.lock().unwrap_or_else(PoisonError::into_inner).push(goods);
        self.0.any.store(true, Ordering::Release);
    }

    /// Whether a part of what was answered waits for the client to read.
    pub(super) fn is_stalled(&self) -> bool {
        self.0.stalled.load(Ordering::Acquire)
    }

    fn flushed(&self) {
        if !self.0.any.swap(false, Ordering::Acquire) {
            return;
        }
        let gone = std::mem::take(&mut *self.0.goods.lock().unwrap_or_else(PoisonError::into_inner));
        gone.into_iter().for_each(Goods::out);
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

impl<T> Socket<T> {
    /// `patience` is how long a write may wait for the client to read.
    pub(super) fn new(inner: T, outbox: Outbox, patience: Duration) -> Self {
        Self { inner, outbox, patience, stalled: None }
    }

    /// Passes a write's result on, or fails when the client has not read for too long.
    fn watch<R>(&mut self, written: Poll<io::Result<R>>, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            if self.stalled.take().is_some() {
                self.outbox.0.stalled.store(false, Ordering::Release);
            }
            return written;
        }
        self.outbox.0.stalled.store(true, Ordering::Release);
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Socket<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(context, bytes);
        this.watch(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(context, pieces);
        this.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            this.outbox.flushed();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::protocol::reply::Delivery;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up_and_one_that_reads_slowly_is_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut socket = Socket::new(near, Outbox::default(), PATIENCE);
        let slow_reader = async {
            for _ in 0..4 {
                tokio::time::sleep(PATIENCE / 2).await;
                far.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(socket.write_all(&[0; 32]), slow_reader);
        written.unwrap();
        let begun = tokio::time::Instant::now();
        let error = socket.write_all(&[0; 32]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    }

    #[tokio::test]
    async fn a_handle_is_delivered_by_the_next_flush_and_lost_with_the_socket() {
        let outbox = Outbox::default();
        let (near, _far) = tokio::io::duplex(8);
        let mut socket = Socket::new(near, outbox.clone(), PATIENCE);
        let (first, mut out) = Delivery::new();
        outbox.push(first.into());
        assert!(out.try_recv().is_err());
        socket.flush().await.unwrap();
        out.await.unwrap();
        let (second, lost) = Delivery::new();
        outbox.push(second.into());
        drop((socket, outbox));
        lost.await.unwrap_err();
    }
}
