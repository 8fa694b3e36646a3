//! Accepts connections and serves them, each as a job of its own.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use hyper::rt::{Sleep, Timer};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::exchange::{self, Link, Shared};
use super::refusal;
use super::socket::{Outbox, Socket};
use super::stall::{Answers, Watched};
use crate::clock::{Clock as _, SystemClock, while_dated};
use crate::jobs::{Alarm, Jobs, Seat, Workers};
use crate::protocol::McpService;
use crate::visitors::{Visitor, Visitors};
use crate::wakes::Sparing;

/// Runs what HTTP/2 spawns as jobs that have an owner.
#[derive(Clone, Debug)]
struct Spawner(Jobs);

/// Timers of HTTP/1: one for each request, that hardly ever goes off.
#[derive(Clone, Debug)]
struct Timers(Jobs);

/// One of them.
struct Timeout(Alarm);

/// How long a client may leave written bytes unread.
const WRITE_PATIENCE: Duration = Duration::from_mins(1);
/// How often HTTP/2 connections are looked at for answers that are not taken.
const LOOK: Duration = Duration::from_secs(10);
/// Connections over the limit that are told so at the same time; more wait to be accepted.
const REFUSED_AT_ONCE: usize = 32;
/// How long a connection over the limit is kept to be told so.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// How long nothing is accepted after the system had nothing left to accept with.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How much longer than the grace time the last connections may take to end.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// Why nothing is served for now.
const NO_DATE: &str = "the clock of this machine shows a time after 9999; set it";
/// Bytes of all headers of a request.
const HEADER_BYTES: u32 = 64 << 10;
/// Requests at the same time on one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 128;
/// How often an HTTP/2 client is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Serves until `connections` are told to stop, then ends what is open within `grace`.
pub(super) async fn serve<S: McpService + Sync>(
    shared: Arc<Shared<S>>,
    listener: TcpListener,
    connections: Jobs,
    (workers, grace): (Workers, Duration),
) -> io::Result<()> {
    let jobs = connections.clone();
    let limit = shared.limits.connections;
    let visitors = Visitors::new(limit);
    let refusals = Arc::new(Semaphore::new(REFUSED_AT_ONCE));
    let (refusal, no_date) = (refusal::too_many_connections(limit), refusal::no_date());
    loop {
        let accepted = tokio::select! {
            biased;
            () = jobs.stopping() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after(&error, &jobs).await;
                continue;
            }
        };
        let has_date = SystemClock.now().has_date();
        if has_date && let Some(visitor) = visitors.enter() {
            let serving =
                |stream| serve_connection(Arc::clone(&shared), (stream, peer), visitor, connections.clone(), grace);
            seated(stream, workers.seat(), &connections, serving);
            continue;
        }
        let place = tokio::select! {
            biased;
            () = jobs.stopping() => break,
            place = Arc::clone(&refusals).acquire_owned() => place,
        };
        if let Ok(place) = place {
            let response = if has_date {
                tracing::warn!(limit, "a connection was refused: limits.connections is reached");
                refusal.clone()
            } else {
                tracing::error!("a connection was refused: {NO_DATE}");
                no_date.clone()
            };
            connections.spawn("refusal", holding(place, refuse(stream, response)));
        }
    }
    drop(listener);
    if tokio::time::timeout(grace + LAST_MOMENT, connections.idle()).await.is_err() {
        tracing::warn!("some connections did not end within the grace time");
    }
    Ok(())
}

/// Has a new connection served, by a worker if there is one.
fn seated<F>(stream: TcpStream, seat: Option<Seat>, connections: &Jobs, serving: impl FnOnce(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(seat) = seat else {
        connections.spawn("connection", serving(stream));
        return;
    };
    // What wakes its job is to be there too.
    match stream.into_std().and_then(|stream| seat.enter(|| TcpStream::from_std(stream))) {
        Ok(stream) => _ = connections.spawn_at(seat, "connection", serving(stream)),
        Err(error) => tracing::warn!(%error, "a connection was cut: no thread could take it"),
    }
}

async fn holding(place: OwnedSemaphorePermit, job: impl Future<Output = ()>) {
    job.await;
    drop(place);
}

/// One client's broken connection is no reason to wait; lack of file descriptors or memory is.
async fn pause_after(error: &io::Error, jobs: &Jobs) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections at the moment");
    let _ = tokio::time::timeout(ACCEPT_PAUSE, jobs.stopping()).await;
}

