//! A look at a server before the first call.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use raincheck::config::{Limits, ServerConfig, Transport, UpstreamEra};
use raincheck::upstream::{Callers, Look, look};

use crate::client::config;
use crate::http_server::{PATIENCE, Seen, Server, Wire};

const PAGE: (&str, &str) = ("Content-Type", "text/html; charset=utf-8");
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Eras in which a server can be doubted.
const ERAS: [UpstreamEra; 2] = [UpstreamEra::Legacy, UpstreamEra::Auto];

async fn look_as(config: &ServerConfig, callers: Callers) -> Look {
    tokio::time::timeout(PATIENCE, look(config, &Limits::default(), callers)).await.expect("the look hangs")
}

async fn look_at(server: &Server, era: UpstreamEra) -> Look {
    look_as(&ServerConfig { era, ..config(server) }, Callers::LogIn).await
}

/// A server that answers everything alike.
async fn always(status: &'static str, headers: &'static [(&'static str, &'static str)], body: &'static str) -> Server {
    Server::start(move |_, wire| wire.respond(status, headers, body)).await
}

fn with_headers(server: &Server, headers: &[(&'static str, &'static str)]) -> ServerConfig {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
    let forward = vec![HeaderName::from_static("authorization")];
    let transport = Transport::Http { url: server.url().parse().unwrap(), headers, forward };
    ServerConfig { transport, ..config(server) }
}

