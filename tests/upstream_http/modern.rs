//! Servers of 2026-07-28 that ask, have tasks of their own and subscriptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use raincheck::config::{Limits, UpstreamEra};
use raincheck::protocol::{
    Abilities, Answer, Ask, Call, Caller, ClientSession, Event, Json, Method, Notification, Outcome, Principal, Reason,
    Reply, Retry,
};
use serde_json::{Value, json};

use crate::client::{Client, all, call_of, caller, client_with, config};
use crate::http_server::{PATIENCE, Seen, Server, Wire, notification};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn meta(seen: &Seen, key: &str) -> Value {
    seen.body["params"]["_meta"][key].clone()
}

fn has_tasks(seen: &Seen) -> bool {
    meta(seen, CAPABILITIES)["extensions"]["io.modelcontextprotocol/tasks"].is_object()
}

async fn refuse(seen: &Seen, wire: Wire, error: &Value) -> Wire {
    let body = json!({ "jsonrpc": "2.0", "id": seen.id(), "error": error }).to_string();
    wire.respond("400 Bad Request", &[("Content-Type", "application/json")], &body).await
}

fn question(key: &str) -> Value {
    json!({ key: { "method": "elicitation/create", "params": { "message": key } } })
}

async fn server() -> Server {
    let polls = Arc::new(AtomicUsize::new(0));
    Server::start(move |seen: Seen, mut wire: Wire| {
        let polls = Arc::clone(&polls);
        async move {
            let task = |status: &str, more: Value| {
                let mut task = json!({ "resultType": "complete", "taskId": "t\u{e9}", "status": status, "ttlMs": null, "pollIntervalMs": 50 });
                task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                task
            };
            match (seen.method(), seen.tool()) {
                ("server/discover", _) => {
                    let capabilities = json!({
                        "tools": { "listChanged": true }, "resources": { "subscribe": true }, "logging": {},
                        "extensions": { "io.modelcontextprotocol/tasks": {} },
                    });
                    let result = json!({
                        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
                        "instructions": "be kind", "ttlMs": 0, "cacheScope": "private",
                        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "m", "version": "2" } },
                    });
                    wire.json(&seen.result(&result)).await
                }
                ("tools/call", "asks" | "busy" | "full") => match seen.body["params"]["requestState"].as_str() {
                    None => {
                        let asks = json!({ "resultType": "input_required", "inputRequests": question("who"), "requestState": "s-1" });
                        wire.json(&seen.result(&asks)).await
                    }
                    Some(_) if seen.tool() == "full" => {
                        wire.respond("429 Too Many Requests", &[("Retry-After", "60")], "").await
                    }
                    Some(_) if seen.tool() == "busy" && polls.fetch_add(1, Ordering::SeqCst) == 0 => {
                        wire.respond("429 Too Many Requests", &[("Retry-After", "1")], "").await
                    }
                    Some(state) => {
                        let said = format!("{state} {}", seen.body["params"]["inputResponses"]["who"]["action"]);
                        wire.json(&seen.says(&said)).await
                    }
                },
                ("tools/call", "task") if !has_tasks(&seen) => {
                    let required = json!({ "requiredCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } } });
                    refuse(&seen, wire, &json!({ "code": -32021, "message": "needs tasks", "data": required })).await
                }
                ("tools/call", "task") => {
                    let mut created = task("working", json!({ "statusMessage": "begun" }));
                    created["resultType"] = "task".into();
                    wire.json(&seen.result(&created)).await
                }
                ("tasks/get", _) => {
                    let told = match polls.fetch_add(1, Ordering::SeqCst) {
                        0 => task("input_required", json!({ "inputRequests": question("really") })),
                        1 => task("working", json!({})),
                        _ => task("completed", json!({ "result": { "content": [], "resultType": "complete", "n": 7 } })),
                    };
                    wire.json(&seen.result(&told)).await
                }
                ("subscriptions/listen", _) => {
                    wire.events().await;
                    let honoured = &seen.body["params"]["notifications"];
                    let meta = json!({ SUBSCRIPTION: seen.id() });
                    let say = |method: &str, more: Value| {
                        let mut params = json!({ "_meta": meta });
                        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                        notification(method, &params)
                    };
                    wire.event(&say("notifications/subscriptions/acknowledged", json!({ "notifications": honoured }))).await;
                    if let Some(uri) = honoured["resourceSubscriptions"][0].as_str() {
                        wire.event(&say("notifications/resources/updated", json!({ "uri": uri }))).await;
                    } else {
                        wire.event(&say("notifications/tools/list_changed", json!({}))).await;
                    }
                    wire.event(&notification("notifications/stray", &json!({}))).await;
                    wire.closed().await;
                    wire
                }
                ("tools/call" | "tasks/update" | "tasks/cancel" | "tools/list", _) => {
                    let result = json!({ "resultType": "complete", "ttlMs": 5, "cacheScope": "public", "n": 1.0,
                        "tools": [{ "name": "t", "execution": { "taskSupport": "optional" } }],
                        "_meta": { "io.modelcontextprotocol/serverInfo": {}, "io.modelcontextprotocol/x": 1, "a/b": 1 } });
                    wire.json(&seen.result(&result)).await
                }
                _ => wire.status("404 Not Found").await,
            }
        }
    })
    .await
}

