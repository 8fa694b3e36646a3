//! What goes to a server out of a call, in the words of the server's era.

use bytes::Bytes;

use crate::protocol::message::{self, RequestId};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Call, Caller, Json, MODERN, Method, Params, Rope, StopCause, TASKS_EXTENSION, TaskSupport, meta_key,
};

/// Which kind of revision a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerEra {
    /// 2025-11-25 or older: `initialize`, then calls.
    Legacy,
    /// 2026-07-28: every request stands alone and says who asks in its `_meta`.
    Modern,
}

/// Keys of `_meta` that speak of one leg of the way only, so the caller's never reach the server: these, and those that
/// [`Params::meta_others`] leaves out.
const OWN_META: [&str; 2] = [meta_key::CLIENT_INFO, meta_key::RELATED_TASK];

/// How long a task that we have a 2025-11-25 server make is to be kept: longer than most runs, since a server may
/// count from the creation.
const TASK_TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// What is said beside the caller's own parameters.
#[derive(Debug, Default)]
struct Says<'a> {
    /// Who asks, for a modern server.
    caller: Option<&'a Caller>,
    /// The progress token.
    token: Option<u64>,
    /// That the call is to be a task of 2025-11-25.
    as_task: bool,
}

/// The request that asks a server for what `call` wants, under our own `id`.
///
/// The id is the progress token too. Progress is always asked for on `tools/call`, since a call may
/// become a task; on other methods only where the caller asks for it.
///
/// `caller.tasks` is not what the client declared but what is wanted on this request (see [`super::drive`]): a tool
/// call that is a task of 2025-11-25, or one whose answer may be a task of 2026-07-28.
pub(super) fn request(call: &Call, era: ServerEra, id: u64) -> Rope {
    let wants_progress = call.method == Method::CallTool || call.caller.progress_token.is_some();
    let as_task = era == ServerEra::Legacy && call.method == Method::CallTool && wants_tasks(&call.caller);
    let says = Says { caller: Some(&call.caller), token: wants_progress.then_some(id), as_task };
    let params = params(&call.params, era, &says);
    message::request(&RequestId::from_number(id), call.method.name(), params)
}

/// The notification of a legacy client, for its server; `None` if it is not for the server: the end of the handshake
/// was told already, and a cancel names a request by the client's own id.
pub(super) fn notification(call: &Call) -> Option<Rope> {
    match call.method.name() {
        "notifications/initialized" | "notifications/cancelled" => None,
        name => Some(message::notification(name, params(&call.params, ServerEra::Legacy, &Says::default()))),
    }
}

/// A request of our own.
pub(super) fn own_request(method: &str, era: ServerEra, id: u64) -> Rope {
    let params = match era {
        ServerEra::Legacy => None,
        ServerEra::Modern => {
            let mut meta = ObjectWriter::new();
            modern_meta(&mut meta, None);
            let mut params = ObjectWriter::new();
            params.rope("_meta", meta.finish());
            Some(params.finish())
        }
    };
    message::request(&RequestId::from_number(id), method, params)
}

/// The notification that asks a server to stop working on the request `id`, and why.
pub(super) fn cancelled(id: u64, cause: StopCause) -> Rope {
    let mut params = ObjectWriter::new();
    params.raw("requestId", RequestId::from_number(id).token()).string("reason", &cause.to_string());
    message::notification("notifications/cancelled", Some(params.finish()))
}

/// Our name and version, as `clientInfo`.
pub(super) fn client_info() -> Json {
    Json::from_value(&serde_json::json!({ "name": "raincheck", "version": env!("CARGO_PKG_VERSION") }))
}

/// The parameters for the server; `None` if nothing is left of them.
fn params(params: &Params, era: ServerEra, says: &Says<'_>) -> Option<Rope> {
    let mut writer = ObjectWriter::new();
    let mut any = false;
    for (name, value) in params.others().filter(|(name, _)| passes(name, era)) {
        writer.raw(name, value);
        any = true;
    }
    if says.as_task {
        writer.raw("task", &Json::from_value(&serde_json::json!({ "ttl": TASK_TTL_MS })));
        any = true;
    }
    if let Some(meta) = meta(params, era, says) {
        writer.rope("_meta", meta);
        any = true;
    }
    any.then(|| writer.finish())
}

/// Whether a member of `params` is for a server of that era.
fn passes(name: &str, era: ServerEra) -> bool {
    match name {
        // The opt-in of 2025-11-25: a stray one must not make a task on the server (field case 78).
        "task" => false,
        "inputResponses" | "requestState" => era == ServerEra::Modern,
        _ => true,
    }
}

