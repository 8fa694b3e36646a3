use std::time::Duration;

use raincheck::config::NamedToken;
use raincheck::protocol::{Challenge, Failure, Outcome, Reason, Retry};
use serde_json::json as value;

use super::*;

#[tokio::test]
async fn a_client_of_each_revision_opens_a_session_and_calls_in_it() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut server = Setup::new().start().await;
        let mut client = server.connect().await;
        let session = Session::open(&mut server, &mut client, version).await;
        let expected = value!({"protocolVersion": version, "capabilities": {"tools": {}}});
        assert_eq!(session.result, expected);
        let header = session.header();
        client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &header).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, body.as_str()), (202, ""));
        client.post(&tool("1e2"), &format!("{header}mcp-protocol-version: {version}\r\n")).await;
        let asked = server.asked().await;
        assert_eq!(asked.call.caller.session, session.attached.call.caller.session);
        asked.sender.done(result(r#"{"content": [], "n": 9007199254740995}"#));
        assert_eq!(
            answer(&mut client).await,
            r#"{"jsonrpc":"2.0","id":1e2,"result":{"content": [], "n": 9007199254740995}}"#
        );
    }
}

#[tokio::test]
async fn an_initialize_for_a_revision_without_it_is_answered_with_the_newest_that_has_it() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    client.post(&initialize("2026-07-28"), "mcp-protocol-version: 2026-07-28\r\n").await;
    let asked = server.asked().await;
    asked.sender.event(Event::Attached(json(r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#)));
    let (head, body) = client.response().await;
    assert_eq!(head.status, 200);
    assert!(body.contains(r#""protocolVersion":"2025-11-25""#), "{body}");
}

#[tokio::test]
async fn a_session_that_is_not_there_is_404_and_one_that_is_not_named_400() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    let unknown = "mcp-session-id: 8f0e7a52-8d53-4b0f-9d0b-0e5b1a3c2d1e\r\n";
    let call = tool("1");
    let texts =
        [&call, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#];
    for text in texts.into_iter().chain([initialize("2025-11-25").as_str()]) {
        client.post(text, unknown).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (404, -32600), "{text}");
    }
    for method in ["GET", "DELETE"] {
        client.send(bodiless(method, unknown)).await;
        assert_eq!(client.response().await.0.status, 404, "{method}");
        client.send(bodiless(method, "")).await;
        assert_eq!(client.response().await.0.status, 405, "{method}");
    }
    client.post(&call, "").await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (400, -32602));
    assert!(body.contains("Mcp-Session-Id") && body.contains(r#""id":1"#), "{body}");
    client.post(&initialize("2025-11-25"), &session.header()).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (400, -32600));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_version_header_must_name_a_revision_that_has_sessions_and_may_be_left_out() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-06-18").await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for version in ["2026-07-28", "1900-01-01", "", "2025-06-18\r\nmcp-protocol-version: 2025-06-18"] {
        client.post(ping, &format!("{}mcp-protocol-version: {version}\r\n", session.header())).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (400, -32600), "{version}");
        let headers = format!("{}mcp-protocol-version: {version}\r\naccept: text/event-stream\r\n", session.header());
        client.send(bodiless("GET", &headers)).await;
        assert_eq!(client.response().await.0.status, 400, "{version}");
    }
    for version in ["", "mcp-protocol-version: 2025-06-18\r\n", "mcp-protocol-version: 2025-11-25\r\n"] {
        client.post(ping, &format!("{}{version}", session.header())).await;
        server.asked().await.sender.done(result("{}"));
        assert_eq!(client.response().await.0.status, 200, "{version}");
    }
}

#[tokio::test]
async fn the_era_of_a_request_is_its_own_whatever_else_is_on_the_connection() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    let (text, headers) = call("1", "t", "");
    client.post(&text, &format!("{headers}{}", session.header())).await;
    let asked = server.asked().await;
    assert_eq!(asked.call.caller.session, ClientSession::Stateless);
    asked.sender.done(result("{}"));
    assert!(client.response().await.1.contains(r#""resultType":"complete""#));
    client.post(&tool("2"), &session.header()).await;
    let asked = server.asked().await;
    assert_eq!(asked.call.caller.session, session.attached.call.caller.session);
    asked.sender.done(result("{}"));
    assert_eq!(answer(&mut client).await, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
}

#[tokio::test]
async fn a_session_belongs_to_who_opened_it_and_to_its_server() {
    let token = |name: &str| NamedToken {
        name: name.to_owned(),
        token: raincheck::config::TokenProof::Plain(format!("{name}-secret-token")),
    };
    let mut setup = Setup::new();
    setup.owner.tokens = vec![token("ann"), token("bo")];
    setup.names = vec!["one", "two"];
    let mut server = setup.start().await;
    let mut client = server.connect().await;
    let to = |path: &str, text: &str, more: &str| post(text, more).replacen("/mcp", path, 1);
    let ann = "authorization: Bearer ann-secret-token\r\n";
    client.send(to("/one/mcp", &initialize("2025-11-25"), ann)).await;
    let attached = server.asked().await;
    attached.sender.event(Event::Attached(json(r#"{"protocolVersion":"2025-11-25"}"#)));
    let (head, _) = client.response().await;
    let session = format!("mcp-session-id: {}\r\n", head.get("mcp-session-id").unwrap());
    let bo = "authorization: Bearer bo-secret-token\r\n";
    for (path, who, expected) in [("/one/mcp", bo, 404), ("/two/mcp", ann, 404), ("/one/mcp", "", 401)] {
        client.send(to(path, &tool("1"), &format!("{session}{who}"))).await;
        assert_eq!(client.response().await.0.status, expected, "{path} {who}");
        client.send(bodiless("DELETE", &format!("{session}{who}")).replacen("/mcp", path, 1)).await;
        assert_eq!(client.response().await.0.status, expected, "{path} {who}");
    }
    assert!(server.is_untouched());
    client.send(to("/one/mcp", &tool("1"), &format!("{session}{ann}"))).await;
    server.asked().await.sender.done(result("{}"));
    assert_eq!(client.response().await.0.status, 200);
}

#[tokio::test]
async fn delete_ends_a_session_and_what_runs_in_it() {
    let mut server = Setup::new().start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    let mut session = Session::open(&mut server, &mut client, "2025-11-25").await;
    client.post(&tool("1"), &session.header()).await;
    let mut running = server.asked().await;
    client.head().await;
    other.send(bodiless("DELETE", &session.header())).await;
    assert_eq!(other.response().await.0.status, 200);
    bounded(running.sender.abandoned()).await;
    bounded(session.attached.sender.abandoned()).await;
    assert!(event(&mut client).await.unwrap().message.is_none());
    assert!(event(&mut client).await.is_none());
    other.send(bodiless("DELETE", &session.header())).await;
    assert_eq!(other.response().await.0.status, 404);
}

#[tokio::test]
async fn a_session_whose_server_is_lost_is_404_so_that_the_client_opens_a_new_one() {
    let mut server = Setup::new().start().await;
    let (mut client, mut stream) = (server.connect().await, server.connect().await);
    let session = Session::open(&mut server, &mut client, "2025-11-25").await;
    assert_eq!(session.get(&mut stream, "").await.status, 200);
    let header = session.header();
    session.attached.sender.done(Outcome::Failed(Failure::outcome_unknown("it exited")));
    assert!(event(&mut stream).await.unwrap().message.is_none());
    assert!(event(&mut stream).await.is_none());
    client.post(&tool("1"), &header).await;
    assert_eq!(client.response().await.0.status, 404);
    Session::open(&mut server, &mut client, "2025-11-25").await;
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_is_no_session() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    client.post(&initialize("2025-11-25"), "").await;
    let failure = Failure::new(Reason::NotStarted, "no such program", Retry::Yes);
    server.asked().await.sender.done(Outcome::Failed(failure));
    let (head, body) = client.response().await;
    assert_eq!((head.status, head.get("mcp-session-id"), code(&body)), (200, None, -31002));
    client.post(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, "").await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (200, -32602));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_client_that_leaves_while_its_session_is_opened_leaves_none_behind() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    client.post(&initialize("2025-11-25"), "").await;
    let mut asked = server.asked().await;
    drop(client);
    bounded(asked.sender.abandoned()).await;
}

#[tokio::test]
async fn sessions_over_the_limit_take_the_place_of_one_that_is_idle_or_are_refused() {
    let mut setup = Setup::new();
    setup.limits.sessions = 2;
    let mut server = setup.start().await;
    let (mut client, mut stream, mut calling) =
        (server.connect().await, server.connect().await, server.connect().await);
    let first = Session::open(&mut server, &mut client, "2025-11-25").await;
    assert_eq!(first.get(&mut stream, "").await.status, 200);
    let mut second = Session::open(&mut server, &mut client, "2025-11-25").await;
    let third = Session::open(&mut server, &mut client, "2025-11-25").await;
    bounded(second.attached.sender.abandoned()).await;
    client.post(&tool("1"), &second.header()).await;
    assert_eq!(client.response().await.0.status, 404);
    calling.post(&tool("1"), &third.header()).await;
    let _running = server.asked().await;
    client.post(&initialize("2025-11-25"), "").await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (200, -31005));
    assert!(body.contains("limits.sessions = 2"), "{body}");
}

#[tokio::test]
async fn an_owner_with_its_share_of_sessions_makes_room_among_its_own() {
    let (greedy, anns) = ("authorization: Bearer greedy\r\n", "authorization: Bearer ann\r\n");
    let mut setup = Setup::new();
    setup.limits.sessions = 3;
    let mut server = setup.start().await;
    let mut client = server.connect().await;
    let mut idle = Session::open_with(&mut server, &mut client, "2025-11-25", greedy).await;
    let second = Session::open_with(&mut server, &mut client, "2025-11-25", greedy).await;
    let ann = Session::open_with(&mut server, &mut client, "2025-11-25", anns).await;
    // One for one, and none of ann's.
    let third = Session::open_with(&mut server, &mut client, "2025-11-25", greedy).await;
    bounded(idle.attached.sender.abandoned()).await;
    let mut streams = Vec::new();
    for session in [&second, &third] {
        let mut stream = server.connect().await;
        let header = format!("{}{greedy}", session.header());
        stream.post(&tool("1"), &header).await;
        streams.push((stream, server.asked().await));
    }
    client.post(&initialize("2025-11-25"), greedy).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (200, -31005));
    assert!(body.contains("limits.sessions = 3") && body.contains("are for others"), "{body}");
    let said = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    client.post(said, &format!("{}{anns}", ann.header())).await;
    assert_eq!(client.response().await.0.status, 202, "ann's session is still there");
}

#[tokio::test]
async fn where_the_server_has_no_place_left_an_idle_session_makes_room() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let mut idle = Session::open(&mut server, &mut client, "2025-11-25").await;
    let busy = || Outcome::Failed(Failure::new(Reason::Busy, "max_sessions", Retry::After(Duration::from_secs(1))));
    client.post(&initialize("2025-11-25"), "").await;
    server.asked().await.sender.done(busy());
    let again = server.asked().await;
    bounded(idle.attached.sender.abandoned()).await;
    again.sender.event(Event::Attached(json(r#"{"protocolVersion":"2025-11-25"}"#)));
    let (head, _) = client.response().await;
    let session = format!("mcp-session-id: {}\r\n", head.get("mcp-session-id").unwrap());
    client.post(&tool("1"), &session).await;
    let _running = server.asked().await;
    let mut other = server.connect().await;
    other.post(&initialize("2025-11-25"), "").await;
    server.asked().await.sender.done(busy());
    let (head, body) = other.response().await;
    assert_eq!((head.status, code(&body)), (200, -31005));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends_and_one_with_an_open_stream_does_not() {
    let mut setup = Setup::new();
    setup.listen.session_idle = Duration::from_millis(50);
    let mut server = setup.start().await;
    let (mut client, mut stream) = (server.connect().await, server.connect().await);
    let used = Session::open(&mut server, &mut client, "2025-11-25").await;
    assert_eq!(used.get(&mut stream, "").await.status, 200);
    let mut unused = Session::open(&mut server, &mut client, "2025-11-25").await;
    bounded(unused.attached.sender.abandoned()).await;
    client.post(&tool("1"), &unused.header()).await;
    assert_eq!(client.response().await.0.status, 404);
    client.post(&tool("1"), &used.header()).await;
    server.asked().await.sender.done(result("{}"));
    assert_eq!(client.response().await.0.status, 200);
}

/// A client that is to get another token in mid-session learns so by the status, as it would without Raincheck.
#[tokio::test]
async fn what_a_server_wants_of_the_callers_credentials_in_mid_session_is_the_status_of_the_answer() {
    for (version, more) in [("2025-03-26", ""), ("2025-11-25", ""), ("2025-11-25", "accept: application/json\r\n")] {
        let mut server = Setup::new().start().await;
        let mut client = server.connect().await;
        let session = Session::open(&mut server, &mut client, version).await;
        for status in [401, 403] {
            client.post(&tool("1"), &format!("{}{more}", session.header())).await;
            let wanted = vec!["Bearer scope=\"w\"".parse().unwrap()];
            let challenge = Some(Box::new(Challenge { status: http::StatusCode::from_u16(status).unwrap(), wanted }));
            let failure = Failure { challenge, ..Failure::new(Reason::Unauthorized, "refused", Retry::No) };
            server.asked().await.sender.done(Outcome::Failed(failure));
            let (head, body) = client.response().await;
            let seen = (head.status, head.get("www-authenticate"), head.get("content-type"));
            assert_eq!(seen, (status, Some("Bearer scope=\"w\""), Some("application/json")), "{version} {body}");
            assert_eq!(code(&body), -31006);
        }
        client.post(&tool("2"), &session.header()).await;
        server.asked().await.sender.done(result("{}"));
        assert_eq!(client.response().await.0.status, 200);
    }
}
