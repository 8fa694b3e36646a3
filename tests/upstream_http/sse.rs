//! Servers that speak HTTP+SSE of 2024-11-05 only.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use raincheck::config::{Limits, Transport};
use raincheck::protocol::{Event, Principal, Reason};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::{Client, all, call_of, caller, client, client_with, config, waits_for_connection};
use crate::http_server::{Seen, Server, Wire, notification};

/// What a test lets a server do with a message: the responses to its POST, and what is said on the event stream.
pub(crate) struct Turn {
    /// The status of the response; `None` resets the connection.
    pub(crate) status: Option<&'static str>,
    /// The body of the response, which is JSON.
    pub(crate) body: Option<String>,
    /// Events that are sent.
    pub(crate) says: Vec<String>,
    /// Whether the event stream ends then.
    pub(crate) ends: bool,
    /// No response is given; what is sent here says that nobody waits for it any more.
    pub(crate) given_up: Option<mpsc::UnboundedSender<()>>,
}

impl Turn {
    pub(crate) fn says(text: impl Into<String>) -> Self {
        Self { says: vec![text.into()], ..Self::quiet() }
    }

    pub(crate) fn quiet() -> Self {
        Self { status: Some("202 Accepted"), body: None, says: Vec::new(), ends: false, given_up: None }
    }

    /// The response is this JSON.
    fn body(text: impl Into<String>) -> Self {
        Self { status: Some("200 OK"), body: Some(text.into()), ..Self::quiet() }
    }
}

type Streams = Arc<Mutex<Vec<mpsc::UnboundedSender<Option<String>>>>>;

/// A server whose event stream is at `/mcp`, and which takes messages at the address that `endpoint` names.
pub(crate) async fn server(
    refusal: &'static str,
    endpoint: &'static str,
    turn: impl Fn(&Seen) -> Turn + Send + Sync + 'static,
) -> Server {
    let (streams, turn) = (Streams::default(), Arc::new(turn));
    Server::start(move |seen: Seen, mut wire: Wire| {
        let (streams, turn) = (Arc::clone(&streams), Arc::clone(&turn));
        async move {
            if seen.verb == "GET" {
                let (said, mut says) = mpsc::unbounded_channel();
                streams.lock().unwrap().push(said);
                wire.raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n").await;
                wire.raw(format!(": hello\r\n\r\nevent: ping\r\ndata: 1\r\n\r\nevent: endpoint\r\ndata: {endpoint}\r\n\r\n"))
                    .await;
                loop {
                    tokio::select! {
                        said = says.recv() => match said.flatten() {
                            Some(text) => wire.event(&text).await,
                            None => return wire,
                        },
                        () = wire.closed() => return wire,
                    }
                }
            }
            if seen.path == "/mcp" {
                return wire.respond(refusal, &[("Content-Type", "text/html")], "<pre>Cannot POST</pre>").await;
            }
            let turn = match seen.method() {
                "initialize" => Turn::says(seen.result(&json!({
                    "protocolVersion": "2024-11-05", "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" },
                }))),
                "notifications/initialized" => Turn::quiet(),
                _ => turn(&seen),
            };
            if let Some(given_up) = turn.given_up {
                wire.closed().await;
                let _ = given_up.send(());
                return wire;
            }
            let stream = streams.lock().unwrap().last().cloned();
            let wire = match (turn.status, turn.body) {
                (Some(status), Some(body)) => {
                    wire.respond(status, &[("Content-Type", "application/json")], &body).await
                }
                (Some(status), None) => wire.status(status).await,
                (None, _) => wire.reset(),
            };
            for text in turn.says.into_iter().map(Some).chain(turn.ends.then_some(None)) {
                let _ = stream.as_ref().map(|stream| stream.send(text));
            }
            wire
        }
    })
    .await
}

fn done(seen: &Seen) -> Turn {
    match seen.method() {
        "tools/call" => Turn::says(seen.says("done")),
        _ => Turn::quiet(),
    }
}

pub(crate) fn configured(server: &Server) -> Client {
    configured_with(server, &Limits::default())
}