fn meta(params: &Params, era: ServerEra, says: &Says<'_>) -> Option<Rope> {
    let mut writer = ObjectWriter::new();
    let mut any = era == ServerEra::Modern;
    for (name, value) in params.meta_others().filter(|(name, _)| !OWN_META.contains(name)) {
        writer.raw(name, value);
        any = true;
    }
    if let Some(key) = params.meta_member(meta_key::IDEMPOTENCY_KEY) {
        writer.raw(meta_key::IDEMPOTENCY_KEY, &key);
        any = true;
    }
    if let (ServerEra::Modern, Some(level)) = (era, params.meta_member(meta_key::LOG_LEVEL)) {
        writer.raw(meta_key::LOG_LEVEL, &level);
    }
    if era == ServerEra::Modern {
        modern_meta(&mut writer, says.caller);
    }
    if let Some(token) = says.token {
        writer.raw(meta_key::PROGRESS_TOKEN, RequestId::from_number(token).token());
        any = true;
    }
    any.then(|| writer.finish())
}

/// What every modern request must say. A server hears what the caller can be asked, and of our own abilities nothing
/// but the Tasks extension, on the requests for which it is wanted.
fn modern_meta(writer: &mut ObjectWriter, caller: Option<&Caller>) {
    let mut capabilities = ObjectWriter::new();
    if let Some(caller) = caller {
        for (kind, settings) in caller.abilities.questions() {
            capabilities.raw(kind.capability(), &settings);
        }
        if wants_tasks(caller) {
            capabilities.raw("extensions", &Json::from_value(&serde_json::json!({ TASKS_EXTENSION: {} })));
        }
    }
    writer
        .string(meta_key::PROTOCOL_VERSION, MODERN)
        .raw(meta_key::CLIENT_INFO, &client_info())
        .rope(meta_key::CLIENT_CAPABILITIES, capabilities.finish());
}

fn wants_tasks(caller: &Caller) -> bool {
    caller.tasks == TaskSupport::Declared
}

/// `message` as one line: its pieces without anything that a line reader takes for an end, and one
/// line feed. Pieces are copied only where such bytes occur.
pub(super) fn line(message: Rope) -> Rope {
    let mut line = Rope::default();
    for piece in message.into_pieces() {
        line.push(line_safe(piece));
    }
    line.push(Bytes::from_static(b"\n"));
    line
}

/// JSON text without raw line ends. In valid JSON a raw CR or LF only ever stands between tokens, so it
/// may go; U+2028, U+2029 and U+0085 only ever stand inside strings, so they may be escaped.
fn line_safe(text: Bytes) -> Bytes {
    let Some(mut at) = next_line_end(&text, 0) else { return text };
    let mut safe = Vec::with_capacity(text.len() + 16);
    let mut copied = 0;
    loop {
        let (escape, len): (&[u8], usize) = match text.get(at..) {
            Some([b'\n' | b'\r', ..]) => (b"", 1),
            Some([0xc2, ..]) => (b"\\u0085", 2),
            Some([0xe2, 0x80, 0xa8, ..]) => (b"\\u2028", 3),
            _ => (b"\\u2029", 3),
        };
        safe.extend_from_slice(text.get(copied..at).unwrap_or_default());
        safe.extend_from_slice(escape);
        copied = at + len;
        match next_line_end(&text, copied) {
            Some(next) => at = next,
            None => break,
        }
    }
    safe.extend_from_slice(text.get(copied..).unwrap_or_default());
    Bytes::from(safe)
}

