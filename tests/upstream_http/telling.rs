//! What a server is told beside calls, where it or a gateway does not take it at first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use raincheck::config::{Limits, ServerConfig};
use raincheck::protocol::{Abilities, Answer, Json, Outcome, Principal, Reason, Reply};
use serde_json::json;
use tokio::sync::Notify;

use crate::client::{Client, all, call_of, caller, client_with, config};
use crate::http_server::{Server, Wire};
use crate::replies::{asked, outcome, result};

const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"sure?"}}"#;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// This status.
    Status(&'static str),
    /// Try again after a second.
    TooMany,
    /// The connection is closed without an answer.
    Closed,
    Reset,
}

impl Fault {
    async fn befall(self, wire: Wire) -> Wire {
        match self {
            Self::Status(status) => wire.status(status).await,
            Self::TooMany => wire.respond("429 Too Many Requests", &[("Retry-After", "1")], "").await,
            Self::Closed => wire,
            Self::Reset => wire.reset(),
        }
    }
}

/// A server whose tools answer when it has an answer or a cancel; `asks` asks. The first `faults` of these meet `fault`. Once
/// it has refused one it `forgets` its session.
async fn server(fault: Fault, faults: usize, forgets: bool) -> Server {
    let (told, count) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    Server::legacy(move |seen, mut wire| {
        let (told, count) = (Arc::clone(&told), Arc::clone(&count));
        async move {
            match seen.method() {
                "tools/call" => {
                    wire.events().await;
                    if seen.tool() == "asks" {
                        wire.event(QUESTION).await;
                    }
                    told.notified().await;
                    wire.event(&seen.says("told")).await;
                    wire
                }
                "ping" if forgets => wire.status("404 Not Found").await,
                "ping" => wire.json(&seen.result(&json!({}))).await,
                _ if count.fetch_add(1, Ordering::SeqCst) < faults => fault.befall(wire).await,
                _ => {
                    told.notify_one();
                    wire.status("202 Accepted").await
                }
            }
        }
    })
    .await
}

fn client_of(server: &Server, change: impl FnOnce(&mut ServerConfig)) -> Client {
    let mut config = config(server);
    change(&mut config);
    client_with(config, &Limits::default())
}

