//! What the fuzz targets in `fuzz/` and the property tests run: each takes any bytes and panics where something that
//! must hold does not. Compiled for tests and with the feature `fuzzing` only.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::value::RawValue;

use crate::config::{Environment, parse};
use crate::protocol::message::{self, Message};
use crate::protocol::sse::{EventTooLarge, SseEvent, SseParser};
use crate::protocol::{Call, Caller, Credentials, HeaderRules, Json, Method, Params, Principal, headers, json};
use crate::upstream::fuzzing::scan;

/// The nesting that the front allows.
const DEPTH: usize = 64;

/// Reads a JSON-RPC message: what is accepted is JSON, reads the same when it is written anew, and is for the same
/// addressee however its line is cut into chunks.
pub fn message(input: &[u8]) {
    let text = Bytes::copy_from_slice(input);
    let read = Message::parse(&text, DEPTH);
    let is_json = serde_json::from_slice::<&RawValue>(input).is_ok();
    assert_eq!(Json::parse(text.clone()).is_ok(), is_json, "two readers of JSON differ");
    assert!(read.is_err() || is_json, "a message that is no JSON");
    if let Err(error) = &read {
        let answer = message::error(error.id.as_ref(), &error.to_rpc()).into_bytes();
        assert!(matches!(Message::parse(&answer, DEPTH), Ok(Message::Error { .. })), "the refusal cannot be read");
    }
    if let Ok(read) = read {
        accepted(&read);
    }
    assert_eq!(scan(&[input]), scan(&input.chunks(1).collect::<Vec<_>>()), "a cut line is for somebody else");
    assert_eq!(scan(&[input]), scan(&input.chunks(7).collect::<Vec<_>>()), "a cut line is for somebody else");
}

/// Writes a message anew and reads that.
fn accepted(read: &Message) {
    let rope = |params: &Option<Json>| params.as_ref().map(|params| params.bytes().clone().into());
    let written = match read {
        Message::Request { id, method, params } => message::request(id, method, rope(params)),
        Message::Notification { method, params } => message::notification(method, rope(params)),
        Message::Result { .. } => return,
        Message::Error { error, .. } => {
            assert!(error.raw().is_object(), "an error that is no object");
            return;
        }
    };
    let written = written.into_bytes();
    match (read, Message::parse(&written, DEPTH + 1)) {
        (Message::Request { id, method, params }, Ok(Message::Request { id: i, method: m, params: p })) => {
            assert!(*id == i && *method == m && same(params.as_ref(), p.as_ref()), "a request changed");
            call(method, params.clone());
        }
        (Message::Notification { method, params }, Ok(Message::Notification { method: m, params: p })) => {
            assert!(*method == m && same(params.as_ref(), p.as_ref()), "a notification changed");
        }
        (_, other) => panic!("it became {other:?}"),
    }
}

fn same(one: Option<&Json>, other: Option<&Json>) -> bool {
    one.map(Json::as_str) == other.map(Json::as_str)
}

/// What the front makes of a request.
fn call(method: &str, params: Option<Json>) {
    let method = Method::of(method);
    let Ok(params) = Params::read(&method, params) else { return };
    let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
    let call = Call { method, params, caller, arrived: tokio::time::Instant::now() };
    let _ = (call.params.name(), call.params.request_state(), call.caller.abilities.questions());
    let _ = json::check_depth(call.params.raw().bytes(), DEPTH);
}

/// Reads server-sent events: the same ones however the body is cut, none larger than the limit. The first byte says
/// how large an event may be and where the body is cut.
pub fn sse(input: &[u8]) {
    let Some((first, body)) = input.split_first() else { return };
    let limit = usize::from(*first) * 4;
    let whole = events(&[body], limit);
    for size in [1, 2, usize::from(*first) + 3] {
        let cut = events(&body.chunks(size).collect::<Vec<_>>(), limit);
        assert_eq!(whole.0, cut.0, "the events change with chunks of {size} bytes");
        assert_eq!(whole.1, cut.1, "what is left changes with chunks of {size} bytes");
    }
}

/// The events of a body and, unless one was too large, what is left with the last id.
type Events = (Vec<SseEvent>, Result<(Option<Bytes>, Option<String>), EventTooLarge>);

fn events(chunks: &[&[u8]], limit: usize) -> Events {
    let mut parser = SseParser::new(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        parser.feed(Bytes::copy_from_slice(chunk));
        loop {
            match parser.next_event() {
                Ok(Some(event)) => {
                    assert!(event.data.len() <= limit, "an event is too large");
                    events.push(event);
                }
                Ok(None) => break,
                Err(error) => return (events, Err(error)),
            }
        }
    }
    (events, Ok((parser.pending(), parser.last_id().map(str::to_owned))))
}

/// Reads headers: the first line is the value of `Mcp-Name`, the second a tool with its schema, the rest its arguments.
pub fn header(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == b'\n');
    let value = parts.next().unwrap_or_default();
    if let Ok(text) = headers::decode(value) {
        survives(&text);
    }
    if let Ok(text) = std::str::from_utf8(value) {
        survives(text);
    }
    let mut json = || Json::parse(Bytes::copy_from_slice(parts.next()?)).ok();
    let (Some(tool), arguments) = (json(), json()) else { return };
    let list = Json::parse(Bytes::from(format!("{{\"tools\":[{}]}}", tool.as_str())));
    if let Ok(list) = list {
        let _ = HeaderRules::of_list(&list);
    }
    let Ok(rules) = HeaderRules::of_tool(&tool) else { return };
    let mirrored: HeaderMap = rules.mirror(arguments.as_ref()).into_iter().collect();
    let checked = rules.check(&mirrored, arguments.as_ref());
    // Arguments that cannot be read are refused; all others agree with what is made of them.
    let readable = arguments.as_ref().is_none_or(|arguments| arguments.members().is_ok());
    assert!(checked.is_ok() || !readable, "our own headers are refused: {checked:?}");
}

/// A text comes out of a header as it went in.
fn survives(text: &str) {
    let header = headers::encode(text);
    assert_eq!(headers::decode(header.as_bytes()).as_deref(), Ok(text), "a text changed on the way");
}

/// Reads a configuration: it is one, or its faults can be shown; secrets from files and variables are not looked for.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // Otherwise a secret would be read from any file of this machine.
    if text.contains("file") {
        return;
    }
    match parse(text, &Environment::default()) {
        Ok(config) => assert!(!format!("{config:?}").is_empty()),
        Err(faults) => assert!(!faults.0.is_empty() && !faults.to_string().is_empty(), "refused without a reason"),
    }
}

/// Reads a record of the store: it is damaged, or what is written for it reads as the same task.
pub fn record(input: &[u8]) {
    crate::store::fuzzing::record(input);
}
