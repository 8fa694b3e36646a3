//! What the response to a POST is: messages, an event stream, or a refusal.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::client::{ServerBody, why};
use super::events::EventStream;
pub(super) use crate::protocol::headers::retry_after;
use crate::protocol::json::{self, Json, JsonError};
use crate::protocol::message::{MessageError, MessageFault};
use crate::protocol::{Challenge, Message, RequestId, RpcError, room};

/// How much is read of what a server sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// Bytes of a body or an event.
    pub(super) message: usize,
    /// Levels of arrays and objects.
    pub(super) depth: usize,
}

/// The response to a POST.
#[derive(Debug)]
pub(super) enum Answer {
    /// A body of JSON.
    Messages(Vec<Result<Message, MessageError>>),
    /// An event stream.
    Events(Box<EventStream>),
    /// Taken, with nothing to say.
    Nothing(StatusCode),
    /// Not taken.
    Refused(Refusal),
}

/// A status that is no success.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The status.
    pub(super) status: StatusCode,
    /// The type of the body, for a person.
    media: Media,
    /// How long the server wants us to wait.
    pub(super) retry_after: Option<Duration>,
    /// What it wants in the place of the caller's own credentials.
    wanted: Vec<HeaderValue>,
    /// Where it says that it is, without credentials and query.
    pub(super) location: Option<String>,
    /// The JSON-RPC error in the body, if there is one, with the id it names.
    pub(super) error: Option<(Option<Json>, RpcError)>,
}

/// Why a response cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// A success with a body that is neither JSON nor events.
    Media(StatusCode, Media),
    /// A body that should be JSON and is not.
    NotJson(StatusCode, Media),
    /// Larger than this many bytes.
    TooLarge(usize),
    /// It broke off.
    Broken(String),
}

/// What a response says its body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// `text/event-stream`.
    Events,
    /// JSON, or what some servers call JSON: plain text, or nothing at all.
    Json(Option<String>),
    /// Anything else.
    Other(String),
}

/// How much of a refusal's body is read, and for how long: it only explains.
const REFUSAL: usize = 64 << 10;
const REFUSAL_TIME: Duration = Duration::from_secs(5);

/// How many challenges of a server are passed on, and bytes of each.
const CHALLENGES: usize = 8;
const LONGEST_CHALLENGE: usize = 8 << 10;

/// Bytes of an address that is shown.
const LONGEST_PLACE: usize = 256;

impl Answer {
    /// Reads a response as far as it must be read: a body of JSON whole, an event stream not at all.
    pub(super) async fn read(response: Response<ServerBody>, limits: ReadLimits) -> Result<Self, Unusable> {
        let status = response.status();
        let media = Media::of(response.headers());
        if !status.is_success() {
            return Ok(Self::Refused(Refusal::read(response, media).await));
        }
        match media {
            Media::Events => Ok(Self::Events(Box::new(EventStream::new(response.into_body(), limits.message)))),
            Media::Other(_) if has_no_body(&response) => Ok(Self::Nothing(status)),
            Media::Other(_) => Err(Unusable::Media(status, media)),
            Media::Json(_) => {
                let body = collect(response, limits.message).await?;
                if body.trim_ascii().is_empty() {
                    return Ok(Self::Nothing(status));
                }
                // A 202 acknowledges; what some servers write beside it is not an answer to anything.
                match messages(&body, limits.depth) {
                    Ok(messages) => Ok(Self::Messages(messages)),
                    Err(_) if status == StatusCode::ACCEPTED => Ok(Self::Nothing(status)),
                    Err(_) => Err(Unusable::NotJson(status, media)),
                }
            }
        }
    }
}

/// The messages in a body or an event: one, or the members of an array (2025-03-26, batching). An error
/// only where it is no JSON at all.
pub(super) fn messages(text: &Bytes, depth: usize) -> Result<Vec<Result<Message, MessageError>>, JsonError> {
    let text = &json::without_mark(text.clone());
    if text.trim_ascii_start().first() != Some(&b'[') {
        let message = Message::parse(text, depth);
        return match message {
            Err(MessageError {
                cause: MessageFault::Json(error @ (JsonError::Syntax(_) | JsonError::TooDeep { .. })),
                ..
            }) => Err(error),
            message => Ok(vec![message]),
        };
    }
    json::check_depth(text, depth)?;
    let elements = json::elements(text)?;
    Ok(elements.iter().map(|raw| Message::parse(Json::of(text, raw).bytes(), depth)).collect())
}

impl Refusal {
    async fn read(response: Response<ServerBody>, media: Media) -> Self {
        let status = response.status();
        let location = response.headers().get(header::LOCATION).and_then(place);
        let retry_after = retry_after(response.headers());
        let wanted = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
        let wanted = wanted.filter(|value| value.len() <= LONGEST_CHALLENGE).take(CHALLENGES).cloned().collect();
        let body = tokio::time::timeout(REFUSAL_TIME, collect(response, REFUSAL)).await;
        let error = body.ok().and_then(Result::ok).and_then(error_in);
        Self { status, media, retry_after, wanted, location, error }
    }

