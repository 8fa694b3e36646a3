//! A tool that asks its user, all the way: the demo server behind, over stdio.

use serde_json::{Value, json};

use crate::process::Ground;

/// Asks with `requestState` and answers.
fn retry(round: &Value, responses: &Value) -> String {
    format!(r#""name":"ask","arguments":{{}},"requestState":{},"inputResponses":{responses}"#, round["requestState"])
}

fn ann() -> Value {
    json!({ "input-1": { "action": "accept", "content": { "name": "Ann" } } })
}

#[tokio::test]
async fn a_tool_that_asks_becomes_a_task_and_is_answered_by_tasks_update() {
    let ground = Ground::demo("");
    let proxy = ground.start().await;
    let client = proxy.client().with_forms();
    let id = client.handle("ask", "{}").await;
    let task = client.until(&id, |task| task["status"] == "input_required").await.result();
    assert_eq!(task["inputRequests"]["input-1"]["method"], "elicitation/create");
    assert_eq!(task["inputRequests"]["input-1"]["params"]["message"], "Please enter your name.");
    let answers = format!(r#""taskId":"{id}","inputResponses":{}"#, ann());
    let acknowledged = client.ask("tasks/update", &id, &answers).await.result();
    assert_eq!(acknowledged, json!({ "resultType": "complete" }));
    let task = client.until(&id, |task| task["status"] == "completed").await.result();
    assert_eq!(task["result"]["content"][0]["text"], "Hello, Ann!");
}

#[tokio::test]
async fn a_client_without_tasks_is_asked_in_a_result_and_retries_the_call() {
    let ground = Ground::demo("");
    let proxy = ground.start().await;
    let client = proxy.client().undeclared().with_forms();
    let round = client.call("ask", "{}").await.result();
    assert_eq!(round["resultType"], "input_required");
    let result = client.ask("tools/call", "ask", &retry(&round, &ann())).await.result();
    assert_eq!((&result["resultType"], &result["content"][0]["text"]), (&json!("complete"), &json!("Hello, Ann!")));
    // A copy of the retry gets the same, and the run is not begun again.
    let again = client.ask("tools/call", "ask", &retry(&round, &ann())).await.result();
    assert_eq!(again["content"], result["content"]);
}

#[tokio::test]
async fn questions_that_were_open_when_the_proxy_was_killed_have_an_unknown_outcome() {
    let ground = Ground::demo("");
    let mut proxy = ground.start().await;
    let (declared, plain) = (proxy.client().with_forms(), proxy.client().undeclared().with_forms());
    let id = declared.handle("ask", "{}").await;
    declared.until(&id, |task| task["status"] == "input_required").await;
    let round = plain.call("ask", "{}").await.result();
    proxy.kill();
    let proxy = ground.start().await;
    // Lost tasks are settled behind the start.
    let task = proxy.client().until(&id, |task| task["status"] != "input_required").await.result();
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("outcome_unknown")));
    assert!(task.get("inputRequests").is_none());
    let plain = proxy.client().undeclared().with_forms();
    let late = plain.ask("tools/call", "ask", &retry(&round, &ann())).await.error();
    assert_eq!(late["data"]["reason"], "outcome_unknown");
}

#[tokio::test]
async fn with_ask_first_the_call_is_retried_and_then_becomes_a_task() {
    let ground = Ground::demo("[[tool]]\nmatch = \"ask\"\nmode = \"task\"\nask = \"first\"");
    let proxy = ground.start().await;
    let client = proxy.client().with_forms();
    let round = client.call("ask", "{}").await.result();
    assert_eq!(round["resultType"], "input_required");
    let created = client.ask("tools/call", "ask", &retry(&round, &ann())).await;
    // It may end before it can become one: it has nothing left to do.
    let result = if created.result()["resultType"] == "complete" {
        created.result()
    } else {
        let mut task = client.until(&created.task_id(), |task| task["status"] == "completed").await.result();
        task["result"].take()
    };
    assert_eq!(result["content"][0]["text"], "Hello, Ann!");
}
