//! Getting to know a server over HTTP: which kind of revision it speaks, and the handshake of the legacy ones.

mod look;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::answer::{self, Answer, ReadLimits, Refusal};
use super::client::{ServerBody, Taken};
use super::endpoint::{self, EVENTS_FIRST, Endpoint, JSON_FIRST};
use super::events::{EventStream, Item};
use super::failures;
use super::ids::{self, Named};
use super::listen;
use super::param_headers::ToolHeaders;
use super::session::{HttpSession, OwnHeaders, Parts};
use super::sse::{self, Found, Nothing};
use crate::config::{Transport, UpstreamEra};
use crate::protocol::headers::SESSION_ID;
use crate::protocol::message::MessageError;
use crate::protocol::{Caller, Failure, Message, Method, Outcome, Principal, Reason, Rope, hops};
use crate::upstream::handshake::{self, ServerInfo};
use crate::upstream::questions::Floor;
use crate::upstream::sessions::{Connect, Distinction, Opening};
use crate::upstream::wire::ServerEra;
use crate::upstream::{Setup, outcome};

pub(super) use self::look::look;

/// Connects to one server. Clones share what is known of it.
#[derive(Clone, Debug)]
pub(super) struct HttpConnect(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: String,
    endpoint: Arc<Endpoint>,
    limits: ReadLimits,
    patience: Duration,
    tried: UpstreamEra,
    setup: Setup,
    tools: ToolHeaders,
    known: Mutex<Option<ServerEra>>,
    /// It speaks HTTP+SSE of 2024-11-05.
    sse: AtomicBool,
    /// The config says so.
    sse_only: bool,
}

/// How `server/discover` was taken.
#[derive(Debug)]
enum Probe {
    Modern(Box<ServerInfo>),
    /// Whatever is no answer of a modern server means that it is none.
    Legacy,
    /// The server could not be asked, or does not talk to us.
    Failed(Failure),
}

/// A handshake's answer, with the headers of its response.
struct Shaken {
    outcome: Outcome,
    headers: HeaderMap,
}

/// How long a server may take to answer `server/discover`. Legacy servers exist that never do (field case 52).
const PROBE: Duration = Duration::from_secs(2);

/// The id of the handshake's request.
const HANDSHAKE_ID: u64 = 1;

impl HttpConnect {
    /// Nothing is known of the server yet.
    pub(super) fn new(setup: &Setup, endpoint: Arc<Endpoint>) -> Self {
        let config = &setup.config;
        let known = (config.era == UpstreamEra::Modern).then_some(ServerEra::Modern);
        let sse_only = matches!(config.transport, Transport::Sse { .. });
        Self(Arc::new(Inner {
            server: config.name.clone(),
            endpoint,
            limits: ReadLimits { message: setup.limits.message, depth: setup.limits.depth },
            patience: config.connect_timeout,
            tried: config.era,
            setup: setup.clone(),
            tools: ToolHeaders::new(config.share),
            known: Mutex::new(known),
            sse: AtomicBool::new(sse_only),
            sse_only,
        }))
    }

    /// The server.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// How much is read of what it sends.
    pub(super) fn limits(&self) -> ReadLimits {
        self.0.limits
    }

    /// Which arguments it wants in headers.
    pub(super) fn tools(&self) -> &ToolHeaders {
        &self.0.tools
    }

