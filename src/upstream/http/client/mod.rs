//! Pooled connections to one server, plain or with TLS, HTTP/1.1 or HTTP/2, and what a failure to send
//! proves.

mod body;
mod direct;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::rt::Executor;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::TokioTimer;
use tower_service::Service;

pub(super) use self::body::{RopeBody, ServerBody};
use self::direct::Direct;
use crate::jobs::Jobs;
use crate::wakes::SparingExecutor;

/// Sends requests to one server. Clones share the connections.
#[derive(Clone)]
pub(super) struct HttpClient(Wire);

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct SendError {
    /// What it proves.
    pub(super) taken: Taken,
    /// Where the server should be, for a person. No secrets.
    at: String,
    source: BoxError,
}

/// Whether the server can have seen a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// No: there was no connection.
    Never,
    /// No: it went to a connection that was closing, or the server refused the stream before it looked at it.
    GivenBack,
    /// Nobody knows.
    Unknown,
}

/// Why no client can be built.
#[derive(Debug)]
pub(super) struct NoClient(io::Error);

#[derive(Clone)]
enum Wire {
    Plain(Arc<Direct>),
    Tls(Box<Client<Bounded<HttpsConnector<HttpConnector>>, RopeBody>>),
    /// HTTP/2 without TLS, which no server of the field speaks.
    #[cfg(test)]
    Http2(Box<Client<Bounded<HttpConnector>, RopeBody>>),
}

/// A connector that takes no longer than this, TLS handshake included.
#[derive(Clone)]
struct Bounded<C>(C, Duration);

/// Runs what a pool of connections spawns as jobs that have an owner. They end with their connections.
#[derive(Clone)]
struct Spawner(Jobs);

type BoxError = Box<dyn StdError + Send + Sync>;

/// How long an unused connection is kept. Node and uvicorn close theirs after 5 s, and a request that meets
/// the close is lost with nobody to say whether it was taken.
const IDLE: Duration = Duration::from_secs(4);

/// How long a silent peer may be before it is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

impl HttpClient {
    /// A client for servers at `https` or `http` addresses. No connection may take longer than `connect` to make.
    pub(super) fn new(https: bool, connect: Duration) -> Result<Self, NoClient> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEP_ALIVE));
        http.set_keepalive_interval(Some(KEEP_ALIVE / 3));
        http.set_keepalive_retries(Some(3));
        http.enforce_http(false);
        if !https {
            return Ok(Self(Wire::Plain(Arc::new(Direct::new(Bounded(http, connect), IDLE)))));
        }
        let tls = hyper_rustls::HttpsConnectorBuilder::new().with_native_roots().map_err(NoClient)?;
        let tls = tls.https_or_http().enable_all_versions().wrap_connector(http);
        Ok(Self(Wire::Tls(Box::new(builder().build(Bounded(tls, connect))))))
    }

    /// A client that speaks HTTP/2 without TLS.
    #[cfg(test)]
    pub(super) fn http2_only(connect: Duration) -> Self {
        let connector = Bounded(HttpConnector::new(), connect);
        Self(Wire::Http2(Box::new(builder().http2_only(true).build(connector))))
    }

    /// Whether a connection gets on only while whoever sent the request waits for the answer, and ends when nobody does.
    pub(super) fn is_driven_by_callers(&self) -> bool {
        matches!(self.0, Wire::Plain(_))
    }

    /// Sends a request. A request that met the close of a kept connection before a byte of it went out is
    /// sent on another connection.
    pub(super) async fn send(&self, request: Request<RopeBody>) -> Result<Response<ServerBody>, SendError> {
        let response = match &self.0 {
            Wire::Plain(direct) => return direct.send(request).await,
            Wire::Tls(client) => client.request(request),
            #[cfg(test)]
            Wire::Http2(client) => client.request(request),
        };
        response.await.map(ServerBody::pooled).map_err(SendError::of_pool)
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Wire::Plain(_) => "HttpClient(plain)",
            Wire::Tls(_) => "HttpClient(tls)",
            #[cfg(test)]
            Wire::Http2(_) => "HttpClient(HTTP/2)",
        })
    }
}

fn builder() -> Builder {
    let mut builder = Client::builder(SparingExecutor(Spawner(Jobs::new())));
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE / 3)
        .http2_adaptive_window(true);
    builder
}

impl<F> Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, job: F) {
        self.0.spawn("connection to a server", job);
    }
}

