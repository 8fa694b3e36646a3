//! Sessions: one handshake, headers, loss and renewal, who shares one, the listen stream, the end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use raincheck::config::Limits;
use raincheck::protocol::{Principal, Reason, Retry};
use serde_json::json;
use tokio::sync::Notify;

use crate::client::{Client, all, call_of, caller, client, client_with, config};
use crate::http_server::Server;

#[tokio::test]
async fn many_cold_calls_share_one_handshake_and_none_overtakes_it() {
    let (ready, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (shared, opened) = (Arc::clone(&ready), Arc::clone(&gate));
    let server = Server::start(move |seen, wire| {
        let (ready, gate) = (Arc::clone(&shared), Arc::clone(&opened));
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("POST", "notifications/initialized") => {
                    gate.notified().await;
                    ready.store(true, Ordering::SeqCst);
                    wire.status("202 Accepted").await
                }
                ("POST", _) if ready.load(Ordering::SeqCst) => wire.json(&seen.says("done")).await,
                ("POST", _) => wire.status("400 Bad Request").await,
                _ => wire.status("405 Method Not Allowed").await,
            }
        }
    })
    .await;
    let client = client(&server);
    let mut replies = Vec::new();
    for _ in 0..32 {
        replies.push(client.tool("t").await);
    }
    server.saw(|seen| seen.is("notifications/initialized")).await;
    // What would overtake it would come now.
    let overtaken = server.saw(|seen| seen.is("tools/call"));
    assert!(tokio::time::timeout(Duration::from_millis(200), overtaken).await.is_err());
    gate.notify_one();
    for reply in replies {
        all(reply).await.says("done");
    }
    assert_eq!(server.seen_of("initialize").len(), 1);
    assert_eq!(server.seen_of("notifications/initialized").len(), 1);
}

#[tokio::test]
async fn session_and_version_stand_on_everything_behind_the_handshake() {
    let server = Server::legacy(|seen, wire| async move { wire.json(&seen.says("done")).await }).await;
    let client = client(&server);
    client.call("t").await.says("done");
    server.saw(|seen| seen.verb == "GET").await;
    client.close().await;
    server.saw(|seen| seen.verb == "DELETE").await;
    for seen in server.seen() {
        let expected = if seen.is("initialize") { (None, None) } else { (Some("session-1"), Some("2025-11-25")) };
        let headers = (seen.header("mcp-session-id"), seen.header("mcp-protocol-version"));
        assert_eq!(headers, expected, "{} {}", seen.verb, seen.method());
    }
    assert_eq!(server.seen_of("initialize")[0].body["params"]["capabilities"], json!({}));
}

/// A server that answers, in its first session, the second request and all after it with `refusal`.
async fn forgetful(status: &'static str, body: &'static str) -> Server {
    let first = AtomicUsize::new(0);
    Server::legacy(move |seen, wire| {
        let known = seen.header("mcp-session-id") != Some("session-1") || first.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if known {
                return wire.json(&seen.says("done")).await;
            }
            let body = body.replace("ID", &seen.id().to_string());
            wire.respond(status, &[("Content-Type", "application/json")], &body).await
        }
    })
    .await
}

