//! What operators are answered.

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// Nothing comes from elsewhere, nothing goes elsewhere, nobody frames it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
);

/// Any answer.
pub(super) fn text(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// JSON.
pub(super) fn value(status: StatusCode, value: &Value) -> Answer {
    text(status, "application/json", format!("{value}\n"))
}

/// A refusal: `{"error": "..."}`.
pub(super) fn refused(status: StatusCode, why: &str) -> Answer {
    let mut answer = value(status, &json!({ "error": why }));
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

/// 405.
pub(super) fn other_method(allowed: &'static str) -> Answer {
    let mut answer = refused(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}
