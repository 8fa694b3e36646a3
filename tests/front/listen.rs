//! `subscriptions/listen`, as a client sees it.

use std::time::Duration;

use raincheck::protocol::{Failure, Method, Outcome, Reason, Retry, RpcError};
use serde_json::json as value;

use crate::support::*;

const ALL: &str = r#"{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"],"taskIds":["t","u"]}"#;

fn acknowledgment(id: &serde_json::Value, honoured: serde_json::Value) -> serde_json::Value {
    value!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": id}, "notifications": honoured}})
}

#[tokio::test]
async fn a_subscription_says_what_is_honoured_and_passes_on_what_was_asked_for() {
    let mut setup = Setup::new();
    setup.listen.keep_alive = Duration::from_millis(10);
    let mut server = setup.start().await;
    let mut client = server.connect().await;
    let (text, headers) = listen(r#""s-1""#, ALL, true);
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    assert_eq!(asked.call.method, Method::Listen);
    assert_eq!(asked.call.params.raw().member("notifications").unwrap().as_str(), ALL);
    asked.sender.event(acknowledged(r#"{"toolsListChanged":true,"taskIds":["t"]}"#));
    let head = client.head().await;
    assert_eq!((head.status, head.get("content-type")), (200, Some("text/event-stream")));
    let id = value!("s-1");
    let expected = acknowledgment(&id, value!({"toolsListChanged": true, "taskIds": ["t"]}));
    assert_eq!(client.message().await.unwrap(), expected);
    for _ in 0..3 {
        assert_eq!(client.chunk().await.unwrap(), b":\n\n");
    }
    asked.sender.event(notification("prompts/list_changed", "{}"));
    asked.sender.event(notification("message", r#"{"level":"emergency","data":1}"#));
    asked.sender.event(notification("tasks", r#"{"taskId":"foreign","status":"working"}"#));
    asked.sender.event(acknowledged("{}"));
    asked.sender.event(notification("tools/list_changed", r#"{"_meta":{"a": 1.0}}"#));
    let subscription = value!({"io.modelcontextprotocol/subscriptionId": "s-1"});
    assert_eq!(
        client.message().await.unwrap(),
        value!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed",
            "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "s-1", "a": 1.0}}})
    );
    let cases = [
        ("resources/updated", r#"{"uri":"file:///a/b","n":9007199254740995}"#),
        ("tasks", r#"{"taskId":"t","status":"completed","result":{"n":1e400}}"#),
        ("resources/list_changed", "{}"),
    ];
    for (method, params) in cases {
        asked.sender.event(notification(method, params));
        let event = loop {
            let chunk = String::from_utf8(client.chunk().await.unwrap()).unwrap();
            if chunk != ":\n\n" {
                break chunk;
            }
        };
        let members = params.trim_start_matches('{');
        let comma = if members == "}" { "" } else { "," };
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{"_meta":{subscription}{comma}{members}}}"#
        );
        assert_eq!(event, format!("event: message\ndata: {text}\n\n"));
    }
}

#[tokio::test]
async fn a_server_without_subscriptions_leaves_one_that_honours_nothing() {
    let mut setup = Setup::new();
    setup.listen.keep_alive = Duration::from_millis(10);
    let mut server = setup.start().await;
    let mut client = server.connect().await;
    let (text, headers) = listen("7", ALL, true);
    client.post(&text, &headers).await;
    server.asked().await.sender.done(Outcome::Error(RpcError::method_not_found("subscriptions/listen")));
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.message().await.unwrap(), acknowledgment(&value!(7), value!({})));
    for _ in 0..3 {
        assert_eq!(client.chunk().await.unwrap(), b":\n\n");
    }
    server.jobs.stop();
    assert_eq!(client.message().await.unwrap()["result"]["resultType"], "complete");
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn a_silent_server_does_not_hold_the_acknowledgment_back() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = listen("7", ALL, true);
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    client.head().await;
    assert_eq!(client.message().await.unwrap(), acknowledgment(&value!(7), value!({})));
    asked.sender.event(acknowledged(ALL));
    asked.sender.event(notification("tools/list_changed", "{}"));
    assert_eq!(client.message().await.unwrap()["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_refused_subscription_is_an_answer_with_its_status() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let failure = Failure::new(Reason::NotStarted, "down", Retry::Yes);
    let cases = [
        (Outcome::Failed(failure), 200, -31002),
        (Outcome::Error(RpcError::new(-32602, "no")), 200, -32602),
        (Outcome::Error(RpcError::tasks_not_declared()), 400, -32021),
    ];
    for (outcome, status, expected) in cases {
        let (text, headers) = listen("7", "{}", true);
        client.post(&text, &headers).await;
        server.asked().await.sender.done(outcome);
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (status, expected), "{body}");
    }
}

#[tokio::test]
async fn a_subscription_ends_as_the_server_ended_it() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let broken = Failure::new(Reason::OutcomeUnknown, "the session was lost", Retry::Yes);
    for (outcome, is_result) in [(result("{}"), true), (Outcome::Failed(broken), false)] {
        let (text, headers) = listen("7", "{}", true);
        client.post(&text, &headers).await;
        let asked = server.asked().await;
        asked.sender.event(acknowledged("{}"));
        client.head().await;
        client.message().await.unwrap();
        asked.sender.done(outcome);
        let last = client.message().await.unwrap();
        if is_result {
            let expected = value!({"jsonrpc": "2.0", "id": 7, "result": {"resultType": "complete",
                "_meta": {"io.modelcontextprotocol/subscriptionId": 7}}});
            assert_eq!(last, expected);
        } else {
            assert_eq!((&last["id"], &last["error"]["code"]), (&value!(7), &value!(-31001)));
        }
        assert_eq!(client.chunk().await, None);
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_subscription() {
    for wait_for_head in [true, false] {
        let mut server = Setup::new().start().await;
        let mut client = server.connect().await;
        let (text, headers) = listen("7", "{}", false);
        client.post(&text, &headers).await;
        let mut asked = server.asked().await;
        if wait_for_head {
            asked.sender.event(acknowledged("{}"));
            client.head().await;
        }
        drop(client);
        bounded(asked.sender.abandoned()).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_gets_the_newest_state_when_it_does() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = listen("7", ALL, true);
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    asked.sender.event(acknowledged("{}"));
    client.head().await;
    client.message().await.unwrap();
    let filler = "x".repeat(256 << 10);
    let rounds = 400;
    for round in 0..rounds {
        for task in ["t", "u"] {
            let params = format!(r#"{{"taskId":"{task}","round":{round},"filler":"{filler}"}}"#);
            asked.sender.event(notification("tasks", &params));
        }
        // More than a few that wait are dropped.
        bounded(asked.sender.drained()).await;
    }
    let (mut last, mut seen) = (value!({}), 0);
    let read = async {
        while last["t"] != rounds - 1 || last["u"] != rounds - 1 {
            let message = client.message().await.unwrap();
            last[message["params"]["taskId"].as_str().unwrap()] = message["params"]["round"].clone();
            seen += 1;
        }
    };
    bounded(read).await;
    assert!(seen < rounds, "{seen} of {} states were kept", 2 * rounds);
}

#[tokio::test]
async fn a_subscription_over_the_limit_is_told_so_until_another_ends() {
    let mut setup = Setup::new();
    setup.limits.streams = 1;
    let mut server = setup.start().await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    let (text, headers) = listen("1", "{}", false);
    first.post(&text, &headers).await;
    let open = server.asked().await;
    second.post(&text, &headers).await;
    let (head, body) = second.response().await;
    assert_eq!((head.status, code(&body)), (200, -31005));
    assert!(body.contains("limits.streams"), "{body}");
    drop(first);
    let mut sender = open.sender;
    bounded(sender.abandoned()).await;
    let accepted = async {
        loop {
            second.post(&text, &headers).await;
            let head = second.head().await;
            if head.get("content-type") == Some("text/event-stream") {
                return;
            }
            second.body(&head).await;
        }
    };
    bounded(accepted).await;
}

#[tokio::test]
async fn a_subscription_to_tasks_needs_the_extension() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    for filter in [r#"{"taskIds":["t"]}"#, r#"{"taskIds":[]}"#] {
        let (text, headers) = listen("1", filter, false);
        client.post(&text, &headers).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (400, -32021));
        assert!(body.contains(r#""requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#));
    }
    let (text, headers) = listen("1", "7", true);
    client.post(&text, &headers).await;
    assert_eq!(code(&client.response().await.1), -32602);
    let (text, headers) = listen("1", "{}", true);
    client.post(&text, &format!("accept: application/json\r\n{headers}")).await;
    assert_eq!(client.response().await.0.status, 406);
    assert!(server.is_untouched());
}
