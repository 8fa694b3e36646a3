//! Answers to lines that are no good requests.

use bytes::Bytes;

use crate::front::refusal::Refusal;
use crate::protocol::error::code;
use crate::protocol::message::MessageFault;
use crate::protocol::{Failure, Json, JsonError, MODERN, Reason, RequestId, Retry, Rope, RpcError, message};
use crate::upstream::scan::{Addressee, Scan};

/// The answer to a line that is no message.
pub(super) fn unreadable(line: &Bytes, fault: &message::MessageError) -> Rope {
    let error = match &fault.cause {
        MessageFault::Json(JsonError::Syntax(error)) => {
            let place = error.column();
            RpcError::new(code::PARSE, format!("Parse error: the line is not valid JSON (column {place})"))
        }
        _ => fault.to_rpc(),
    };
    tracing::warn!(why = error.message(), "a line of the client was refused");
    // Whoever sent a request under an id that can still be found out waits for an answer under that id.
    let id = fault.id.clone().or_else(|| {
        let mut scan = Scan::default();
        scan.feed(line);
        match scan.addressee() {
            Addressee::Us(Some(id)) if scan.is_rpc() => RequestId::read(id),
            _ => None,
        }
    });
    message::error(id.filter(RequestId::is_integral).as_ref(), &error)
}

/// The answer to a request, under this id if there is one, that is longer than `limit`.
pub(super) fn too_long(id: Option<Json>, limit: usize) -> Rope {
    let message = format!("Invalid request: the line is longer than limits.body allows ({limit} bytes)");
    message::error(id.and_then(RequestId::read).as_ref(), &RpcError::new(code::INVALID_REQUEST, message))
}

/// The answer in the place of one of `length` bytes, which no line may have.
pub(super) fn too_long_to_send(id: &RequestId, length: usize, limit: usize) -> Rope {
    let message = format!(
        "the answer has {length} bytes, more than limits.line allows on one line ({limit} bytes, as much as clients of \
         the TypeScript SDK take); a tool that was called has run"
    );
    message::error(Some(id), &RpcError::from(&Failure::new(Reason::TooLarge, message, Retry::No)))
}

/// What a server is told whose question got an answer that is longer than `limit`.
pub(super) fn too_long_answer(limit: usize) -> RpcError {
    RpcError::new(
        code::INTERNAL,
        format!("the client's answer is longer than limits.body of Raincheck allows ({limit} bytes)"),
    )
}

/// The answer to a request that belongs to no session and does not say that it needs none.
pub(super) fn not_initialized(id: &RequestId) -> Rope {
    let message = format!(
        "Invalid request: send \"initialize\" first, or put _meta[\"io.modelcontextprotocol/protocolVersion\"] on \
         every request (MCP {MODERN})"
    );
    message::error(Some(id), &RpcError::new(code::INVALID_REQUEST, message))
}

/// The answer to a request whose id is that of one that still runs.
pub(super) fn repeated_id(id: &RequestId) -> Rope {
    let why = "Invalid request: a request of this id is still running on this connection";
    message::error(Some(id), &RpcError::new(code::INVALID_REQUEST, why))
}

/// The answer to what is refused by rules that hold over HTTP too.
pub(super) fn by_rule(refusal: Refusal) -> Rope {
    let (id, error) = refusal.into_parts();
    message::error(id.as_ref(), &error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Message;

    fn shown(line: &str) -> (i64, Option<serde_json::Value>) {
        let line = Bytes::from(line.to_owned());
        let fault = Message::parse(&line, 16).unwrap_err();
        let answer: serde_json::Value = unreadable(&line, &fault).into_json().read().unwrap();
        (answer["error"]["code"].as_i64().unwrap(), answer.get("id").cloned())
    }

    #[test]
    fn a_broken_line_is_answered_under_the_id_that_can_be_found_in_it_and_else_without_one() {
        let cases = [
            ("nonsense", code::PARSE, None),
            ("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"a\":}}", code::PARSE, Some(7)),
            ("{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":}}", code::PARSE, None),
            ("{\"id\":7,\"method\":\"ping\"}", code::INVALID_REQUEST, Some(7)),
            ("[1]", code::INVALID_REQUEST, None),
            ("42", code::INVALID_REQUEST, None),
        ];
        for (line, code, id) in cases {
            assert_eq!(shown(line), (code, id.map(serde_json::Value::from)), "{line}");
        }
    }
}
