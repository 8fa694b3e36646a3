//! What a server over HTTP+SSE is told beside calls, where it or a gateway does not take it at first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use raincheck::protocol::{Abilities, Answer, Ask, Json, Principal, Reason, Reply};
use serde_json::json;
use tokio::sync::mpsc;

use crate::client::{Client, all, call_of, caller};
use crate::http_server::{Seen, Server, notification};
use crate::replies::{asked, result};
use crate::sse::{Turn, configured, server};

/// The statuses that say "not now"; `None` is a connection that is reset.
const FAULTS: [Option<&str>; 5] = [
    Some("503 Service Unavailable"),
    Some("502 Bad Gateway"),
    Some("504 Gateway Timeout"),
    Some("429 Too Many Requests"),
    None,
];

fn question(id: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": { "message": "sure?" } }).to_string()
}

fn turn_with(status: Option<&'static str>) -> Turn {
    Turn { status, ..Turn::quiet() }
}

/// A server whose tool `asks` asks `q1`, and when it is called again `q2`. A message that is no call goes to `told`; with `None` it is taken, and the call answered.
async fn asking(told: impl Fn(&Seen) -> Option<Turn> + Send + Sync + 'static) -> Server {
    let (call, asked) = (Mutex::new(None), AtomicUsize::new(0));
    server("404 Not Found", "/m", move |seen| match (seen.method(), seen.tool()) {
        ("tools/call", tool) => {
            *call.lock().unwrap() = Some(seen.clone());
            let next = || question(&format!("q{}", asked.fetch_add(1, Ordering::SeqCst) + 1));
            if tool == "asks" { Turn::says(next()) } else { Turn::quiet() }
        }
        _ => told(seen).unwrap_or_else(|| Turn::says(call.lock().unwrap().as_ref().unwrap().says("told"))),
    })
    .await
}