    /// What the caller is to be told of its credentials, if these were its own (see
    /// [`Endpoint::send`](super::endpoint::Endpoint::send)).
    pub(super) fn challenge(&self) -> Option<Challenge> {
        (!self.wanted.is_empty()).then(|| Challenge { status: self.status, wanted: self.wanted.clone() })
    }

    /// Whether the status says that the server cannot make sense of the request.
    pub(super) fn is_about_the_request(&self) -> bool {
        matches!(
            self.status,
            StatusCode::BAD_REQUEST
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::NOT_ACCEPTABLE
        )
    }

    /// Whether its body is for a browser.
    pub(super) fn is_page(&self) -> bool {
        matches!(&self.media, Media::Other(media) if media.contains("html"))
    }

    /// Whether the error in the body answers the request `id`, and is not about the session.
    pub(super) fn answers(&self, id: u64) -> Option<&RpcError> {
        let (Some(named), error) = self.error.as_ref()? else { return None };
        let ours = named.as_str() == RequestId::from_number(id).token().as_str();
        // SDKs say "no such session" with these, some under the id of the request.
        (ours && !matches!(error.code(), -32000 | -32001 | -32600)).then_some(error)
    }
}

/// Status and type, for a person. Never the body.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.status, self.media)
    }
}

impl Media {
    /// What the headers of a response say.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(header::CONTENT_TYPE) else { return Self::Json(None) };
        let text = String::from_utf8_lossy(value.as_bytes());
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/event-stream" => Self::Events,
            "" => Self::Json(None),
            "application/json" | "text/json" | "text/plain" => Self::Json(Some(essence)),
            other if other.ends_with("+json") => Self::Json(Some(essence)),
            _ => Self::Other(essence.chars().take(80).filter(char::is_ascii_graphic).collect()),
        }
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Events => f.write_str("text/event-stream"),
            Self::Json(None) => f.write_str("no content type"),
            Self::Json(Some(essence)) | Self::Other(essence) => f.write_str(essence),
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Media(status, media) => {
                write!(f, "the server answered with status {status} and {media}, where JSON or an event stream belongs")
            }
            Self::NotJson(status, media) => {
                write!(f, "the server answered with status {status} and a body that is not JSON ({media})")
            }
            Self::TooLarge(limit) => write!(f, "the answer is larger than the limit of {limit} bytes"),
            Self::Broken(why) => write!(f, "the answer broke off: {why}"),
        }
    }
}

impl std::error::Error for Unusable {}

/// An address as `Location` names it, without what may be secret.
fn place(location: &HeaderValue) -> Option<String> {
    let place = location.to_str().ok()?.split(['?', '#']).next()?;
    (!place.is_empty() && place.len() <= LONGEST_PLACE && !place.contains('@')).then(|| place.to_owned())
}

/// The error in the body of a refusal. API gateways leave out `jsonrpc`, or write their own codes (field
/// case 54).
fn error_in(body: Bytes) -> Option<(Option<Json>, RpcError)> {
    let body = json::without_mark(body);
    let members = json::members(&body).ok()?;
    let part = |name: &str| members.get(name).map(|raw| Json::of(&body, raw));
    let error = part("error").filter(Json::is_object)?;
    Some((part("id").filter(|id| !id.is_null()), RpcError::from_server(error).ok()?))
}

/// Reads a whole body.
async fn collect(response: Response<ServerBody>, limit: usize) -> Result<Bytes, Unusable> {
    let mut body = response.into_body();
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > limit {
        return Err(Unusable::TooLarge(limit));
    }
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| Unusable::Broken(why(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(Unusable::TooLarge(limit));
        }
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.reserve(expected.max(first.len() + data.len()));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        room::make(&mut rest, data.len(), limit);
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

fn has_no_body(response: &Response<ServerBody>) -> bool {
    matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT) || response.body().is_end_stream()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_apart_without_their_parameters() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, text.parse().unwrap());
            Media::of(&headers)
        };
        assert_eq!(of("Text/Event-Stream; charset=utf-8"), Media::Events);
        assert_eq!(of("application/json; charset=utf-8"), Media::Json(Some("application/json".to_owned())));
        assert_eq!(of("text/plain"), Media::Json(Some("text/plain".to_owned())));
        assert_eq!(of("application/problem+json"), Media::Json(Some("application/problem+json".to_owned())));
        assert_eq!(of("text/html"), Media::Other("text/html".to_owned()));
        assert_eq!(Media::of(&HeaderMap::new()), Media::Json(None));
    }

    #[test]
    fn an_error_is_found_in_bodies_that_are_no_json_rpc() {
        let found = |text: &'static str| error_in(Bytes::from_static(text.as_bytes()));
        let (id, error) = found(r#"{"error":{"code":"bad_thing","message":"no"}}"#).unwrap();
        assert_eq!((id, error.code(), error.message()), (None, -32603, "no"));
        let (id, _) = found(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"x"}}"#).unwrap();
        assert_eq!(id.unwrap().as_str(), "7");
        for text in ["", "<html>", r#"{"jsonrpc":"2.0","id":7}"#, r#"{"error":"text"}"#, "[]"] {
            assert!(found(text).is_none(), "{text}");
        }
    }
}
