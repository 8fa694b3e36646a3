//! Runs that another process found again, by what this one was told of them (2025-11-25, resumability).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use raincheck::protocol::{
    Abilities, Anchor, Answer, Call, Event, Json, Method, Outcome, Params, Principal, Reason, Reply,
};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::client::{Client, all, call_of, caller, client};
use crate::http_server::{PATIENCE, Seen, Server, Wire};

/// What the server asks in the middle of `asks`.
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"sure?"}}"#;

/// A server whose streams never end by themselves, and go on behind the events `mark` and `asked`.
async fn server() -> Server {
    server_with(Tasks::None).await
}

/// Whether the server says that tools of its own may run as tasks of 2025-11-25.
#[derive(Clone, Copy, PartialEq)]
enum Tasks {
    None,
    Some,
}

async fn server_with(tasks: Tasks) -> Server {
    let asked = Arc::new(AtomicUsize::new(0));
    Server::start(move |seen: Seen, mut wire: Wire| {
        let asked = Arc::clone(&asked);
        async move {
            match (seen.verb.as_str(), seen.method(), seen.header("last-event-id")) {
                ("POST", "initialize", _) if tasks == Tasks::None => return wire.initialize(&seen, "s-1").await,
                ("POST", "initialize", _) => {
                    let tasks = json!({ "requests": { "tools": { "call": {} } } });
                    let result = json!({
                        "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "tasks": tasks },
                        "serverInfo": { "name": "scripted", "version": "1" },
                    });
                    let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "s-1")];
                    return wire.respond("200 OK", &headers, &seen.result(&result)).await;
                }
                ("POST", "tools/list", _) => {
                    return wire.json(&seen.result(&json!({ "tools": [{ "name": "t" }] }))).await;
                }
                ("POST", "tools/call", _) => {
                    wire.events().await;
                    wire.raw("id: mark\ndata: \n\n").await;
                    if seen.tool() == "asks" {
                        wire.raw(format!("id: asked\ndata: {QUESTION}\n\nid: later\ndata: {}\n\n", seen.progress(1)))
                            .await;
                    }
                    wire.closed().await;
                }
                ("GET", _, Some("mark")) => {
                    wire.events().await;
                    // The list of tools is asked for before the call.
                    let id = if tasks == Tasks::None { 2 } else { 3 };
                    wire.raw(format!(
                        "id: end\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"found\": 1E2}}}}\n\n"
                    ))
                    .await;
                    wire.closed().await;
                }
                // As the SDKs do: what comes behind a reconnect is kept for the next one.
                ("GET", _, Some(deaf @ ("deaf" | "mute"))) => {
                    let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                    if !is_first || deaf == "deaf" {
                        wire.events().await;
                    }
                    if !is_first {
                        wire.raw("id: end\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"found\": 1E2}}\n\n").await;
                    }
                    wire.closed().await;
                }
                ("GET", _, Some("open")) => {
                    wire.events().await;
                    wire.raw(format!("id: asked\ndata: {QUESTION}\n\n")).await;
                    wire.closed().await;
                }
                ("GET", _, Some(_)) => return wire.status("404 Not Found").await,
                ("GET", _, None) => return wire.status("405 Method Not Allowed").await,
                _ => return wire.status("202 Accepted").await,
            }
            wire
        }
    })
    .await
}

async fn next(reply: &mut Reply) -> Event {
    loop {
        match timeout(PATIENCE, reply.next()).await.expect("nothing comes").unwrap() {
            Event::Waits(_) | Event::Began => {}
            event => return event,
        }
    }
}

async fn anchor(reply: &mut Reply) -> Anchor {
    loop {
        if let Event::Anchored(anchor) = next(reply).await {
            return anchor;
        }
    }
}

fn text(anchor: &Anchor) -> String {
    String::from_utf8(anchor.bytes().to_vec()).unwrap()
}

fn resumed(anchor: Anchor) -> Call {
    let mut by = caller(Principal::Local, None);
    by.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
    let method = Method::Resume(anchor);
    let params = Params::read(&method, Some(Json::from_value(&json!({ "name": "t" })))).unwrap();
    Call { method, params, caller: by, arrived: Instant::now() }
}

/// An anchor behind another event of the same run.
fn moved(anchor: &Anchor, event: &str) -> Anchor {
    Anchor::new(text(anchor).replace("mark", event))
}

async fn lost_run(server: &Server) -> Anchor {
    let client = client(server);
    let mut reply = client.tool("t").await;
    let anchor = anchor(&mut reply).await;
    reply.leave_running();
    client.close().await;
    anchor
}