const FORGOTTEN: [(&str, &str); 5] = [
    ("404 Not Found", ""),
    ("404 Not Found", r#"{"jsonrpc":"2.0","id":ID}"#),
    ("404 Not Found", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#),
    ("400 Bad Request", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID"}}"#),
    ("400 Bad Request", "no such session"),
];

#[tokio::test]
async fn a_list_on_a_session_that_was_forgotten_is_asked_for_again_on_a_new_one() {
    for (status, body) in FORGOTTEN {
        let server = forgetful(status, body).await;
        let client = client(&server);
        client.list().await.says("done");
        client.list().await.says("done");
        let sessions: Vec<_> =
            server.seen_of("tools/list").iter().map(|seen| seen.header("mcp-session-id").unwrap().to_owned()).collect();
        assert_eq!(sessions, ["session-1", "session-1", "session-2"], "{status} {body}");
        assert_eq!(server.seen_of("initialize").len(), 2);
    }
}

#[tokio::test]
async fn a_tool_call_on_a_session_that_was_forgotten_is_not_sent_twice() {
    for (status, body) in FORGOTTEN {
        let server = forgetful(status, body).await;
        let client = client(&server);
        client.call("first").await.says("done");
        let failure = client.call("second").await.failure().clone();
        assert_eq!((failure.reason, failure.retry), (Reason::OutcomeUnknown, Retry::Unknown), "{status} {body}");
        client.call("third").await.says("done");
        let tools: Vec<_> = server.seen_of("tools/call").iter().map(|seen| seen.tool().to_owned()).collect();
        assert_eq!(tools, ["first", "second", "third"]);
        assert_eq!(server.seen_of("initialize").len(), 2);
    }
}

#[tokio::test]
async fn a_server_that_knows_no_session_at_all_is_asked_twice_and_not_for_ever() {
    for status in ["404 Not Found", "400 Bad Request"] {
        let server = Server::legacy(move |_, wire| async move { wire.status(status).await }).await;
        let client = client(&server);
        assert_eq!(client.list().await.failure().reason, Reason::OutcomeUnknown);
        assert_eq!((server.seen_of("initialize").len(), server.seen_of("tools/list").len()), (2, 2), "{status}");
        assert_eq!(client.call("t").await.failure().reason, Reason::OutcomeUnknown);
        assert_eq!((server.seen_of("initialize").len(), server.seen_of("tools/call").len()), (3, 1), "{status}");
    }
}

/// A server that answers nothing but handshakes in its first session, as one does that was started anew in between.
async fn restarted(status: &'static str, body: &'static str) -> Server {
    Server::legacy(move |seen, wire| async move {
        if seen.header("mcp-session-id") != Some("session-1") {
            return wire.json(&seen.says("done")).await;
        }
        let body = body.replace("ID", &seen.id().to_string());
        wire.respond(status, &[("Content-Type", "application/json")], &body).await
    })
    .await
}

#[tokio::test]
async fn a_session_that_was_lost_before_its_first_answer_is_opened_again() {
    let of_sdk = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"No valid session ID"}}"#;
    for (status, body) in FORGOTTEN.into_iter().chain([("400 Bad Request", of_sdk)]) {
        let server = restarted(status, body).await;
        let lists = client(&server);
        lists.list().await.says("done");
        assert_eq!(server.seen_of("initialize").len(), 2, "{status} {body}");
        let server = restarted(status, body).await;
        let calls = client(&server);
        assert_eq!(calls.call("first").await.failure().reason, Reason::OutcomeUnknown, "{status} {body}");
        calls.call("second").await.says("done");
        let tools: Vec<_> = server.seen_of("tools/call").iter().map(|seen| seen.tool().to_owned()).collect();
        assert_eq!(tools, ["first", "second"]);
        assert_eq!(server.seen_of("initialize").len(), 2);
    }
}

#[tokio::test]
async fn a_400_that_answers_the_request_or_comes_first_says_nothing_of_a_session_that_the_server_knows() {
    let server = Server::legacy(|seen, wire| async move {
        let id = seen.id();
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"bad"}}}}"#);
        match seen.tool() {
            "plain" => wire.status("400 Bad Request").await,
            _ => wire.respond("400 Bad Request", &[("Content-Type", "application/json")], &body).await,
        }
    })
    .await;
    let client = client(&server);
    assert_eq!(client.call("plain").await.failure().reason, Reason::BadAnswer);
    assert_eq!(client.call("answered").await.error().code(), -32602);
    assert_eq!(server.seen_of("initialize").len(), 1);
}

/// A call before the stream of the session ends, and one after.
async fn calls_around_the_end_of_its_stream(server: &Server, client: &Client, restart: &Notify) {
    client.call("first").await.says("done");
    server.saw(|seen| seen.verb == "GET").await;
    restart.notify_one();
    // Only when the proxy has seen the stream end does it know; it opens the stream again then.
    server.saw(|seen| seen.verb == "GET" && server.seen_by("GET").len() == 2).await;
    client.call("second").await.says("done");
}

