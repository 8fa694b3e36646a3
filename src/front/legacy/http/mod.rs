//! Legacy clients over Streamable HTTP (2025-03-26 to 2025-11-25, transports): POST, GET, DELETE, sessions, resumption.

mod channel;
mod events;
mod kept;
mod pump;
mod session;
mod sessions;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use self::channel::{Channel, Event, Reader, Return};
use self::events::{Beginning, EventId};
use self::pump::{PostStream, Reach};
use self::session::HttpSession;
use self::sessions::{Sessions, Whose};
use super::{Calls, NotOpened, Opened, Outflow, Outgoing, QuestionIds, Revision, SameId, Seed, Taken};
use crate::config::{Limits, Listen};
use crate::front::batch::{self, Element};
use crate::front::body::Body;
use crate::front::media::{self, Accepts};
use crate::front::refusal::{self, Refusal};
use crate::front::sse;
use crate::jobs::Jobs;
use crate::protocol::error::code;
use crate::protocol::headers::single;
use crate::protocol::{
    Challenge, Credentials, Failure, Message, Method, Params, Principal, Reason, RequestId, Retry, Rope, headers,
};
use crate::protocol::{Json, RpcError};
use crate::share::Places;

pub(in crate::front) use events::EventStream;

/// All that legacy clients need of the front.
pub(in crate::front) struct Legacy {
    mounts: Vec<(String, Calls)>,
    sessions: Sessions,
    numbers: AtomicU64,
    jobs: Jobs,
    keep_alive: Duration,
    session_idle: Duration,
    calls: Places,
    streams: Places,
}

/// Who sends a request, to which server, and with which headers.
pub(in crate::front) struct Sender<'a> {
    /// The name of the server.
    pub(in crate::front) server: &'a str,
    /// Who sends it.
    pub(in crate::front) principal: Principal,
    /// All its headers.
    pub(in crate::front) headers: &'a HeaderMap,
    /// What it takes for an answer.
    pub(in crate::front) accepts: Accepts,
}

/// The requests of one POST.
enum Asked {
    One(Box<Outflow>),
    /// A batch, and the answers to what was none of its messages.
    Batch(Vec<Outflow>, Vec<Rope>),
}

/// How long an answer may take before a stream is opened for it, as for modern clients.
const QUICK: Duration = Duration::from_millis(150);

impl Legacy {
    /// Sessions with these servers. `calls` and `streams` are the places for each that all clients share.
    pub(in crate::front) fn new(
        mounts: Vec<(String, Calls)>,
        listen: &Listen,
        limits: &Limits,
        calls: Places,
        streams: Places,
        jobs: Jobs,
    ) -> Self {
        Self {
            mounts,
            sessions: Sessions::new(limits.sessions),
            numbers: AtomicU64::new(1),
            jobs,
            keep_alive: listen.keep_alive,
            session_idle: listen.session_idle,
            calls,
            streams,
        }
    }

    /// Answers the POST of one message.
    pub(in crate::front) async fn post(
        &self,
        sender: &Sender<'_>,
        message: Message,
        credentials: Credentials,
    ) -> Result<Response<Body>, Refusal> {
        match message {
            Message::Request { id, method, params } if method == "initialize" => {
                self.initialize(sender, &id, params, credentials).await.map_err(|refusal| refusal.to(Some(&id)))
            }
            message => {
                let id = if let Message::Request { id, .. } = &message { Some(id.clone()) } else { None };
                let session = self.session(sender).map_err(|refusal| refusal.to(id.as_ref()))?;
                match session.session.take(message, credentials) {
                    Taken::Runs(outflow) => self.run(sender, &session, Asked::One(outflow)).await,
                    taken => self.hand_over(taken).await.map(|()| empty(StatusCode::ACCEPTED)),
                }
            }
        }
    }