fn modern_client(server: &Server) -> Client {
    let mut config = config(server);
    config.era = UpstreamEra::Modern;
    client_with(config, &Limits::default())
}

fn able(session: ClientSession) -> Caller {
    let mut caller = caller(Principal::Local, None);
    caller.session = session;
    caller.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {}, "roots": { "listChanged": true } })));
    caller
}

fn tool(name: &str, session: ClientSession) -> Call {
    call_of("tools/call", &json!({ "name": name, "requestState": "theirs" }).to_string(), able(session))
}

async fn next(reply: &mut Reply) -> Event {
    loop {
        match tokio::time::timeout(PATIENCE, reply.next()).await.expect("nothing comes").unwrap() {
            Event::Waits(_) | Event::Began => {}
            event => return event,
        }
    }
}

async fn asked(reply: &mut Reply) -> Ask {
    loop {
        match next(reply).await {
            Event::Ask(ask) => return ask,
            Event::Progress(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn told(reply: &mut Reply) -> Notification {
    match next(reply).await {
        Event::Notification(said) => said,
        other => panic!("{other:?}"),
    }
}

fn yes() -> Answer {
    Answer::Result(Json::from_value(&json!({ "action": "accept" })))
}

#[tokio::test]
async fn what_a_modern_server_asks_in_a_result_is_put_to_the_caller_and_the_retry_is_ours() {
    let server = server().await;
    let client = modern_client(&server);
    let mut reply = client.send(tool("asks", ClientSession::Stateless)).await;
    let ask = asked(&mut reply).await;
    assert_eq!((ask.question().key.as_deref(), ask.question().params.as_str()), (Some("who"), r#"{"message":"who"}"#));
    ask.answer(yes());
    all(reply).await.says("s-1 \"accept\"");
    let calls = server.seen_of("tools/call");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].id(), calls[1].id());
    for call in calls {
        assert_eq!(meta(&call, CAPABILITIES), json!({ "elicitation": {}, "roots": { "listChanged": true } }));
        assert_eq!(call.header("mcp-method"), Some("tools/call"));
    }
}

#[tokio::test]
async fn answers_that_a_modern_server_does_not_take_are_sent_again_and_never_make_its_call_one_that_did_not_start() {
    let server = server().await;
    let client = modern_client(&server);
    let answered = async |name: &str| {
        let mut reply = client.send(tool(name, ClientSession::Stateless)).await;
        asked(&mut reply).await.answer(yes());
        all(reply).await
    };
    answered("busy").await.says("s-1 \"accept\"");
    assert_eq!(server.seen_of("tools/call").len(), 3);
    let seen = answered("full").await;
    let failure = seen.failure();
    assert_eq!((failure.reason, failure.retry), (Reason::OutcomeUnknown, Retry::Unknown));
    let message = &failure.message;
    assert!(message.contains("the first part of the call has run") && message.contains("429"), "{message}");
    assert_eq!(server.seen_of("tools/call").len(), 5, "sent again although it is not for the moment");
}

#[tokio::test]
async fn a_task_of_a_modern_server_is_seen_through_and_its_handle_goes_nowhere() {
    let server = server().await;
    let client = modern_client(&server);
    let mut reply = client.send(tool("task", ClientSession::Stateless)).await;
    asked(&mut reply).await.answer(yes());
    let seen = all(reply).await;
    assert_eq!(seen.result(), r#"{"content":[],"n":7,"resultType":"complete"}"#);
    let calls = server.seen_of("tools/call");
    assert_eq!(calls.iter().map(has_tasks).collect::<Vec<_>>(), [false, true]);
    let update = &server.seen_of("tasks/update")[0];
    assert_eq!(update.body["params"]["inputResponses"], json!({ "really": { "action": "accept" } }));
    for seen in server.seen().iter().filter(|seen| seen.method().starts_with("tasks/")) {
        assert!(has_tasks(seen));
        assert_eq!(
            (seen.header("mcp-method"), seen.header("mcp-name")),
            (Some(seen.method()), Some("=?base64?dMOp?="))
        );
    }
}

#[tokio::test]
async fn a_modern_client_hears_what_it_subscribed_to_under_no_name_of_ours() {
    let server = server().await;
    let client = modern_client(&server);
    let wanted = r#"{"notifications":{"toolsListChanged":true,"taskIds":["ours"]}}"#;
    let mut reply = client.send(call_of("subscriptions/listen", wanted, able(ClientSession::Stateless))).await;
    let acknowledged = told(&mut reply).await;
    assert_eq!(acknowledged.method, "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged.params.unwrap().as_str(), r#"{"notifications":{"toolsListChanged":true}}"#);
    let changed = told(&mut reply).await;
    assert_eq!((changed.method.as_str(), changed.params.unwrap().as_str()), ("notifications/tools/list_changed", "{}"));
    client.close().await;
}

async fn attach(client: &Client, number: u64) -> (Reply, Value) {
    let mut call = call_of(
        "tools/list",
        r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#,
        able(ClientSession::Legacy(number)),
    );
    call.method = Method::Attach;
    let mut reply = client.send(call).await;
    match next(&mut reply).await {
        Event::Attached(result) => (reply, result.read().unwrap()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_legacy_client_has_a_session_with_a_modern_server_that_knows_none() {
    let server = server().await;
    let client = modern_client(&server);
    let of = |method: &str, params: &str| call_of(method, params, able(ClientSession::Legacy(7)));
    let before = all(client.send(of("ping", "{}")).await).await;
    assert_eq!(before.failure().reason, Reason::NotStarted, "not attached yet");
    let (mut session, result) = attach(&client, 7).await;
    let expected = json!({
        "protocolVersion": "2025-06-18", "serverInfo": { "name": "m", "version": "2" }, "instructions": "be kind",
        "capabilities": { "tools": { "listChanged": true }, "resources": { "subscribe": true }, "logging": {} },
    });
    assert_eq!(result, expected);
    assert_eq!(told(&mut session).await.method, "notifications/tools/list_changed");
    let subscribe = r#"{"uri":"a:b"}"#;
    let answered = [("ping", "{}"), ("logging/setLevel", r#"{"level":"info"}"#), ("resources/subscribe", subscribe)];
    for (method, params) in answered {
        assert_eq!(all(client.send(of(method, params)).await).await.result(), "{}", "{method}");
        assert!(server.seen_of(method).is_empty());
    }
    let updated = told(&mut session).await;
    assert_eq!(
        (updated.method.as_str(), updated.params.unwrap().as_str()),
        ("notifications/resources/updated", subscribe)
    );
    let listed = all(client.send(of("tools/list", "{}")).await).await;
    assert_eq!(listed.result(), r#"{"_meta":{"a/b":1},"n":1.0,"tools":[{"name":"t"}]}"#);
    let mut asking = client.send(tool("asks", ClientSession::Legacy(7))).await;
    asked(&mut asking).await.answer(yes());
    all(asking).await.says("s-1 \"accept\"");
    let call = &server.seen_of("tools/call")[0];
    assert_eq!(meta(call, "io.modelcontextprotocol/logLevel"), "info");
    for (method, code) in [("logging/setLevel", -32602), ("resources/subscribe", -32602), ("tasks/list", -32601)] {
        assert_eq!(all(client.send(of(method, "{}")).await).await.error().code(), code, "{method}");
    }
    let mut note = of("ping", "{}");
    note.method = Method::Notify("notifications/roots/list_changed".to_owned());
    assert_eq!(all(client.send(note).await).await.result(), "{}");
    drop(session);
    client.close().await;
}

#[tokio::test]
async fn a_legacy_client_finds_a_modern_server_that_the_config_does_not_know_to_be_one() {
    let server = server().await;
    let mut config = config(&server);
    config.era = UpstreamEra::Auto;
    let client = client_with(config, &Limits::default());
    let (session, result) = attach(&client, 1).await;
    assert_eq!(result["serverInfo"]["name"], "m");
    drop(session);
    client.close().await;
    let after = client.send(tool("asks", ClientSession::Legacy(1))).await;
    assert!(matches!(after.outcome().await, Outcome::Failed(_)));
}
