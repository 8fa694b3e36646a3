//! Reads the body of a request, within bounds of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::refusal::Refusal;
use crate::config::Limits;
use crate::protocol::RpcError;
use crate::protocol::error::code;

/// Memory that is set aside for a body before any of it has come, at most.
const RESERVED: u64 = 64 << 10;
/// How long the rest of a body that is too large is read and thrown away, so that the client, which is still
/// sending, comes to read the answer instead of a reset.
const DRAIN: Duration = Duration::from_secs(2);

/// The whole body; 413 if it is too large, 408 if it does not come in time, 400 if it breaks off.
pub(super) async fn read(body: Incoming, limits: &Limits) -> Result<Bytes, Refusal> {
    let limit = limits.body;
    match tokio::time::timeout(limits.read_timeout, collect(body, limit)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Refusal::http(
            StatusCode::REQUEST_TIMEOUT,
            &format!("the body did not come within limits.read_timeout ({:?})", limits.read_timeout),
        )
        .closing()),
    }
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, Refusal> {
    let announced = body.size_hint().exact();
    if announced.is_some_and(|length| length > limit as u64) {
        drain(body, limit).await;
        return Err(too_large(limit));
    }
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| Refusal::http(StatusCode::BAD_REQUEST, "the body broke off or is malformed").closing();
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if first.len() + whole.len() + data.len() > limit {
            drain(body, limit).await;
            return Err(too_large(limit));
        }
        // Most bodies come in one frame, which is then not copied.
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            let expected = announced.unwrap_or_default().min(RESERVED);
            whole.reserve(usize::try_from(expected).unwrap_or_default().max(first.len() + data.len()));
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Reads on until the end, for as many bytes again as the limit and a short time.
async fn drain(mut body: Incoming, limit: usize) {
    let mut left = limit;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, rest).await;
}

fn too_large(limit: usize) -> Refusal {
    let message = format!("Invalid request: the body is larger than limits.body allows ({limit} bytes)");
    Refusal::rpc(StatusCode::PAYLOAD_TOO_LARGE, RpcError::new(code::INVALID_REQUEST, message)).closing()
}