    /// Answers the POST of a batch.
    pub(in crate::front) async fn post_batch(
        &self,
        sender: &Sender<'_>,
        elements: Vec<Element>,
        credentials: Credentials,
    ) -> Result<Response<Body>, Refusal> {
        let session = self.session(sender)?;
        let revision = session.session.revision();
        if !revision.has_batches() {
            return Err(bad(&format!("batches are not part of revision {revision}; send each message alone")));
        }
        let usage = session.enter();
        let (mut outflows, mut answers) = (Vec::new(), Vec::new());
        let (mut was_taken, mut refused) = (false, None);
        for element in elements {
            let message = match element {
                Element::Message(message) => message,
                Element::Refused(answer) => {
                    answers.push(answer);
                    continue;
                }
                Element::Broken(message, answer) => {
                    answers.push(answer);
                    message
                }
            };
            match session.session.take(message, credentials.clone()) {
                Taken::Runs(outflow) => outflows.push(*outflow),
                // An answer to no question, and a notification that makes no sense, want no answer: the others are good.
                Taken::Refused(error) => {
                    tracing::debug!(%error, "a message of a batch was ignored");
                    refused = refused.or(Some(error));
                }
                taken => {
                    was_taken = true;
                    self.hand_over(taken).await?;
                }
            }
        }
        drop(usage);
        if !outflows.is_empty() {
            return self.run(sender, &session, Asked::Batch(outflows, answers)).await;
        }
        match refused.filter(|_| !was_taken) {
            _ if !answers.is_empty() => {
                let mut response = json(batch::answers(answers));
                if !was_taken {
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                }
                Ok(response)
            }
            Some(error) => Err(Refusal::rpc(StatusCode::BAD_REQUEST, error)),
            None => Ok(empty(StatusCode::ACCEPTED)),
        }
    }

    /// Answers a GET: a stream of what belongs to no request, or the rest of a stream that broke.
    pub(in crate::front) fn get(&self, sender: &Sender<'_>) -> Result<Response<Body>, Refusal> {
        let session = self.session(sender)?;
        if sender.accepts == Accepts::Json {
            return Err(Refusal::http(StatusCode::NOT_ACCEPTABLE, "GET is answered by text/event-stream only"));
        }
        let place = self.streams.take(&sender.principal).map_err(|why| {
            let limits = format!("limits.streams = {}", self.streams.most());
            let failure = refusal::crowded(why, "open streams", &limits);
            Refusal::rpc(StatusCode::SERVICE_UNAVAILABLE, RpcError::from(&failure))
        })?;
        let is_primed = session.session.revision().is_primed();
        let (reader, beginning) = if let Some(last) = text(sender.headers, &headers::LAST_EVENT_ID)? {
            (come_back(&session, last)?, Beginning::Comment)
        } else {
            let id = EventId { stream: 0, place: session.own.last_read() };
            (reader(session.own.read())?, if is_primed { Beginning::Priming(id) } else { Beginning::Comment })
        };
        let stream = EventStream::new(reader, beginning, None, self.keep_alive, session.enter(), Some(place));
        Ok(sse::response(Body::Legacy(Box::new(stream))))
    }

    /// Answers a DELETE: the session ends, with all that runs in it.
    pub(in crate::front) fn delete(&self, sender: &Sender<'_>) -> Result<Response<Body>, Refusal> {
        let session = self.session(sender)?;
        self.sessions.remove(&session);
        session.closing.cancel();
        Ok(empty(StatusCode::OK))
    }

