//! Clients that open with `initialize`, and both eras on one connection.

use serde_json::{Value, json};

use crate::host::{Connection, Machine, modern};

pub(crate) fn hello(revision: &str) -> Value {
    json!({
        "protocolVersion": revision,
        "capabilities": { "roots": {}, "elicitation": {} },
        "clientInfo": { "name": "host", "version": "7" },
    })
}

/// A client that has shaken hands.
pub(crate) async fn client(machine: &Machine, revision: &str) -> Connection {
    let mut client = machine.start(&[]);
    let answer = client.request("initialize", hello(revision)).await;
    assert!(answer["result"]["protocolVersion"].is_string(), "{answer}");
    client.notify("notifications/initialized", json!({})).await;
    client
}

async fn tool(client: &mut Connection, name: &str, arguments: Value) -> Value {
    client.request("tools/call", json!({ "name": name, "arguments": arguments })).await
}

#[tokio::test]
async fn a_legacy_client_has_one_server_which_knows_it_by_name() {
    let machine = Machine::with("full");
    let mut client = client(&machine, "2025-11-25").await;
    let opening = tool(&mut client, "opening", json!({})).await;
    assert_eq!(opening["result"]["opening"]["clientInfo"]["name"], "host", "{opening}");
    assert_eq!(opening["result"]["resultType"], Value::Null);
    let answer = client.request("completion/complete", json!({ "x": 1.0 })).await;
    assert_eq!(answer["result"]["asked"], json!({ "x": 1.0 }));
    assert_eq!(client.request("made/up", json!({})).await["error"]["code"], -32601);
    assert!(client.close().await.is_empty());
    machine.noted("eof", 1).await;
    assert_eq!(machine.ledger("start"), 1);
}

#[tokio::test]
async fn the_server_asks_in_mid_call_and_speaks_outside_of_it() {
    let machine = Machine::with("full,asks-at-start");
    let mut client = client(&machine, "2025-11-25").await;
    let asked = client.next().await;
    assert_eq!(asked["method"], "roots/list");
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "roots": [] } })).await;
    machine.noted("answered", 1).await;

    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": { "message": "m" } });
    let id = client.ask("tools/call", json!({ "name": "question", "arguments": question })).await;
    let asked = client.next().await;
    assert_eq!((&asked["method"], &asked["params"]), (&json!("elicitation/create"), &json!({ "message": "m" })));
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "cancel" } })).await;
    assert_eq!(client.answer(&id).await["result"]["answer"]["result"], json!({ "action": "cancel" }));

    let said = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    tool(&mut client, "say", said).await;
    assert_eq!(client.next().await["method"], "notifications/tools/list_changed");
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_the_question_and_not_the_connection() {
    let machine = Machine::with("full").env("RAINCHECK_LIMITS_BODY", "64KiB");
    let mut client = client(&machine, "2025-11-25").await;
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "roots/list", "params": {} });
    let id = client.ask("tools/call", json!({ "name": "question", "arguments": question })).await;
    let asked = client.next().await;
    let roots = json!({ "roots": "x".repeat(100_000) });
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": roots })).await;
    let answer = client.answer(&id).await["result"]["answer"].clone();
    assert!(answer["error"]["message"].as_str().unwrap().contains("limits.body"), "{answer}");
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn a_late_answer_does_not_go_to_a_question_of_a_later_session() {
    let machine = Machine::with("full");
    let mut client = client(&machine, "2025-11-25").await;
    let asking = |message: &str| {
        let params = json!({ "message": message });
        json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": params })
    };
    client.ask("tools/call", json!({ "name": "question", "arguments": asking("Delete all?") })).await;
    let first = client.next().await;
    assert_eq!(first["params"]["message"], "Delete all?");
    tool(&mut client, "die", json!({})).await;
    client.says("the session with the server is lost").await;

    let call = client.ask("tools/call", json!({ "name": "question", "arguments": asking("Go on?") })).await;
    let second = loop {
        let said = client.next().await;
        if said["params"]["message"] == "Go on?" {
            break said;
        }
    };
    for (question, action) in [(&first, "accept"), (&second, "decline")] {
        client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": action } })).await;
    }
    assert_eq!(client.answer(&call).await["result"]["answer"]["result"], json!({ "action": "decline" }));
    assert!(client.close().await.is_empty());
}

