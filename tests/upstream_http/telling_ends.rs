//! What a server is told beside calls, where the call or the session ends or many such messages are on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use raincheck::config::Limits;
use raincheck::protocol::{Abilities, Answer, Ask, Json, Principal, Reason, Reply};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::client::{Client, all, call_of, caller, client_with, config};
use crate::http_server::{PATIENCE, Seen, Server};
use crate::replies::{asked, outcome, result};

const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"sure?"}}"#;

/// More messages than are sent again at a time.
const MANY: usize = 70;

/// What the parts of a scripted server tell each other.
#[derive(Debug, Default)]
struct Signs {
    called: Notify,
    told: Notify,
    gate: Notify,
    ended: Notify,
    count: AtomicUsize,
    is_well: AtomicBool,
}

/// A call of a client that can be asked, on `client` of `server`, with that time for a cancelled call.
async fn calling(server: &Server, cancel_grace: Duration) -> (Client, Reply) {
    let config = raincheck::config::ServerConfig { cancel_grace, ..config(server) };
    let client = client_with(config, &Limits::default());
    let mut by = caller(Principal::Local, None);
    by.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
    let reply = client.send(call_of("tools/call", r#"{"name":"asks"}"#, by)).await;
    (client, reply)
}

fn accept(ask: Ask) {
    ask.answer(Answer::Result(Json::from_value(&json!({ "action": "accept" }))));
}

fn is_answer(seen: &Seen) -> bool {
    seen.verb == "POST" && seen.id() == "q1"
}

fn is_refusal(seen: &Seen) -> bool {
    seen.verb == "POST" && seen.id().as_str().is_some_and(|id| id.starts_with('z'))
}

fn answers(server: &Server) -> usize {
    server.seen().iter().filter(|seen| is_answer(seen)).count()
}

/// A request that nobody can be asked.
fn unknown(number: usize) -> String {
    json!({ "jsonrpc": "2.0", "id": format!("z{number}"), "method": "foo/bar", "params": {} }).to_string()
}

/// Waits until each of so many refusals came at least once.
async fn refused(server: &Server, number: usize) {
    for number in 0..number {
        server.saw(|seen| is_refusal(seen) && *seen.id() == format!("z{number}")).await;
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_question_of_the_session_does_not_get_to_its_call_that_was_cancelled_since() {
    let signs = Arc::new(Signs::default());
    let server = Server::start(move |seen, mut wire| {
        let signs = Arc::clone(&signs);
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) => {
                    wire.events().await;
                    signs.called.notified().await;
                    wire.event(QUESTION).await;
                    wire.closed().await;
                    wire
                }
                ("POST", "tools/call") => {
                    wire.events().await;
                    signs.called.notify_one();
                    signs.told.notified().await;
                    wire.event(&seen.says("told")).await;
                    wire
                }
                // The answer, then the cancel, which is sent again.
                ("POST", "" | "notifications/cancelled") if signs.count.fetch_add(1, Ordering::SeqCst) < 2 => {
                    wire.status("503 Service Unavailable").await
                }
                ("POST", "notifications/initialized") => wire.status("202 Accepted").await,
                _ => {
                    signs.told.notify_one();
                    wire.status("202 Accepted").await
                }
            }
        }
    })
    .await;
    let (_client, mut reply) = calling(&server, Duration::from_secs(10)).await;
    accept(asked(&mut reply).await);
    server.saw(is_answer).await;
    reply.cancel();
    all(reply).await.says("told");
    assert_eq!((answers(&server), server.seen_of("notifications/cancelled").len()), (1, 2));
}

/// A server that sends `number` requests that are refused, then a question. Refusals come in vain while it is not well.
async fn flooding(number: usize, signs: &Arc<Signs>) -> Server {
    let signs = Arc::clone(signs);
    Server::legacy(move |seen, mut wire| {
        let signs = Arc::clone(&signs);
        async move {
            if is_refusal(&seen) && !signs.is_well.load(Ordering::SeqCst) {
                return wire.status("503 Service Unavailable").await;
            }
            if seen.is("tools/call") {
                wire.events().await;
                for number in 0..number {
                    wire.event(&unknown(number)).await;
                }
                signs.called.notified().await;
                wire.event(QUESTION).await;
                signs.told.notified().await;
                wire.event(&seen.says("told")).await;
                return wire;
            }
            if is_answer(&seen) && signs.count.fetch_add(1, Ordering::SeqCst) == 0 {
                signs.gate.notified().await;
                return wire.status("503 Service Unavailable").await;
            }
            if is_answer(&seen) {
                signs.told.notify_one();
            }
            wire.status("202 Accepted").await
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_is_not_sent_again_to_a_call_that_was_cancelled_while_no_place_was_free() {
    let signs = Arc::new(Signs::default());
    let server = flooding(64, &signs).await;
    let (_client, mut reply) = calling(&server, Duration::from_secs(2)).await;
    refused(&server, 64).await;
    signs.called.notify_one();
    accept(asked(&mut reply).await);
    server.saw(is_answer).await;
    reply.cancel();
    server.saw(|seen| seen.is("notifications/cancelled")).await;
    signs.gate.notify_one();
    assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
    assert_eq!(answers(&server), 1);
}

#[tokio::test]
async fn a_lost_answer_waits_for_its_place_among_many() {
    let signs = Arc::new(Signs::default());
    let server = flooding(MANY, &signs).await;
    let (_client, mut reply) = calling(&server, Duration::from_secs(10)).await;
    refused(&server, MANY).await;
    signs.called.notify_one();
    accept(asked(&mut reply).await);
    server.saw(is_answer).await;
    signs.gate.notify_one();
    signs.is_well.store(true, Ordering::SeqCst);
    assert_eq!(result(reply).await["content"][0]["text"], "told");
    assert_eq!(answers(&server), 2);
}

#[tokio::test]
async fn what_nobody_waits_for_takes_no_place_from_an_answer() {
    let signs = Arc::new(Signs::default());
    let own = Arc::clone(&signs);
    let server = Server::start(move |seen, mut wire| {
        let signs = Arc::clone(&own);
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) => {
                    wire.events().await;
                    for number in 0..MANY {
                        wire.event(&unknown(number)).await;
                    }
                    wire.closed().await;
                    wire
                }
                ("POST", "tools/call") => {
                    wire.events().await;
                    signs.called.notified().await;
                    wire.event(QUESTION).await;
                    signs.told.notified().await;
                    wire.event(&seen.says("told")).await;
                    wire
                }
                _ if is_refusal(&seen) => wire.status("503 Service Unavailable").await,
                _ if is_answer(&seen) && signs.count.fetch_add(1, Ordering::SeqCst) == 0 => {
                    wire.status("503 Service Unavailable").await
                }
                _ => {
                    if is_answer(&seen) {
                        signs.told.notify_one();
                    }
                    wire.status("202 Accepted").await
                }
            }
        }
    })
    .await;
    let (_client, mut reply) = calling(&server, Duration::from_secs(10)).await;
    refused(&server, MANY).await;
    signs.called.notify_one();
    accept(asked(&mut reply).await);
    assert_eq!(result(reply).await["content"][0]["text"], "told");
}

/// A server that never acknowledges what `hangs`. It tells whether its session was ended while it had that in hand.
async fn hanging(hangs: fn(&Seen) -> bool, signs: &Arc<Signs>) -> Server {
    let signs = Arc::clone(signs);
    Server::start(move |seen, mut wire| {
        let signs = Arc::clone(&signs);
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) => wire.status("405 Method Not Allowed").await,
                ("DELETE", _) => {
                    signs.ended.notify_one();
                    wire.status("200 OK").await
                }
                ("POST", "tools/call") => {
                    wire.events().await;
                    wire.event(QUESTION).await;
                    wire.closed().await;
                    wire
                }
                _ if hangs(&seen) => {
                    // A moment in which an end that does not wait is sure to come.
                    let is_overtaken = timeout(Duration::from_millis(500), signs.ended.notified()).await.is_ok();
                    signs.is_well.store(!is_overtaken, Ordering::SeqCst);
                    if seen.is("notifications/cancelled") {
                        return wire.status("202 Accepted").await;
                    }
                    wire.closed().await;
                    wire
                }
                _ => wire.status("202 Accepted").await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_that_is_not_acknowledged_does_not_hold_up_a_stop() {
    let signs = Arc::new(Signs::default());
    let server = hanging(is_answer, &signs).await;
    let (client, mut reply) = calling(&server, Duration::from_secs(10)).await;
    accept(asked(&mut reply).await);
    server.saw(is_answer).await;
    let began = Instant::now();
    timeout(PATIENCE * 2, client.upstream.close()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(signs.is_well.load(Ordering::SeqCst), "what is on its way has a moment");
    drop(outcome(reply).await);
}

#[tokio::test]
async fn the_end_of_a_session_does_not_overtake_a_cancel() {
    let signs = Arc::new(Signs::default());
    let server = hanging(|seen| seen.is("notifications/cancelled"), &signs).await;
    let (client, mut reply) = calling(&server, Duration::from_secs(10)).await;
    let _ask = asked(&mut reply).await;
    reply.cancel();
    server.saw(|seen| seen.is("notifications/cancelled")).await;
    client.close().await;
    assert!(signs.is_well.load(Ordering::SeqCst));
    assert_eq!(server.seen_by("DELETE").len(), 1);
}

#[tokio::test]
async fn what_the_server_does_not_acknowledge_holds_back_no_other_call() {
    let server = Server::start(|seen, mut wire| async move {
        match (seen.verb.as_str(), seen.method()) {
            ("POST", "initialize") => wire.initialize(&seen, "s").await,
            ("GET", _) => wire.status("405 Method Not Allowed").await,
            ("POST", "tools/call") => {
                let is_quick = seen.tool() == "quick";
                wire.events().await;
                for number in if is_quick { MANY..=MANY } else { 0..=MANY - 1 } {
                    wire.event(&unknown(number)).await;
                }
                if is_quick {
                    wire.event(&seen.says("quick")).await;
                }
                wire.closed().await;
                wire
            }
            _ if is_refusal(&seen) => {
                wire.closed().await;
                wire
            }
            _ => wire.status("202 Accepted").await,
        }
    })
    .await;
    let client = client_with(config(&server), &Limits::default());
    let _asks = client.tool("asks").await.in_background();
    refused(&server, 8).await;
    // An acknowledgement is waited for longer.
    let quick = timeout(PATIENCE / 2, async { result(client.tool("quick").await).await }).await;
    assert_eq!(quick.expect("it waited for its turn behind the other call")["content"][0]["text"], "quick");
    assert_eq!(server.seen_of("initialize").len(), 1);
}

#[tokio::test]
async fn a_stop_takes_no_longer_for_many_questions_than_for_one() {
    const QUESTIONS: usize = 32;
    let called = Arc::new(Notify::new());
    let server = Server::start(move |seen, mut wire| {
        let called = Arc::clone(&called);
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) => {
                    wire.events().await;
                    called.notified().await;
                    for number in 0..QUESTIONS {
                        wire.event(&QUESTION.replace("q1", &format!("q{number}"))).await;
                    }
                    wire.closed().await;
                    wire
                }
                ("POST", "tools/call") => {
                    wire.events().await;
                    called.notify_one();
                    wire.closed().await;
                    wire
                }
                ("POST", "") => {
                    wire.closed().await;
                    wire
                }
                _ => wire.status("202 Accepted").await,
            }
        }
    })
    .await;
    let (client, mut reply) = calling(&server, Duration::from_secs(10)).await;
    let mut open = Vec::new();
    for _ in 0..QUESTIONS {
        open.push(asked(&mut reply).await);
    }
    let began = Instant::now();
    timeout(PATIENCE * 2, client.upstream.close()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    drop((open, reply));
}
