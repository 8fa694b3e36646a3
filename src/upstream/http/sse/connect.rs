//! Connecting over HTTP+SSE: the event stream, the address it names, and the handshake.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::Uri;
use http::header::HeaderMap;
use tokio::sync::Semaphore;

use super::super::answer::{Answer, Media, ReadLimits};
use super::super::connect::HttpConnect;
use super::super::delivery::REPEATS;
use super::super::endpoint::Endpoint;
use super::super::events::EventStream;
use super::super::failures;
use super::post::{Posts, ROOM};
use super::stream::{self, Events};
use crate::protocol::{Caller, Failure, Outcome, Reason};
use crate::upstream::sessions::{Connect, Distinction, Opening, OverConnection, Session};
use crate::upstream::stdio::connection::Connection;
use crate::upstream::stdio::initialize;
use crate::upstream::wire::ServerEra;
use crate::upstream::{Setup, outcome};

/// Opens connections.
#[derive(Debug)]
pub(super) struct SseConnect {
    setup: Setup,
    endpoint: Arc<Endpoint>,
    http: HttpConnect,
}

/// A connection after its handshake. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct SseSession {
    connection: Connection,
    forwarded: Arc<Mutex<HeaderMap>>,
    shared: bool,
    how: Arc<OnceLock<String>>,
}

/// A connection before its handshake is over. It must not be left behind if that fails, or is broken off.
struct Unfinished(Option<Connection>);

/// What is at an address.
#[derive(Debug)]
pub(in crate::upstream::http) enum Found {
    /// An event stream of HTTP+SSE, and where messages go.
    Stream(Box<EventStream>, Uri),
    /// Something else.
    Nothing(Nothing),
}

/// What there is where no event stream is.
#[derive(Debug)]
pub(in crate::upstream::http) struct Nothing {
    /// What a call that was for it gets.
    pub(in crate::upstream::http) failure: Failure,
    /// Why that is no event stream.
    pub(in crate::upstream::http) why: String,
}

/// How long a server may take to name the address for messages. Some send pings for ever and never do.
const NAMED: Duration = Duration::from_secs(5);

/// Bytes of an event up to the one that names the address. What comes later may be as long as any message.
const LONGEST: usize = 64 << 10;

/// Looks for an event stream of HTTP+SSE (2025-11-25, transports, backwards compatibility).
pub(in crate::upstream::http) async fn look(
    server: &str,
    endpoint: &Endpoint,
    forwarded: &HeaderMap,
    limits: ReadLimits,
) -> Found {
    let nothing = |why: &str| {
        let failure = outcome::not_started(server, why);
        Found::Nothing(Nothing { failure, why: why.to_owned() })
    };
    let response = match endpoint.send(|| endpoint.get(forwarded)).await {
        Ok(response) => response,
        Err(error) => return nothing(&format!("{error}: {}", error.why())),
    };
    let status = response.status();
    if !status.is_success() {
        let Ok(Answer::Refused(refusal)) = Answer::read(response, limits).await else {
            return nothing(&format!("it answered with status {status} where its event stream belongs"));
        };
        let how = format!("it answered with status {refusal} where its event stream belongs");
        return match failures::refused(server, ServerEra::Legacy, refusal) {
            Outcome::Failed(failure) if matches!(failure.reason, Reason::Unauthorized | Reason::NotStarted) => {
                Found::Nothing(Nothing { failure, why: how })
            }
            _ => nothing(&how),
        };
    }
    let media = Media::of(response.headers());
    if media != Media::Events {
        return nothing(&format!("it answered with {media} where its event stream belongs"));
    }
    let mut events = EventStream::new(response.into_body(), LONGEST);
    match tokio::time::timeout(NAMED, stream::endpoint(&mut events, &endpoint.uri())).await {
        Ok(Ok(uri)) => {
            events.set_limit(limits.message);
            Found::Stream(Box::new(events), uri)
        }
        Ok(Err(error)) => nothing(&error.to_string()),
        Err(_) => nothing(&format!("its event stream named no endpoint within {} ms", NAMED.as_millis())),
    }
}

impl SseConnect {
    /// Nothing is connected yet.
    pub(super) fn new(setup: &Setup, endpoint: Arc<Endpoint>, http: HttpConnect) -> Self {
        Self { setup: setup.clone(), endpoint, http }
    }

    async fn open(&self, opening: &Opening) -> Result<SseSession, Failure> {
        let forwarded = self.endpoint.forwarded(&opening.caller.credentials);
        let limits = self.http.limits();
        let name = &self.setup.config.name;
        let (events, uri) = match look(name, &self.endpoint, &forwarded, limits).await {
            Found::Stream(events, uri) => (*events, uri),
            Found::Nothing(Nothing { failure, .. }) => {
                // What was found there once may be gone.
                self.http.forget_sse();
                return Err(failure);
            }
        };
        let shared = self.setup.config.share && opening.attached().is_none();
        let forwarded = Arc::new(Mutex::new(if shared { HeaderMap::new() } else { forwarded }));
        let posts = Posts {
            endpoint: Arc::clone(&self.endpoint),
            uri,
            forwarded: Arc::clone(&forwarded),
            server: name.as_str().into(),
            limits,
            jobs: self.setup.jobs.clone(),
            room: Arc::new(Semaphore::new(ROOM)),
            notes: Arc::new(Semaphore::new(ROOM)),
            repeats: Arc::new(Semaphore::new(REPEATS)),
        };
        let events = Events::new(events, limits.depth);
        let how = events.how();
        let connection = Connection::between(&self.setup, opening.hearer.clone(), events, posts);
        let session = SseSession { connection, forwarded, shared, how };
        self.setup.jobs.spawn("event stream", session.clone().watch());
        let unfinished = Unfinished(Some(session.connection.clone()));
        let shaken = initialize(&session.connection, &self.setup.config, opening).await;
        let info = shaken.map_err(|error| outcome::not_started(name, &error.to_string()))?;
        self.setup.last_seen.set(info);
        unfinished.finish();
        Ok(session)
    }
}

impl Connect for SseConnect {
    type Session = SseSession;

    async fn connect(&self, opening: &Opening) -> Result<SseSession, Failure> {
        let opened = tokio::time::timeout(self.setup.config.connect_timeout, self.open(opening)).await;
        let late = || outcome::not_started(&self.setup.config.name, "it did not shake hands within connect_timeout");
        opened.unwrap_or_else(|_| Err(late()))
    }

    fn distinction(&self, caller: &Caller) -> Distinction {
        self.http.distinction(caller)
    }
}

impl SseSession {
    /// The headers of its principal as a call has them now.
    pub(super) fn renew(&self, forwarded: &HeaderMap) {
        let mut newest = self.forwarded.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.shared && *newest != *forwarded {
            newest.clone_from(forwarded);
        }
    }

    /// Ends the calls when the stream has ended: what comes next is another session.
    async fn watch(self) {
        self.connection.read_to_end().await;
        self.end();
    }

    fn end(&self) {
        self.connection.end(self.how.get().map_or("the connection to the server is being closed", String::as_str));
    }
}

impl Unfinished {
    fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.end("the handshake was not finished");
        }
    }
}

impl Session for SseSession {
    fn is_over(&self) -> bool {
        self.connection.is_over()
    }

    async fn over(&self) {
        self.connection.over().await;
    }

    async fn close(&self) {
        self.end();
    }
}

impl OverConnection for SseSession {
    fn connection(&self) -> &Connection {
        &self.connection
    }
}
