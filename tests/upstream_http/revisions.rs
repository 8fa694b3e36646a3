//! A server that speaks another revision than it did: the call is not lost on it, and its client learns nothing of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use raincheck::config::{Limits, UpstreamEra};
use raincheck::protocol::Reason;
use serde_json::{Value, json};

use crate::client::{Client, client_with, config};
use crate::http_server::{Seen, Server, Wire};

const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];

fn client_of(server: &Server, era: UpstreamEra) -> Client {
    let mut config = config(server);
    config.era = era;
    client_with(config, &Limits::default())
}

/// Refuses the revision of a request, as 2026-07-28 says.
async fn not_spoken(wire: Wire, seen: &Seen, supported: &str) -> Wire {
    let error =
        json!({ "code": -32022, "message": "Unsupported protocol version", "data": { "supported": [supported] } });
    let body = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": error });
    wire.respond("400 Bad Request", JSON, &body.to_string()).await
}

fn discovered(version: &str) -> Value {
    json!({ "resultType": "complete", "supportedVersions": [version], "capabilities": { "tools": {} } })
}

/// A server of 2026-07-28 that speaks `then` when it was updated.
async fn updated(then: &'static str) -> (Server, Arc<AtomicBool>) {
    let is_updated = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&is_updated);
    let server = Server::start(move |seen: Seen, wire: Wire| {
        let version = if shared.load(Ordering::SeqCst) { then } else { "2026-07-28" };
        async move {
            let modern = seen.header("mcp-protocol-version") == Some("2026-07-28");
            match seen.method() {
                "initialize" if version == "2025-11-25" => {
                    let said = json!({ "protocolVersion": version, "capabilities": { "tools": {} } });
                    wire.json(&seen.result(&said)).await
                }
                "notifications/initialized" => wire.status("202 Accepted").await,
                "server/discover" if version == "2026-07-28" => wire.json(&seen.result(&discovered(version))).await,
                "tools/call" if modern == (version == "2026-07-28") && version != "2099-01-01" => {
                    wire.json(&seen.says("done")).await
                }
                "" => wire.status("405 Method Not Allowed").await,
                _ => not_spoken(wire, &seen, version).await,
            }
        }
    })
    .await;
    (server, is_updated)
}

#[tokio::test]
async fn a_revision_that_the_server_does_not_speak_any_more_is_its_matter_with_us_and_no_answer_to_the_client() {
    for era in [UpstreamEra::Auto, UpstreamEra::Modern] {
        let (server, is_updated) = updated("2099-01-01").await;
        let client = client_of(&server, era);
        client.call("before").await.says("done");
        is_updated.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            let seen = client.call("after").await;
            assert_eq!(seen.failure().reason, Reason::NotStarted, "{era:?}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn a_server_that_has_gone_back_to_sessions_is_found_out_by_the_call_that_it_refuses() {
    let (server, is_updated) = updated("2025-11-25").await;
    let client = client_of(&server, UpstreamEra::Auto);
    client.call("before").await.says("done");
    is_updated.store(true, Ordering::SeqCst);
    assert_eq!(client.call("refused").await.failure().reason, Reason::NotStarted);
    client.call("after").await.says("done");
    assert_eq!(server.seen_of("initialize").len(), 1);
    client.close().await;
}

#[tokio::test]
async fn a_server_that_has_left_sessions_behind_gets_the_refused_call_without_one() {
    for names_session in [false, true] {
        let is_updated = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&is_updated);
        let server = Server::start(move |seen: Seen, wire: Wire| {
            let is_updated = shared.load(Ordering::SeqCst);
            async move {
                match seen.method() {
                    "initialize" if !is_updated => {
                        let said = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } });
                        let session: &[(&str, &str)] = &[("Content-Type", "application/json"), ("Mcp-Session-Id", "s")];
                        let headers = if names_session { session } else { JSON };
                        wire.respond("200 OK", headers, &seen.result(&said)).await
                    }
                    "notifications/initialized" => wire.status("202 Accepted").await,
                    "server/discover" if is_updated => wire.json(&seen.result(&discovered("2026-07-28"))).await,
                    "tools/call" if is_updated == (seen.header("mcp-protocol-version") == Some("2026-07-28")) => {
                        wire.json(&seen.says("done")).await
                    }
                    "" => wire.status("405 Method Not Allowed").await,
                    _ => not_spoken(wire, &seen, "2026-07-28").await,
                }
            }
        })
        .await;
        let client = client_of(&server, UpstreamEra::Legacy);
        client.call("before").await.says("done");
        is_updated.store(true, Ordering::SeqCst);
        client.call("after").await.says("done");
        assert_eq!(server.seen_of("tools/call").len(), 3, "{names_session}");
        client.close().await;
    }
}

#[tokio::test]
async fn a_tool_of_an_older_server_that_fails_with_the_code_of_a_revision_is_not_run_again() {
    for status in ["400 Bad Request", "404 Not Found"] {
        let server = Server::legacy(move |seen: Seen, wire: Wire| async move {
            match seen.method() {
                "tools/call" => {
                    let error = json!({ "code": -32022, "message": "disk full" });
                    let body = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": error });
                    wire.respond(status, JSON, &body.to_string()).await
                }
                _ => wire.json(&seen.result(&json!({}))).await,
            }
        })
        .await;
        let client = client_of(&server, UpstreamEra::Legacy);
        let seen = client.call("writes").await;
        assert_eq!((seen.error().code(), seen.error().message()), (-31022, "disk full"), "{status}");
        assert_eq!((server.seen_of("tools/call").len(), server.seen_of("initialize").len()), (1, 1), "{status}");
        client.close().await;
    }
}

#[tokio::test]
async fn where_nobody_knows_whose_code_it_is_the_call_is_not_sent_again_and_the_session_not_used_again() {
    for ping in ["404 Not Found", "400 Bad Request", "503 Service Unavailable"] {
        let server = Server::legacy(move |seen: Seen, wire: Wire| async move {
            match seen.method() {
                "ping" => wire.status(ping).await,
                _ => not_spoken(wire, &seen, "2026-07-28").await,
            }
        })
        .await;
        let client = client_of(&server, UpstreamEra::Legacy);
        for calls in 1..=2 {
            assert_eq!(client.call("writes").await.error().code(), -31022, "{ping}");
            assert_eq!(
                (server.seen_of("tools/call").len(), server.seen_of("initialize").len()),
                (calls, calls),
                "{ping}"
            );
        }
        client.close().await;
    }
}