    /// Which kind of revision the server speaks, if that is known.
    pub(super) fn known(&self) -> Option<ServerEra> {
        *self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server does not speak what it spoke before.
    pub(super) fn forget(&self) {
        if self.0.tried != UpstreamEra::Modern {
            *self.0.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Whether the server speaks HTTP+SSE.
    pub(super) fn is_sse(&self) -> bool {
        self.0.sse.load(Ordering::Acquire)
    }

    /// The server has no event stream any more. What the config says stands.
    pub(super) fn forget_sse(&self) {
        self.0.sse.store(self.0.sse_only, Ordering::Release);
    }

    /// Asks a modern server what it is, for those who ask us.
    pub(super) async fn discover(&self, caller: &Caller) {
        let forwarded = self.0.endpoint.forwarded(&caller.credentials);
        if let Probe::Modern(info) = self.probe(&forwarded, self.0.patience).await {
            self.0.setup.last_seen.set(*info);
        }
    }

    fn is(&self, era: ServerEra) {
        *self.0.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(era);
    }

    async fn open(&self, opening: &Opening) -> Result<HttpSession, Failure> {
        let forwarded = self.0.endpoint.forwarded(&opening.caller.credentials);
        if self.0.tried == UpstreamEra::Auto && self.known().is_none() {
            match self.probe(&forwarded, PROBE).await {
                Probe::Modern(info) => return Err(self.modern(*info)),
                Probe::Failed(failure) => return Err(failure),
                Probe::Legacy => {}
            }
        }
        let mut accept = JSON_FIRST;
        let mut shaken = self.initialize(&forwarded, accept.clone(), opening).await;
        if matches!(&shaken, Err(Refused::By(refusal)) if refusal.status == StatusCode::NOT_ACCEPTABLE) {
            accept = EVENTS_FIRST;
            shaken = self.initialize(&forwarded, accept.clone(), opening).await;
        }
        let shaken = match shaken {
            Ok(shaken) => shaken,
            Err(Refused::Unreachable(failure) | Refused::NoAnswer(failure)) => return Err(failure),
            Err(Refused::By(refusal)) => {
                if may_be_sse(&refusal) {
                    return Err(match sse::look(&self.0.server, &self.0.endpoint, &forwarded, self.0.limits).await {
                        Found::Stream(..) => self.found_sse(),
                        Found::Nothing(nothing) => self.of_no_kind(&refusal, nothing),
                    });
                }
                self.refused(refusal)?
            }
        };
        if let Outcome::Error(error) = &shaken.outcome
            && may_be_modern(error.code())
            && let Probe::Modern(info) = self.probe(&forwarded, PROBE).await
        {
            return Err(self.modern(*info));
        }
        let info = ServerInfo::of_initialize(shaken.outcome)
            .map_err(|error| outcome::not_started(&self.0.server, &error.to_string()))?;
        let version = HeaderValue::from_str(&info.protocol_version)
            .map_err(|_| outcome::not_started(&self.0.server, "its revision is no header value"))?;
        let shared = self.0.setup.config.share && opening.attached().is_none();
        let session = HttpSession::new(Parts {
            endpoint: Arc::clone(&self.0.endpoint),
            limits: self.0.limits,
            id: shaken.headers.get(SESSION_ID).cloned(),
            version,
            accept,
            forwarded: if shared { OwnHeaders::None } else { OwnHeaders::Newest(Mutex::new(forwarded.clone())) },
            floor: Floor::new(&self.0.setup, opening.hearer.clone()),
            jobs: self.0.setup.jobs.clone(),
        });
        session.floor().opened(&info);
        // Nothing else may be sent before this is acknowledged: servers refuse or crash (field case 15).
        session.tell(&forwarded, handshake::initialized()).await;
        self.is(ServerEra::Legacy);
        self.0.setup.last_seen.set(info);
        self.0.setup.jobs.spawn("listen stream", listen::listen(session.clone()));
        Ok(session)
    }

    /// Notes that the server is modern. The failure is for callers who asked for a session; they look again.
    fn modern(&self, info: ServerInfo) -> Failure {
        self.0.setup.last_seen.set(info);
        self.is(ServerEra::Modern);
        outcome::not_started(&self.0.server, "it speaks 2026-07-28, which has no sessions")
    }

    /// Notes that the server speaks HTTP+SSE. The failure is for callers who asked for a session; they look again.
    fn found_sse(&self) -> Failure {
        tracing::info!(server = %self.0.server, "the server speaks HTTP+SSE of 2024-11-05");
        self.0.sse.store(true, Ordering::Release);
        outcome::not_started(&self.0.server, "it speaks HTTP+SSE of 2024-11-05")
    }

    /// The server speaks neither Streamable HTTP nor HTTP+SSE, as far as can be told.
    fn of_no_kind(&self, refusal: &Refusal, nothing: Nothing) -> Failure {
        if nothing.failure.reason == Reason::Unauthorized {
            return nothing.failure;
        }
        let url = self.0.endpoint.shown();
        let said = refusal.error.as_ref().map(|(_, error)| format!(": {error}")).unwrap_or_default();
        let why = format!(
            "two ways were tried. Streamable HTTP: POST {url} (initialize) was refused with status {refusal}{said}. \
             HTTP+SSE of 2024-11-05: GET {url}: {}",
            nothing.why
        );
        outcome::not_started(&self.0.server, &why)
    }

    /// A refusal of the handshake, with the error in its body if there is one: word for word, as its code tells the era.
    fn refused(&self, refusal: Refusal) -> Result<Shaken, Failure> {
        let how = format!("it refused the handshake with status {refusal}");
        match failures::refused(&self.0.server, ServerEra::Modern, refusal) {
            Outcome::Failed(failure) if matches!(failure.reason, Reason::Unauthorized | Reason::NotStarted) => {
                Err(failure)
            }
            Outcome::Failed(_) => Err(outcome::not_started(&self.0.server, &how)),
            outcome => Ok(Shaken { outcome, headers: HeaderMap::new() }),
        }
    }

    async fn initialize(
        &self,
        forwarded: &HeaderMap,
        accept: HeaderValue,
        opening: &Opening,
    ) -> Result<Shaken, Refused> {
        let request = handshake::initialize(HANDSHAKE_ID, opening, &self.0.setup.config.offer);
        self.ask(forwarded, accept, HeaderMap::new(), request).await
    }

    async fn probe(&self, forwarded: &HeaderMap, patience: Duration) -> Probe {
        let mut headers = HeaderMap::new();
        endpoint::mirror_method(&mut headers, &Method::Discover);
        let asked = self.ask(forwarded, JSON_FIRST, headers, handshake::discover(HANDSHAKE_ID));
        let Ok(asked) = tokio::time::timeout(patience, asked).await else { return Probe::Legacy };
        match asked {
            Ok(shaken) => match ServerInfo::of_discover(shaken.outcome) {
                Ok(info) => Probe::Modern(Box::new(info)),
                Err(_) => Probe::Legacy,
            },
            Err(Refused::By(refusal)) if speaks_of_the_caller(refusal.status) => {
                match failures::refused(&self.0.server, ServerEra::Modern, refusal) {
                    Outcome::Failed(failure) => Probe::Failed(failure),
                    _ => Probe::Legacy,
                }
            }
            Err(Refused::Unreachable(failure)) => Probe::Failed(failure),
            Err(Refused::By(_) | Refused::NoAnswer(_)) => Probe::Legacy,
        }
    }

    /// Sends one request of a handshake and reads its answer.
    async fn ask(
        &self,
        forwarded: &HeaderMap,
        accept: HeaderValue,
        headers: HeaderMap,
        message: Rope,
    ) -> Result<Shaken, Refused> {
        let make = || {
            let mut request = self.0.endpoint.post(forwarded, accept.clone(), message.clone());
            request.headers_mut().extend(headers.clone());
            request
        };
        let response = self.0.endpoint.send(make).await;
        // Nothing of a call was sent yet, so whatever happens here, the call was not taken.
        let not_started = |why: &str| outcome::not_started(&self.0.server, why);
        let response = response.map_err(|error| {
            let failure = not_started(&format!("{error}: {}", error.why()));
            match error.taken {
                Taken::Never | Taken::GivenBack => Refused::Unreachable(failure),
                Taken::Unknown => Refused::NoAnswer(failure),
            }
        })?;
        let headers = response.headers().clone();
        let answer = self.answer(response).await;
        if !matches!(answer, Ok(Some(_))) {
            self.end_stray(&headers);
        }
        let Some(outcome) = answer? else {
            return Err(Refused::NoAnswer(not_started("its answer to the handshake is no answer")));
        };
        Ok(Shaken { outcome, headers })
    }

    /// Ends a session that a server began for a request which it did not take: Python's SDK does so, and keeps it.
    fn end_stray(&self, headers: &HeaderMap) {
        let Some(id) = headers.get(SESSION_ID).cloned() else { return };
        let endpoint = Arc::clone(&self.0.endpoint);
        self.0.setup.jobs.spawn("end of a session that nobody wants", async move {
            let delete = || {
                let mut request = endpoint.delete(&HeaderMap::new());
                request.headers_mut().insert(SESSION_ID, id.clone());
                request
            };
            let _ = tokio::time::timeout(PROBE, endpoint.send(delete)).await;
        });
    }

    async fn answer(&self, response: Response<ServerBody>) -> Result<Option<Outcome>, Refused> {
        let failed = |why: &str| Refused::NoAnswer(outcome::not_started(&self.0.server, why));
        match Answer::read(response, self.0.limits).await {
            Ok(Answer::Messages(messages)) => Ok(messages.into_iter().find_map(answer_in)),
            Ok(Answer::Events(stream)) => Ok(self.answer_on(*stream).await),
            Ok(Answer::Nothing(status)) => Err(failed(&format!("status {status} and no body"))),
            Ok(Answer::Refused(refusal)) => Err(Refused::By(refusal)),
            Err(fault) => Err(failed(&fault.to_string())),
        }
    }

    async fn answer_on(&self, mut stream: EventStream) -> Option<Outcome> {
        loop {
            let data = match stream.next().await {
                Item::Event(data) | Item::Unfinished(data) => data,
                Item::Mark => continue,
                Item::End(_) => return None,
            };
            let messages = answer::messages(&data, self.0.limits.depth).unwrap_or_default();
            if let Some(outcome) = messages.into_iter().find_map(answer_in) {
                return Some(outcome);
            }
        }
    }
}

/// Why a request of the handshake has no answer.
#[derive(Debug)]
enum Refused {
    /// The server refused it.
    By(Refusal),
    /// There is no server.
    Unreachable(Failure),
    /// There is one, and what it says is no answer.
    NoAnswer(Failure),
}

impl Connect for HttpConnect {
    type Session = HttpSession;

    async fn connect(&self, opening: &Opening) -> Result<HttpSession, Failure> {
        let opened = tokio::time::timeout(self.0.patience, self.open(opening)).await;
        let late = || outcome::not_started(&self.0.server, "it did not shake hands within connect_timeout");
        opened.unwrap_or_else(|_| Err(late()))
    }

    /// Callers that only their headers tell apart get sessions of their own.
    fn distinction(&self, caller: &Caller) -> Distinction {
        match &caller.principal {
            // A named caller stays the same one when its token is renewed.
            Principal::Named(_) | Principal::Subject { .. } | Principal::Recorded { .. } | Principal::Newcomers(_) => {
                Distinction::default()
            }
            Principal::Local | Principal::Anonymous | Principal::Credential(_) => {
                let forwarded = self.0.endpoint.forwarded(&caller.credentials);
                if !endpoint::is_personal(&forwarded) {
                    return Distinction::default();
                }
                let own = forwarded.iter().filter(|(name, _)| **name != hops::VIA);
                let parts = own.flat_map(|(name, value): (&HeaderName, &HeaderValue)| {
                    [name.as_str().as_bytes(), value.as_bytes()]
                });
                Distinction::of(parts)
            }
        }
    }
}

/// The answer to the handshake of either era, if the message is one.
fn answer_in(message: Result<Message, MessageError>) -> Option<Outcome> {
    let (id, outcome) = match message.ok()? {
        Message::Result { id, result } => (Some(id), outcome::of_result(result, ServerEra::Modern)),
        Message::Error { id, error } => (id, Outcome::Error(error)),
        Message::Request { .. } | Message::Notification { .. } => return None,
    };
    (ids::named(id.as_ref(), HANDSHAKE_ID) != Named::Other).then_some(outcome)
}

/// Whether an error says that `initialize` itself, not what was in it, is the trouble.
fn may_be_modern(code: i64) -> bool {
    use crate::protocol::error::code;
    matches!(
        code,
        code::UNSUPPORTED_VERSION
            | code::HEADER_MISMATCH
            | code::MISSING_CAPABILITY
            | code::METHOD_NOT_FOUND
            | code::INVALID_PARAMS
    )
}

/// Whether a refusal of `initialize` may be that of a server which takes messages at another address.
fn may_be_sse(refusal: &Refusal) -> bool {
    let no_such_thing = matches!(refusal.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
    match &refusal.error {
        None => refusal.is_about_the_request(),
        Some((_, error)) => no_such_thing && !may_be_modern(error.code()),
    }
}

/// Whether a status is about the caller, and says nothing of the server's revision.
fn speaks_of_the_caller(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
}
