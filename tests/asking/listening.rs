//! `subscriptions/listen` with `taskIds`.

use raincheck::config::Mode;
use raincheck::protocol::{Event, Notification, Outcome, Reply, RpcError};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{ask, asks, call, call_of, done, export, id_of, keys, policy, update};
use crate::support::calls::{shown, text};
use crate::support::layer::{PATIENCE, Proxy};

/// The next notification of a stream.
async fn next(stream: &mut Reply) -> (String, Value) {
    match timeout(PATIENCE, stream.next()).await.expect("nothing is told") {
        Some(Event::Notification(said)) => (said.method, said.params.unwrap().read().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The next state of a task on a stream.
async fn state(stream: &mut Reply) -> Value {
    let (method, task) = next(stream).await;
    assert_eq!(method, "notifications/tasks");
    task
}

fn listen(notifications: Value) -> raincheck::protocol::Call {
    call("subscriptions/listen", json!({ "notifications": notifications }))
}

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

#[tokio::test]
async fn every_change_of_a_task_is_told_with_its_full_state_to_the_end() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    let mut stream = proxy.send(listen(json!({ "taskIds": [id, "unknown", id] }))).await;
    let (method, acknowledged) = next(&mut stream).await;
    assert_eq!((method.as_str(), acknowledged), (ACKNOWLEDGED, json!({ "notifications": { "taskIds": [id] } })));
    let working = state(&mut stream).await;
    assert_eq!((&working["taskId"], &working["status"]), (&json!(id), &json!("working")));
    assert!(working.get("resultType").is_none());

    let _asking = ask(&server, "who?");
    let asking = state(&mut stream).await;
    assert_eq!((&asking["status"], keys(&asking)), (&json!("input_required"), vec!["input-1".to_owned()]));
    update(&proxy, &id, json!({ "input-1": {} })).await;
    assert_eq!(state(&mut stream).await["status"], "working");
    server.done(done());
    let completed = state(&mut stream).await;
    assert_eq!((&completed["status"], &completed["result"]["content"]), (&json!("completed"), &json!([])));
    let mut same = proxy.get(&id).await;
    same.as_object_mut().unwrap().remove("resultType");
    assert_eq!(completed, same);
    assert!(proxy.sent.try_recv().is_err(), "the server was asked although only tasks were");
}

#[tokio::test]
async fn foreign_tasks_are_left_out_like_unknown_ones() {
    let proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let params = json!({ "notifications": { "taskIds": [id] } });
    let mut stream = proxy.send(call_of("bo", true, "subscriptions/listen", params.clone())).await;
    assert_eq!(next(&mut stream).await.1, json!({ "notifications": { "taskIds": [] } }));
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    proxy.ended(&id).await;
    assert!(timeout(std::time::Duration::from_millis(100), stream.next()).await.is_err());
    let undeclared = proxy.value(call_of("ann", false, "subscriptions/listen", params)).await;
    assert_eq!(undeclared["error"]["code"], -32021);
    let malformed = proxy.value(listen(json!({ "taskIds": "all" }))).await;
    assert_eq!(malformed["error"]["code"], -32602);
    let many: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    assert_eq!(proxy.value(listen(json!({ "taskIds": many }))).await["error"]["code"], -32602);
}

#[tokio::test]
async fn what_the_server_tells_comes_on_the_same_stream_behind_one_acknowledgement() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let _running = proxy.next_sent().await;
    let mut stream = proxy.send(listen(json!({ "taskIds": [id], "toolsListChanged": true }))).await;
    let (_, server) = proxy.next_sent().await;
    let say = |method: &str, params: &str| {
        let said = Notification { method: method.to_owned(), params: Some(text(params)) };
        server.event(Event::Notification(said));
    };
    say(ACKNOWLEDGED, r#"{"notifications":{"toolsListChanged":true},"x":1}"#);
    let (method, acknowledged) = next(&mut stream).await;
    let expected = json!({ "notifications": { "toolsListChanged": true, "taskIds": [id] }, "x": 1 });
    assert_eq!((method.as_str(), acknowledged), (ACKNOWLEDGED, expected));
    assert_eq!(state(&mut stream).await["status"], "working");
    say("notifications/tools/list_changed", "{}");
    assert_eq!(next(&mut stream).await.0, "notifications/tools/list_changed");
    drop(stream);
    timeout(PATIENCE, server.cancelled()).await.expect("the server's stream stays open");
}

#[tokio::test]
async fn a_server_without_streams_leaves_the_tasks_and_any_other_error_ends_the_stream() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let _running = proxy.next_sent().await;
    let filter = || json!({ "taskIds": [id], "toolsListChanged": true });
    let mut stream = proxy.send(listen(filter())).await;
    let (_, server) = proxy.next_sent().await;
    server.done(Outcome::Error(RpcError::method_not_found("subscriptions/listen")));
    assert_eq!(next(&mut stream).await.1, json!({ "notifications": { "taskIds": [id] } }));
    assert_eq!(state(&mut stream).await["status"], "working");
    let stream = proxy.send(listen(filter())).await;
    let (_, server) = proxy.next_sent().await;
    server.done(Outcome::Error(RpcError::new(-32000, "no")));
    assert_eq!(shown(timeout(PATIENCE, stream.outcome()).await.unwrap())["error"]["code"], -32000);
}

#[tokio::test]
async fn a_slow_reader_gets_the_latest_state_and_nothing_piles_up() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    let mut stream = proxy.send(listen(json!({ "taskIds": [id] }))).await;
    next(&mut stream).await;
    for number in 1..=20 {
        let _asking = ask(&server, "who?");
        let key = format!("input-{number}");
        asks(&proxy, &id, 1).await;
        update(&proxy, &id, json!({ key: {} })).await;
    }
    server.done(done());
    proxy.ended(&id).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&json!("completed")) {
        seen.push(state(&mut stream).await["status"].clone());
    }
    assert!(seen.len() <= 3, "{seen:?}");
}

#[tokio::test]
async fn a_task_that_has_ended_is_told_once_and_the_stream_ends_well_when_the_proxy_stops() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    server.done(done());
    proxy.ended(&id).await;
    let mut stream = proxy.send(listen(json!({ "taskIds": [id] }))).await;
    next(&mut stream).await;
    assert_eq!(state(&mut stream).await["status"], "completed");
    proxy.runner.drain();
    let outcome = timeout(PATIENCE, stream.outcome()).await.expect("the stream stays open");
    assert_eq!(shown(outcome), json!({ "resultType": "complete" }));
    timeout(PATIENCE, proxy.runner.idle()).await.expect("somebody still listens");
}
