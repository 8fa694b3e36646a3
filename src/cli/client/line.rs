//! A connection whose client can leave without missing an answer that is on its way.
//!
//! Who closes a connection cannot know whether the other side had answered before. So the sending side is closed, which a
//! server sees as the end of the client, and what comes until it closes too is read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower_service::Service;

/// Whoever has this can leave; clones are one.
#[derive(Clone, Default)]
pub(super) struct Door(Arc<Mutex<CancellationToken>>);

/// Makes connections that are left by a [`Door`].
#[derive(Clone)]
pub(crate) struct Connector {
    inner: HttpConnector,
    door: Door,
}

/// One connection.
pub(crate) struct Line {
    inner: TokioIo<TcpStream>,
    /// Resolves when it is left; nothing once it was.
    left: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Door {
    /// Says on every connection that is open now that nothing more is sent there. What is asked later gets new ones.
    pub(super) fn leave(&self) {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).cancel();
    }

    fn left(&self) -> Pin<Box<WaitForCancellationFutureOwned>> {
        let token = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(token.cancelled_owned())
    }
}

impl Connector {
    pub(super) fn new(inner: HttpConnector, door: Door) -> Self {
        Self { inner, door }
    }
}

impl Service<Uri> for Connector {
    type Response = Line;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Line, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, left) = (self.inner.call(uri), self.door.left());
        Box::pin(async move { Ok(Line { inner: connecting.await?, left: Some(left) }) })
    }
}

impl Read for Line {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(left) = &mut this.left
            && left.as_mut().poll(context).is_ready()
        {
            // A socket is shut down at once.
            ready!(Pin::new(&mut this.inner).poll_shutdown(context))?;
            this.left = None;
        }
        Pin::new(&mut this.inner).poll_read(context, buf)
    }
}

impl Write for Line {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, pieces)
    }
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}
