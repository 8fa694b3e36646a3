//! Callers of all kinds who send the same call.

use raincheck::config::{Mode, ToolPolicy};
use raincheck::protocol::{
    Call, CallKey, Caller, ClientSession, Credentials, Json, Method, Outcome, Params, Principal,
};
use raincheck::protocol::{Reply, TaskSupport};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, timeout};

use crate::support::calls::{shown, text};
use crate::support::layer::{PATIENCE, Proxy};

/// What a client can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Modern, with Tasks and forms.
    Tasks,
    /// Modern, with forms.
    Plain,
    /// Of 2025-11-25.
    Legacy,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Tasks, Kind::Plain, Kind::Legacy];

pub(crate) const RESULT: &str = r#"{"content":[],"n":1E2,"big":9007199254740995}"#;

pub(crate) fn policy(mode: Mode) -> ToolPolicy {
    ToolPolicy { mode, after: Duration::from_hours(1), ..ToolPolicy::default() }
}

pub(crate) fn export() -> Value {
    json!({ "name": "export", "arguments": { "n": 1, "m": [1.0, "x"] } })
}

/// A call of somebody, without a key.
pub(crate) fn call_of(who: Principal, kind: Kind, mut params: Value) -> Call {
    let extensions = if kind == Kind::Tasks { json!({ "io.modelcontextprotocol/tasks": {} }) } else { json!({}) };
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions, "elicitation": {} },
    });
    let params = Params::read(&Method::CallTool, Some(Json::from_value(&params))).unwrap();
    let mut caller = Caller::of_modern(&params, who, Credentials::default());
    if kind == Kind::Legacy {
        caller.session = ClientSession::Legacy(7);
        caller.tasks = TaskSupport::Undeclared;
    }
    Call { method: Method::CallTool, params, caller, arrived: Instant::now() }
}

/// Ann's call with a key.
pub(crate) fn keyed(kind: Kind, key: &str, params: Value) -> Call {
    let mut call = call_of(Principal::Named("ann".into()), kind, params);
    call.caller.key = Some(CallKey::read(key).unwrap());
    call
}

/// The call that most tests repeat.
pub(crate) fn call(kind: Kind) -> Call {
    keyed(kind, "k", export())
}

pub(crate) async fn outcome(reply: Reply) -> Outcome {
    timeout(PATIENCE, reply.outcome()).await.expect("no outcome")
}

/// What a reply says on the wire.
pub(crate) async fn said(reply: Reply) -> Value {
    shown(outcome(reply).await)
}

pub(crate) fn done() -> Outcome {
    Outcome::Result(text(RESULT))
}

/// Whether this is the result of the first call, said to be so.
pub(crate) fn assert_joined(outcome: Outcome) {
    let Outcome::Result(result) = outcome else { panic!("{outcome:?}") };
    let expected = format!(r#"{},"_meta":{{"dev.raincheck/joined":true}}}}"#, RESULT.strip_suffix('}').unwrap());
    assert_eq!(result.as_str(), expected);
}

/// Whether this is the handle of the task `id`, said to be of an earlier call.
pub(crate) fn assert_same_handle(handle: &Value, id: &str, status: &str) {
    assert_eq!((&handle["resultType"], &handle["taskId"]), (&json!("task"), &json!(id)), "{handle}");
    assert_eq!(
        (&handle["status"], &handle["_meta"]["dev.raincheck/joined"]),
        (&json!(status), &json!(true)),
        "{handle}"
    );
    let message = handle["statusMessage"].as_str().unwrap();
    let how = if matches!(status, "working" | "input_required") { "goes on" } else { "has ended" };
    assert!(message.starts_with(&format!("this repeats an earlier call, which {how}")), "{message}");
}

pub(crate) fn id_of(created: &Value) -> String {
    created["taskId"].as_str().unwrap_or_else(|| panic!("no handle: {created}")).to_owned()
}

impl Proxy {
    /// Whether nothing was sent beside what was taken.
    pub(crate) fn assert_sent_no_more(&mut self) {
        assert!(self.sent.try_recv().is_err(), "a call was sent again");
    }
}