async fn serve_connection<S: McpService + Sync>(
    shared: Arc<Shared<S>>,
    (stream, peer): (TcpStream, SocketAddr),
    visitor: Visitor,
    jobs: Jobs,
    grace: Duration,
) {
    // Small answers would wait for the acknowledgment of the one before.
    let _ = stream.set_nodelay(true);
    let local = stream.local_addr().map_or(IpAddr::from([0, 0, 0, 0]), |address| address.ip());
    let link = Arc::new(Link { peer: peer.ip(), local, outbox: Outbox::default() });
    let outbox = link.outbox.clone();
    let socket = Socket::new(stream, outbox.clone(), WRITE_PATIENCE);
    let read_timeout = shared.limits.read_timeout;
    let (visitor, has_asked) = (Arc::new(visitor), Arc::new(AtomicBool::new(false)));
    let (asking, asked) = (Arc::clone(&visitor), Arc::clone(&has_asked));
    let answers = Arc::new(Answers::default());
    let watch = Arc::clone(&answers);
    let service = service_fn(move |request: http::Request<_>| {
        asked.store(true, Ordering::Relaxed);
        let question = asking.asks();
        let (shared, link, watch) = (Arc::clone(&shared), Arc::clone(&link), Arc::clone(&watch));
        let is_http2 = request.version() == Version::HTTP_2;
        async move {
            let response = exchange::respond(&shared, &link, request).await;
            let watched = |body| if is_http2 { watch.watch(body) } else { Watched::plain(body) };
            Ok::<_, Infallible>(response.map(|body| watched(body).to(question)))
        }
    });
    let builder = builder(jobs.clone(), read_timeout);
    let mut connection = pin!(Sparing::new(builder.serve_connection(TokioIo::new(socket), service)));
    // Until the first bytes tell HTTP/1 from HTTP/2, no timeout of either is running.
    let mut first_request = pin!(tokio::time::sleep(read_timeout));
    let (mut waiting_for_first, mut is_leaving) = (true, false);
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            biased;
            ended = while_dated(&SystemClock, connection.as_mut()) => return log_end(ended),
            () = jobs.stopping() => break,
            // What is left of its last answer goes out first; the socket gives up on a client that does not read.
            () = visitor.leaves(), if !is_leaving && !outbox.is_stalled() => {
                tracing::debug!("an idle connection makes room for another");
                connection.as_mut().connection().graceful_shutdown();
                is_leaving = true;
            }
            () = visitor.stays_silent(LAST_MOMENT), if is_leaving => return,
            () = first_request.as_mut(), if waiting_for_first => {
                waiting_for_first = false;
                if !has_asked.load(Ordering::Relaxed) {
                    tracing::debug!("a client connected and asked nothing in time");
                    return;
                }
            }
            _ = look.tick() => if answers.is_stalled(WRITE_PATIENCE) {
                tracing::debug!("a client leaves its answers unread");
                return;
            }
        }
    }
    connection.as_mut().connection().graceful_shutdown();
    if let Ok(ended) = tokio::time::timeout(grace, while_dated(&SystemClock, connection)).await {
        log_end(ended);
    } else {
        tracing::info!("a connection was cut: its exchanges did not end within the grace time");
    }
}

fn builder(jobs: Jobs, read_timeout: Duration) -> Builder<Spawner> {
    let mut builder = Builder::new(Spawner(jobs.clone()));
    builder
        .http1()
        .timer(Timers(jobs))
        .header_read_timeout(read_timeout)
        .max_buf_size(HEADER_BYTES as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY);
    builder
}

fn log_end(ended: Option<Result<(), Box<dyn std::error::Error + Send + Sync>>>) {
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "a connection ended badly"),
        None => tracing::error!("a connection was cut: {NO_DATE}"),
    }
}

/// Tells a client that there are too many, without reading what it asks.
async fn refuse(mut stream: TcpStream, response: Bytes) {
    let telling = async {
        stream.write_all(&response).await?;
        stream.shutdown().await?;
        // What the client still sends is read, or the system would reset the connection under the answer.
        let mut sink = [0; 4096];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(REFUSAL_TIME, telling).await;
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, job: F) {
        self.0.spawn_at_home("http/2 stream", async {
            // The connection is cut too, and says so.
            let _ = while_dated(&SystemClock, job).await;
        });
    }
}

impl Timer for Timers {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Timeout(self.0.alarm(deadline.into())))
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

impl Sleep for Timeout {}

impl Future for Timeout {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context)
    }
}
