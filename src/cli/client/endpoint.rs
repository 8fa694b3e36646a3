//! One MCP endpoint: requests out, JSON or a stream of events back (2026-07-28, Streamable HTTP).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as SendError;
use serde_json::json;
use url::Url;

use super::error::ClientError;
use super::wire::Wire;
use crate::protocol::error::code;
use crate::protocol::message::{self, Message, RequestId};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::sse::SseParser;
use crate::protocol::{CallKey, Json, MODERN, Method, Progress, RpcError, TASKS_EXTENSION, headers, meta_key};

/// Bytes of an answer, and of one event of a stream.
const LARGEST: usize = 256 << 20;
const DEEPEST: usize = 128;
/// What makes the start of a call idempotent.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One MCP endpoint and what goes to it with every request.
pub(crate) struct Endpoint {
    url: Url,
    wire: Wire,
    headers: HeaderMap,
    /// Whether somebody is there who can be asked.
    has_person: bool,
    /// Requests whose answer is waited for.
    asking: AtomicUsize,
}

/// A request, until its answer is there or nobody waits for it.
struct Asking<'a>(&'a AtomicUsize);

/// What a request asks for, beside `_meta`.
pub(crate) enum Ask<'a> {
    /// `tools/call`, with the answers to what it asked before.
    Call { tool: &'a str, arguments: &'a Json, answered: Option<&'a Answered> },
    /// `tasks/get`.
    Get { task: &'a str },
    /// `tasks/update`.
    Update { task: &'a str, responses: &'a Json },
    /// `tasks/cancel`.
    Cancel { task: &'a str },
    /// `tools/list`, from a cursor on.
    Tools { cursor: Option<&'a str> },
}

/// What a call asked, answered (2026-07-28, multi round-trip requests).
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) state: Option<Json>,
    pub(crate) responses: Json,
}

impl Endpoint {
    /// The endpoint at `url`. Errors are for the user: a wrong URL, or no certificates on this machine.
    pub(crate) fn new(url: &str, headers: HeaderMap) -> Result<Self, String> {
        let url = read_url(url)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL must hold no credentials; use --header 'Authorization: ...'".to_owned());
        }
        let wire = Wire::to(&url)?;
        Ok(Self { url, wire, headers, has_person: false, asking: AtomicUsize::new(0) })
    }

    /// The same, saying on every request whether somebody is there to fill in forms.
    #[must_use]
    pub(crate) fn with_person(self, has_person: bool) -> Self {
        Self { has_person, ..self }
    }

    /// The same, with this key for its calls.
    #[must_use]
    pub(crate) fn with_key(mut self, key: Option<&CallKey>) -> Self {
        if let Some(key) = key {
            // A string in quotes (draft-ietf-httpapi-idempotency-key-header).
            let text = key.as_str().replace('\\', "\\\\").replace('"', "\\\"");
            self.headers
                .extend(HeaderValue::from_str(&format!("\"{text}\"")).ok().map(|value| (IDEMPOTENCY_KEY, value)));
        }
        self
    }

    /// Sends a request and waits for its result. `on_progress` hears what the server reports until then.
    ///
    /// Dropping the future closes the connection's stream, which cancels the request.
    pub(crate) async fn ask(
        &self,
        ask: &Ask<'_>,
        extra: &HeaderMap,
        on_progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Json, ClientError> {
        let _asking = Asking::of(&self.asking);
        let id = RequestId::from_number(1);
        let method = ask.method();
        let body = message::request(&id, method.name(), Some(ask.params(self.has_person).into())).into_bytes();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.url.as_str().parse().map_err(|error: http::uri::InvalidUri| not_mcp(&error))?;
        let own = request.headers_mut();
        own.extend(self.headers.iter().chain(extra).map(|(name, value)| (name.clone(), value.clone())));
        own.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        own.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        own.insert(USER_AGENT, HeaderValue::from_static(concat!("raincheck/", env!("CARGO_PKG_VERSION"))));
        own.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(MODERN));
        own.insert(headers::METHOD, headers::encode(method.name()));
        if let Some(name) = ask.name() {
            own.insert(headers::NAME, headers::encode(name));
        }
        let response = self.send(request).await?;
        let message = match media_type(&response) {
            "application/json" => one(response).await?,
            "text/event-stream" => streamed(response, &id, on_progress).await?,
            _ if !response.status().is_success() => {
                return Err(ClientError::of_status(response.status(), response.headers()));
            }
            other => return Err(ClientError::NotMcp(format!("its type is \"{}\"", other.escape_debug()))),
        };
        match message {
            Message::Result { result, .. } if result.is_object() => Ok(result),
            Message::Result { .. } => Err(ClientError::NotMcp("the result is no object".to_owned())),
            Message::Error { error, .. } => Err(ClientError::Rpc(error)),
            Message::Request { .. } | Message::Notification { .. } => {
                Err(ClientError::NotMcp("a request came where a response was due".to_owned()))
            }
        }
    }

    /// Leaves what is asked now, which cancels it; whether anything is. An answer that the server had given before it saw
    /// that still comes.
    pub(crate) fn leave(&self) -> bool {
        self.wire.leave();
        self.asking.load(Ordering::Relaxed) > 0
    }

    /// The URL as it may be written down: without a query, which may hold a key.
    pub(crate) fn public_url(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.into()
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        self.wire.send(request).await.map_err(|error: SendError| {
            if error.is_connect() {
                ClientError::Unreachable { at: self.public_url(), source: error.into() }
            } else {
                ClientError::Broken(error.into())
            }
        })
    }
}

