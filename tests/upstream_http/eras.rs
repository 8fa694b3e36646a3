//! Which revision a server speaks: found out without hurting the call, and spoken to accordingly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use raincheck::config::{Limits, UpstreamEra};
use raincheck::protocol::{Outcome, Principal, Reason, Retry};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::client::{Client, all, call_of, caller, client, client_with, config, waits_for_connection};
use crate::http_server::{Seen, Server, Wire};

fn client_of(server: &Server, era: UpstreamEra) -> Client {
    let mut config = config(server);
    config.era = era;
    client_with(config, &Limits::default())
}

/// A server of 2026-07-28 only, which refuses what is older as `refuse` says.
async fn modern(refuse: &'static str) -> Server {
    Server::start(move |seen: Seen, mut wire: Wire| async move {
        let json: &[(&str, &str)] = &[("Content-Type", "application/json")];
        match (seen.verb.as_str(), seen.method()) {
            ("POST", "server/discover") => {
                let result = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": { "tools": {} }, "instructions": "be kind",
                });
                wire.json(&seen.result(&result)).await
            }
            ("POST", "tools/call" | "resources/read") => {
                wire.events().await;
                wire.event(&seen.progress(1)).await;
                wire.event(&seen.says("done")).await;
                wire
            }
            ("POST", _) => {
                let (status, error) = refuse.split_once(' ').unwrap();
                let id = seen.id();
                let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
                wire.respond(&format!("{status} Refused"), json, &body).await
            }
            _ => wire.status("405 Method Not Allowed").await,
        }
    })
    .await
}

const MODERN_REFUSALS: [&str; 3] = [
    r#"400 {"code":-32022,"message":"unsupported","data":{"supported":["2026-07-28"]}}"#,
    r#"400 {"code":-32602,"message":"missing _meta"}"#,
    r#"404 {"code":-32601,"message":"Method not found"}"#,
];

#[tokio::test]
async fn a_modern_server_is_found_in_every_era_setting_and_spoken_to_without_a_session() {
    for era in [UpstreamEra::Legacy, UpstreamEra::Auto, UpstreamEra::Modern] {
        for refusal in MODERN_REFUSALS {
            let server = modern(refusal).await;
            let client = client_of(&server, era);
            for is_known in [era == UpstreamEra::Modern, true] {
                let call = call_of(
                    "tools/call",
                    r#"{"name":"größe","_meta":{"traceparent":"t"}}"#,
                    caller(Principal::Local, None),
                );
                let mut reply = client.send(call).await;
                if !is_known {
                    waits_for_connection(&mut reply).await;
                }
                let seen = all(reply).await;
                seen.says("done");
                assert_eq!(seen.progress, ["1"]);
            }
            let (calls, handshakes) = (server.seen_of("tools/call"), server.seen_of("initialize"));
            assert_eq!(
                (calls.len(), handshakes.len()),
                (2, usize::from(era == UpstreamEra::Legacy)),
                "{era:?} {refusal}"
            );
            for seen in calls {
                let meta = &seen.body["params"]["_meta"];
                assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
                assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
                assert_eq!(meta["traceparent"], "t");
                assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"));
                assert_eq!(seen.header("mcp-method"), Some("tools/call"));
                assert_eq!(seen.header("mcp-name"), Some("=?base64?Z3LDtsOfZQ==?="));
                assert_eq!(seen.header("mcp-session-id"), None);
            }
            assert!(server.seen_by("GET").is_empty() && server.seen_by("DELETE").is_empty());
        }
    }
}

