//! HTTP/1 without TLS, where whoever calls drives the connection as well.
//!
//! A connection with a job of its own costs each call two wakes and often a change of the core: the job is woken for the
//! request, and the caller for the answer. Here the two are one job. A connection that waits for its next request is
//! driven by nobody: what happened to it meanwhile is seen when it is taken.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::body::{RopeBody, ServerBody};
use super::{Bounded, SendError};
use crate::jobs::{Jobs, Place};
use crate::wakes::Sparing;

/// Connections of HTTP/1 without TLS.
pub(super) struct Direct {
    connector: Bounded<HttpConnector>,
    /// How long one waits for its next request.
    idle: Duration,
    kept: Mutex<KeptLines>,
    jobs: Jobs,
}

/// Connections that wait for their next request, the last used one at the end.
struct KeptLines {
    lines: Vec<(Box<Line>, Instant)>,
    sweep: Sweep,
}

/// Whether a job closes those that nobody takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    Off,
    On,
}

/// A connection, and the way to send requests on it.
pub(super) struct Line {
    to: Authority,
    host: HeaderValue,
    /// Where it was made, and wakes who waits for it.
    home: Place,
    sender: SendRequest<RopeBody>,
    connection: Sparing<Connection<TokioIo<TcpStream>, RopeBody>>,
}

/// How a connection came out of an exchange.
struct Exchanged {
    response: Response<Incoming>,
    /// None if the server has closed it.
    line: Option<Box<Line>>,
}

impl Direct {
    /// Connections that `connector` makes, each of which is kept for `idle` without a request.
    pub(super) fn new(connector: Bounded<HttpConnector>, idle: Duration) -> Self {
        let kept = Mutex::new(KeptLines { lines: Vec::new(), sweep: Sweep::Off });
        Self { connector, idle, kept, jobs: Jobs::new() }
    }

    /// Sends a request. One that met the close of a kept connection before a byte of it went out is sent on another.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<RopeBody>,
    ) -> Result<Response<ServerBody>, SendError> {
        let uri = std::mem::take(request.uri_mut());
        let Some(to) = uri.authority() else { return Err(SendError::no_connection("the address has no host".into())) };
        *request.uri_mut() = origin(&uri);
        loop {
            let (line, is_kept) = match self.take(to) {
                Some(line) => (line, true),
                // Boxed: each call would set aside what connecting takes.
                None => (Box::pin(self.connect(&uri, to)).await?, false),
            };
            request.headers_mut().entry(header::HOST).or_insert_with(|| line.host.clone());
            match line.exchange(request).await {
                Ok(Exchanged { response, line }) => {
                    return Ok(response.map(|incoming| ServerBody::direct(incoming, line, self)));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_kept => request = unsent,
                    unsent => return Err(SendError::of_exchange(error.into_error(), unsent.is_some())),
                },
            }
        }
    }

    async fn connect(&self, uri: &Uri, to: &Authority) -> Result<Box<Line>, SendError> {
        let io = self.connector.clone().call(uri.clone()).await.map_err(SendError::no_connection)?;
        let made = Builder::new().handshake(io).await;
        let (sender, connection) = made.map_err(|error| SendError::no_connection(error.into()))?;
        let host = host(to).map_err(|error| SendError::no_connection(error.into()))?;
        Ok(Box::new(Line { to: to.clone(), host, home: Place::here(), sender, connection: Sparing::new(connection) }))
    }

    /// The connection there that was used last, unless that is long ago.
    fn take(&self, to: &Authority) -> Option<Box<Line>> {
        let mut kept = self.kept();
        let here = Place::here();
        let ours = kept.lines.iter().rposition(|(line, _)| line.home == here && line.to == *to);
        let at = ours.or_else(|| kept.lines.iter().rposition(|(line, _)| line.to == *to))?;
        let (line, since) = kept.lines.remove(at);
        drop(kept);
        (since.elapsed() < self.idle).then_some(line)
    }

    /// Keeps a connection whose last answer was read, if another request may be sent on it.
    pub(super) fn keep(self: &Arc<Self>, mut line: Box<Line>) {
        // Nobody can be woken here: what happens from now on is seen by whoever takes it.
        let is_over = line.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        // A runtime that is gone has no use for it.
        if is_over || !line.sender.is_ready() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let mut kept = self.kept();
        kept.lines.push((line, Instant::now()));
        if std::mem::replace(&mut kept.sweep, Sweep::On) == Sweep::Off {
            drop(kept);
            self.jobs.spawn("sweep of kept connections", sweep(Arc::downgrade(self), self.idle));
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeptLines> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that nobody takes, until there is none, or nobody is left who could.
async fn sweep(direct: Weak<Direct>, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        let Some(direct) = direct.upgrade() else { return };
        let mut kept = direct.kept();
        let fresh = kept.lines.iter().position(|(_, since)| since.elapsed() < idle).unwrap_or(kept.lines.len());
        let old: Vec<_> = kept.lines.drain(..fresh).collect();
        let is_empty = kept.lines.is_empty();
        if is_empty {
            kept.sweep = Sweep::Off;
        }
        drop(kept);
        drop(old);
        if is_empty {
            return;
        }
    }
}

impl Line {
    /// Does what can be done on the connection. Ready once it is over.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.connection).poll(context).map(drop)
    }

    async fn exchange(
        mut self: Box<Self>,
        request: Request<RopeBody>,
    ) -> Result<Exchanged, TrySendError<Request<RopeBody>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let mut line = Some(self);
        let response = std::future::poll_fn(|context| {
            if line.as_mut().is_some_and(|line| line.poll(context).is_ready()) {
                line = None;
            }
            // It comes out of the connection, which was polled just now, and out of nowhere else.
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let response = response.await?;
        Ok(Exchanged { response, line })
    }
}

/// The address as it stands in a request to the server itself (RFC 9112, 3.2.1).
fn origin(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(path)
}

/// The header `Host` for that authority, without user and the usual port.
fn host(to: &Authority) -> Result<HeaderValue, header::InvalidHeaderValue> {
    match to.port_u16() {
        None | Some(80) => HeaderValue::from_str(to.host()),
        Some(port) => HeaderValue::from_str(&format!("{}:{port}", to.host())),
    }
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