/// Hides the headers.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.public_url()).finish_non_exhaustive()
    }
}

impl<'a> Asking<'a> {
    fn of(asking: &'a AtomicUsize) -> Self {
        asking.fetch_add(1, Ordering::Relaxed);
        Self(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Ask<'_> {
    fn method(&self) -> Method {
        match self {
            Self::Call { .. } => Method::CallTool,
            Self::Get { .. } => Method::GetTask,
            Self::Update { .. } => Method::UpdateTask,
            Self::Cancel { .. } => Method::CancelTask,
            Self::Tools { .. } => Method::ListTools,
        }
    }

    /// What `Mcp-Name` says.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Call { tool, .. } => Some(tool),
            Self::Get { task } | Self::Cancel { task } | Self::Update { task, .. } => Some(task),
            Self::Tools { .. } => None,
        }
    }

    fn params(&self, has_person: bool) -> Json {
        let mut capabilities = json!({ "extensions": { TASKS_EXTENSION: {} } });
        if let (true, Some(capabilities)) = (has_person, capabilities.as_object_mut()) {
            capabilities.insert("elicitation".to_owned(), json!({ "form": {}, "url": {} }));
        }
        let mut meta = json!({
            meta_key::PROTOCOL_VERSION: MODERN,
            meta_key::CLIENT_INFO: { "name": "raincheck", "version": env!("CARGO_PKG_VERSION") },
            meta_key::CLIENT_CAPABILITIES: capabilities,
        });
        let mut writer = ObjectWriter::new();
        match self {
            Self::Call { tool, arguments, answered } => {
                if let Some(meta) = meta.as_object_mut() {
                    meta.insert(meta_key::PROGRESS_TOKEN.to_owned(), 1.into());
                }
                writer.string("name", tool).raw("arguments", arguments);
                if let Some(Answered { state, responses }) = answered {
                    writer.raw("inputResponses", responses);
                    if let Some(state) = state {
                        writer.raw("requestState", state);
                    }
                }
            }
            Self::Update { task, responses } => {
                writer.string("taskId", task).raw("inputResponses", responses);
            }
            Self::Get { task } | Self::Cancel { task } => {
                writer.string("taskId", task);
            }
            Self::Tools { cursor: Some(cursor) } => {
                writer.string("cursor", cursor);
            }
            Self::Tools { cursor: None } => {}
        }
        writer.raw("_meta", &Json::from_value(&meta));
        writer.finish_json()
    }
}

