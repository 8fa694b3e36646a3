//! Calls of a modern client.

use serde_json::json;

use crate::host::{Machine, modern, modern_with};

#[tokio::test]
async fn a_client_discovers_lists_nothing_of_its_own_and_calls() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let discovered = client.request("server/discover", modern(json!({}))).await;
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]), "{discovered}");
    assert_eq!(
        discovered["result"]["capabilities"]["extensions"],
        json!({ "io.modelcontextprotocol/tasks": {} }),
        "{discovered}"
    );
    let id = client.call("echo", json!({ "a": 1.0 })).await;
    let answer = client.answer(&id).await;
    assert_eq!(answer["result"]["arguments"], json!({ "a": 1.0 }));
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(client.close().await, [] as [serde_json::Value; 0]);
}

#[tokio::test]
async fn a_slow_call_becomes_a_task_and_is_asked_after_while_others_run() {
    let machine = Machine::new();
    let mut client = machine.start(&["--after", "50ms"]);
    let id = client.call("hold", json!({ "value": 7 })).await;
    let handle = client.answer(&id).await["result"]["taskId"].clone();
    // Without Tasks the same call is held open.
    let held = modern_with(json!({ "name": "hold", "arguments": { "value": 8 } }), json!({}));
    let held = client.ask("tools/call", held).await;
    machine.noted("hold", 2).await;
    assert_eq!(client.task(&handle).await["status"], "working");
    let released = client.call("release", json!({})).await;
    assert_eq!(client.answer(&held).await["result"]["value"], 8);
    client.answer(&released).await;
    let task = client.until(&handle, "completed").await;
    assert_eq!(task["result"]["value"], 7, "{task}");
    client.close().await;
}

#[tokio::test]
async fn progress_goes_out_before_the_answer_under_the_clients_own_token() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let params = json!({ "name": "progress", "arguments": {}, "_meta": { "progressToken": "mine" } });
    let id = client.ask("tools/call", modern(params)).await;
    let progress = client.next().await;
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(progress["params"], json!({ "progressToken": "mine", "progress": 1, "total": 2 }));
    assert!(client.answer(&id).await["result"].is_object());
    client.close().await;
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_server_and_has_no_answer() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let id = client.call("hold", json!({})).await;
    machine.noted("hold", 1).await;
    client.notify("notifications/cancelled", json!({ "requestId": id, "reason": "no more" })).await;
    machine.noted("cancelled", 1).await;
    // The id is free again, and the answer of the first call is nobody's.
    let again = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": modern(json!({ "name": "echo", "arguments": { "again": true } })) });
    client.send(&again).await;
    assert_eq!(client.answer(&id).await["result"]["arguments"]["again"], true);
    let released = client.call("release", json!({})).await;
    client.answer(&released).await;
    assert_eq!(client.close().await, [] as [serde_json::Value; 0]);
}

#[tokio::test]
async fn a_second_request_of_a_running_id_is_refused_and_the_first_goes_on() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let id = client.call("hold", json!({ "first": true })).await;
    machine.noted("hold", 1).await;
    let same = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": modern(json!({ "name": "echo", "arguments": {} })) });
    client.send(&same).await;
    assert_eq!(client.answer(&id).await["error"]["code"], -32600);
    client.call("release", json!({})).await;
    assert_eq!(client.answer(&id).await["result"]["first"], true);
    client.close().await;
    assert_eq!(machine.ledger("echo"), 0);
}

#[tokio::test]
async fn a_subscription_is_acknowledged_and_ends_with_its_answer_when_the_proxy_stops() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let params = modern(json!({ "notifications": { "toolsListChanged": true } }));
    let id = client.ask("subscriptions/listen", params.clone()).await;
    let acknowledged = client.next().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    let cancelled = client.ask("subscriptions/listen", params).await;
    client.next().await;
    client.notify("notifications/cancelled", json!({ "requestId": cancelled })).await;
    let read = client.call("echo", json!({})).await;
    client.answer(&read).await;
    client.signal(nix::sys::signal::Signal::SIGTERM);
    let ended = client.answer(&id).await;
    assert_eq!(ended["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id, "{ended}");
    assert_eq!(client.close().await, [] as [serde_json::Value; 0]);
}
