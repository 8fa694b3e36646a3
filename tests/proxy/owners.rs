//! Whose tasks are whose, over HTTP.

use crate::http_server::{Seen, Server, Wire};
use crate::process::Ground;
use crate::upstream::{Transport, Upstream, contains, folder_contains};

const ANN: &str = "tok-ann-7f3e9c1b5d";
const BO: &str = "tok-bo-2a8d6e4f0c";

#[tokio::test]
async fn a_foreign_handle_reads_like_an_unknown_one_and_no_token_is_kept_or_logged() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let rest = format!(
            "[owner]\n[[owner.token]]\nname = \"ann\"\ntoken = \"{ANN}\"\n[[owner.token]]\nname = \"bo\"\ntoken = \"{BO}\"\n\
             [[tool]]\nmatch = \"*\"\nmode = \"task\""
        );
        let ground = Ground::new(&upstream, &rest).env("RUST_LOG", "trace,sled=trace");
        let mut proxy = ground.start().await;
        let (ann, bo) = (proxy.client().bearer(ANN), proxy.client().bearer(BO));
        let anns = ann.handle("slow", r#"{"who":"ann","secret":"argument-0123456789"}"#).await;
        let mut run = upstream.run().await;
        // Raincheck checks who calls, so the token is for it alone.
        assert_eq!(run.authorization, None);
        let unknown = "0".repeat(36);
        for (foreign, unknown) in [
            (bo.get(&anns).await, bo.get(&unknown).await),
            (bo.update(&anns).await, bo.update(&unknown).await),
            (bo.cancel(&anns).await, bo.cancel(&unknown).await),
        ] {
            assert_eq!((foreign.status, &foreign.body), (unknown.status, &unknown.body));
            assert_eq!(foreign.error()["code"], -32602);
        }
        // Without credentials, or with unknown ones, nobody gets as far as that.
        for stranger in [proxy.client(), proxy.client().bearer("tok-eve-000000000")] {
            assert_eq!(stranger.get(&anns).await.status, 401);
            assert_eq!(stranger.call("slow", "{}").await.status, 401);
        }
        assert_eq!((upstream.cancelled(), ann.get(&anns).await.result()["status"].as_str()), (0, Some("working")));
        run.answer(r#"{"content":[{"type":"text","text":"result-9876543210"}]}"#).await;
        assert_eq!(ann.ended(&anns).await.result()["status"], "completed");
        // The same when it has ended, and after a restart.
        assert_eq!(bo.get(&anns).await.body, bo.get(&unknown).await.body);
        let mut log = proxy.log();
        proxy.kill();
        let proxy = ground.start().await;
        let (ann, bo) = (proxy.client().bearer(ANN), proxy.client().bearer(BO));
        assert_eq!(ann.get(&anns).await.result()["status"], "completed");
        assert_eq!(bo.get(&anns).await.body, bo.get(&unknown).await.body);
        log.push_str(&proxy.log());
        assert_eq!(proxy.stop().await, Some(0));

        assert!(log.contains("TRACE"), "nothing was traced");
        for secret in [ANN, BO, "tok-eve-000000000"] {
            assert!(!log.contains(secret), "{transport:?}: a token was logged: {}", around(&log, secret));
            assert!(!folder_contains(&ground.store(), secret.as_bytes()), "{transport:?}: a token was stored");
        }
        // Bodies are in the store, where they belong, but in no log.
        assert!(folder_contains(&ground.store(), b"result-9876543210"));
        for body in ["argument-0123456789", "result-9876543210"] {
            assert!(!log.contains(body), "{transport:?}: a body was logged: {}", around(&log, body));
        }
        assert!(
            !contains(log.as_bytes(), anns.as_bytes()),
            "{transport:?}: a handle was logged: {}",
            around(&log, &anns)
        );
    }
}

#[tokio::test]
async fn tasks_of_one_bearer_are_not_those_of_another_where_the_server_checks_them() {
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let (ann, bo, nobody) = (proxy.client().bearer(ANN), proxy.client().bearer(BO), proxy.client());
    let anns = ann.handle("slow", "{}").await;
    let mut run = upstream.run().await;
    // The server behind is the one who checks.
    assert_eq!(run.authorization, Some(format!("Bearer {ANN}")));
    let unknown = "0".repeat(36);
    for stranger in [&bo, &nobody] {
        assert_eq!(stranger.get(&anns).await.body, stranger.get(&unknown).await.body);
        assert_eq!(stranger.cancel(&anns).await.body, stranger.cancel(&unknown).await.body);
    }
    run.says("done").await;
    assert_eq!(ann.ended(&anns).await.result()["status"], "completed");
    assert!(!folder_contains(&ground.store(), ANN.as_bytes()));
}

/// The part of a log that shows where a secret got in.
fn around(log: &str, secret: &str) -> String {
    log.lines().find(|line| line.contains(secret)).unwrap_or_default().chars().take(800).collect()
}

#[tokio::test]
async fn a_server_that_refuses_the_token_in_the_run_fails_the_task_with_the_reason() {
    let server = Server::legacy(|seen: Seen, wire: Wire| async move {
        if seen.is("tools/call") {
            return wire
                .respond("401 Unauthorized", &[("WWW-Authenticate", "Bearer error=\"invalid_token\"")], "")
                .await;
        }
        wire.json(&seen.result(&serde_json::json!({ "tools": [] }))).await
    })
    .await;
    let rest = "[[tool]]\nmatch = \"*\"\nmode = \"task\"";
    let ground = Ground::before(&format!("url = \"{}\"", server.url()), rest);
    let proxy = ground.start().await;
    let ann = proxy.client().bearer(ANN);
    let id = ann.handle("slow", "{}").await;
    let task = ann.ended(&id).await.result();
    let told = (task["status"].as_str(), task["error"]["data"]["reason"].as_str());
    assert_eq!(told, (Some("failed"), Some("unauthorized")), "{task}");
    assert_eq!(task["error"]["data"]["retryable"], false, "{task}");
}