/// The client has said what it had to say: the server is not left waiting until nobody may answer any more.
#[tokio::test]
async fn a_malformed_answer_is_refused_under_no_id_and_the_server_hears_of_it() {
    let machine = Machine::with("full");
    let mut client = client(&machine, "2025-11-25").await;
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "roots/list", "params": {} });
    let broken = [
        json!({ "jsonrpc": "2.0", "error": "no" }),
        json!({ "jsonrpc": "2.0", "result": {}, "error": { "code": 1, "message": "m" } }),
        json!({ "jsonrpc": "2.0" }),
        json!({ "result": {} }),
        json!({ "jsonrpc": "2.0", "result": 5 }),
    ];
    for mut answer in broken {
        let is_message = answer["result"] == 5;
        let id = client.ask("tools/call", json!({ "name": "question", "arguments": question })).await;
        let asked = client.next().await["id"].clone();
        answer["id"] = asked;
        client.send(&answer).await;
        // The refusal and the outcome of the call come in any order.
        let (mut refused, mut heard) = (is_message, json!(null));
        while !refused || heard.is_null() {
            let said = client.next().await;
            if said["id"] == id {
                heard = said["result"]["answer"]["error"].clone();
                continue;
            }
            // A request of the client may have the same id as the question.
            assert_eq!((&said["id"], &said["error"]["code"]), (&json!(null), &json!(-32600)), "{answer}");
            refused = true;
        }
        assert_eq!(heard["code"], -32603, "{answer}: {heard}");
        assert!(heard["message"].as_str().unwrap().contains("the client's answer cannot be read"), "{heard}");
    }
    // What has parameters is a request without its method.
    let id = client.ask("tools/call", json!({ "name": "question", "arguments": question })).await;
    let asked = client.next().await["id"].clone();
    client.send(&json!({ "jsonrpc": "2.0", "id": asked, "params": {} })).await;
    assert_eq!(client.next().await["error"]["code"], -32600);
    client.send(&json!({ "jsonrpc": "2.0", "id": asked, "result": { "roots": [] } })).await;
    assert_eq!(client.answer(&id).await["result"]["answer"]["result"], json!({ "roots": [] }));
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn a_cancel_reaches_the_server_and_the_call_has_no_answer() {
    let machine = Machine::with("full");
    let mut client = client(&machine, "2025-06-18").await;
    let id = client.ask("tools/call", json!({ "name": "hold", "arguments": {} })).await;
    machine.noted("hold", 1).await;
    client.notify("notifications/cancelled", json!({ "requestId": id })).await;
    machine.noted("cancelled", 1).await;
    tool(&mut client, "release", json!({})).await;
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn each_request_says_itself_of_which_era_it_is() {
    let machine = Machine::with("full");
    let mut client = machine.start(&["--after", "1ms"]);
    assert!(client.request("server/discover", modern(json!({}))).await["result"].is_object());
    let refused = client.request("tools/list", json!({})).await;
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    let answer = client.request("initialize", hello("2026-07-28")).await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
    let held = client.ask("tools/call", json!({ "name": "hold", "arguments": { "legacy": true } })).await;
    machine.noted("hold", 1).await;
    let task = client.call("hold", json!({ "modern": true })).await;
    let handle = client.answer(&task).await["result"]["taskId"].clone();
    machine.noted("hold", 2).await;
    tool(&mut client, "release", json!({})).await;
    assert_eq!(client.answer(&held).await["result"]["legacy"], true);
    let released = client.call("release", json!({})).await;
    client.answer(&released).await;
    assert_eq!(client.until(&handle, "completed").await["result"]["modern"], true);
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn everything_may_be_written_at_once() {
    let machine = Machine::with("full");
    let mut client = machine.start(&[]);
    let mut lines = String::new();
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello("2025-06-18") }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "echo", "arguments": { "n": 2 } } }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "echo", "arguments": { "n": 3 } } }),
    ] {
        lines.push_str(&message.to_string());
        lines.push('\n');
    }
    client.raw(lines.as_bytes()).await;
    let answers = client.close().await;
    assert_eq!((answers.len(), &answers[0]["id"]), (3, &json!(1)), "{answers:?}");
    assert!(answers.iter().all(|answer| answer["result"].is_object()), "{answers:?}");
}

#[tokio::test]
async fn a_session_that_is_lost_is_opened_again_by_the_next_request() {
    let machine = Machine::with("full");
    let mut client = client(&machine, "2025-11-25").await;
    let died = tool(&mut client, "die", json!({})).await;
    assert_eq!(died["error"]["data"]["reason"], "outcome_unknown", "{died}");
    // Until then a request is told that it was not taken and may be sent again.
    client.says("the session with the server is lost").await;
    let opening = tool(&mut client, "opening", json!({})).await;
    assert_eq!(opening["result"]["opening"]["clientInfo"]["name"], "host", "{opening}");
    assert!(client.close().await.is_empty());
    assert_eq!(machine.ledger("start"), 2);
}