    async fn initialize(
        &self,
        sender: &Sender<'_>,
        id: &RequestId,
        params: Option<Json>,
        credentials: Credentials,
    ) -> Result<Response<Body>, Refusal> {
        if sender.headers.contains_key(headers::SESSION_ID) {
            self.session(sender)?;
            return Err(bad("this session is initialized already; a new one begins without Mcp-Session-Id"));
        }
        if self.jobs.is_stopping() {
            let retry = Retry::SOON;
            let failure = Failure::new(Reason::Stopping, "the proxy is stopping; nothing was run", retry);
            return Err(Refusal::failed(&failure));
        }
        let bad_params = |error| Refusal::rpc(StatusCode::BAD_REQUEST, error);
        let params = Params::read(&Method::Attach, params).map_err(bad_params)?;
        let place = self.sessions.place(&sender.principal).await.map_err(|why| {
            let limits = format!("limits.sessions = {}", self.sessions.limit());
            Refusal::failed(&refusal::crowded(why, "sessions", &limits))
        })?;
        let calls = self.mounts.iter().find(|(name, _)| name == sender.server).map(|(_, calls)| Arc::clone(calls));
        let Some(calls) = calls else { return Err(Refusal::http(StatusCode::NOT_FOUND, "there is no such server")) };
        let seed = Seed {
            calls,
            server: sender.server.to_owned(),
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            principal: sender.principal.clone(),
            same_id: SameId::Runs,
            question_ids: QuestionIds::default(),
            places: self.calls.clone(),
        };
        let mut opened = super::open(seed.clone(), id, params.clone(), credentials.clone()).await;
        // The server may have fewer places than we, all taken by clients that left without a word.
        if opened.as_ref().is_err_and(|refused| refused.reason == Some(Reason::Busy))
            && self.sessions.make_room(Some(sender.server), &sender.principal, Whose::Any).is_some()
        {
            opened = super::open(seed, id, params, credentials).await;
        }
        let Opened { session, own, answer } = match opened {
            Ok(opened) => opened,
            Err(NotOpened { answer, challenge: None, .. }) => return Ok(whole(sender.accepts, answer)),
            Err(NotOpened { answer, challenge: Some(challenge), .. }) => return Ok(challenged(answer, &challenge)),
        };
        let session = self.sessions.insert(sender.server, session);
        let mut response = whole(sender.accepts, answer);
        if let Ok(id) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(headers::SESSION_ID, id);
        }
        let (sessions, jobs) = (self.sessions.clone(), self.jobs.clone());
        self.jobs.spawn("legacy session", pump::session(own, session, sessions, jobs, self.session_idle, place));
        Ok(response)
    }

    /// The session that the headers name: 400 if they name none or a revision that is not spoken, 404 if it is not there.
    fn session(&self, sender: &Sender<'_>) -> Result<Arc<HttpSession>, Refusal> {
        let Some(id) = text(sender.headers, &headers::SESSION_ID)? else {
            return Err(bad("the header Mcp-Session-Id is missing; `initialize` begins a session"));
        };
        let Some(session) = self.sessions.find(id, sender.server, &sender.principal) else {
            let message = "Session not found: it has ended or never was; begin a new one with `initialize`";
            return Err(Refusal::http(StatusCode::NOT_FOUND, message));
        };
        // Absent, the version is the one that was negotiated (2025-11-25, protocol version header).
        if let Some(version) = text(sender.headers, &headers::PROTOCOL_VERSION)?
            && Revision::of(version).is_none()
        {
            let version: String = version.chars().take(64).collect();
            let spoken = session.session.revision();
            let version = version.escape_debug();
            return Err(bad(&format!("unsupported MCP-Protocol-Version \"{version}\"; this session speaks {spoken}")));
        }
        Ok(session)
    }

    /// Passes on what wants no answer. It reaches the server even if the client leaves.
    async fn hand_over(&self, taken: Taken) -> Result<(), Refusal> {
        match taken {
            Taken::Passes(passing) => {
                let _ = self.jobs.spawn("legacy notification", passing).await;
                Ok(())
            }
            Taken::Refused(error) => Err(Refusal::rpc(StatusCode::BAD_REQUEST, error)),
            Taken::Done | Taken::Runs(_) => Ok(()),
        }
    }

    /// Runs requests. They are answered by JSON where that is all that the client takes. A stream that can be come back to
    /// from its first event on carries even a quick answer, so that a break does not lose it; where it cannot, that is JSON.
    /// A server that wants other credentials says so by the status, for which the stream waits a moment.
    async fn run(
        &self,
        sender: &Sender<'_>,
        session: &Arc<HttpSession>,
        asked: Asked,
    ) -> Result<Response<Body>, Refusal> {
        let (outflows, refused, is_batch) = match asked {
            Asked::One(outflow) => (vec![*outflow], Vec::new(), false),
            Asked::Batch(outflows, refused) => (outflows, refused, true),
        };
        let channel = session.open_stream();
        let mut reader = reader(channel.read())?;
        for answer in refused {
            channel.push(Outgoing::Answer(answer));
        }
        let takes_events = sender.accepts.takes_events();
        let reach = match (takes_events, session.session.revision().is_primed()) {
            (false, _) => Reach::Answer,
            (true, false) => Reach::Stream,
            (true, true) => Reach::Resumable,
        };
        let stream = PostStream::new(Arc::clone(&channel), session.enter(), outflows.len());
        self.jobs.spawn("legacy call", pump::calls(outflows, stream, reach));
        if !takes_events {
            return Ok(answers(&mut reader, is_batch).await);
        }
        let is_primed = session.session.revision().is_primed();
        let first = match tokio::time::timeout(QUICK, reader.next()).await {
            Ok(Some(Event { text, challenge: Some(challenge), .. })) if !is_batch => {
                return Ok(challenged(text, &challenge));
            }
            Ok(Some(Event { text, is_answer: true, .. })) if !is_batch && !is_primed => {
                return Ok(whole(sender.accepts, text));
            }
            Ok(None) if !is_primed => return Ok(empty(StatusCode::ACCEPTED)),
            // A stream that the server drops at once is one to come back to.
            Ok(first) => first,
            Err(_) => None,
        };
        let id = EventId { stream: channel.number(), place: 0 };
        let beginning = if is_primed { Beginning::Priming(id) } else { Beginning::Comment };
        session.announce(&channel);
        let stream = EventStream::new(reader, beginning, first, self.keep_alive, session.enter(), None);
        Ok(sse::response(Body::Legacy(Box::new(stream))))
    }
}