/// A call whose question is open.
async fn asking(client: &Client) -> (Reply, raincheck::protocol::Ask) {
    let mut by = caller(Principal::Local, None);
    by.abilities = Abilities::of(Json::from_value(&json!({ "elicitation": {} })));
    let mut reply = client.send(call_of("tools/call", r#"{"name":"asks"}"#, by)).await;
    let ask = asked(&mut reply).await;
    (reply, ask)
}

fn yes() -> Answer {
    Answer::Result(Json::from_value(&json!({ "action": "accept" })))
}

fn answers(server: &Server) -> usize {
    server.seen().iter().filter(|seen| seen.verb == "POST" && seen.id() == "q1").count()
}

#[tokio::test]
async fn an_answer_that_is_lost_on_its_way_is_sent_again() {
    let faults = [
        Fault::Status("503 Service Unavailable"),
        Fault::Status("502 Bad Gateway"),
        Fault::Status("500 Internal Server Error"),
        Fault::TooMany,
        Fault::Closed,
        Fault::Reset,
    ];
    let each = faults.map(|fault| async move {
        let server = server(fault, 2, false).await;
        let client = client_of(&server, |_| {});
        let (reply, ask) = asking(&client).await;
        let begun = Instant::now();
        ask.answer(yes());
        assert_eq!(result(reply).await["content"][0]["text"], "told", "{fault:?}");
        assert_eq!(answers(&server), 3, "{fault:?}");
        let least = if fault == Fault::TooMany { Duration::from_secs(2) } else { Duration::from_millis(750) };
        assert!(begun.elapsed() >= least, "{fault:?}");
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn an_answer_that_a_server_cannot_be_told_ends_its_call_with_the_reason() {
    for (status, forgets, why) in [
        ("401 Unauthorized", false, "could not be sent to it: the server answered with status 401"),
        ("404 Not Found", true, "no longer knows the session"),
        ("400 Bad Request", true, "no longer knows the session"),
    ] {
        let server = server(Fault::Status(status), usize::MAX, forgets).await;
        let client = client_of(&server, |_| {});
        let (reply, ask) = asking(&client).await;
        ask.answer(yes());
        let Outcome::Failed(failure) = outcome(reply).await else { panic!("{status}") };
        assert_eq!(failure.reason, Reason::OutcomeUnknown, "{status}");
        assert!(failure.message.contains(why), "{}", failure.message);
        assert_eq!(answers(&server), 1, "{status}");
        let cancel = server.saw(|seen| seen.is("notifications/cancelled")).await;
        assert_eq!(cancel.body["params"]["reason"], "the call was given up");
    }
}

#[tokio::test]
async fn an_answer_that_a_server_does_not_want_is_not_sent_again_and_its_call_goes_on() {
    let server = server(Fault::Status("400 Bad Request"), 1, false).await;
    let client = client_of(&server, |_| {});
    let (reply, ask) = asking(&client).await;
    ask.answer(yes());
    server.saw(|seen| seen.is("ping")).await;
    reply.cancel();
    all(reply).await.says("told");
    assert_eq!(answers(&server), 1);
}

#[tokio::test]
async fn a_cancel_that_is_lost_on_its_way_is_sent_again() {
    let faults = [Fault::Status("503 Service Unavailable"), Fault::TooMany, Fault::Closed];
    let each = faults.map(|fault| async move {
        let server = server(fault, 2, false).await;
        let client = client_of(&server, |_| {});
        let reply = client.tool("works").await.in_background();
        server.saw(|seen| seen.is("tools/call")).await;
        reply.cancel();
        all(reply).await.says("told");
        assert_eq!(server.seen_of("notifications/cancelled").len(), 3, "{fault:?}");
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn a_cancel_is_sent_again_for_no_longer_than_its_call_lingers() {
    let server = server(Fault::Closed, usize::MAX, false).await;
    let client = client_of(&server, |config| config.cancel_grace = Duration::from_millis(400));
    let reply = client.tool("works").await.in_background();
    server.saw(|seen| seen.is("tools/call")).await;
    reply.cancel();
    assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
    client.close().await;
    client.jobs.idle().await;
    assert!((1..=2).contains(&server.seen_of("notifications/cancelled").len()));
}

#[tokio::test]
async fn a_cancel_that_was_lost_is_sent_once_more_before_its_session_is_ended() {
    let server = server(Fault::TooMany, 1, false).await;
    let client = client_of(&server, |_| {});
    let reply = client.tool("works").await.in_background();
    server.saw(|seen| seen.is("tools/call")).await;
    reply.cancel();
    server.saw(|seen| seen.is("notifications/cancelled")).await;
    client.close().await;
    let seen = server.seen();
    let last: Vec<_> = seen.iter().rev().take(3).map(|seen| (seen.verb.as_str(), seen.method())).collect();
    let cancel = ("POST", "notifications/cancelled");
    assert_eq!(last, [("DELETE", ""), cancel, cancel]);
}

#[tokio::test]
async fn an_answer_that_was_lost_does_not_get_to_a_call_that_was_cancelled_since() {
    // The answer, then the cancel, which is sent again.
    let server = server(Fault::Status("503 Service Unavailable"), 2, false).await;
    let client = client_of(&server, |_| {});
    let (reply, ask) = asking(&client).await;
    ask.answer(yes());
    server.saw(|seen| seen.verb == "POST" && seen.id() == "q1").await;
    reply.cancel();
    all(reply).await.says("told");
    assert_eq!((answers(&server), server.seen_of("notifications/cancelled").len()), (1, 2));
}
