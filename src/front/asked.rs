//! What a body asks for: one JSON-RPC message, checked against the rules of 2026-07-28 for `_meta` and headers.
//!
//! The era of a request is decided by its own `_meta`: a request that names no version there is of a legacy client, and
//! so is all else that names a session.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::Value;

use super::batch::{self, Element};
use super::log_level::LogLevel;
use super::refusal::Refusal;
use crate::protocol::error::code;
use crate::protocol::headers::single;
use crate::protocol::message::{MessageError, MessageFault};
use crate::protocol::{Capabilities, Json, MODERN, Message, Method, Params, RequestId, RpcError, headers, meta_key};

/// What a client sent.
#[derive(Debug)]
pub(super) enum Asked {
    /// A request, which wants an answer.
    Request(Request),
    /// A notification, which wants none.
    Notification,
    /// A message of a client of 2025-11-25 or older.
    Legacy(Message),
    /// A broken answer of such a client: what the server gets for it, and what the client gets.
    LegacyBroken(Message, Refusal),
    /// Several of them at once (2025-03-26).
    LegacyBatch(Vec<Element>),
}

/// A request of the modern era that follows the rules.
#[derive(Debug)]
pub(super) struct Request {
    /// To be given back byte for byte.
    pub(super) id: RequestId,
    /// What is asked.
    pub(super) method: Method,
    /// With which parameters.
    pub(super) params: Params,
    /// The least level of log notifications that the client wants; none without.
    pub(super) log_level: Option<LogLevel>,
}

/// Reads a message. The checks come in the order: envelope, era and version, `_meta`, headers, method.
pub(super) fn read(text: &Bytes, headers: &HeaderMap, max_depth: usize) -> Result<Asked, Refusal> {
    let bad = |error: RpcError| Refusal::rpc(StatusCode::BAD_REQUEST, error);
    let has_session = headers.contains_key(headers::SESSION_ID);
    let message = match Message::of_client(text, max_depth) {
        Err(MessageError { cause: MessageFault::Batch, .. }) if has_session => {
            return batch::read(text, max_depth).map(Asked::LegacyBatch);
        }
        Err(error) => {
            let refusal = bad(error.to_rpc()).to(error.id.as_ref());
            return match error.to_answer() {
                Some(answer) if has_session => Ok(Asked::LegacyBroken(answer, refusal)),
                _ => Err(refusal),
            };
        }
        Ok(message) => message,
    };
    match message {
        Message::Request { id, method, params } => {
            read_request(&id, &method, params, headers).map_err(|refusal| refusal.to(Some(&id)))
        }
        Message::Notification { method, params } if has_session && !is_modern(params.as_ref()) => {
            Ok(Asked::Legacy(Message::Notification { method, params }))
        }
        Message::Notification { method, .. } if method.starts_with("notifications/") => Ok(Asked::Notification),
        Message::Notification { .. } => Err(bad(invalid("a request needs an \"id\""))),
        answer if has_session => Ok(Asked::Legacy(answer)),
        Message::Result { .. } | Message::Error { .. } => Err(bad(invalid(
            "without a session (Mcp-Session-Id) a client sends requests and notifications only, no answers",
        ))),
    }
}

/// Whether a message says of itself that it is of 2026-07-28. Nothing earlier on a connection counts.
pub(super) fn is_modern(params: Option<&Json>) -> bool {
    params
        .and_then(|params| params.member("_meta"))
        .is_some_and(|meta| meta.member(meta_key::PROTOCOL_VERSION).is_some())
}

fn read_request(id: &RequestId, name: &str, params: Option<Json>, headers: &HeaderMap) -> Result<Asked, Refusal> {
    let bad = |error: RpcError| Refusal::rpc(StatusCode::BAD_REQUEST, error);
    let method = Method::of(name);
    let raw = params.clone();
    let params = Params::read(&method, params).map_err(bad)?;
    if params.meta_member(meta_key::PROTOCOL_VERSION).is_none()
        && (name == "initialize" || headers.contains_key(headers::SESSION_ID))
    {
        return Ok(Asked::Legacy(Message::Request { id: id.clone(), method: name.to_owned(), params: raw }));
    }
    read_modern(id, name, method, params, Some(headers)).map(Asked::Request)
}