#[tokio::test]
async fn a_client_that_begins_anew_gets_a_new_server() {
    let machine = Machine::with("full");
    let mut client = client(&machine, "2025-11-25").await;
    let first = tool(&mut client, "who", json!({})).await["result"]["pid"].clone();
    assert!(client.request("initialize", hello("2025-11-25")).await["result"].is_object());
    assert_ne!(tool(&mut client, "who", json!({})).await["result"]["pid"], first);
    machine.noted("eof", 1).await;
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn batches_are_taken_in_the_one_revision_that_has_them() {
    let call = |id: u64, n: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "echo", "arguments": { "n": n } } });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    let machine = Machine::with("full,version=2025-03-26");
    let mut old = client(&machine, "2025-03-26").await;
    old.send(&json!([call(10, 1), note, call(11, 2)])).await;
    let answers = old.next().await;
    let echoed: Vec<_> = answers.as_array().unwrap().iter().map(|it| it["result"]["arguments"]["n"].clone()).collect();
    assert_eq!(echoed, [1, 2], "{answers}");
    // Nothing wants an answer.
    old.send(&json!([note])).await;
    old.raw(b"[]\n").await;
    assert_eq!(old.next().await["error"]["code"], -32600);
    // What is no message of this revision has an error of its own (JSON-RPC 2.0, batch).
    let mut with_modern = call(12, 3);
    with_modern["params"] = modern(with_modern["params"].clone());
    old.send(&json!([call(13, 4), with_modern, 1])).await;
    let answers = old.next().await;
    let shown: Vec<_> = answers.as_array().unwrap().iter().map(|it| (&it["id"], &it["error"]["code"])).collect();
    let (null, invalid) = (json!(null), json!(-32600));
    assert_eq!(shown, [(&json!(13), &null), (&json!(12), &invalid), (&null, &invalid)], "{answers}");
    old.raw(b"[1]\n").await;
    assert_eq!(old.next().await[0]["error"]["code"], -32600);
    assert!(old.close().await.is_empty());
    assert_eq!(machine.ledger("echo"), 3);

    let machine = Machine::with("full");
    let mut new = client(&machine, "2025-11-25").await;
    new.send(&json!([call(10, 1), call(11, 2)])).await;
    assert_eq!(new.next().await["error"]["code"], -32600);
    assert!(new.close().await.is_empty());
    assert_eq!(machine.ledger("echo"), 0);
}

#[tokio::test]
async fn a_server_that_cannot_be_started_is_the_answer_to_initialize() {
    let machine = Machine::new();
    let mut client = machine.start_with(&["stdio", "--", "/no/such/program"].map(str::to_owned));
    let answer = client.request("initialize", hello("2025-11-25")).await;
    assert_eq!(answer["error"]["data"]["reason"], "not_started", "{answer}");
    let answer = client.request("initialize", hello("2025-11-25")).await;
    assert_eq!(answer["error"]["data"]["reason"], "not_started", "{answer}");
    assert!(client.close().await.is_empty());
}

/// It is not cut off with the input: that took a tenth of a second.
#[tokio::test]
async fn at_the_end_of_the_input_a_held_call_has_the_grace_time_too() {
    let machine = Machine::with("full").env("RAINCHECK_SHUTDOWN_GRACE", "1s");
    let mut client = client(&machine, "2025-11-25").await;
    let held = client.ask("tools/call", json!({ "name": "hold", "arguments": {} })).await;
    machine.noted("hold", 1).await;
    let began = std::time::Instant::now();
    let answers = client.close().await;
    assert!(began.elapsed() >= std::time::Duration::from_secs(1), "{answers:?}");
    assert_eq!((answers.len(), &answers[0]["id"]), (1, &held));
    machine.noted("eof", 1).await;
}

#[tokio::test]
async fn a_question_that_nobody_can_answer_any_more_does_not_hold_the_end_up() {
    let machine = Machine::new().env("RAINCHECK_SHUTDOWN_GRACE", "10m");
    let mut client = client(&machine, "2025-11-25").await;
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": { "message": "m" } });
    let id = client.ask("tools/call", json!({ "name": "question", "arguments": question })).await;
    assert_eq!(client.next().await["method"], "elicitation/create");
    let rest = client.close().await;
    let answers: Vec<_> = rest.iter().filter(|said| said["id"] == id).collect();
    assert!(answers.len() == 1 && answers[0]["result"]["answer"]["error"].is_object(), "{rest:?}");
    assert!(rest.iter().all(|said| said["method"] != "elicitation/create"), "asked again: {rest:?}");
}
