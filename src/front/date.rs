//! The `Date` of answers.

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::clock::{Clock as _, SystemClock};

/// Has hyper spell a `Date` on this thread. It keeps the last one for each thread, and gives out that while the clock
/// shows something earlier; where it has none it panics with a clock before 1970. So each thread that serves
/// connections is to call this first.
pub fn keep_date() {
    if !SystemClock.now().is_plausible() {
        return;
    }
    let nobody = service_fn(|_: Request<Incoming>| ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))));
    // The client of this connection has left already.
    let connection = http1::Builder::new().serve_connection(TokioIo::new(tokio::io::empty()), nobody);
    let _ = connection.now_or_never();
}
