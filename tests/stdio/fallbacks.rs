//! Hosts that cannot take a task: a handle in words, over stdio.

use serde_json::{Value, json};

use crate::host::{Connection, Machine, modern_with};

fn machine() -> Machine {
    Machine::with("full").env("RAINCHECK_DEFAULTS_FALLBACK", "handle").env("RAINCHECK_DEFAULTS_MODE", "task")
}

async fn legacy(machine: &Machine) -> Connection {
    let mut client = machine.start(&[]);
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "host", "version": "7" },
    });
    client.request("initialize", hello).await;
    client.notify("notifications/initialized", json!({})).await;
    client
}

async fn tool(client: &mut Connection, name: &str, arguments: Value) -> Value {
    let answer = client.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

fn job(result: &Value) -> String {
    result["_meta"]["dev.raincheck/taskId"].as_str().unwrap_or_else(|| panic!("no job: {result}")).to_owned()
}

#[tokio::test]
async fn a_host_starts_a_job_answers_it_checks_it_and_cancels_another() {
    let machine = machine();
    let mut client = legacy(&machine).await;
    let list = client.request("tools/list", json!({})).await;
    let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["plain", "asking", "check_job", "cancel_job", "answer_job"]);

    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": { "message": "m" } });
    let asking = job(&tool(&mut client, "question", question).await);
    let asked = tool(&mut client, "check_job", json!({ "job": asking })).await;
    assert_eq!(asked["structuredContent"]["questions"][0]["params"]["message"], "m", "{asked}");
    tool(&mut client, "answer_job", json!({ "job": asking, "action": "decline" })).await;
    let answered = tool(&mut client, "check_job", json!({ "job": asking })).await;
    assert_eq!(answered["answer"]["result"], json!({ "action": "decline" }), "{answered}");

    let held = job(&tool(&mut client, "hold", json!({ "n": 1 })).await);
    machine.noted("hold", 1).await;
    let cancelled = tool(&mut client, "cancel_job", json!({ "job": held })).await;
    assert_eq!(cancelled["_meta"]["dev.raincheck/status"], "cancelled", "{cancelled}");
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn a_handle_is_good_after_the_host_has_started_again_and_for_a_client_with_tasks() {
    let machine = machine();
    let mut client = legacy(&machine).await;
    let handle = job(&tool(&mut client, "echo", json!({ "n": 2 })).await);
    let done = tool(&mut client, "check_job", json!({ "job": handle })).await;
    client.close().await;
    let mut client = machine.start(&[]);
    let undeclared = modern_with(json!({ "name": "check_job", "arguments": { "job": handle } }), json!({}));
    let mut again = client.request("tools/call", undeclared).await["result"].take();
    assert_eq!(again["resultType"].take(), "complete");
    again.as_object_mut().unwrap().remove("resultType");
    assert_eq!(again, done);
    assert_eq!(client.task(&json!(handle)).await["status"], "completed");
}

#[tokio::test]
async fn a_call_that_is_refused_for_its_client_is_told_in_the_log() {
    let machine = Machine::new().env("RAINCHECK_DEFAULTS_MODE", "task").env("RAINCHECK_DEFAULTS_FALLBACK", "refuse");
    let mut client = legacy(&machine).await;
    assert_eq!(tool(&mut client, "echo", json!({})).await["isError"], true);
    client.says("a call was refused: its client has no Tasks").await;
    client.close().await;
}