#[tokio::test]
async fn what_a_modern_server_says_of_itself_reaches_our_clients() {
    let server = modern(MODERN_REFUSALS[0]).await;
    let client = client_of(&server, UpstreamEra::Modern);
    let seen = all(client.send(call_of("server/discover", "{}", caller(Principal::Local, None))).await).await;
    assert!(seen.result().contains(r#""instructions":"be kind""#), "{}", seen.result());
}

#[tokio::test]
async fn a_legacy_server_is_not_probed_by_default_and_its_silence_is_bounded_in_auto() {
    for era in [UpstreamEra::Legacy, UpstreamEra::Auto] {
        let server = Server::legacy(|seen, mut wire| async move {
            if seen.is("server/discover") {
                wire.closed().await;
                return wire;
            }
            wire.json(&seen.says("done")).await
        })
        .await;
        let client = client_of(&server, era);
        let began = Instant::now();
        client.call("t").await.says("done");
        let limit = if era == UpstreamEra::Legacy { Duration::from_secs(1) } else { Duration::from_secs(3) };
        assert!(began.elapsed() < limit, "{era:?} took {:?}", began.elapsed());
        client.call("t").await.says("done");
        assert_eq!(server.seen_of("server/discover").len(), usize::from(era == UpstreamEra::Auto), "asked once");
    }
}

#[tokio::test]
async fn only_what_says_nothing_of_the_caller_leads_to_initialize() {
    type Headers = &'static [(&'static str, &'static str)];
    let cases: [(&str, Headers, &str, Option<Reason>); 8] = [
        (
            "400 Bad Request",
            &[("Content-Type", "application/json")],
            r#"{"error":{"code":"bad_thing","message":"x"}}"#,
            None,
        ),
        ("400 Bad Request", &[], "", None),
        ("404 Not Found", &[("Content-Type", "text/html")], "<html>", None),
        ("500 Internal Server Error", &[("Content-Type", "text/plain")], "at line 3", None),
        ("200 OK", &[("Content-Type", "text/html")], "<html>", None),
        ("401 Unauthorized", &[("WWW-Authenticate", "Bearer")], "", Some(Reason::Unauthorized)),
        ("403 Forbidden", &[], "", Some(Reason::Unauthorized)),
        ("429 Too Many Requests", &[("Retry-After", "3")], "", Some(Reason::NotStarted)),
    ];
    for (status, headers, body, fails) in cases {
        let server = Server::legacy(move |seen, wire| async move {
            if seen.is("server/discover") {
                wire.respond(status, headers, body).await
            } else {
                wire.json(&seen.says("done")).await
            }
        })
        .await;
        let seen = client_of(&server, UpstreamEra::Auto).call("t").await;
        match fails {
            None => seen.says("done"),
            Some(reason) => {
                assert_eq!(seen.failure().reason, reason, "{status}");
                assert!(server.seen_of("initialize").is_empty(), "{status}");
            }
        }
        if status.starts_with("429") {
            assert_eq!(seen.failure().retry, Retry::After(Duration::from_secs(3)));
        }
    }
}

#[tokio::test]
async fn a_406_to_the_handshake_is_met_with_the_other_order_once() {
    let server = Server::start(|seen, wire| async move {
        let events_first = seen.header("accept") == Some("text/event-stream, application/json");
        match (seen.verb.as_str(), seen.method()) {
            ("GET", _) => wire.status("405 Method Not Allowed").await,
            _ if !events_first => wire.status("406 Not Acceptable").await,
            ("POST", "initialize") => wire.initialize(&seen, "s").await,
            ("POST", "notifications/initialized") => wire.status("202 Accepted").await,
            _ => wire.json(&seen.says("done")).await,
        }
    })
    .await;
    client(&server).call("t").await.says("done");
    assert_eq!(server.seen_of("initialize").len(), 2);

    let never = Server::start(|_, wire| async move { wire.status("406 Not Acceptable").await }).await;
    assert_eq!(client(&never).call("t").await.failure().reason, Reason::NotStarted);
    assert_eq!(never.seen_of("initialize").len(), 2);
}

#[tokio::test]
async fn a_handshake_that_fails_took_nothing() {
    let cases: [(&str, &str, &str); 5] = [
        ("200 OK", "text/html", "<html>"),
        ("500 Internal Server Error", "text/plain", "oops"),
        ("200 OK", "application/json", r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01"}}"#),
        ("200 OK", "application/json", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#),
        ("200 OK", "application/json", "{"),
    ];
    for (status, media, body) in cases {
        let server =
            Server::start(move |_, wire| async move { wire.respond(status, &[("Content-Type", media)], body).await })
                .await;
        let failure = client(&server).call("t").await.failure().clone();
        assert_eq!(
            (failure.reason, failure.retry),
            (Reason::NotStarted, Retry::After(Duration::from_secs(5))),
            "{body}: {failure:?}"
        );
        assert!(server.seen_of("tools/call").is_empty());
    }
}

#[tokio::test]
async fn every_legacy_revision_and_both_kinds_of_answer_make_a_session() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let server = Server::start(move |seen, mut wire| async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => {
                    // As TypeScript servers do it: a stream with a priming event, left open. No session id.
                    wire.events().await;
                    let result = json!({ "protocolVersion": version, "capabilities": {} });
                    wire.raw(format!("id: x\ndata: \n\nevent: message\nid: y\ndata: {}\n\n", seen.result(&result)))
                        .await;
                    wire.closed().await;
                    wire
                }
                ("POST", "tools/call") => wire.json(&seen.says("done")).await,
                ("POST", _) => wire.status("202 Accepted").await,
                _ => wire.status("405 Method Not Allowed").await,
            }
        })
        .await;
        let client = client(&server);
        client.call("t").await.says("done");
        client.close().await;
        let call = &server.seen_of("tools/call")[0];
        assert_eq!((call.header("mcp-protocol-version"), call.header("mcp-session-id")), (Some(version), None));
        assert!(server.seen_by("DELETE").is_empty(), "there is no session to end");
    }
}