/// A call whose question is open.
async fn asks(client: &Client) -> (Reply, Ask) {
    let mut by = caller(Principal::Local, None);
    by.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
    let mut reply = client.send(call_of("tools/call", r#"{"name":"asks"}"#, by)).await;
    let ask = asked(&mut reply).await;
    (reply, ask)
}

fn yes() -> Answer {
    Answer::Result(Json::from_value(&json!({ "action": "accept" })))
}

fn answers(server: &Server, id: &str) -> usize {
    server.seen().iter().filter(|seen| seen.verb == "POST" && seen.id() == id).count()
}

#[tokio::test]
async fn an_answer_that_is_lost_on_its_way_is_sent_again() {
    let each = FAULTS.map(|fault| async move {
        let lost = AtomicUsize::new(0);
        let server = asking(move |_| (lost.fetch_add(1, Ordering::SeqCst) < 2).then(|| turn_with(fault))).await;
        let client = configured(&server);
        let (reply, ask) = asks(&client).await;
        ask.answer(yes());
        assert_eq!(result(reply).await["content"][0]["text"], "told", "{fault:?}");
        let sent: Vec<_> = server.seen().into_iter().filter(|seen| seen.id() == "q1").collect();
        assert_eq!(sent.len(), 3, "{fault:?}");
        assert!(sent.iter().all(|seen| seen.text == sent[0].text && seen.body["result"]["action"] == "accept"));
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_cancel_that_is_lost_on_its_way_is_sent_again() {
    let each = FAULTS.map(|fault| async move {
        let lost = AtomicUsize::new(0);
        let server = asking(move |_| (lost.fetch_add(1, Ordering::SeqCst) < 2).then(|| turn_with(fault))).await;
        let client = configured(&server);
        let reply = client.tool("works").await.in_background();
        server.saw(|seen| seen.is("tools/call")).await;
        reply.cancel();
        all(reply).await.says("told");
        assert_eq!(server.seen_of("notifications/cancelled").len(), 3, "{fault:?}");
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_cancel_is_sent_again_although_nobody_waits_for_its_call() {
    let lost = AtomicUsize::new(0);
    let server = asking(move |_| (lost.fetch_add(1, Ordering::SeqCst) < 2).then(|| turn_with(None))).await;
    let client = configured(&server);
    let reply = client.tool("works").await.in_background();
    server.saw(|seen| seen.is("tools/call")).await;
    drop(reply);
    server.saw(|_| server.seen_of("notifications/cancelled").len() == 3).await;
}

#[tokio::test]
async fn a_cancel_that_was_lost_is_not_sent_again_once_its_call_is_answered() {
    // The cancel of the next call, which is lost twice, is the clock.
    let (cancels, call) = (AtomicUsize::new(0), Mutex::new(None));
    let server = server("404 Not Found", "/m", move |seen| {
        if seen.is("tools/call") {
            *call.lock().unwrap() = Some(seen.clone());
            return Turn::quiet();
        }
        let says = vec![call.lock().unwrap().as_ref().unwrap().says("told")];
        match cancels.fetch_add(1, Ordering::SeqCst) {
            0 => Turn { says, ..turn_with(FAULTS[0]) },
            1 | 2 => turn_with(FAULTS[0]),
            _ => Turn { says, ..Turn::quiet() },
        }
    })
    .await;
    let client = configured(&server);
    for calls in [1, 2] {
        let reply = client.tool("works").await.in_background();
        server.saw(|_| server.seen_of("tools/call").len() == calls).await;
        reply.cancel();
        all(reply).await.says("told");
    }
    let ids: Vec<_> = server.seen_of("tools/call").iter().map(|seen| seen.id().clone()).collect();
    let cancelled = server.seen_of("notifications/cancelled");
    let of = |id| cancelled.iter().filter(|seen| seen.body["params"]["requestId"] == ids[id]).count();
    assert_eq!((of(0), of(1)), (1, 3));
}

#[tokio::test]
async fn an_answer_that_was_lost_does_not_get_to_a_call_that_was_cancelled_since() {
    // The answer, then the cancel, which is sent again.
    let lost = AtomicUsize::new(0);
    let server = asking(move |_| (lost.fetch_add(1, Ordering::SeqCst) < 3).then(|| turn_with(FAULTS[0]))).await;
    let client = configured(&server);
    let (reply, ask) = asks(&client).await;
    ask.answer(yes());
    server.saw(|seen| seen.id() == "q1").await;
    reply.cancel();
    all(reply).await.says("told");
    assert_eq!((answers(&server, "q1"), server.seen_of("notifications/cancelled").len()), (1, 3));
}

#[tokio::test]
async fn an_answer_that_was_withdrawn_or_refused_is_not_sent_again_and_one_that_was_lost_waits_for_neither() {
    for status in ["503 Service Unavailable", "400 Bad Request"] {
        // The next question of the call, whose answer is lost twice, is the clock.
        let lost = Arc::new(AtomicUsize::new(0));
        let server = asking(move |seen| match seen.id().as_str() {
            Some("q1") => {
                let withdrawn = notification("notifications/cancelled", &json!({ "requestId": "q1" }));
                let says = (status.starts_with('5')).then_some(withdrawn).into_iter().chain([question("q2")]).collect();
                Some(Turn { says, ..turn_with(Some(status)) })
            }
            _ => (lost.fetch_add(1, Ordering::SeqCst) < 3).then(|| turn_with(FAULTS[0])),
        })
        .await;
        let client = configured(&server);
        let (mut reply, ask) = asks(&client).await;
        ask.answer(yes());
        asked(&mut reply).await.answer(yes());
        assert_eq!(result(reply).await["content"][0]["text"], "told", "{status}");
        assert_eq!((answers(&server, "q1"), answers(&server, "q2")), (1, 4), "{status}");
    }
}

#[tokio::test]
async fn an_answer_is_not_sent_again_when_its_session_has_ended() {
    // The answer of the next session, which is lost twice, is the clock.
    let lost = AtomicUsize::new(0);
    let server = asking(move |seen| match seen.id().as_str() {
        Some("q1") => Some(Turn { ends: true, ..turn_with(FAULTS[0]) }),
        _ => (lost.fetch_add(1, Ordering::SeqCst) < 2).then(|| turn_with(FAULTS[0])),
    })
    .await;
    let client = configured(&server);
    let (reply, ask) = asks(&client).await;
    ask.answer(yes());
    assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
    let (reply, ask) = asks(&client).await;
    ask.answer(yes());
    assert_eq!(result(reply).await["content"][0]["text"], "told");
    assert_eq!((answers(&server, "q1"), answers(&server, "q2"), server.seen_by("GET").len()), (1, 3, 2));
}

#[tokio::test]
async fn an_answer_that_a_server_cannot_be_told_ends_its_call_with_the_reason() {
    let server =
        asking(|seen| (!seen.is("notifications/cancelled")).then(|| turn_with(Some("401 Unauthorized")))).await;
    let client = configured(&server);
    let (reply, ask) = asks(&client).await;
    ask.answer(yes());
    let seen = all(reply).await;
    assert_eq!(seen.failure().reason, Reason::OutcomeUnknown);
    let message = &seen.failure().message;
    assert!(message.contains("could not be sent to it: the server answered with status 401"), "{message}");
    let cancel = server.saw(|seen| seen.is("notifications/cancelled")).await;
    assert_eq!((answers(&server, "q1"), cancel.body["params"]["reason"].as_str()), (1, Some("the call was given up")));
}

#[tokio::test]
async fn what_a_server_does_not_acknowledge_holds_back_nobody_elses_call() {
    let (given_up, mut is_given_up) = mpsc::unbounded_channel();
    let server = server("404 Not Found", "/m", move |seen| match (seen.method(), seen.tool()) {
        ("tools/call", "quick") => Turn::says(seen.says("quick")),
        ("tools/call", _) => Turn::says(question(&format!("q{}", seen.id()))),
        _ => Turn { given_up: Some(given_up.clone()), ..Turn::quiet() },
    })
    .await;
    let client = configured(&server);
    // Refused without anybody who is asked; then cancelled.
    let slow = client.tool("asks").await.in_background();
    server.saw(|seen| seen.verb == "POST" && seen.text.contains("\"error\"")).await;
    drop(slow);
    server.saw(|seen| seen.is("notifications/cancelled")).await;
    assert_eq!(result(client.tool("quick").await).await["content"][0]["text"], "quick");
    assert!(is_given_up.try_recv().is_err(), "it waited for the acknowledgement");
}