#[tokio::test]
async fn a_server_that_was_started_anew_is_noticed_before_a_tool_is_called() {
    let (restart, known) = (Arc::new(Notify::new()), Arc::new(Mutex::new(String::new())));
    let (shared, sessions) = (Arc::clone(&restart), Arc::clone(&known));
    let count = AtomicUsize::new(0);
    let server = Server::start(move |seen, mut wire| {
        let (restart, known) = (Arc::clone(&shared), Arc::clone(&sessions));
        let number = if seen.is("initialize") { count.fetch_add(1, Ordering::SeqCst) } else { 0 };
        async move {
            let fresh = seen.header("mcp-session-id") == Some(known.lock().unwrap().as_str());
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => {
                    let id = format!("s{number}");
                    known.lock().unwrap().clone_from(&id);
                    wire.initialize(&seen, &id).await
                }
                ("POST", "notifications/initialized") => wire.status("202 Accepted").await,
                _ if !fresh => wire.status("404 Not Found").await,
                ("GET", _) => {
                    wire.events().await;
                    restart.notified().await;
                    known.lock().unwrap().clear();
                    wire
                }
                _ => wire.json(&seen.says("done")).await,
            }
        }
    })
    .await;
    let client = client(&server);
    calls_around_the_end_of_its_stream(&server, &client, &restart).await;
    let tools: Vec<_> =
        server.seen_of("tools/call").iter().map(|seen| seen.header("mcp-session-id").unwrap().to_owned()).collect();
    assert_eq!(tools, ["s0", "s1"], "the second call never met the dead session");
}

#[tokio::test]
async fn a_session_in_doubt_whose_checks_break_the_connection_is_replaced() {
    let (restart, count) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let shared = Arc::clone(&restart);
    let server = Server::start(move |seen, mut wire| {
        let restart = Arc::clone(&shared);
        let number = if seen.is("initialize") { count.fetch_add(1, Ordering::SeqCst) } else { 0 };
        async move {
            let first = seen.header("mcp-session-id") == Some("s0");
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, &format!("s{number}")).await,
                ("POST", "notifications/initialized") => wire.status("202 Accepted").await,
                ("GET", _) if first => {
                    wire.events().await;
                    restart.notified().await;
                    wire
                }
                ("GET", _) => wire.status("405 Method Not Allowed").await,
                ("POST", "ping") => wire.reset(),
                _ => wire.json(&seen.says("done")).await,
            }
        }
    })
    .await;
    let client = client(&server);
    calls_around_the_end_of_its_stream(&server, &client, &restart).await;
    client.call("third").await.says("done");
    let tools: Vec<_> =
        server.seen_of("tools/call").iter().map(|seen| seen.header("mcp-session-id").unwrap().to_owned()).collect();
    assert_eq!(tools, ["s0", "s1", "s1"]);
    assert_eq!((server.seen_of("initialize").len(), server.seen_of("ping").len()), (2, 2));
}

#[tokio::test]
async fn a_missing_listen_stream_is_asked_for_once_per_session() {
    for status in ["405 Method Not Allowed", "400 Bad Request", "404 Not Found", "501 Not Implemented"] {
        let server = Server::start(move |seen, wire| async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) => wire.status(status).await,
                ("POST", "notifications/initialized") => wire.status("202 Accepted").await,
                ("DELETE", _) => wire.status("405 Method Not Allowed").await,
                _ => wire.json(&seen.says("done")).await,
            }
        })
        .await;
        let client = client(&server);
        client.call("t").await.says("done");
        server.saw(|seen| seen.verb == "GET").await;
        for _ in 0..3 {
            client.call("t").await.says("done");
        }
        // A refused DELETE is a normal end.
        client.close().await;
        assert_eq!((server.seen_by("GET").len(), server.seen_of("initialize").len()), (1, 1), "{status}");
        assert_eq!(server.seen_by("DELETE").len(), 1);
    }
}