impl<C> Service<Uri> for Bounded<C>
where
    C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = tokio::time::timeout(self.1, self.0.call(uri));
        Box::pin(async move { connected.await?.map_err(Into::into) })
    }
}

impl SendError {
    fn new(taken: Taken, source: BoxError) -> Self {
        Self { taken, at: "the server".to_owned(), source }
    }

    fn no_connection(source: BoxError) -> Self {
        Self::new(Taken::Never, source)
    }

    /// Why a connection has no answer; `is_unsent` if it gave the request back.
    fn of_exchange(source: hyper::Error, is_unsent: bool) -> Self {
        let taken = if is_unsent || given_back(&source) { Taken::GivenBack } else { Taken::Unknown };
        Self::new(taken, source.into())
    }

    fn of_pool(source: hyper_util::client::legacy::Error) -> Self {
        let taken = if source.is_connect() {
            Taken::Never
        } else if causes(&source).any(given_back) {
            Taken::GivenBack
        } else {
            Taken::Unknown
        };
        Self::new(taken, source.into())
    }

    /// With where the server should be.
    #[must_use]
    pub(super) fn at(self, at: String) -> Self {
        Self { at, ..self }
    }

    /// The innermost cause, for a person.
    pub(super) fn why(&self) -> String {
        let why = why(&*self.source);
        // What rustls says of a server that answers in plain HTTP.
        let is_plain = self.taken == Taken::Never && format!("{:?}", self.source).contains("InvalidContentType");
        if is_plain { format!("it speaks no TLS there; is it http:// in place of https://? ({why})") } else { why }
    }
}

/// Whether a cause proves that the server took nothing: hyper gave the request back unsent, or the
/// server refused the stream, or said goodbye to streams from before this one (RFC 9113, 8.7 and 6.8).
fn given_back(cause: &(dyn StdError + 'static)) -> bool {
    let unsent = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
    let refused = cause.downcast_ref::<h2::Error>().is_some_and(|error| {
        // The server's goodbye is the error of the streams only that are behind the last one it names.
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    });
    unsent || refused
}

/// The innermost cause of an error of the connection, for a person.
pub(super) fn why(error: &(dyn StdError + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.taken {
            Taken::Never => write!(f, "there is no connection to {}", self.at),
            Taken::GivenBack => write!(f, "{} did not look at the request", self.at),
            Taken::Unknown => write!(f, "the connection to {} was lost before the answer", self.at),
        }
    }
}

impl StdError for SendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl fmt::Display for NoClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system's root certificates cannot be read")
    }
}

impl StdError for NoClient {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What is known of a request on stream 1 whose server says goodbye, names that stream as its last, and is gone.
    async fn after_a_goodbye(last: u8) -> Taken {
        const HEADERS: u8 = 1;
        const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&SETTINGS).await.unwrap();
            stream.read_exact(&mut [0; 24]).await.unwrap();
            loop {
                let mut head = [0; 9];
                stream.read_exact(&mut head).await.unwrap();
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
                if head[3] == HEADERS {
                    break;
                }
            }
            let goodbye = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0];
            stream.write_all(&goodbye).await.unwrap();
            stream.shutdown().await.unwrap();
            while stream.read(&mut [0; 64]).await.is_ok_and(|length| length > 0) {}
        };
        let client = HttpClient::http2_only(Duration::from_secs(5));
        let request = Request::post(uri).body(RopeBody::empty()).unwrap();
        let both = async { tokio::join!(client.send(request), server) };
        let (sent, ()) = tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
        sent.unwrap_err().taken
    }

    #[tokio::test]
    async fn a_goodbye_gives_back_the_streams_that_it_leaves_out_and_no_others() {
        assert_eq!(after_a_goodbye(0).await, Taken::GivenBack);
        assert_eq!(after_a_goodbye(1).await, Taken::Unknown);
    }

    #[tokio::test]
    async fn a_server_without_tls_behind_an_https_url_is_told_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("https://{}/mcp", listener.local_addr().unwrap());
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await.unwrap();
            while stream.read(&mut [0; 64]).await.is_ok_and(|length| length > 0) {}
        };
        let client = HttpClient::new(true, Duration::from_secs(5)).unwrap();
        let request = Request::post(uri).body(RopeBody::empty()).unwrap();
        let both = async { tokio::join!(client.send(request), server) };
        let (sent, ()) = tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
        let error = sent.unwrap_err();
        assert_eq!(error.taken, Taken::Never);
        assert!(error.why().starts_with("it speaks no TLS there; is it http:// in place of"), "{}", error.why());
    }
}