fn configured_with(server: &Server, limits: &Limits) -> Client {
    let mut config = config(server);
    let Transport::Http { url, headers, forward } = config.transport else { panic!() };
    config.transport = Transport::Sse { url, headers, forward };
    client_with(config, limits)
}

#[tokio::test]
async fn an_old_server_is_found_behind_its_refusal_of_initialize_and_asked_once_only() {
    for refusal in ["404 Not Found", "405 Method Not Allowed", "400 Bad Request"] {
        let server = server(refusal, "/messages?sessionId=1", done).await;
        let client = client(&server);
        for _ in 0..3 {
            client.call("t").await.says("done");
        }
        client.close().await;
        let refused = server.seen().iter().filter(|seen| seen.verb == "POST" && seen.path == "/mcp").count();
        let sent: Vec<_> = server.seen_by("POST").iter().filter(|seen| seen.path != "/mcp").cloned().collect();
        assert_eq!((refused, server.seen_by("GET").len(), sent.len()), (1, 2, 5), "{refusal}");
        assert!(sent.iter().all(|seen| seen.path == "/messages?sessionId=1"));
        assert_eq!((sent[0].method(), sent[1].method()), ("initialize", "notifications/initialized"));
    }
}

#[tokio::test]
async fn a_server_that_the_config_says_is_old_is_not_tried_in_any_other_way() {
    let server = server("500 Never", "/messages", done).await;
    let client = configured(&server);
    client.call("t").await.says("done");
    assert_eq!((server.seen_by("GET").len(), server.seen_by("POST").len()), (1, 3));
    assert!(server.seen_by("POST").iter().all(|seen| seen.path == "/messages"));
}

#[tokio::test]
async fn calls_share_one_event_stream_and_answers_find_their_calls_in_any_order() {
    static WAITING: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let server = server("404 Not Found", "/m", |seen| match (seen.method(), seen.tool()) {
        ("tools/call", "last") => {
            let mut says = vec![seen.progress(1), seen.says("last")];
            says.extend(WAITING.lock().unwrap().drain(..));
            Turn { says, ..Turn::quiet() }
        }
        ("tools/call", tool) => {
            WAITING.lock().unwrap().insert(0, seen.says(tool));
            Turn::says(seen.progress(7))
        }
        _ => Turn::quiet(),
    })
    .await;
    let client = configured(&server);
    let mut first = client.tool("first").await;
    waits_for_connection(&mut first).await;
    let mut second = client.tool("second").await;
    for reply in [&mut first, &mut second] {
        let event = loop {
            match reply.next().await {
                Some(Event::Waits(_) | Event::Began) => {}
                event => break event,
            }
        };
        assert!(matches!(event, Some(Event::Progress(at)) if at.describe() == "7"));
    }
    let last = client.call("last").await;
    last.says("last");
    assert_eq!(last.progress, ["1"]);
    all(first).await.says("first");
    all(second).await.says("second");
    assert_eq!(server.seen_by("GET").len(), 1);
}

#[tokio::test]
async fn an_endpoint_on_another_origin_gets_nothing() {
    let other = Server::start(|_, wire| async move { wire.status("202 Accepted").await }).await;
    let address: &'static str = format!("http://{}/messages", other.address).leak();
    let server = server("404 Not Found", address, done).await;
    for client in [client(&server), configured(&server)] {
        let failure = client.call("t").await.failure().clone();
        assert_eq!(failure.reason, Reason::NotStarted, "{failure:?}");
    }
    assert!(other.seen().is_empty());
    let failure = configured(&server).call("t").await.failure().clone();
    assert!(failure.message.contains("another server"), "{failure:?}");
}

#[tokio::test]
async fn a_stream_of_pings_without_an_endpoint_is_no_connection() {
    let server = Server::start(|_, mut wire: Wire| async move {
        wire.events().await;
        wire.raw("event: ping\ndata: {}\n\n").await;
        wire.closed().await;
        wire
    })
    .await;
    let mut config = config(&server);
    config.connect_timeout = Duration::from_millis(200);
    let Transport::Http { url, headers, forward } = config.transport else { panic!() };
    config.transport = Transport::Sse { url, headers, forward };
    let began = Instant::now();
    let failure = client_with(config, &Limits::default()).call("t").await.failure().clone();
    assert_eq!(failure.reason, Reason::NotStarted);
    assert!(began.elapsed() < Duration::from_secs(3), "as the config says, not as long as it can be");
}