#[tokio::test]
async fn a_listen_stream_waits_as_long_as_a_429_says() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&asked);
    let server = Server::start(move |seen, mut wire| {
        let asked = Arc::clone(&shared);
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) => {
                    asked.lock().unwrap().push(Instant::now());
                    if asked.lock().unwrap().len() == 1 {
                        return wire.respond("429 Too Many Requests", &[("Retry-After", "1")], "").await;
                    }
                    wire.events().await;
                    wire.closed().await;
                    wire
                }
                ("POST", "notifications/initialized") => wire.status("202 Accepted").await,
                _ => wire.json(&seen.says("done")).await,
            }
        }
    })
    .await;
    let client = client(&server);
    client.call("t").await.says("done");
    server.saw(|seen| seen.verb == "GET" && server.seen_by("GET").len() == 2).await;
    let asked = asked.lock().unwrap().clone();
    assert!(asked[1] - asked[0] >= Duration::from_millis(990), "{:?}", asked[1] - asked[0]);
}

#[tokio::test]
async fn a_silent_listen_stream_delays_nothing_and_progress_and_questions_on_it_count() {
    let server = Server::start(|seen, mut wire| async move {
        match (seen.verb.as_str(), seen.method()) {
            ("POST", "initialize") => wire.initialize(&seen, "s").await,
            ("GET", _) => {
                wire.events().await;
                wire.closed().await;
                wire
            }
            ("POST", "tools/list") => wire.json(&seen.says("done")).await,
            _ => wire.status("202 Accepted").await,
        }
    })
    .await;
    let start = Instant::now();
    client(&server).list().await.says("done");
    assert!(start.elapsed() < Duration::from_secs(1));

    let (call, asked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, answered) = (Arc::clone(&call), Arc::clone(&asked));
    let server = Server::start(move |seen, mut wire| {
        let (call, asked) = (Arc::clone(&begun), Arc::clone(&answered));
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) => {
                    wire.events().await;
                    call.notified().await;
                    wire.raw(": keepalive\r\n\r\n").await;
                    wire.event(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":5}}"#).await;
                    wire.event(r#"{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}"#).await;
                    wire.closed().await;
                    wire
                }
                ("POST", "tools/call") => {
                    wire.events().await;
                    call.notify_one();
                    asked.notified().await;
                    wire.event(&seen.says("done")).await;
                    wire
                }
                ("POST", "") => {
                    asked.notify_one();
                    wire.status("202 Accepted").await
                }
                _ => wire.status("202 Accepted").await,
            }
        }
    })
    .await;
    let seen = client(&server).call("t").await;
    seen.says("done");
    assert_eq!(seen.progress, ["5"]);
    assert_eq!(server.saw(|seen| seen.id() == "q").await.body["error"]["code"], json!(-32601));
}