/// Where the next line end of any kind begins, from `from` on.
fn next_line_end(text: &[u8], from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let plain = memchr::memchr2(b'\n', b'\r', rest);
    let before = rest.get(..plain.unwrap_or(rest.len())).unwrap_or(rest);
    let wide = memchr::memchr2_iter(0xc2, 0xe2, before)
        .find(|at| matches!(rest.get(*at..), Some([0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..])));
    wide.or(plain).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::protocol::{Credentials, Principal};

    fn call(method: &str, params: &str) -> Call {
        let method = Method::of(method);
        let raw = Json::parse(Bytes::from(params.to_owned())).unwrap();
        let params = Params::read(&method, Some(raw)).unwrap();
        let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
        Call { method, params, caller, arrived: Instant::now() }
    }

    fn text(rope: Rope) -> String {
        String::from_utf8(rope.into_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_legacy_server_gets_the_callers_parameters_with_our_token_only() {
        let call = call(
            "tools/call",
            r#"{"name":"t","arguments":{"n": 9007199254740995, "n":1E2},"task":{},"inputResponses":{},
               "requestState":"s","zzz":1.0,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
               "io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{},
               "io.modelcontextprotocol/logLevel":"debug","progressToken":"theirs","traceparent":"00-ab",
               "com.example/x":1e400}}"#,
        );
        assert_eq!(
            text(request(&call, ServerEra::Legacy, 7)),
            concat!(
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","#,
                r#""arguments":{"n": 9007199254740995, "n":1E2},"zzz":1.0,"#,
                r#""_meta":{"traceparent":"00-ab","com.example/x":1e400,"progressToken":7}}}"#
            )
        );
    }

    #[test]
    fn a_modern_server_is_told_who_asks_and_that_we_can_do_nothing() {
        let call = call("resources/read", r#"{"uri":"a:b","requestState":"s","task":{},"_meta":{"traceparent":"t"}}"#);
        let sent = text(request(&call, ServerEra::Modern, 3));
        let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
        let expected = serde_json::json!({
            "jsonrpc": "2.0", "id": 3, "method": "resources/read",
            "params": { "uri": "a:b", "requestState": "s", "_meta": {
                "traceparent": "t",
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "raincheck", "version": env!("CARGO_PKG_VERSION") },
                "io.modelcontextprotocol/clientCapabilities": {},
            }},
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn a_task_is_asked_for_in_the_words_of_the_servers_era_and_only_where_it_is_wanted() {
        let text_of = |method: &str, era, wanted| {
            let mut call = call(
                method,
                r#"{"name":"t","taskId":"x","task":{"ttl":1},"_meta":{"io.modelcontextprotocol/logLevel":"info",
                   "io.modelcontextprotocol/clientCapabilities":{"roots":{},"sampling":{"tools":{}},"tasks":{},
                   "extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}}}}"#,
            );
            call.caller.tasks = wanted;
            let sent: serde_json::Value = serde_json::from_str(&text(request(&call, era, 1))).unwrap();
            sent["params"].clone()
        };
        let old = text_of("tools/call", ServerEra::Legacy, TaskSupport::Declared);
        assert_eq!(old["task"], serde_json::json!({ "ttl": 86_400_000 }));
        assert_eq!(old["_meta"], serde_json::json!({ "progressToken": 1 }));
        for (method, wanted) in [("tools/call", TaskSupport::Undeclared), ("tasks/get", TaskSupport::Declared)] {
            assert_eq!(text_of(method, ServerEra::Legacy, wanted)["task"], serde_json::Value::Null);
        }
        let key = "io.modelcontextprotocol/clientCapabilities";
        let plain = text_of("tools/call", ServerEra::Modern, TaskSupport::Undeclared);
        assert_eq!(plain["_meta"][key], serde_json::json!({ "roots": {}, "sampling": { "tools": {} } }));
        assert_eq!(plain["_meta"]["io.modelcontextprotocol/logLevel"], "info");
        let modern = text_of("tasks/get", ServerEra::Modern, TaskSupport::Declared);
        assert_eq!(modern["_meta"][key]["extensions"], serde_json::json!({ "io.modelcontextprotocol/tasks": {} }));
        assert_eq!((&plain["task"], &modern["task"]), (&().into(), &().into()));
    }

    #[test]
    fn nothing_is_added_where_a_caller_sends_nothing_and_asks_for_no_progress() {
        let sent = text(request(&call("tools/list", "{}"), ServerEra::Legacy, 1));
        assert_eq!(sent, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        let asks = call("tools/list", r#"{"_meta":{"progressToken":0}}"#);
        assert!(text(request(&asks, ServerEra::Legacy, 1)).ends_with(r#""params":{"_meta":{"progressToken":1}}}"#));
    }

    #[test]
    fn a_line_has_no_line_ends_but_its_own() {
        let raw = Bytes::from("{\"a\":\r\n\"x\u{2028}y\u{2029}z\u{85}é\u{2014}\",\n\"b\":1}");
        assert_eq!(text(line(Rope::from(raw))), "{\"a\":\"x\\u2028y\\u2029z\\u0085é\u{2014}\",\"b\":1}\n");
    }

    #[test]
    fn a_text_without_line_ends_is_not_copied() {
        let raw = Bytes::from("{\"a\":\"\u{e9}\u{2014}\"}");
        let safe = line(Rope::from(raw.clone()));
        assert_eq!(safe.into_pieces()[0].as_ptr(), raw.as_ptr());
    }

    proptest! {
        #[test]
        fn a_line_means_the_same_as_its_message(value in "[\\x20-\\x7f\\n\\r\u{85}\u{2028}\u{2029}\u{e9}]*") {
            let pretty = serde_json::to_string_pretty(&serde_json::json!([{ "v": value }])).unwrap();
            let line = text(line(Rope::from(Bytes::from(pretty))));
            let (body, end) = line.split_at(line.len() - 1);
            prop_assert_eq!(end, "\n");
            let ends = body.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
            prop_assert!(!ends);
            let read: serde_json::Value = serde_json::from_str(body).unwrap();
            prop_assert_eq!(read, serde_json::json!([{ "v": value }]));
        }
    }
}
