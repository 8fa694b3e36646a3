//! Clients that leave, and servers that cannot bear a cancel (field cases 42, 44).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::Ground;
use crate::upstream::{Transport, Upstream};

#[tokio::test]
async fn leaving_cancels_a_call_before_the_handle_and_is_nothing_to_its_task() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[defaults]\nafter = \"1s\"");
        let proxy = ground.start().await;
        let client = proxy.client();
        let early = {
            let client = client.clone();
            tokio::spawn(async move { client.call("slow", "{}").await })
        };
        let _run = upstream.run().await;
        early.abort();
        upstream.cancels(1).await;

        let leaving = proxy.client();
        let id = leaving.handle("slow", "{}").await;
        drop(leaving);
        upstream.run().await.says("done").await;
        assert_eq!(client.ended(&id).await.result()["result"]["content"][0]["text"], "done", "{transport:?}");
        assert_eq!((upstream.cancelled(), upstream.ledger().len()), (1, 2), "{transport:?}");
    }
}

#[tokio::test]
async fn a_server_that_dies_of_a_cancel_loses_its_other_tasks_and_is_started_again() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let (cancelled, other) = (client.handle("slow", "{}").await, client.handle("slow", "{}").await);
    let (run, _other) = (upstream.run().await, upstream.run().await);
    assert_eq!(client.cancel(&cancelled).await.result(), json!({ "resultType": "complete" }));
    upstream.cancels(1).await;
    run.dies().await;
    let died = Instant::now();
    let lost = client.ended(&other).await.result();
    assert!(died.elapsed() < Duration::from_secs(2), "{:?}", died.elapsed());
    assert_eq!((&lost["status"], &lost["error"]["data"]["reason"]), (&json!("failed"), &json!("outcome_unknown")));
    assert_eq!(client.ended(&cancelled).await.result()["status"], "cancelled");
    let next = client.handle("slow", "{}").await;
    upstream.run().await.says("again").await;
    assert_eq!(client.ended(&next).await.result()["result"]["content"][0]["text"], "again");
}

#[tokio::test]
async fn with_cancel_never_a_cancel_is_acknowledged_and_the_server_hears_nothing() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::with_server(&upstream, "cancel = \"never\"\n", "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let cancelled = client.handle("slow", "{}").await;
    let _run = upstream.run().await;
    let other = client.handle("slow", "{}").await;
    let mut run = upstream.run().await;
    assert_eq!(client.cancel(&cancelled).await.result(), json!({ "resultType": "complete" }));
    assert_eq!(client.ended(&cancelled).await.result()["status"], "cancelled");
    run.says("done").await;
    assert_eq!(client.ended(&other).await.result()["status"], "completed");
    assert_eq!(upstream.cancelled(), 0);
}
