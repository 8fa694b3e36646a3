//! Questions of a server in mid-call, and sessions of legacy clients.

use std::sync::Arc;

use raincheck::config::{Limits, Offer};
use raincheck::protocol::{Abilities, Answer, Caller, ClientSession, Event, Json, Outcome, Principal, Reason, Reply};
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use crate::client::{Client, call_of, caller, client_with, config};
use crate::http_server::{PATIENCE, Seen, Server, Wire, notification};
use crate::replies::{asked, next, outcome, result};

/// A server whose tool `ask` asks on its own stream and `elsewhere` on the listen stream; both answer with what they
/// were told. `say` sends a notification on the listen stream.
async fn asking_server() -> Server {
    let (to_stream, from_tool) = mpsc::unbounded_channel::<String>();
    let (told, hears) = mpsc::unbounded_channel::<Value>();
    let (from_tool, hears) = (Arc::new(Mutex::new(from_tool)), Arc::new(Mutex::new(hears)));
    Server::start(move |seen, wire| {
        let (to_stream, from_tool) = (to_stream.clone(), Arc::clone(&from_tool));
        let (told, hears) = (told.clone(), Arc::clone(&hears));
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => {
                    let result = json!({
                        "protocolVersion": "2025-11-25", "zzz": 1.0, "serverInfo": { "name": "s", "version": "1" },
                        "capabilities": { "tools": { "listChanged": true }, "resources": { "subscribe": true }, "logging": {} },
                    });
                    let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "session-1")];
                    wire.respond("200 OK", &headers, &seen.result(&result)).await
                }
                ("POST", "") => {
                    told.send(seen.body.clone()).unwrap();
                    wire.status("202 Accepted").await
                }
                ("POST", "tools/call") => answer(&seen, wire, &to_stream, &hears).await,
                ("POST", method) if method.starts_with("notifications/") => wire.status("202 Accepted").await,
                ("POST", _) => wire.json(&seen.result(&json!({ "asked": seen.body["params"] }))).await,
                ("GET", _) => {
                    let mut wire = wire;
                    wire.events().await;
                    let mut from_tool = from_tool.lock().await;
                    while let Some(text) = from_tool.recv().await {
                        wire.event(&text).await;
                    }
                    wire
                }
                _ => wire.status("200 OK").await,
            }
        }
    })
    .await
}

async fn answer(
    seen: &Seen,
    mut wire: Wire,
    stream: &mpsc::UnboundedSender<String>,
    hears: &Mutex<mpsc::UnboundedReceiver<Value>>,
) -> Wire {
    let said = seen.body["params"]["arguments"].to_string();
    wire.events().await;
    match seen.tool() {
        "ask" => wire.event(&said).await,
        "only-ask" => {
            wire.event(&said).await;
            wire.closed().await;
            return wire;
        }
        "hold" => {
            wire.closed().await;
            return wire;
        }
        _ => stream.send(said).unwrap(),
    }
    if seen.tool() == "say" {
        wire.event(&seen.says("said")).await;
        return wire;
    }
    let told = hears.lock().await.recv().await.unwrap();
    wire.event(&seen.result(&json!({ "answer": told }))).await;
    wire
}

fn asker(session: ClientSession, abilities: &Value) -> Caller {
    let mut caller = caller(Principal::Local, None);
    caller.session = session;
    caller.abilities = Abilities::of(Json::from_value(abilities));
    caller
}

fn modern(abilities: &Value) -> Caller {
    asker(ClientSession::Stateless, abilities)
}

fn question(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": "srv-1", "method": method, "params": { "x": 1 } })
}

impl Client {
    async fn tool_as(&self, caller: &Caller, name: &str, arguments: &Value) -> Reply {
        let params = json!({ "name": name, "arguments": arguments }).to_string();
        self.send(call_of("tools/call", &params, caller.clone())).await
    }
}

fn yes() -> Answer {
    Answer::Result(Json::from_value(&json!({ "action": "accept" })))
}