#[tokio::test]
async fn a_server_that_became_legacy_is_found_out_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let server = Server::legacy(move |seen, wire| {
        let modern = count.load(Ordering::SeqCst) < 1;
        if seen.is("tools/call") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        async move {
            match seen.method() {
                "server/discover" if modern => {
                    wire.json(&seen.result(&json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} }))).await
                }
                "tools/call" if modern || seen.header("mcp-session-id").is_some() => {
                    wire.json(&seen.says("done")).await
                }
                _ => wire.status("400 Bad Request").await,
            }
        }
    })
    .await;
    let client = client_of(&server, UpstreamEra::Auto);
    client.call("modern").await.says("done");
    assert!(matches!(client.call("refused").await.outcome, Outcome::Failed(_)));
    client.call("legacy").await.says("done");
}

#[tokio::test]
async fn what_a_server_can_do_is_waited_for_while_it_is_starting() {
    let ready = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&ready);
    let server = Server::start(move |seen: Seen, wire: Wire| {
        let gate = Arc::clone(&gate);
        async move {
            if seen.is("initialize") {
                gate.acquire().await.unwrap().forget();
                let said = json!({ "protocolVersion": "2025-11-25", "capabilities": { "prompts": {} } });
                return wire.json(&seen.result(&said)).await;
            }
            wire.status("202 Accepted").await
        }
    })
    .await;
    let client = client(&server);
    let discover = || client.send(call_of("server/discover", "{}", caller(Principal::Local, None)));
    let mut asked = Box::pin(discover().await.outcome());
    server.saw(|seen| seen.is("initialize")).await;
    // A client that leaves breaks nothing off.
    drop(discover().await);
    let early = tokio::time::timeout(Duration::from_millis(600), &mut asked).await;
    assert!(early.is_err(), "{early:?}");
    ready.add_permits(1);
    for outcome in [asked.await, discover().await.outcome().await] {
        let Outcome::Result(result) = outcome else { panic!("{outcome:?}") };
        assert_eq!(result.member("capabilities").unwrap().as_str(), r#"{"prompts":{}}"#, "{result:?}");
    }
    assert_eq!(server.seen_of("initialize").len(), 1);
    client.close().await;
}