/// Reads a request of the modern era. Over stdio there are no headers for it to agree with.
pub(super) fn read_modern(
    id: &RequestId,
    name: &str,
    method: Method,
    params: Params,
    headers: Option<&HeaderMap>,
) -> Result<Request, Refusal> {
    let bad = |error: RpcError| Refusal::rpc(StatusCode::BAD_REQUEST, error);
    let Some(version) = params.meta_member(meta_key::PROTOCOL_VERSION) else { return Err(bad(of_no_era())) };
    let Some(version) = version.part().string() else {
        return Err(bad(invalid_meta(meta_key::PROTOCOL_VERSION, "must be a string")));
    };
    if version != MODERN {
        // Two versions in one request are a mismatch before either is unsupported.
        if let Some(headers) = headers
            && let Some(header) = bytes(headers, &headers::PROTOCOL_VERSION).map_err(bad)?
            && header != version.as_bytes()
        {
            return Err(bad(mismatch(&headers::PROTOCOL_VERSION, "does not match the body")));
        }
        return Err(bad(unsupported(&version, format!("Unsupported protocol version: this server speaks {MODERN}"))));
    }
    let log_level = check_meta(&params).map_err(bad)?;
    if let Some(headers) = headers {
        check_headers(name, &method, &params, headers).map_err(bad)?;
    }
    if method.is_removed() {
        return Err(Refusal::rpc(StatusCode::NOT_FOUND, RpcError::method_not_found(name)));
    }
    if params.name().is_none() && is_header_required(&method) {
        let member = method.named_by().unwrap_or_default();
        return Err(bad(RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {member} must be a string"))));
    }
    Ok(Request { id: id.clone(), method, params, log_level })
}

/// The error for a request that has neither what 2026-07-28 wants nor a session.
fn of_no_era() -> RpcError {
    invalid_meta(
        meta_key::PROTOCOL_VERSION,
        &format!(
            "is missing, which every request of MCP {MODERN} carries; and so is the header Mcp-Session-Id of older \
             revisions, which begin with `initialize`"
        ),
    )
}

fn check_meta(params: &Params) -> Result<Option<LogLevel>, RpcError> {
    let wrong = match params.capabilities() {
        Capabilities::Declared { .. } => None,
        Capabilities::Missing => Some("is missing".to_owned()),
        Capabilities::NoObject => Some("must be an object".to_owned()),
        Capabilities::Unreadable(error) => Some(format!("is malformed: {error}")),
    };
    if let Some(wrong) = wrong {
        return Err(invalid_meta(meta_key::CLIENT_CAPABILITIES, &wrong));
    }
    if let Some(token) = params.meta_member(meta_key::PROGRESS_TOKEN)
        && RequestId::read(token).is_none()
    {
        return Err(invalid_meta(meta_key::PROGRESS_TOKEN, "must be a string or a number"));
    }
    let Some(level) = params.meta_member(meta_key::LOG_LEVEL) else { return Ok(None) };
    match LogLevel::read(&level) {
        Some(level) => Ok(Some(level)),
        None => Err(invalid_meta(meta_key::LOG_LEVEL, "is no log level")),
    }
}

/// The headers must say what the body says (2026-07-28, Streamable HTTP, server validation).
fn check_headers(name: &str, method: &Method, params: &Params, headers: &HeaderMap) -> Result<(), RpcError> {
    let equal = |header: &HeaderName, body: &str| match bytes(headers, header)? {
        Some(value) if value == body.as_bytes() => Ok(()),
        Some(_) => Err(mismatch(header, "does not match the body")),
        None => Err(mismatch(header, "is missing")),
    };
    equal(&headers::PROTOCOL_VERSION, MODERN)?;
    equal(&headers::METHOD, name)?;
    if method.named_by().is_none() {
        return Ok(());
    }
    match (bytes(headers, &headers::NAME)?, params.name()) {
        (Some(value), named) => {
            let value = headers::decode(value).map_err(|error| mismatch(&headers::NAME, &error.to_string()))?;
            let same = named.is_some_and(|named| named == value);
            if same { Ok(()) } else { Err(mismatch(&headers::NAME, "does not match the body")) }
        }
        // FastMCP never sends it for tasks; only a wrong one does harm (interop).
        (None, Some(_)) if is_header_required(method) => Err(mismatch(&headers::NAME, "is missing")),
        (None, _) => Ok(()),
    }
}

fn is_header_required(method: &Method) -> bool {
    matches!(method, Method::CallTool | Method::GetPrompt | Method::ReadResource)
}

fn bytes<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, RpcError> {
    let value = single(headers, name).map_err(|_| mismatch(name, "appears more than once"))?;
    Ok(value.map(http::HeaderValue::as_bytes))
}

fn mismatch(header: &HeaderName, why: &str) -> RpcError {
    let name = match header.as_str() {
        "mcp-protocol-version" => "MCP-Protocol-Version",
        "mcp-method" => "Mcp-Method",
        _ => "Mcp-Name",
    };
    RpcError::new(code::HEADER_MISMATCH, format!("Header mismatch: the header {name} {why}"))
}

fn unsupported(requested: &str, message: String) -> RpcError {
    // The text goes to logs and screens of others, so its length is bounded.
    let requested: String = requested.chars().take(64).collect();
    let data = serde_json::json!({ "supported": [MODERN], "requested": Value::String(requested) });
    RpcError::with_data(code::UNSUPPORTED_VERSION, message, Some(&Json::from_value(&data)))
}

fn invalid(why: &str) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("Invalid request: {why}"))
}

fn invalid_meta(key: &str, why: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("Invalid params: _meta[\"{key}\"] {why}"))
}

#[cfg(test)]
#[path = "asked_tests.rs"]
mod tests;
