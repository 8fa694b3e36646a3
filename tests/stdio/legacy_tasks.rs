//! Hosts of 2025-11-25 that call tools as tasks, over stdio.

use serde_json::{Value, json};

use crate::host::{Connection, Machine};

async fn host(machine: &Machine, revision: &str) -> (Connection, Value) {
    let mut client = machine.start(&[]);
    let hello = json!({
        "protocolVersion": revision, "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "host", "version": "7" },
    });
    let mut answer = client.request("initialize", hello).await;
    client.notify("notifications/initialized", json!({})).await;
    (client, answer["result"]["capabilities"]["tasks"].take())
}

async fn started(client: &mut Connection, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments, "task": { "ttl": 60_000 } });
    let created = client.request("tools/call", params).await;
    assert_eq!(created["result"]["task"]["status"], "working", "{created}");
    json!({ "taskId": created["result"]["task"]["taskId"] })
}

#[tokio::test]
async fn a_host_starts_a_task_answers_it_and_cancels_another_and_both_are_there_after_a_restart() {
    let machine = Machine::with("full").env("RAINCHECK_DEFAULTS_FALLBACK", "legacy_tasks");
    let (mut client, offered) = host(&machine, "2025-11-25").await;
    assert_eq!(offered, json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } }));
    let list = client.request("tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][0]["execution"], json!({ "taskSupport": "optional" }), "{list}");

    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": { "message": "m" } });
    let asking = started(&mut client, "question", question).await;
    let waiting = client.ask("tasks/result", asking.clone()).await;
    let asked = loop {
        let message = client.next().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert_eq!(asked["params"]["message"], "m");
    assert_eq!(asked["params"]["_meta"]["io.modelcontextprotocol/related-task"], asking);
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } })).await;
    let done = client.answer(&waiting).await;
    assert_eq!(done["result"]["answer"]["result"], json!({ "action": "decline" }), "{done}");

    let held = started(&mut client, "hold", json!({ "n": 1 })).await;
    machine.noted("hold", 1).await;
    let cancelled = client.request("tasks/cancel", held.clone()).await;
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    client.close().await;

    let (mut client, _) = host(&machine, "2025-11-25").await;
    let listed = client.request("tasks/list", json!({})).await;
    let shown: Vec<_> = listed["result"]["tasks"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(shown, ["cancelled", "completed"], "{listed}");
    let again = client.request("tasks/result", asking).await;
    assert_eq!(again["result"], done["result"]);
}

#[tokio::test]
async fn a_host_of_an_older_revision_is_told_nothing_of_tasks() {
    let machine = Machine::with("full,version=2025-06-18").env("RAINCHECK_DEFAULTS_FALLBACK", "legacy_tasks");
    let (mut client, offered) = host(&machine, "2025-06-18").await;
    assert_eq!(offered, Value::Null);
    let list = client.request("tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][0]["execution"], Value::Null, "{list}");
    assert_eq!(client.request("tasks/list", json!({})).await["error"]["code"], -32601);
}
