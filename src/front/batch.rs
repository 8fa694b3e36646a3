//! Batches, which exist in 2025-03-26 only (JSON-RPC 2.0, batch): each message in one stands alone, so that one which is
//! none takes no other down with it.

use bytes::Bytes;
use http::StatusCode;

use super::asked;
use super::refusal::Refusal;
use crate::protocol::error::code;
use crate::protocol::{Json, JsonError, MODERN, Message, RequestId, Rope, RpcError, json, message};

/// One element of a batch.
#[derive(Debug)]
pub(super) enum Element {
    /// A message.
    Message(Message),
    /// None that a batch may have; this is the answer to it.
    Refused(Rope),
    /// A broken answer: what the server gets for it, and the answer to it.
    Broken(Message, Rope),
}

/// Messages in one batch.
const MOST: usize = 64;

/// The elements of a batch; an error if it is none, empty, or too long.
pub(super) fn read(text: &Bytes, max_depth: usize) -> Result<Vec<Element>, Refusal> {
    let bad = |why: &str| Refusal::rpc(StatusCode::BAD_REQUEST, invalid(why));
    let broken = |error: JsonError| bad(&error.to_string());
    let elements = json::elements(text).map_err(broken)?;
    let mut read = Vec::new();
    for element in elements.iter() {
        if read.len() == MOST {
            return Err(bad(&format!("a batch has {MOST} messages at most")));
        }
        read.push(Element::read(&Json::of(text, element), max_depth));
    }
    if read.is_empty() { Err(bad("a batch has one message at least")) } else { Ok(read) }
}

/// The answers to a batch.
pub(super) fn answers(texts: impl IntoIterator<Item = Rope>) -> Rope {
    let mut array = Rope::from(Bytes::from_static(b"["));
    for (at, text) in texts.into_iter().enumerate() {
        if at > 0 {
            array.push(Bytes::from_static(b","));
        }
        array.append(text);
    }
    array.push(Bytes::from_static(b"]"));
    array
}

impl Element {
    fn read(text: &Json, max_depth: usize) -> Self {
        match Message::of_client(text.bytes(), max_depth) {
            Ok(Message::Request { id, params, .. }) if asked::is_modern(params.as_ref()) => Self::modern(Some(&id)),
            Ok(Message::Notification { params, .. }) if asked::is_modern(params.as_ref()) => Self::modern(None),
            Ok(message) => Self::Message(message),
            Err(fault) => match (Self::refused(fault.id.as_ref(), &fault.to_rpc()), fault.to_answer()) {
                (Self::Refused(refused), Some(answer)) => Self::Broken(answer, refused),
                (refused, _) => refused,
            },
        }
    }

    fn modern(id: Option<&RequestId>) -> Self {
        Self::refused(id, &invalid(&format!("batches are not part of {MODERN}; send each message alone")))
    }

    fn refused(id: Option<&RequestId>, error: &RpcError) -> Self {
        tracing::debug!(why = error.message(), "an element of a batch was refused");
        Self::Refused(message::error_or_null(id, error))
    }
}

fn invalid(why: &str) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("Invalid request: {why}"))
}