/// What servers of the field answer to a request that they do not know, or that comes without a session.
#[tokio::test]
async fn a_server_of_mcp_is_seen_by_its_answer_without_a_handshake() {
    let of_typescript =
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#;
    let of_python = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}"#;
    let unknown = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}"#;
    for (status, headers, body) in [
        ("400 Bad Request", &[JSON][..], of_typescript),
        ("400 Bad Request", &[JSON], of_python),
        ("400 Bad Request", &[("Content-Type", "text/plain")], "no session\n"),
        ("400 Bad Request", &[], ""),
        ("406 Not Acceptable", &[JSON], of_python),
        ("422 Unprocessable Content", &[JSON], r#"{"detail":"session"}"#),
        ("500 Internal Server Error", &[JSON], r#"{"detail":"oh"}"#),
        ("200 OK", &[JSON], unknown),
    ] {
        for era in ERAS {
            // It answers `server/discover`, which is no GET.
            let era = if body == unknown { UpstreamEra::Auto } else { era };
            let server = always(status, headers, body).await;
            assert_eq!(look_at(&server, era).await, Look::Fine, "{era:?} {status}: {body}");
            assert_eq!(server.seen().len(), 1, "{era:?} {status}: {body}");
        }
    }
}

#[tokio::test]
async fn what_is_no_server_of_mcp_is_named_with_what_to_do() {
    let elsewhere: &[_] = &[("Location", "https://other.example/v2/mcp?code=s3cret")];
    for (status, headers, body, says) in [
        (
            "404 Not Found",
            &[PAGE][..],
            "<html>",
            &["/mcp (initialize) was refused with status 404", "path of the url"][..],
        ),
        ("404 Not Found", &[JSON], r#"{"detail":"Not Found"}"#, &["404 Not Found", "path of the url"]),
        ("405 Method Not Allowed", &[PAGE], "", &["405 Method Not Allowed", "path of the url"]),
        ("501 Unsupported", &[PAGE], "<html>", &["501 ", "path of the url"]),
        ("301 Moved", elsewhere, "", &["301 ", "https://other.example/v2/mcp", "as its url"]),
        ("302 Found", &[("Location", "/login")], "", &["302 ", "is at /login"]),
        ("307 Moved", elsewhere, "", &["307 ", "https://other.example/v2/mcp"]),
        ("200 OK", &[PAGE], "<html>", &["200 OK and text/html", "is the url right"]),
        ("200 OK", &[JSON], "hello", &["not JSON", "is the url right"]),
        ("200 OK", &[JSON], r#"{"ok":true}"#, &["is the url right"]),
        ("204 No Content", &[], "", &["204 No Content", "is the url right"]),
        ("400 Bad Request", &[PAGE], "plain HTTP to HTTPS", &["400 Bad Request", "is the url right"]),
        ("421 Misdirected", &[("Content-Type", "text/plain")], "host", &["421 ", "is the url right"]),
        ("502 Bad Gateway", &[PAGE], "", &["502 Bad Gateway", "gateway there does not reach"]),
        ("503 Unavailable", &[JSON], r#"{"message":"no"}"#, &["503 ", "gateway"]),
    ] {
        // A GET may be refused with 405 by any server.
        for era in ERAS.into_iter().filter(|era| *era == UpstreamEra::Auto || !status.starts_with("405")) {
            let server = always(status, headers, body).await;
            let found = look_at(&server, era).await;
            let Look::Odd(why) = &found else { panic!("{era:?} {status} {body}: {found:?}") };
            let missing: Vec<_> = says.iter().filter(|says| !why.contains(**says)).collect();
            assert!(missing.is_empty() && !why.contains("s3cret") && !why.contains("the call"), "{missing:?}: {why}");
            assert!(!why.contains("Most servers are at"), "{why}");
        }
    }
}

#[tokio::test]
async fn another_path_than_the_usual_one_is_doubted() {
    let server = always("404 Not Found", &[], "").await;
    let url = format!("http://{}/mpc", server.address).parse().unwrap();
    let transport = Transport::Http { url, headers: HeaderMap::new(), forward: Vec::new() };
    let found = look_as(&ServerConfig { transport, ..config(&server) }, Callers::LogIn).await;
    assert!(matches!(&found, Look::Odd(why) if why.contains("Most servers are at /mcp")), "{found:?}");
}

#[tokio::test]
async fn what_speaks_no_http_is_seen() {
    let server = Server::start(|_, mut wire| async move {
        wire.raw("SSH-2.0-x\r\n").await;
        wire
    })
    .await;
    for era in ERAS {
        let found = look_at(&server, era).await;
        assert!(matches!(&found, Look::Odd(why) if why.contains("is the url right")), "{found:?}");
    }
}

#[tokio::test]
async fn credentials_that_callers_bring_are_not_missed_and_others_are() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let server = always(status, &[JSON], r#"{"error":"no"}"#).await;
        for era in ERAS {
            assert_eq!(look_at(&server, era).await, Look::Unknown, "{status}");
        }
        for (config, callers, says) in [
            (config(&server), Callers::Nameless, "set the headers that it wants"),
            (with_headers(&server, &[("authorization", "s3cret")]), Callers::LogIn, "see its headers"),
        ] {
            let found = look_as(&config, callers).await;
            let Look::Odd(why) = &found else { panic!("{status}: {found:?}") };
            assert!(why.contains(status) && why.contains(says) && !why.contains("s3cret"), "{why}");
        }
        assert_eq!(server.seen_of("initialize").len(), 0, "{status}");
    }
}

/// A server that answers what it does not know as a wrong path does, and shakes hands all the same.
async fn answers_404() -> Server {
    Server::legacy(|_, wire| wire.respond("404 Not Found", &[], "Session not found")).await
}

#[tokio::test]
async fn a_session_that_a_doubt_opened_is_ended() {
    let server = answers_404().await;
    assert_eq!(look_at(&server, UpstreamEra::Auto).await, Look::Fine);
    let ended = server.seen_by("DELETE");
    assert_eq!(server.seen_of("initialize").len(), 1);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].header("mcp-session-id"), Some("session-1"));
}

/// As Python's SDK does.
#[tokio::test]
async fn a_session_that_a_server_began_by_itself_is_ended() {
    let server = Server::start(|seen: Seen, wire: Wire| async move {
        match seen.verb.as_str() {
            "DELETE" => wire.status("200 OK").await,
            _ => wire.respond("400 Bad Request", &[JSON, ("Mcp-Session-Id", "stray")], "{}").await,
        }
    })
    .await;
    for era in ERAS {
        let before = server.seen_by("DELETE").len();
        assert_eq!(look_at(&server, era).await, Look::Fine);
        let ended = server.seen_by("DELETE");
        assert_eq!(ended.len() - before, 1, "{era:?}");
        assert_eq!(ended.last().and_then(|ended| ended.header("mcp-session-id")), Some("stray"));
    }
}

#[tokio::test]
async fn a_server_is_asked_in_the_era_of_its_configuration_only() {
    for (status, headers) in
        [("405 Method Not Allowed", &[PAGE][..]), ("200 OK", &[("Content-Type", "text/event-stream")])]
    {
        let server = always(status, headers, "").await;
        assert_eq!(look_at(&server, UpstreamEra::Legacy).await, Look::Fine, "{status}");
        assert!(server.seen().iter().all(|seen| seen.verb == "GET"), "{status}");
    }
    let server = always("404 Not Found", &[PAGE], "").await;
    let found = look_at(&server, UpstreamEra::Modern).await;
    assert!(matches!(&found, Look::Odd(why) if why.contains("404 Not Found")), "{found:?}");
    assert_eq!(server.seen().len(), server.seen_of("server/discover").len());
}

/// The first event of HTTP+SSE, and nothing at all for POST.
async fn of_sse(status: &'static str) -> Server {
    Server::start(move |seen: Seen, mut wire: Wire| async move {
        if seen.verb != "GET" {
            return wire.status(status).await;
        }
        wire.events().await;
        wire.raw("event: endpoint\ndata: /messages?s=1\n\n").await;
        wire.closed().await;
        wire
    })
    .await
}

#[tokio::test]
async fn an_event_stream_of_2024_is_a_server_of_mcp() {
    let server = of_sse("405 Method Not Allowed").await;
    for era in ERAS {
        assert_eq!(look_at(&server, era).await, Look::Fine);
    }
    let url = server.url().parse().unwrap();
    let transport = Transport::Sse { url, headers: HeaderMap::new(), forward: Vec::new() };
    let by_config = ServerConfig { transport, ..config(&server) };
    let before = server.seen().len();
    assert_eq!(look_as(&by_config, Callers::LogIn).await, Look::Fine);
    assert!(server.seen()[before..].iter().all(|seen| seen.verb == "GET"));
    let wrong = always("404 Not Found", &[PAGE], "").await;
    let url = wrong.url().parse().unwrap();
    let transport = Transport::Sse { url, headers: HeaderMap::new(), forward: Vec::new() };
    let found = look_as(&ServerConfig { transport, ..config(&wrong) }, Callers::LogIn).await;
    assert!(matches!(&found, Look::Odd(why) if why.contains("404 Not Found")), "{found:?}");
}

#[tokio::test]
async fn a_server_that_says_nothing_for_now_is_let_be() {
    let server = Server::start(|_, mut wire| async move {
        wire.closed().await;
        wire
    })
    .await;
    for era in ERAS {
        assert_eq!(look_at(&server, era).await, Look::Unknown);
    }
    let busy = always("429 Too Many Requests", &[("Retry-After", "60")], "").await;
    let started = tokio::time::Instant::now();
    assert_eq!(look_at(&busy, UpstreamEra::Legacy).await, Look::Unknown);
    assert!(started.elapsed() < Duration::from_secs(5));
}