#[tokio::test]
async fn callers_share_no_session_and_no_credentials() {
    let server = Server::legacy(|seen, wire| async move { wire.json(&seen.says("done")).await }).await;
    let client = client(&server);
    let credential = |token: &str| Principal::Credential(token.into());
    let callers = [
        (credential("Bearer a"), Some("Bearer a")),
        (credential("Bearer b"), Some("Bearer b")),
        (Principal::Anonymous, None),
        (Principal::Named("ann".into()), Some("Bearer ann-1")),
        // A renewed token is no new caller; its call goes out with the new one.
        (Principal::Named("ann".into()), Some("Bearer ann-2")),
        // Only a header tells these apart.
        (Principal::Local, Some("Bearer l-1")),
        (Principal::Local, Some("Bearer l-2")),
    ];
    for _ in 0..2 {
        for (principal, token) in &callers {
            let call = call_of("tools/call", r#"{"name":"t"}"#, caller(principal.clone(), *token));
            all(client.send(call).await).await.says("done");
        }
    }
    let calls = server.seen_of("tools/call");
    let tokens: Vec<_> = calls.iter().map(|seen| seen.header("authorization").map(str::to_owned)).collect();
    let expected: Vec<_> = callers.iter().chain(&callers).map(|(_, token)| token.map(str::to_owned)).collect();
    assert_eq!(tokens, expected);
    let sessions: Vec<_> = calls.iter().map(|seen| seen.header("mcp-session-id").unwrap().to_owned()).collect();
    assert_eq!(sessions.iter().collect::<HashSet<_>>().len(), 6);
    assert_eq!(sessions[3], sessions[4]);
    assert_eq!(sessions[..7], sessions[7..]);
    // What belongs to no call goes out with the newest token.
    client.close().await;
    let ended = server.saw(|seen| seen.verb == "DELETE" && seen.header("mcp-session-id") == Some(&sessions[3])).await;
    assert_eq!(ended.header("authorization"), Some("Bearer ann-2"));
    // Whatever goes out on a session carries a token of that session's caller only.
    for seen in server.seen() {
        let Some(session) = seen.header("mcp-session-id") else { continue };
        let of_session: HashSet<_> = (0..7).filter(|at| sessions[*at] == session).map(|at| &expected[at]).collect();
        assert!(of_session.contains(&seen.header("authorization").map(str::to_owned)), "{seen:?}");
    }
}

#[tokio::test]
async fn a_shared_session_is_shared_and_each_call_keeps_its_own_credentials() {
    let server = Server::legacy(|seen, wire| async move { wire.json(&seen.says("done")).await }).await;
    let mut config = config(&server);
    config.share = true;
    let client = client_with(config, &Limits::default());
    for token in ["Bearer a", "Bearer b"] {
        let call = call_of("tools/call", r#"{"name":"t"}"#, caller(Principal::Credential(token.into()), Some(token)));
        all(client.send(call).await).await.says("done");
    }
    let tokens: Vec<_> =
        server.seen_of("tools/call").iter().map(|seen| seen.header("authorization").unwrap().to_owned()).collect();
    assert_eq!((tokens, server.seen_of("initialize").len()), (vec!["Bearer a".to_owned(), "Bearer b".to_owned()], 1));
    let listen = server.saw(|seen| seen.verb == "GET").await;
    assert_eq!(listen.header("authorization"), None);
}

#[tokio::test]
async fn a_401_in_the_middle_ends_the_call_with_its_reason() {
    let server = Server::legacy(|seen, wire| async move {
        if seen.header("authorization") == Some("Bearer new") {
            return wire.json(&seen.says("done")).await;
        }
        wire.status("401 Unauthorized").await
    })
    .await;
    let client = client(&server);
    let ann = || Principal::Named("ann".into());
    let call = |token| call_of("tools/call", r#"{"name":"t"}"#, caller(ann(), Some(token)));
    assert_eq!(all(client.send(call("Bearer old")).await).await.failure().reason, Reason::Unauthorized);
    all(client.send(call("Bearer new")).await).await.says("done");
}

#[tokio::test]
async fn an_idle_session_is_ended() {
    let server = Server::legacy(|seen, wire| async move { wire.json(&seen.says("done")).await }).await;
    let mut config = config(&server);
    config.session_idle = Duration::from_millis(50);
    let client = client_with(config, &Limits::default());
    client.call("t").await.says("done");
    assert_eq!(server.saw(|seen| seen.verb == "DELETE").await.header("mcp-session-id"), Some("session-1"));
    client.call("t").await.says("done");
    assert_eq!(server.seen_of("tools/call")[1].header("mcp-session-id"), Some("session-2"));
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_and_remembered_and_no_other() {
    let server = Server::start(|seen, wire| async move {
        match (seen.path.as_str(), seen.method()) {
            ("/mcp", _) => wire.respond("307 Temporary Redirect", &[("Location", "/mcp/")], "").await,
            ("/mcp/", "initialize") => wire.initialize(&seen, "s").await,
            ("/mcp/", "tools/call") => wire.json(&seen.says("done")).await,
            _ => wire.status("202 Accepted").await,
        }
    })
    .await;
    let client = client(&server);
    client.call("t").await.says("done");
    client.call("t").await.says("done");
    assert_eq!(server.seen().iter().filter(|seen| seen.path == "/mcp").count(), 1);

    for location in ["http://127.0.0.1:1/mcp", "https://example.com/", "", "/mcp"] {
        let server = Server::start(move |_, wire| async move {
            wire.respond("308 Permanent Redirect", &[("Location", location)], "").await
        })
        .await;
        let failure = crate::client::client(&server).call("t").await.failure().clone();
        assert_eq!(failure.reason, Reason::NotStarted, "{location}");
        assert!(failure.message.contains("308"), "{}", failure.message);
    }
}
