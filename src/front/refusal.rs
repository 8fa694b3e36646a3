//! Answers that are given before a call is made of the request.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::body::Body;
use super::media;
use crate::config::the_server;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Failure, Reason, RequestId, Retry, RpcError, message};
use crate::share::NoPlace;

/// Why a request is not taken, with all that its answer needs. Boxed, since most requests are taken.
#[derive(Debug)]
pub(super) struct Refusal(Box<Content>);

#[derive(Debug)]
struct Content {
    status: StatusCode,
    id: Option<RequestId>,
    error: RpcError,
    header: Option<(HeaderName, HeaderValue)>,
}

/// There is no place; nothing was sent. `limits` names the settings.
pub(super) fn crowded(why: NoPlace, what: &str, limits: &str) -> Failure {
    let message = match why {
        NoPlace::Full => format!("too many {what} at once ({limits}); nothing was sent, try again later"),
        NoPlace::Share => format!(
            "too many {what} of yours at once: the last places ({limits}) are for others; nothing was sent, try again \
             when some of yours are over"
        ),
    };
    Failure::new(Reason::Busy, message, Retry::After(std::time::Duration::from_secs(1)))
}

/// The same for calls.
pub(super) fn too_many_calls(why: NoPlace, limit: usize) -> Failure {
    crowded(why, "calls", &format!("limits.calls and limits.queue allow {limit}"))
}

impl Refusal {
    /// The HTTP request is wrong; there is no JSON-RPC request yet.
    pub(super) fn http(status: StatusCode, message: &str) -> Self {
        Self::rpc(status, RpcError::new(code::INVALID_REQUEST, message))
    }

    /// The JSON-RPC message is wrong.
    pub(super) fn rpc(status: StatusCode, error: RpcError) -> Self {
        Self(Box::new(Content { status, id: None, error, header: None }))
    }

    /// Answered as a failed call: clients read JSON-RPC errors best where the status is 200.
    pub(super) fn failed(failure: &Failure) -> Self {
        Self::rpc(StatusCode::OK, RpcError::from(failure))
    }

    /// 401: who is asking is not known.
    pub(super) fn unauthorized(message: &str) -> Self {
        let error = RpcError::from(&Failure::new(Reason::Unauthorized, message, Retry::No));
        Self::rpc(StatusCode::UNAUTHORIZED, error).with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    /// 401: the gateway's header that names the caller is missing or broken. No challenge goes with it, since no client can
    /// set that header by an authentication scheme.
    pub(super) fn unnamed(header: &HeaderName) -> Self {
        let message = format!(
            "callers are told apart by the header {header}, which the gateway in front has to send once, in plain text"
        );
        let failure = Failure::new(Reason::Unauthorized, message, Retry::No);
        let mut data = ObjectWriter::new();
        // Facts are an object.
        let _ = data.members_of(&failure.facts(), |_| true);
        data.string("header", header.as_str());
        let error = RpcError::with_data(failure.reason.code(), failure.message, Some(&data.finish_json()));
        Self::rpc(StatusCode::UNAUTHORIZED, error)
    }

    /// 401: the token proves nothing (RFC 6750, 3.1); `why` holds no quotes.
    pub(super) fn invalid_token(why: &'static str) -> Self {
        let challenge = format!("Bearer error=\"invalid_token\", error_description=\"{why}\"");
        let refusal = Self::unauthorized(why);
        match HeaderValue::from_str(&challenge) {
            Ok(challenge) => refusal.with(WWW_AUTHENTICATE, challenge),
            Err(_) => refusal,
        }
    }

    /// 503: the keys that tokens are checked with cannot be had, so nobody can be let in.
    pub(super) fn no_keys(why: &dyn std::fmt::Display) -> Self {
        let message = format!("tokens cannot be checked now, since the issuer's keys cannot be had ({why})");
        let failure = Failure::new(Reason::Unauthorized, message, Retry::After(std::time::Duration::from_secs(10)));
        Self::rpc(StatusCode::SERVICE_UNAVAILABLE, RpcError::from(&failure))
            .with(RETRY_AFTER, HeaderValue::from_static("10"))
    }

    /// 508: the proxy itself sent this, to reach the very server that it is for.
    pub(super) fn come_round(server: &str) -> Self {
        let server = the_server(server);
        let message = format!(
            "{server} is not behind this proxy: its url leads back here, perhaps through other proxies; set it to the \
             address of the server"
        );
        Self::rpc(StatusCode::LOOP_DETECTED, RpcError::from(&Failure::new(Reason::NotStarted, message, Retry::No)))
    }

    /// 405: without a session the endpoint takes POST only (2026-07-28, Streamable HTTP, earlier revisions).
    pub(super) fn method_not_allowed() -> Self {
        let message = "this endpoint takes POST: one JSON-RPC message each; GET and DELETE are for sessions of older \
                       revisions and need Mcp-Session-Id; clients of HTTP+SSE (2024-11-05) are not served";
        Self::http(StatusCode::METHOD_NOT_ALLOWED, message)
            .with(ALLOW, HeaderValue::from_static("POST, GET, DELETE, OPTIONS"))
    }

    /// Ends the connection, since the rest of the request is not read.
    pub(super) fn closing(self) -> Self {
        self.with(CONNECTION, HeaderValue::from_static("close"))
    }

    /// With this header on the response.
    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// The answer to this request.
    pub(super) fn to(mut self, id: Option<&RequestId>) -> Self {
        self.0.id = id.cloned();
        self
    }

    /// The HTTP status.
    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The JSON-RPC error.
    #[cfg(test)]
    pub(super) fn error(&self) -> &RpcError {
        &self.0.error
    }

    /// What the answer says where there are no statuses and headers.
    pub(super) fn into_parts(self) -> (Option<RequestId>, RpcError) {
        let Content { id, error, .. } = *self.0;
        tracing::info!(code = error.code(), why = error.message(), "a request was refused");
        (id, error)
    }

    /// The response.
    pub(super) fn into_response(self) -> Response<Body> {
        let Content { status, id, error, header } = *self.0;
        // Whoever sets a client up sees the client's own words for it, which may be no more than the status.
        tracing::info!(status = status.as_u16(), code = error.code(), why = error.message(), "a request was refused");
        let mut response = Response::new(Body::text(message::error(id.as_ref(), &error)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, media::JSON);
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// The whole HTTP/1.1 response for a connection over the limit, which is not read.
pub(super) fn too_many_connections(limit: usize) -> Bytes {
    not_served(format!("too many connections at once (limits.connections = {limit}); try again later"))
}

/// The same where there is no `Date` for what the clock shows.
pub(super) fn no_date() -> Bytes {
    not_served("the clock of the proxy's machine shows a time after 9999; nothing is served until it is set".to_owned())
}

fn not_served(message: String) -> Bytes {
    let error = RpcError::from(&Failure::new(Reason::Busy, message, Retry::After(std::time::Duration::from_secs(1))));
    let text = message::error(None, &error).into_bytes();
    let mut response = format!(
        "HTTP/1.1 503 Service Unavailable\r\n{CONTENT_TYPE}: application/json\r\n{RETRY_AFTER}: 1\r\n\
         {CONNECTION}: close\r\ncontent-length: {}\r\n\r\n",
        text.len()
    )
    .into_bytes();
    response.extend_from_slice(&text);
    response.into()
}