#[tokio::test]
async fn a_run_that_was_left_is_not_stopped_and_its_answer_is_found_by_another_process() {
    let server = server().await;
    let anchor = lost_run(&server).await;
    assert_eq!(server.seen_of("notifications/cancelled").len(), 0);
    assert_eq!(server.seen_by("DELETE").len(), 0, "the run would end with its session");
    let other = client(&server);
    let found = all(other.send(resumed(anchor)).await).await;
    assert_eq!(found.result(), r#"{"found": 1E2}"#);
    let got = server.saw(|seen| seen.verb == "GET" && seen.header("last-event-id") == Some("mark")).await;
    assert_eq!((got.header("mcp-session-id"), got.header("mcp-protocol-version")), (Some("s-1"), Some("2025-11-25")));
    assert_eq!((server.seen_of("tools/call").len(), server.seen_of("initialize").len()), (1, 1), "sent again");
    // Now nobody needs the session any more.
    server.saw(|seen| seen.verb == "DELETE" && seen.header("mcp-session-id") == Some("s-1")).await;
}

#[tokio::test]
async fn a_plain_call_of_a_server_that_has_tasks_too_is_found_again() {
    let server = server_with(Tasks::Some).await;
    let anchor = timeout(PATIENCE, lost_run(&server)).await.expect("the call has no anchor");
    assert_eq!(server.seen_of("notifications/cancelled").len(), 0);
    let found = all(client(&server).send(resumed(anchor)).await).await;
    assert_eq!((found.result(), server.seen_of("tools/call").len()), (r#"{"found": 1E2}"#, 1));
}

#[tokio::test]
async fn a_resumed_stream_that_stays_silent_is_asked_for_again() {
    // One has no bytes behind its headers, the other has no headers.
    let both = ["deaf", "mute"].map(|event| async move {
        let server = server().await;
        let anchor = moved(&lost_run(&server).await, event);
        let reply = client(&server).send(resumed(anchor)).await;
        let found = timeout(3 * PATIENCE, reply.outcome()).await.expect("the answer is never fetched");
        assert!(matches!(&found, Outcome::Result(result) if result.as_str() == r#"{"found": 1E2}"#), "{found:?}");
        assert_eq!(server.seen_of("tools/call").len(), 1);
    });
    futures_util::future::join_all(both).await;
}

#[tokio::test]
async fn what_was_asked_behind_the_anchor_is_asked_again_and_answered_on_the_old_session() {
    let server = server().await;
    let anchor = moved(&lost_run(&server).await, "open");
    let other = client(&server);
    let mut reply = other.send(resumed(anchor)).await;
    let Event::Ask(ask) = next(&mut reply).await else { panic!("no question") };
    ask.answer(Answer::Result(Json::from_value(&json!({ "action": "accept" }))));
    let answered = server.saw(|seen| seen.id() == "q1" && seen.verb == "POST").await;
    assert_eq!(
        (answered.header("mcp-session-id"), &answered.body["result"]["action"]),
        (Some("s-1"), &json!("accept"))
    );
}

#[tokio::test]
async fn no_anchor_lies_behind_an_open_question() {
    let server = server().await;
    let client = client(&server);
    let mut by = caller(Principal::Local, None);
    by.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
    let mut reply = client.send(call_of("tools/call", r#"{"name":"asks"}"#, by)).await;
    let (mut anchors, mut ask, mut later) = (Vec::new(), None, false);
    while ask.is_none() || !later {
        match next(&mut reply).await {
            Event::Anchored(anchor) => anchors.push(text(&anchor)),
            Event::Ask(question) => ask = Some(question),
            Event::Progress(_) => later = true,
            other => panic!("{other:?}"),
        }
    }
    assert!(anchors.len() == 1 && anchors[0].contains(r#""event":"mark""#), "{anchors:?}");
    reply.leave_running();
    drop(ask);
    client.close().await;
    let answers = server.seen().into_iter().filter(|seen| seen.id() == "q1").count();
    assert_eq!(answers, 0, "a refusal would make the tool go on without an answer");
}

#[tokio::test]
async fn a_server_that_does_not_know_the_run_leaves_the_outcome_unknown() {
    let server = server().await;
    let anchor = moved(&lost_run(&server).await, "forgotten");
    let lost = all(client(&server).send(resumed(anchor)).await).await;
    assert_eq!(lost.failure().reason, Reason::OutcomeUnknown);
    assert!(lost.failure().message.contains("and the server does not resume it"), "{}", lost.failure().message);
    assert_eq!(server.seen_of("tools/call").len(), 1);
    let strange = all(client(&server).send(resumed(Anchor::new("strange"))).await).await;
    assert_eq!(strange.failure().reason, Reason::OutcomeUnknown);
}

#[tokio::test]
async fn a_run_that_was_found_again_can_be_cancelled() {
    let server = server().await;
    let anchor = moved(&lost_run(&server).await, "open");
    let other = client(&server);
    let reply = other.send(resumed(anchor)).await.in_background();
    server.saw(|seen| seen.header("last-event-id") == Some("open")).await;
    reply.cancel();
    let cancel = server.saw(|seen| seen.is("notifications/cancelled")).await;
    assert_eq!((&cancel.body["params"]["requestId"], cancel.header("mcp-session-id")), (&json!(2), Some("s-1")));
}

#[tokio::test]
async fn a_call_with_a_callers_credentials_has_no_anchor() {
    let server = server().await;
    let client = client(&server);
    let by = caller(Principal::Credential("secret".into()), Some("Bearer secret"));
    let mut reply = client.send(call_of("tools/call", r#"{"name":"asks"}"#, by)).await;
    loop {
        match next(&mut reply).await {
            Event::Anchored(anchor) => panic!("{}", text(&anchor)),
            Event::Progress(_) => break,
            _ => {}
        }
    }
}

#[tokio::test]
async fn only_a_server_over_http_can_be_asked_for_a_run() {
    let mut config = crate::client::config(&server().await);
    let command = vec!["false".to_owned()];
    config.transport =
        raincheck::config::Transport::Stdio { command, env: BTreeMap::new(), cwd: None, hide: Vec::new() };
    let client: Client = crate::client::client_with(config, &raincheck::config::Limits::default());
    let outcome = client.send(resumed(Anchor::new("{}"))).await.outcome().await;
    assert!(matches!(outcome, Outcome::Failed(failure) if failure.reason == Reason::OutcomeUnknown));
}
