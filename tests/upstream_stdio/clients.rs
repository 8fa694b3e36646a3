//! Legacy clients: each has a process of its own, opened in its own words.

use raincheck::protocol::{Answer, Notification, Reason};

use super::*;

fn legacy(number: u64, abilities: &Value) -> Caller {
    caller("ann", ClientSession::Legacy(number), abilities)
}

fn hello(version: &str) -> Value {
    json!({
        "protocolVersion": version, "clientInfo": { "name": "editor", "version": "9", "title": "E" },
        "capabilities": { "roots": { "listChanged": true }, "tasks": { "list": {} }, "zzz": 1 }, "more": [1],
    })
}

impl Bench {
    /// Opens the session of a client: what the server said, and the reply that keeps it.
    async fn attach(&self, caller: &Caller, params: Value) -> (Value, Reply) {
        let mut reply = self.ask_as(caller.clone(), Method::Attach, params);
        match next(&mut reply).await {
            Event::Attached(result) => (result.read().unwrap(), reply),
            other => panic!("{other:?}"),
        }
    }

    async fn tool(&self, caller: &Caller, name: &str, arguments: Value) -> Value {
        result(self.ask_as(caller.clone(), Method::CallTool, json!({ "name": name, "arguments": arguments }))).await
    }
}

#[tokio::test]
async fn the_server_hears_the_clients_own_words_and_the_client_the_servers() {
    let cases = [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ];
    let bench = Bench::new("full");
    for (number, (asked, sent)) in (1..).zip(cases) {
        let client = legacy(number, &json!({ "roots": {} }));
        let (said, reply) = bench.attach(&client, hello(asked)).await;
        assert_eq!((&said["zzz"], &said["capabilities"]["logging"]), (&json!(1.0), &json!({})));
        let opening = bench.tool(&client, "opening", json!({})).await["opening"].clone();
        let mut expected = hello(sent);
        expected["capabilities"].as_object_mut().unwrap().remove("tasks");
        assert_eq!(opening, expected, "{asked}");
        drop(reply);
    }
    bench.upstream.close().await;
}

#[tokio::test]
async fn each_client_has_exactly_one_process_for_all_it_does_until_it_leaves() {
    let bench = Bench::with("full", Limits::default(), |config| config.share = true);
    let (one, two) = (legacy(1, &json!({ "roots": {} })), legacy(2, &json!({})));
    let (_, mine) = bench.attach(&one, hello("2025-11-25")).await;
    let (_, _other) = bench.attach(&two, hello("2025-11-25")).await;
    let held = bench.ask_as(one.clone(), Method::CallTool, json!({ "name": "hold", "arguments": { "h": 1 } }));
    bench.noted("hold", 1).await;
    let pid = bench.tool(&one, "who", json!({})).await["pid"].clone();
    assert_ne!(bench.tool(&two, "who", json!({})).await["pid"], pid);
    assert_ne!(bench.call("who", json!({})).outcome().await.pid(), pid);
    assert_eq!(bench.ledger("start"), 3);
    bench.tool(&one, "release", json!({})).await;
    assert_eq!(result(held).await, json!({ "h": 1 }));
    drop(mine);
    bench.noted("eof", 1).await;
    let refused = failure(bench.ask_as(one, Method::CallTool, json!({ "name": "who", "arguments": {} }))).await;
    assert_eq!(refused.reason, Reason::NotStarted);
    assert_eq!(bench.ledger("start"), 3);
    bench.upstream.close().await;
}

