//! What the scripted server says of tasks of 2025-11-25.

use serde_json::{Value, json};

use super::{line, notify};

pub(crate) fn opening() -> Value {
    json!({
        "protocolVersion": "2025-11-25", "serverInfo": { "name": "scripted", "version": "1" },
        "capabilities": {
            "logging": {}, "tools": {}, "tasks": { "requests": { "tools": { "call": {} } }, "cancel": {} },
        },
    })
}

pub(crate) fn tools() -> Value {
    json!({ "tools": [{ "name": "must", "execution": { "taskSupport": "required" } }] })
}

pub(crate) fn is_theirs(message: &Value) -> bool {
    match message["method"].as_str() {
        Some("tools/call") => message["params"]["task"].is_object(),
        Some(method) => method == "tools/list" || method == "test/task" || method.starts_with("tasks/"),
        None => message["id"].as_str().is_some_and(|id| id.starts_with("theirs-")),
    }
}

pub(crate) fn handle(number: usize) -> Value {
    json!(format!("theirs-{number}"))
}

pub(crate) fn tie(task: &Value) -> Value {
    json!({ "io.modelcontextprotocol/related-task": { "taskId": task } })
}

/// A task that is to be asked after once a minute, so that a test sees what is told in between.
pub(crate) fn state(task: &Value, status: &str, message: &str) -> Value {
    json!({
        "taskId": task, "status": status, "statusMessage": message, "ttl": 60_000, "pollInterval": 60_000,
        "createdAt": "2026-11-29T00:00:00Z", "lastUpdatedAt": "2026-11-29T00:00:00Z",
    })
}

/// Says this of a task.
pub(crate) fn say(task: &Value, token: &Value, step: &str) {
    match step {
        "progress" => notify(
            "notifications/progress",
            json!({ "progressToken": token, "progress": 3, "total": 9, "message": "rows", "_meta": tie(task) }),
        ),
        "status" => notify("notifications/tasks/status", state(task, "working", "half")),
        "done" => notify("notifications/tasks/status", state(task, "completed", "done")),
        "log" => notify("notifications/message", json!({ "level": "info", "data": 1, "_meta": tie(task) })),
        "list" => notify("notifications/tools/list_changed", json!({ "n": 1, "_meta": tie(task) })),
        "ask" => {
            let mut meta = tie(task);
            meta["a/b"] = json!(1);
            let params = json!({ "message": task, "_meta": meta });
            line(
                &json!({ "jsonrpc": "2.0", "id": task, "method": "elicitation/create", "params": params }).to_string(),
            );
        }
        other => panic!("{other}"),
    }
}
