//! The experimental tasks of 2025-11-25 through the whole proxy, in front of servers without them.

use serde_json::{Value, json};

use crate::client::Client as Modern;
use crate::legacy::Client;
use crate::process::Ground;
use crate::upstream::{Transport, Upstream};
use crate::{bounded, member};

const BOTH: [Transport; 2] = [Transport::Stdio, Transport::Http];
const RELATED: &str = "io.modelcontextprotocol/related-task";
const RULE: &str = "[[tool]]\nmatch = \"*\"\nfallback = \"legacy_tasks\"";

/// The answer to a request, as it is spelled.
async fn answer(client: &Client, id: u32, method: &str, params: &Value) -> String {
    let mut events = client.request(&id.to_string(), method, &params.to_string()).await;
    events.next().await.unwrap().1
}

async fn result(client: &Client, id: u32, method: &str, params: &Value) -> Value {
    let answer = answer(client, id, method, params).await;
    serde_json::from_str(member(&answer, "result")).unwrap()
}

#[tokio::test]
async fn a_client_of_2025_11_25_calls_tools_as_tasks_is_asked_and_gets_the_result_as_it_was_spelled() {
    for transport in BOTH {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, RULE);
        let proxy = ground.start().await;
        let client = Client::open_with_tasks(&proxy).await;
        let call = json!({ "name": "slow", "arguments": {}, "task": { "ttl": 60_000 } });
        let created = result(&client, 1, "tools/call", &call).await;
        let task = &created["task"];
        assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60_000)), "{created}");
        let named = json!({ "taskId": task["taskId"] });
        let mut run = upstream.run().await;
        assert!(!run.request.contains("ttl"), "{}", run.request);

        let mut waiting = client.request("2", "tasks/result", &named.to_string()).await;
        let params = r#"{"message":"Sure?","requestedSchema":{"type":"object","properties":{}},"n":1.0}"#;
        run.message(&format!(r#"{{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{params}}}"#)).await;
        // That its status has changed, and the question.
        let told = waiting.message().await;
        assert_eq!(told["method"], "notifications/tasks/status", "{told}");
        assert_eq!(told["params"]["status"], "input_required");
        let (_, text) = waiting.next().await.unwrap();
        assert!(text.contains(r#""n":1.0"#), "{text}");
        let question: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["_meta"][RELATED], named);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"accept","n": 1.0}}}}"#, question["id"]);
        assert_eq!(client.post(&answer).await.status(), 202);
        let answered = upstream.run().await.request;
        assert!(answered.contains(r#"{"action":"accept","n": 1.0}"#), "{answered}");
        assert_eq!(waiting.message().await["params"]["status"], "working");

        run.answer(r#"{"content": [], "n": 9007199254740995, "zzz":1E2}"#).await;
        let (_, text) = waiting.next().await.unwrap();
        for part in [r#""content":[]"#, r#""n":9007199254740995"#, r#""zzz":1E2"#] {
            assert!(text.replace(' ', "").contains(part), "{text}");
        }
        let result: Value = serde_json::from_str(member(&text, "result")).unwrap();
        assert_eq!(result["_meta"], json!({ RELATED: named }));
        assert_eq!(result_of_get(&client, &named).await, "completed");
        // The same task for a client of 2026-07-28.
        let modern = Modern::new(format!("{}/mcp", proxy.base));
        let answer = modern.get(task["taskId"].as_str().unwrap()).await;
        let seen = answer.result();
        assert_eq!(seen["status"], "completed", "{seen}");
    }
}

async fn result_of_get(client: &Client, named: &Value) -> Value {
    result(client, 9, "tasks/get", named).await["status"].take()
}

#[tokio::test]
async fn tasks_outlive_the_session_that_made_them_and_are_listed_and_cancelled_in_another() {
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, RULE);
    let proxy = ground.start().await;
    let first = Client::open_with_tasks(&proxy).await;
    let call = json!({ "name": "slow", "arguments": {}, "task": {} });
    let done = result(&first, 1, "tools/call", &call).await["task"].take();
    upstream.run().await.says("done").await;
    let waited = result(&first, 2, "tasks/result", &json!({ "taskId": done["taskId"] })).await;
    assert_eq!(waited["content"][0]["text"], "done");
    let open = result(&first, 3, "tools/call", &call).await["task"].take();
    let _run = upstream.run().await;

    let second = Client::open_with_tasks(&proxy).await;
    let listed = result(&second, 1, "tasks/list", &json!({})).await;
    let shown: Vec<_> = listed["tasks"].as_array().unwrap().iter().map(|it| (&it["taskId"], &it["status"])).collect();
    assert_eq!(shown, [(&open["taskId"], &json!("working")), (&done["taskId"], &json!("completed"))]);
    let cancelled = result(&second, 2, "tasks/cancel", &json!({ "taskId": open["taskId"] })).await;
    assert_eq!(cancelled["status"], "cancelled");
    bounded(upstream.cancels(1)).await;
    let again = answer(&second, 3, "tasks/cancel", &json!({ "taskId": open["taskId"] })).await;
    assert!(again.contains("-32602"), "{again}");
}

#[tokio::test]
async fn a_session_of_an_older_revision_or_without_the_fallback_has_no_tasks() {
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "");
    let proxy = ground.start().await;
    let client = Client::open(&proxy).await;
    for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"] {
        let refused = answer(&client, 1, method, &json!({ "taskId": "x" })).await;
        assert!(refused.contains("-32601"), "{method} {refused}");
    }
}