#[tokio::test]
async fn a_stream_that_ends_in_mid_call_leaves_the_outcome_unknown_and_the_next_call_finds_a_new_session() {
    let server = server("404 Not Found", "/m", |seen| match seen.tool() {
        "breaks" => Turn { ends: true, ..Turn::quiet() },
        _ => done(seen),
    })
    .await;
    let client = configured(&server);
    let failure = client.call("breaks").await.failure().clone();
    assert_eq!(failure.reason, Reason::OutcomeUnknown);
    assert!(failure.message.contains("event stream"), "{failure:?}");
    client.call("t").await.says("done");
    assert_eq!((server.seen_by("GET").len(), server.seen_of("tools/call").len()), (2, 2));
}

#[tokio::test]
async fn what_the_response_to_a_message_says_is_believed_where_it_says_something() {
    fn turn(seen: &Seen) -> Turn {
        let status = match seen.tool() {
            "unknown session" => Some("404 Not Found"),
            "broken" => Some("500 Internal Server Error"),
            "denied" => Some("401 Unauthorized"),
            "lost on the way" => None,
            _ => return done(seen),
        };
        let says = if status.is_none() { vec![seen.says("answered all the same")] } else { Vec::new() };
        Turn { status, says, ..Turn::quiet() }
    }
    let server = server("404 Not Found", "/m", turn).await;
    let client = configured(&server);
    let cases = [
        ("unknown session", Reason::OutcomeUnknown, 2),
        ("broken", Reason::BadAnswer, 2),
        ("denied", Reason::Unauthorized, 2),
    ];
    client.call("t").await.says("done");
    for (tool, reason, streams) in cases {
        assert_eq!(client.call(tool).await.failure().reason, reason, "{tool}");
        client.call("t").await.says("done");
        assert_eq!(server.seen_by("GET").len(), streams, "{tool}");
    }
    client.call("lost on the way").await.says("answered all the same");
}

#[tokio::test]
async fn an_answer_in_the_response_to_its_message_is_taken() {
    let server = server("404 Not Found", "/m", |seen| match seen.tool() {
        "error" => Turn::body(
            json!({ "jsonrpc": "2.0", "id": seen.id(), "error": { "code": 7, "message": "no" } }).to_string(),
        ),
        _ if seen.is("tools/call") => Turn::body(seen.says("in the body")),
        _ => Turn::quiet(),
    })
    .await;
    let client = configured(&server);
    client.call("t").await.says("in the body");
    assert_eq!(client.call("error").await.error().code(), 7);
    client.call("t").await.says("in the body");
    assert_eq!(server.seen_by("GET").len(), 1, "one session");
}

#[tokio::test]
async fn a_server_that_answers_all_in_responses_needs_its_stream_for_the_address_only() {
    let server = Server::start(|seen: Seen, mut wire: Wire| async move {
        if seen.verb == "GET" {
            wire.events().await;
            wire.raw("event: endpoint\ndata: /m\n\n").await;
            wire.closed().await;
            return wire;
        }
        match seen.method() {
            "initialize" => wire.initialize(&seen, "s").await,
            "tools/call" => wire.json(&seen.says("done")).await,
            _ => wire.status("202 Accepted").await,
        }
    })
    .await;
    configured(&server).call("t").await.says("done");
}