#[tokio::test]
async fn requests_and_notifications_of_a_client_reach_its_server_as_they_are() {
    let bench = Bench::new("full");
    let client = legacy(1, &json!({}));
    let (_, _session) = bench.attach(&client, hello("2025-11-25")).await;
    for method in ["logging/setLevel", "resources/subscribe", "resources/unsubscribe", "completion/complete"] {
        let asked = json!({ "uri": "a:b", "level": "debug", "ref": { "x": [1.0] } });
        let reply = bench.ask_as(client.clone(), Method::of(method), asked.clone());
        assert_eq!(result(reply).await, json!({ "asked": asked }), "{method}");
    }
    let Outcome::Error(error) = outcome(bench.ask_as(client.clone(), Method::of("made/up"), json!({}))).await else {
        panic!()
    };
    assert_eq!(error.code(), -32601);
    for name in ["notifications/initialized", "notifications/cancelled", "notifications/roots/list_changed"] {
        let reply = bench.ask_as(client.clone(), Method::Notify(name.to_owned()), json!({ "requestId": 1 }));
        assert_eq!(result(reply).await, json!({}));
    }
    let told = bench.tool(&client, "opening", json!({})).await["told"].clone();
    let notes: Vec<_> = told.as_array().unwrap().iter().filter(|told| told["id"].is_null()).collect();
    let expected =
        json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed", "params": { "requestId": 1 } });
    assert_eq!(notes, [&expected]);
    assert_eq!(bench.ledger("cancelled"), 0);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_client_is_asked_in_its_call_and_told_outside_of_it() {
    let bench = Bench::new("full,asks-at-start");
    let client = legacy(1, &json!({ "roots": {}, "elicitation": {} }));
    let (_, mut session) = bench.attach(&client, hello("2025-06-18")).await;
    asked(&mut session).await.answer(Answer::Result(raw(r#"{"roots":[]}"#)));
    bench.noted("answered", 1).await;
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": { "message": "m" } });
    let mut call = bench.ask_as(client.clone(), Method::CallTool, json!({ "name": "question", "arguments": question }));
    asked(&mut call).await.answer(Answer::Result(raw(r#"{"action":"cancel"}"#)));
    assert_eq!(result(call).await["answer"]["result"], json!({ "action": "cancel" }));
    for method in ["notifications/tools/list_changed", "notifications/made/up"] {
        let said = json!({ "jsonrpc": "2.0", "method": method, "params": { "uri": "a:b" } });
        bench.tool(&client, "say", said).await;
        let Event::Notification(Notification { method: heard, params }) = next(&mut session).await else { panic!() };
        assert_eq!((heard.as_str(), params.unwrap().as_str()), (method, r#"{"uri":"a:b"}"#));
    }
    bench.upstream.close().await;
}

#[tokio::test]
async fn the_end_of_the_process_ends_the_session_and_its_calls_and_starts_no_other() {
    let bench = Bench::new("full");
    let client = legacy(1, &json!({}));
    let (_, session) = bench.attach(&client, hello("2025-11-25")).await;
    let died = failure(bench.ask_as(client.clone(), Method::CallTool, json!({ "name": "die", "arguments": {} }))).await;
    assert_eq!(died.reason, Reason::OutcomeUnknown);
    assert!(failure(session).await.message.contains("initialize again"));
    let later = failure(bench.ask_as(client, Method::CallTool, json!({ "name": "who", "arguments": {} }))).await;
    assert_eq!(later.reason, Reason::NotStarted);
    assert_eq!(bench.ledger("start"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_its_session_is_being_opened_leaves_no_process_behind() {
    let bench = Bench::new("mute");
    let reply = bench.ask_as(legacy(1, &json!({})), Method::Attach, hello("2025-11-25"));
    bench.noted("start", 1).await;
    drop(reply);
    bench.noted("eof", 1).await;
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_started_fails_the_session_with_the_reason() {
    let bench = Bench::new("exit=3");
    let refused = failure(bench.ask_as(legacy(1, &json!({})), Method::Attach, hello("2025-11-25"))).await;
    assert_eq!(refused.reason, Reason::NotStarted);
    assert!(refused.message.contains("exit code 3"), "{}", refused.message);
    bench.upstream.close().await;
}

/// Reads the process id out of an answer of `who`.
trait Pid {
    fn pid(self) -> Value;
}

impl Pid for Outcome {
    fn pid(self) -> Value {
        match self {
            Outcome::Result(result) => result.read::<Value>().unwrap()["pid"].clone(),
            other => panic!("{other:?}"),
        }
    }
}