/// Reads `NAME: VALUE` into `headers`.
pub(crate) fn add_header(headers: &mut HeaderMap, line: &str) -> Result<(), String> {
    let (name, value) = line.split_once(':').ok_or("a header is written 'NAME: VALUE'")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "that is not the name of a header".to_owned())?;
    // The value may be secret, so it is not repeated.
    let mut read =
        HeaderValue::from_str(value.trim()).map_err(|_| format!("{name} holds characters that it cannot"))?;
    read.set_sensitive(true);
    headers.append(name, read);
    Ok(())
}

fn not_mcp(error: &dyn std::error::Error) -> ClientError {
    ClientError::NotMcp(error.to_string())
}

fn media_type(response: &Response<Incoming>) -> &str {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The message that a body of JSON is.
async fn one(response: Response<Incoming>) -> Result<Message, ClientError> {
    let (head, mut body) = response.into_parts();
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ClientError::Broken(error.into()))?;
        let Ok(data) = frame.into_data() else { continue };
        if text.len() + data.len() > LARGEST {
            return Err(ClientError::NotMcp(format!("it is larger than {LARGEST} bytes")));
        }
        text.extend_from_slice(&data);
    }
    match Message::parse(&text.freeze(), DEEPEST) {
        Ok(message) => Ok(message),
        // An error page of something in between.
        Err(_) if !head.status.is_success() => Err(ClientError::of_status(head.status, &head.headers)),
        Err(error) => Err(not_mcp(&error.to_rpc())),
    }
}

/// The response among the messages of a stream; the rest is progress, or not for us.
async fn streamed(
    response: Response<Incoming>,
    id: &RequestId,
    on_progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Message, ClientError> {
    let mut body = response.into_body();
    let mut events = SseParser::new(LARGEST);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ClientError::Broken(error.into()))?;
        let Ok(data) = frame.into_data() else { continue };
        events.feed(data);
        while let Some(event) = events.next_event().map_err(|error| not_mcp(&error))? {
            if event.data.is_empty() {
                continue;
            }
            if let Some(message) = response_in(&event.data, id, on_progress)? {
                return Ok(message);
            }
        }
    }
    // Some servers leave out the blank line behind the last event.
    let last = events.pending().map(|data| response_in(&data, id, on_progress)).transpose()?.flatten();
    last.ok_or_else(|| ClientError::Broken("the stream ended without a response".into()))
}

fn response_in(
    data: &Bytes,
    id: &RequestId,
    on_progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Option<Message>, ClientError> {
    match Message::parse(data, DEEPEST).map_err(|error| not_mcp(&error.to_rpc()))? {
        Message::Notification { method, params } => {
            if method == "notifications/progress"
                && let Some(progress) = params.as_ref().and_then(Progress::read)
            {
                on_progress(progress);
            }
            Ok(None)
        }
        Message::Result { id: answered, result } if answered == *id.token() => {
            Ok(Some(Message::Result { id: answered, result }))
        }
        message @ Message::Error { .. } => Ok(Some(message)),
        // No other request is open on this stream, and a server may ask nothing here.
        Message::Result { .. } | Message::Request { .. } => Ok(None),
    }
}

/// Adds to the error of a server that does not speak this revision what to do about it.
pub(crate) fn explain(error: ClientError) -> ClientError {
    let advice = "the server does not speak MCP 2026-07-28; put Raincheck in front of it: raincheck serve --url URL";
    match &error {
        ClientError::Rpc(rpc) if rpc.code() == code::UNSUPPORTED_VERSION || is_about_a_session(rpc) => {
            ClientError::Rpc(RpcError::new(rpc.code(), format!("{}: {advice}", rpc.message())))
        }
        _ => error,
    }
}

/// A URL as somebody types it. Errors are for the user.
pub(crate) fn read_url(text: &str) -> Result<Url, String> {
    if !text.contains("://") {
        return Err(format!(
            "\"{text}\" is no URL: http:// or https:// is missing in front, as in http://127.0.0.1:8080/mcp"
        ));
    }
    Url::parse(text).map_err(|error| format!("\"{text}\" is no URL: {error}"))
}

/// What servers of older revisions say to a request that comes before `initialize`.
fn is_about_a_session(error: &RpcError) -> bool {
    let message = error.message().to_ascii_lowercase();
    matches!(error.code(), -32600 | -32000) && (message.contains("session") || message.contains("not initialized"))
}
