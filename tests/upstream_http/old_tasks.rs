//! Servers that run calls as tasks of 2025-11-25 (field case 78).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use raincheck::protocol::Principal;
use serde_json::{Value, json};

use crate::client::{all, call_of, caller, client};
use crate::http_server::{Seen, Server, Wire, notification};

fn task(status: &str, message: &str) -> Value {
    json!({
        "taskId": "their-task", "status": status, "statusMessage": message, "ttl": 60000, "pollInterval": 50,
        "createdAt": "2026-11-29T00:00:00Z", "lastUpdatedAt": "2026-11-29T00:00:00Z",
    })
}

/// A server with a tool of each kind. The first poll of a task is broken off, and `changes` adds an event to the
/// answer of the tool `tell`.
async fn server() -> Server {
    let polls = Arc::new(AtomicUsize::new(0));
    Server::start(move |seen: Seen, mut wire: Wire| {
        let polls = Arc::clone(&polls);
        async move {
            let as_task = seen.body["params"]["task"].is_object();
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => {
                    let tasks = json!({ "requests": { "tools": { "call": {} } }, "cancel": {} });
                    let result = json!({
                        "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "tasks": tasks },
                        "serverInfo": { "name": "s", "version": "1" },
                    });
                    let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "session-1")];
                    wire.respond("200 OK", &headers, &seen.result(&result)).await
                }
                ("POST", "tools/list") => {
                    let tool =
                        |name: &str, support: &str| json!({ "name": name, "execution": { "taskSupport": support } });
                    let tools = [tool("must", "required"), tool("may", "optional"), tool("not", "forbidden")];
                    wire.json(&seen.result(&json!({ "tools": tools }))).await
                }
                ("POST", "tools/call") if seen.tool() == "must" && !as_task => {
                    let error = json!({ "code": -32601, "message": "needs a task" });
                    wire.json(&json!({ "jsonrpc": "2.0", "id": seen.id(), "error": error }).to_string()).await
                }
                ("POST", "tools/call") if seen.tool() == "tell" => {
                    wire.events().await;
                    wire.event(&notification("notifications/tools/list_changed", &json!({}))).await;
                    wire.event(&seen.says("told")).await;
                    wire
                }
                ("POST", "tools/call") if as_task => {
                    wire.json(&seen.result(&json!({ "task": task("working", "begun") }))).await
                }
                ("POST", "tools/call") => wire.json(&seen.says("plain")).await,
                ("POST", "tasks/get") => match polls.fetch_add(1, Ordering::SeqCst) {
                    0 => wire.reset(),
                    1 => wire.json(&seen.result(&task("working", "half"))).await,
                    _ => wire.json(&seen.result(&task("completed", "done"))).await,
                },
                ("POST", "tasks/result") => {
                    let tie = json!({ "io.modelcontextprotocol/related-task": { "taskId": "their-task" } });
                    wire.json(
                        &seen.result(&json!({ "content": [{ "type": "text", "text": "at last" }], "_meta": tie })),
                    )
                    .await
                }
                ("POST", "tasks/cancel") => wire.json(&seen.result(&task("cancelled", ""))).await,
                ("GET", _) => wire.status("405 Method Not Allowed").await,
                _ => wire.status("202 Accepted").await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_tool_that_must_be_a_task_is_one_on_the_way_to_the_server_only() {
    let server = server().await;
    let client = client(&server);
    let call = call_of("tools/call", r#"{"name":"must","task":{"ttl":1}}"#, caller(Principal::Local, None));
    let seen = all(client.send(call).await).await;
    seen.says("at last");
    assert!(!seen.result().contains("their-task"), "{}", seen.result());
    assert_eq!(seen.progress, ["1: begun", "2: half", "3: done"]);
    let sent = server.seen_of("tools/call");
    assert_eq!(sent.len(), 1, "nothing is run twice");
    assert_eq!(sent[0].body["params"]["task"], json!({ "ttl": 86_400_000 }));
    for method in ["tasks/get", "tasks/result"] {
        for seen in server.seen_of(method) {
            assert_eq!(seen.body["params"]["taskId"], "their-task");
            assert_eq!(seen.header("mcp-session-id"), Some("session-1"), "polls go where the task was made");
        }
    }
    assert_eq!((server.seen_of("tasks/get").len(), server.seen_of("tasks/result").len()), (3, 1));
    client.close().await;
}

#[tokio::test]
async fn other_tools_are_called_plainly_and_the_list_is_read_again_only_when_it_changed() {
    let server = server().await;
    let client = client(&server);
    for tool in ["may", "not", "unlisted"] {
        let stray = format!(r#"{{"name":"{tool}","task":{{"ttl":1}}}}"#);
        all(client.send(call_of("tools/call", &stray, caller(Principal::Local, None))).await).await.says("plain");
    }
    assert!(server.seen_of("tools/call").iter().all(|seen| seen.body["params"]["task"].is_null()));
    assert_eq!(server.seen_of("tools/list").len(), 1);
    client.call("tell").await.says("told");
    client.call("may").await.says("plain");
    assert_eq!(server.seen_of("tools/list").len(), 2);
    client.close().await;
}

#[tokio::test]
async fn a_cancel_is_one_of_the_task_also_when_the_caller_leaves() {
    for leaves in [true, false] {
        let server = server().await;
        let client = client(&server);
        let reply = client.tool("must").await;
        server.saw(|seen| seen.is("tasks/get")).await;
        if leaves {
            drop(reply);
        } else {
            reply.cancel();
            // The server goes on all the same, and its answer may win.
            all(reply).await.says("at last");
        }
        let cancel = server.saw(|seen| seen.is("tasks/cancel")).await;
        assert_eq!(cancel.body["params"], json!({ "taskId": "their-task" }));
        assert!(server.seen_of("notifications/cancelled").is_empty());
        client.close().await;
    }
}

/// The token of the call stays good for as long as its task lasts (2025-11-25, tasks, progress).
#[tokio::test]
async fn progress_under_the_token_of_the_call_counts_while_its_task_lasts() {
    let (polls, token) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(Value::Null)));
    let server = Server::start(move |seen: Seen, mut wire: Wire| {
        let (polls, token) = (Arc::clone(&polls), Arc::clone(&token));
        async move {
            let progress = |at: u64, message: Value| {
                let token = token.lock().unwrap().clone();
                let params = json!({ "progressToken": token, "progress": at, "total": 9, "message": message });
                notification("notifications/progress", &params)
            };
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => {
                    let tasks = json!({ "requests": { "tools": { "call": {} } } });
                    let result = json!({
                        "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "tasks": tasks },
                        "serverInfo": { "name": "s", "version": "1" },
                    });
                    wire.json(&seen.result(&result)).await
                }
                ("POST", "tools/list") => {
                    let tool = json!({ "name": "must", "execution": { "taskSupport": "required" } });
                    wire.json(&seen.result(&json!({ "tools": [tool] }))).await
                }
                ("POST", "tools/call") => {
                    *token.lock().unwrap() = seen.body["params"]["_meta"]["progressToken"].clone();
                    wire.json(&seen.result(&json!({ "task": task("working", "begun") }))).await
                }
                ("POST", "tasks/get") => {
                    let poll = polls.fetch_add(1, Ordering::SeqCst);
                    let (said, status) =
                        if poll == 0 { (json!("rows"), "working") } else { (Value::Null, "completed") };
                    wire.events().await;
                    wire.event(&progress(3 + poll as u64, said)).await;
                    wire.event(&seen.result(&task(status, "half"))).await;
                    wire
                }
                ("POST", "tasks/result") => {
                    wire.events().await;
                    wire.event(&progress(8, Value::Null)).await;
                    wire.event(&seen.says("at last")).await;
                    wire
                }
                ("GET", _) => wire.status("405 Method Not Allowed").await,
                _ => wire.status("202 Accepted").await,
            }
        }
    })
    .await;
    let client = client(&server);
    let seen = client.call("must").await;
    seen.says("at last");
    // What the server says without a number goes with the next number, so that numbers only grow.
    assert_eq!(seen.progress, ["1: begun", "3 of 9: rows", "4 of 9: half", "8 of 9: half"]);
    client.close().await;
}
