//! What becomes of tasks when their process ends or their run is lost, around a scripted service; and what a cancel meets.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

#[path = "../support/mod.rs"]
mod support;

mod again;
mod cancels;
mod clocks;
mod found;
mod retries;
mod waiting;

use raincheck::config::{Mode, OnLost, ToolPolicy};
use raincheck::protocol::{Call, Caller, Credentials, Json, Method, Params, Principal};
use serde_json::{Value, json};
use tokio::time::Instant;

use support::layer::Proxy;

/// Every call is a task at once; one runs at a time.
fn one_at_a_time() -> ToolPolicy {
    ToolPolicy { max_running: Some(1), ..tasks() }
}

fn tasks() -> ToolPolicy {
    ToolPolicy { mode: Mode::Task, ..ToolPolicy::default() }
}

/// A lost run is begun again.
fn rerun() -> ToolPolicy {
    ToolPolicy { on_lost: OnLost::Rerun, ..tasks() }
}

/// Arguments whose spelling must survive.
const ARGUMENTS: &str = r#"{"b": 1E2, "a":[9007199254740993 ],"é":"\u00e9"}"#;

/// A call of Ann's, whose client can be asked, with these arguments.
fn call_with(arguments: &str) -> Call {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "traceparent": "00-ab",
        "io.modelcontextprotocol/clientCapabilities":
            { "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": {} },
    });
    let text = format!(r#"{{"name":"export","arguments":{arguments},"_meta":{meta}}}"#);
    let params = Params::read(&Method::CallTool, Some(support::calls::text(&text))).unwrap();
    let caller = Caller::of_modern(&params, Principal::Named("ann".into()), Credentials::default());
    Call { method: Method::CallTool, params, caller, arrived: Instant::now() }
}

/// Begins a task; its handle.
async fn begin(proxy: &Proxy, arguments: &str) -> String {
    let created = proxy.value(call_with(arguments)).await;
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].as_str().unwrap().to_owned()
}

async fn cancel(proxy: &Proxy, id: &str) {
    let said = proxy.value(support::calls::call("tasks/cancel", json!({ "taskId": id }))).await;
    assert_eq!(said, json!({ "resultType": "complete" }));
}

fn done(text: &str) -> raincheck::protocol::Outcome {
    raincheck::protocol::Outcome::Result(Json::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))
}

fn reason(task: &Value) -> &Value {
    &task["error"]["data"]["reason"]
}

/// How many calls have reached the service since the last look.
fn more_sent(proxy: &mut Proxy) -> usize {
    std::iter::from_fn(|| proxy.sent.try_recv().ok()).count()
}