#[tokio::test]
async fn of_two_answers_the_first_counts_and_one_to_another_call_in_a_response_none() {
    let first = Mutex::new(None);
    let server = server("404 Not Found", "/m", move |seen| match seen.tool() {
        "twice" => {
            *first.lock().unwrap() = Some(seen.says("again"));
            Turn::body(seen.says("first"))
        }
        "once" => {
            Turn { says: vec![seen.says("once")], ..Turn::body(r#"{"jsonrpc":"2.0","id":777,"result":{"wrong":1}}"#) }
        }
        "next" => {
            let again = first.lock().unwrap().take().unwrap();
            Turn { says: vec![again, seen.says("next")], ..Turn::body(r#"{"ok":true}"#) }
        }
        _ => Turn::quiet(),
    })
    .await;
    let client = configured(&server);
    client.call("twice").await.says("first");
    client.call("next").await.says("next");
    client.call("once").await.says("once");
    assert_eq!(server.seen_by("GET").len(), 1, "one session");
}

#[tokio::test]
async fn an_answer_in_a_response_is_read_up_to_the_limit_of_a_message() {
    let server = server("404 Not Found", "/m", |seen| match seen.tool() {
        "" => Turn::quiet(),
        "large" => Turn::body(seen.says(&"x".repeat(100 << 10))),
        _ => Turn::body(seen.says("small")),
    })
    .await;
    let client = configured_with(&server, &Limits { message: 10 << 10, ..Limits::default() });
    assert_eq!(client.call("large").await.failure().reason, Reason::TooLarge);
    client.call("t").await.says("small");
}

#[tokio::test]
async fn a_ping_of_the_server_is_answered_and_a_cancel_reaches_it() {
    let server = server("404 Not Found", "/m", |seen| match seen.method() {
        "tools/call" => Turn::says(json!({ "jsonrpc": "2.0", "id": "p-1", "method": "ping" }).to_string()),
        _ => Turn::quiet(),
    })
    .await;
    let client = configured(&server);
    let reply = client.tool("hangs").await;
    let pong = server.saw(|seen| seen.id() == "p-1").await;
    assert_eq!((&pong.body["result"], pong.path.as_str()), (&json!({}), "/m"));
    let call = server.saw(|seen| seen.is("tools/call")).await;
    drop(reply);
    let cancelled = server.saw(|seen| seen.is("notifications/cancelled")).await;
    assert_eq!(cancelled.body["params"]["requestId"], *call.id());
}

#[tokio::test]
async fn messages_go_out_with_the_newest_credentials_of_their_principal() {
    let server = server("404 Not Found", "/m", done).await;
    let client = configured(&server);
    for token in ["Bearer one", "Bearer two"] {
        let call = call_of("tools/call", r#"{"name":"t"}"#, caller(Principal::Named("ann".into()), Some(token)));
        all(client.send(call).await).await.says("done");
        let sent = server.seen_of("tools/call");
        assert_eq!(sent.last().unwrap().header("authorization"), Some(token));
    }
    assert_eq!(server.seen_by("GET").len(), 1, "one session");
    let other = call_of("tools/call", r#"{"name":"t"}"#, caller(Principal::Named("bob".into()), None));
    all(client.send(other).await).await.says("done");
    assert_eq!(server.seen_by("GET").len(), 2, "a session of their own");
}

#[tokio::test]
async fn what_belongs_to_no_call_is_passed_over() {
    let server = server("404 Not Found", "/m", |seen| match seen.method() {
        "tools/call" => {
            let list_changed = notification("notifications/tools/list_changed", &Value::Null);
            let says = vec!["no json".to_owned(), list_changed, format!("[{}]", seen.says("done"))];
            Turn { status: Some("200 OK"), says, ..Turn::quiet() }
        }
        _ => Turn::quiet(),
    })
    .await;
    configured(&server).call("t").await.says("done");
}

#[tokio::test]
async fn a_server_that_is_of_neither_kind_is_told_with_what_was_tried_and_why_each_failed() {
    let long: &'static str = "/m".repeat(100 << 10).leak();
    let cases =
        [("http://other.example/m", "another server"), ("http://[", "no address"), (long, "larger than 65536 bytes")];
    for (endpoint, why) in cases {
        let server = server("405 Method Not Allowed", endpoint, done).await;
        let seen = client(&server).call("t").await;
        let failure = seen.failure();
        assert_eq!(failure.reason, Reason::NotStarted);
        let url = server.url();
        for part in [&format!("POST {url}"), "405", &format!("GET {url}"), "HTTP+SSE", why] {
            assert!(failure.message.contains(part), "{part}: {}", failure.message);
        }
        assert!(failure.message.len() < 1000, "{}", failure.message.len());
    }
}
