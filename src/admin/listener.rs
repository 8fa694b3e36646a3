//! Accepts operators' connections: few, small, and never in the way of clients.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::{Admin, routes};
use crate::clock::{SystemClock, while_dated};
use crate::jobs::Jobs;
use crate::visitors::{Visitor, Visitors};

/// Connections at the same time. One more takes the place of one that asks nothing, or waits.
const CONNECTIONS: usize = 32;
/// How long the headers of a request, or a connection without one, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of all headers of a request.
const HEADER_BYTES: usize = 16 << 10;
/// How long nothing is accepted after the system had nothing left to accept with.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection may take to end, or one answer may wait to be read.
const LAST_MOMENT: Duration = Duration::from_secs(2);

pub(super) async fn serve(admin: Admin, listener: TcpListener, jobs: Jobs) {
    let (admin, visitors) = (Arc::new(admin), Visitors::new(CONNECTIONS));
    loop {
        let accepted = async {
            let (stream, _) = listener.accept().await?;
            io::Result::Ok((stream, visitors.enter_soon().await))
        };
        let accepted = tokio::select! {
            biased;
            () = jobs.stopping() => return,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, visitor)) => {
                jobs.spawn("operator", converse(Arc::clone(&admin), stream, visitor, jobs.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept operators' connections at the moment");
                let _ = tokio::time::timeout(ACCEPT_PAUSE, jobs.stopping()).await;
            }
        }
    }
}

async fn converse(admin: Arc<Admin>, stream: TcpStream, visitor: Visitor, jobs: Jobs) {
    let (visitor, has_asked) = (Arc::new(visitor), Arc::new(AtomicBool::new(false)));
    let (asking, asked) = (Arc::clone(&visitor), Arc::clone(&has_asked));
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let admin = Arc::clone(&admin);
        asked.store(true, Ordering::Relaxed);
        let question = asking.asks();
        async move {
            // No request needs a body; what comes is not read.
            let (parts, _body) = request.into_parts();
            let answer = routes::answer(&admin, &parts).await;
            drop(question);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEADER_BYTES);
    // Nothing here is cancelled by leaving, and probes may close their side behind what they ask.
    builder.half_close(true);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A place is not held by who reads slowly: there is nothing here that takes long.
    let ended = tokio::select! {
        // Where the clock is one that hyper panics with, the connection is closed.
        ended = while_dated(&SystemClock, connection.as_mut()) => Some(ended.unwrap_or(Ok(()))),
        () = jobs.stopping() => None,
        // An answer that is still on its way gets there.
        () = visitor.leaves() => if has_asked.load(Ordering::Relaxed) { None } else { return },
        () = tokio::time::sleep(PATIENCE * 20) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        let ended = tokio::time::timeout(LAST_MOMENT, while_dated(&SystemClock, connection)).await;
        ended.ok().flatten().unwrap_or(Ok(()))
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an operator's connection ended badly");
    }
}
