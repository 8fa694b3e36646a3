//! What clients get that cannot take a task, in the tasks layer around a scripted service.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends where it fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod augmented;
mod followed;
mod jobs;
mod lists;
mod questions;

use std::time::Duration;

use raincheck::config::{Fallback, Mode, ToolPolicy};
use raincheck::protocol::{Call, Outcome, ReplySender};
use serde_json::{Value, json};
use support::calls::{call_of, legacy_call, text};
use support::layer::Proxy;

/// A handle in words as soon as a timer can fire.
fn in_words() -> ToolPolicy {
    ToolPolicy {
        mode: Mode::Auto,
        after: Duration::from_hours(1),
        hold: Duration::from_millis(1),
        fallback: Fallback::Handle,
        ..ToolPolicy::default()
    }
}

/// A handle in words at once, and checks that wait as long as they like.
fn at_once() -> ToolPolicy {
    ToolPolicy { mode: Mode::Task, hold: Duration::from_hours(1), ..in_words() }
}

/// Kinds of clients that cannot take a task.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Legacy,
    Modern,
}

const BOTH: [Kind; 2] = [Kind::Legacy, Kind::Modern];

/// Ann's call of a tool.
fn tool(kind: Kind, name: &str, arguments: &Value) -> Call {
    tool_of("ann", kind, name, arguments)
}

fn tool_of(who: &str, kind: Kind, name: &str, arguments: &Value) -> Call {
    let params = json!({ "name": name, "arguments": arguments });
    match kind {
        Kind::Legacy => legacy_call(who, "tools/call", params, json!({ "elicitation": {} })),
        Kind::Modern => call_of(who, false, "tools/call", params),
    }
}

/// The text of a result.
fn words(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no words: {result}"))
}

/// The handle in a result.
fn job(result: &Value) -> String {
    let job = result["_meta"]["dev.raincheck/taskId"].as_str().unwrap_or_else(|| panic!("no job: {result}")).to_owned();
    assert!(words(result).contains(&job), "{result}");
    job
}

/// Answers lists of tools until something else comes.
async fn next_call(proxy: &mut Proxy, list: &str) -> (Call, ReplySender) {
    loop {
        let (call, sender) = proxy.next_sent().await;
        if call.method.name() != "tools/list" {
            return (call, sender);
        }
        sender.done(Outcome::Result(text(list)));
    }
}

/// A list of one tool.
const LIST: &str = r#"{"tools":[{"name":"export","inputSchema":{"type":"object"}}]}"#;

/// Starts Ann's `export`, which is slow: its handle, and the way to end it.
async fn started(proxy: &mut Proxy, kind: Kind) -> (Value, ReplySender) {
    let reply = proxy.send_in_background(tool(kind, "export", &json!({ "n": 1 })));
    let (_, sender) = next_call(proxy, LIST).await;
    (reply.await.unwrap(), sender)
}