#[tokio::test]
async fn a_question_comes_out_of_its_call_wherever_the_server_asks_it() {
    for tool in ["ask", "elsewhere"] {
        let server = asking_server().await;
        let client = client_with(config(&server), &Limits::default());
        let mut reply =
            client.tool_as(&modern(&json!({ "sampling": {} })), tool, &question("sampling/createMessage")).await;
        let ask = asked(&mut reply).await;
        assert_eq!(ask.question().params.as_str(), r#"{"x":1}"#);
        ask.answer(yes());
        let told = result(reply).await;
        assert_eq!(
            told["answer"],
            json!({ "jsonrpc": "2.0", "id": "srv-1", "result": { "action": "accept" } }),
            "{tool}"
        );
        let opening = server.saw(|seen| seen.is("initialize")).await;
        assert_eq!(opening.body["params"]["capabilities"], json!({ "sampling": {} }));
        client.close().await;
    }
}

#[tokio::test]
async fn a_request_that_is_none_of_mcp_is_answered_under_its_id() {
    let server = asking_server().await;
    let client = client_with(config(&server), &Limits::default());
    let cases = [
        (json!({ "jsonrpc": "2.0", "id": "srv-1", "method": "roots/list", "params": [1] }), -32602),
        (json!({ "jsonrpc": "2.0", "id": "srv-1", "method": 7 }), -32600),
    ];
    for tool in ["ask", "elsewhere"] {
        for (request, code) in &cases {
            let told = result(client.tool_as(&modern(&json!({})), tool, request).await).await["answer"].take();
            assert_eq!((&told["id"], &told["error"]["code"]), (&json!("srv-1"), &json!(code)), "{tool}: {told}");
        }
    }
    client.close().await;
}

#[tokio::test]
async fn what_was_not_declared_is_refused_at_once_and_the_call_goes_on() {
    let server = asking_server().await;
    let client = client_with(config(&server), &Limits::default());
    for tool in ["ask", "elsewhere"] {
        let reply = client.tool_as(&modern(&json!({})), tool, &question("roots/list")).await;
        assert_eq!(result(reply).await["answer"]["error"]["code"], -32601, "{tool}");
    }
    client.close().await;
}

#[tokio::test]
async fn what_was_offered_and_not_declared_ends_the_call_and_tells_the_server_to_stop() {
    let server = asking_server().await;
    let mut config = config(&server);
    config.offer = vec![Offer::Sampling];
    let client = client_with(config, &Limits::default());
    let reply = client.tool_as(&modern(&json!({})), "only-ask", &question("sampling/createMessage")).await;
    let Outcome::Error(error) = outcome(reply).await else { panic!() };
    assert_eq!(error.code(), -32021);
    let call = server.saw(|seen| seen.is("tools/call")).await;
    let cancel = server.saw(|seen| seen.is("notifications/cancelled")).await;
    assert_eq!(cancel.body["params"]["requestId"], *call.id());
    let told = server.saw(|seen| seen.body["id"] == "srv-1").await;
    assert_eq!(told.body["error"]["code"], -32601);
    let opening = server.saw(|seen| seen.is("initialize")).await;
    assert_eq!(opening.body["params"]["capabilities"], json!({ "sampling": {} }));
    client.close().await;
}

#[tokio::test]
async fn the_end_of_a_call_withdraws_what_it_asked_on_its_stream() {
    let server = asking_server().await;
    let client = client_with(config(&server), &Limits::default());
    let mut reply = client.tool_as(&modern(&json!({ "roots": {} })), "only-ask", &question("roots/list")).await;
    let ask = asked(&mut reply).await;
    reply.cancel();
    tokio::time::timeout(PATIENCE, ask.withdrawn()).await.unwrap();
    let told = server.saw(|seen| seen.body["id"] == "srv-1").await;
    assert!(told.body["error"]["message"].as_str().unwrap().contains("has ended"));
    drop(reply);
    client.close().await;
}

#[tokio::test]
async fn a_legacy_client_has_its_own_session_and_hears_all_of_it() {
    let server = asking_server().await;
    let client = client_with(config(&server), &Limits::default());
    let me = asker(ClientSession::Legacy(7), &json!({ "roots": {} }));
    let refused = client.tool_as(&me, "ask", &question("roots/list")).await;
    let Outcome::Failed(failure) = outcome(refused).await else { panic!() };
    assert_eq!(failure.reason, Reason::NotStarted);
    let hello = r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"e","version":"1"}}"#;
    let mut attach = call_of("tools/list", hello, me.clone());
    attach.method = raincheck::protocol::Method::Attach;
    let mut session = client.send(attach).await;
    let Event::Attached(said) = next(&mut session).await else { panic!() };
    assert!(said.as_str().contains(r#""zzz":1.0"#), "{}", said.as_str());
    let opening = server.saw(|seen| seen.is("initialize")).await;
    assert_eq!(opening.body["params"], serde_json::from_str::<Value>(hello).unwrap());

    let mut reply = client.tool_as(&me, "ask", &question("roots/list")).await;
    asked(&mut reply).await.answer(yes());
    assert_eq!(result(reply).await["answer"]["id"], "srv-1");
    let reply = client.tool_as(&me, "elsewhere", &question("roots/list")).await.in_background();
    asked(&mut session).await.answer(yes());
    assert_eq!(result(reply).await["answer"]["id"], "srv-1");
    for method in ["notifications/message", "notifications/tools/list_changed"] {
        let said = serde_json::from_str(&notification(method, &json!({ "level": "info", "data": "d" }))).unwrap();
        outcome(client.tool_as(&me, "say", &said).await).await;
        let Event::Notification(heard) = next(&mut session).await else { panic!() };
        assert_eq!(heard.method, method);
    }
    let set = client.send(call_of("logging/setLevel", r#"{"level":"debug"}"#, me.clone())).await;
    assert_eq!(result(set).await, json!({ "asked": { "level": "debug" } }));
    let mut note = call_of("tools/list", r#"{"a":1}"#, me.clone());
    note.method = raincheck::protocol::Method::Notify("notifications/roots/list_changed".to_owned());
    assert_eq!(result(client.send(note).await).await, json!({}));
    let note = server.saw(|seen| seen.is("notifications/roots/list_changed")).await;
    assert_eq!(note.header("mcp-session-id"), Some("session-1"));

    drop(session);
    server.saw(|seen| seen.verb == "DELETE").await;
    let Outcome::Failed(failure) = outcome(client.tool_as(&me, "say", &json!({})).await).await else { panic!() };
    assert_eq!(failure.reason, Reason::NotStarted);
    assert_eq!(server.seen_of("initialize").len(), 1);
    client.close().await;
}

#[tokio::test]
async fn a_session_that_the_server_forgets_ends_for_its_legacy_client() {
    let server = Server::legacy(|_, wire| wire.status("404 Not Found")).await;
    let client = client_with(config(&server), &Limits::default());
    let me = asker(ClientSession::Legacy(1), &json!({}));
    let mut attach = call_of("tools/list", r#"{"protocolVersion":"2025-11-25"}"#, me.clone());
    attach.method = raincheck::protocol::Method::Attach;
    let mut session = client.send(attach).await;
    assert!(matches!(next(&mut session).await, Event::Attached(_)));
    let Outcome::Failed(failure) = outcome(client.tool_as(&me, "t", &json!({})).await).await else { panic!() };
    assert_eq!(failure.reason, Reason::OutcomeUnknown);
    let Event::Done(Outcome::Failed(lost)) = next(&mut session).await else { panic!() };
    assert!(lost.message.contains("initialize again"), "{}", lost.message);
    assert_eq!(server.seen_of("initialize").len(), 1);
    client.close().await;
}

#[tokio::test]
async fn a_modern_client_that_listens_hears_the_servers_own_stream() {
    let server = asking_server().await;
    let client = client_with(config(&server), &Limits::default());
    let me = modern(&json!({}));
    let filter =
        r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:1"]}}"#;
    let mut listener = client.send(call_of("subscriptions/listen", filter, me.clone())).await;
    let Event::Notification(said) = next(&mut listener).await else { panic!() };
    assert_eq!(said.method, "notifications/subscriptions/acknowledged");
    let expected = r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}}"#;
    assert_eq!(said.params.unwrap().as_str(), expected);
    let subscribe = server.saw(|seen| seen.is("resources/subscribe")).await;
    assert_eq!(subscribe.body["params"], json!({ "uri": "a:1" }));
    for method in ["notifications/tools/list_changed", "notifications/resources/updated"] {
        let said = serde_json::from_str(&notification(method, &json!({ "uri": "a:1" }))).unwrap();
        outcome(client.tool_as(&me, "say", &said).await).await;
        let Event::Notification(heard) = next(&mut listener).await else { panic!() };
        assert_eq!(heard.method, method);
    }
    drop(listener);
    server.saw(|seen| seen.is("resources/unsubscribe")).await;
    let leveled = r#"{"name":"say","arguments":{"a":1},"_meta":{"io.modelcontextprotocol/logLevel":"info"}}"#;
    outcome(client.send(call_of("tools/call", leveled, me)).await).await;
    let set = server.saw(|seen| seen.is("logging/setLevel")).await;
    assert_eq!(set.body["params"], json!({ "level": "info" }));
    client.close().await;
}