/// The answers on a stream, as JSON: all of a batch in one array. A request that was cancelled has none.
async fn answers(reader: &mut Reader, is_batch: bool) -> Response<Body> {
    let mut texts = Vec::new();
    while let Some(event) = reader.next().await {
        match event.challenge {
            Some(challenge) if !is_batch => return challenged(event.text, &challenge),
            _ if event.is_answer => texts.push(event.text),
            _ => {}
        }
    }
    if !is_batch {
        return texts.pop().map_or_else(|| empty(StatusCode::ACCEPTED), json);
    }
    json(batch::answers(texts))
}

/// The stream that `last` is of, from the event after it on.
fn come_back(session: &HttpSession, last: &str) -> Result<Reader, Refusal> {
    let Some(id) = EventId::read(last) else { return Err(bad("Last-Event-ID names no event of this session")) };
    let gone = || bad("Last-Event-ID names an event whose stream was not kept for so long");
    let channel: Arc<Channel> = session.stream(id.stream).ok_or_else(gone)?;
    match channel.can_return(id.place) {
        Return::Possible => reader(channel.read_from(id.place + 1)),
        // Whoever is told that there is no stream does not come back again and again.
        Return::Over => {
            Err(Refusal::http(StatusCode::METHOD_NOT_ALLOWED, "this stream has ended; nothing is left of it"))
        }
        Return::Gone => Err(gone()),
    }
}

fn reader(reader: Option<Reader>) -> Result<Reader, Refusal> {
    reader.ok_or_else(|| Refusal::http(StatusCode::CONFLICT, "too many connections carry this stream already"))
}

fn bad(message: &str) -> Refusal {
    Refusal::rpc(StatusCode::BAD_REQUEST, RpcError::new(code::INVALID_REQUEST, format!("Bad request: {message}")))
}

/// The value of a header that may be there once.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let value = single(headers, name).map_err(|_| bad(&format!("the header {name} appears more than once")))?;
    let text = value.map(http::HeaderValue::to_str).transpose();
    let text = text.map_err(|_| bad(&format!("the header {name} is not plain text")))?;
    Ok(text.map(str::trim))
}

/// One message, in the type that the client takes.
fn whole(accepts: Accepts, message: Rope) -> Response<Body> {
    if accepts.takes_json() { json(message) } else { sse::response(Body::text(sse::event(message))) }
}

fn json(text: Rope) -> Response<Body> {
    let mut response = Response::new(Body::text(text));
    response.headers_mut().insert(CONTENT_TYPE, media::JSON);
    response
}

/// An answer that says by its status and `WWW-Authenticate` what the server wants.
fn challenged(answer: Rope, challenge: &Challenge) -> Response<Body> {
    let mut response = json(answer);
    *response.status_mut() = challenge.status;
    for wanted in &challenge.wanted {
        response.headers_mut().append(WWW_AUTHENTICATE, wanted.clone());
    }
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

impl fmt::Debug for Legacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Legacy").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}
