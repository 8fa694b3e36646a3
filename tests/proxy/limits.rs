//! Rates and budgets, as clients over HTTP meet them.

use serde_json::{Value, json};

use crate::client::Client;
use crate::process::Ground;
use crate::upstream::Upstream;

const ANN: &str = "tok-ann-7f3e9c1b5d";
const BO: &str = "tok-bo-2a8d6e4f0c";

/// The `data` of an error that a client can read at its code.
async fn refused(client: &Client, tool: &str, code: i64) -> Value {
    let answer = client.call(tool, "{}").await;
    let error = answer.error();
    assert_eq!((answer.status, &error["code"]), (200, &json!(code)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("nothing was sent"), "{error}");
    let data = error["data"].clone();
    assert_eq!(data["retryable"], true, "{data}");
    assert!(data["retryAfterMs"].as_u64().unwrap() > 3_000_000, "{data}");
    data
}

#[tokio::test]
async fn a_budget_and_a_rate_refuse_in_words_and_numbers_and_a_budget_survives_a_kill() {
    let upstream = Upstream::http().await;
    let rest = format!(
        "[[owner.token]]\nname = \"ann\"\ntoken = \"{ANN}\"\n[[owner.token]]\nname = \"bo\"\ntoken = \"{BO}\"\n\
         [owner.limits]\nbudget = \"5/1h\"\n[[owner.limit]]\nname = \"bo\"\nbudget = \"none\"\n\
         [[tool]]\nmatch = \"costly\"\nmode = \"task\"\nprice = 2.5\n[[tool]]\nmatch = \"rare\"\nmode = \"task\"\nrate = \"1/1h\""
    );
    let ground = Ground::new(&upstream, &rest);
    let mut proxy = ground.start().await;
    let ann = proxy.client().bearer(ANN);
    for _ in 0..2 {
        let id = ann.handle("costly", "{}").await;
        upstream.run().await.says("done").await;
        let ended = ann.ended(&id).await.result();
        assert_eq!((&ended["status"], &ended["_meta"]["dev.raincheck/cost"]), (&json!("completed"), &json!(2.5)));
    }
    assert_eq!(refused(&ann, "costly", -31015).await["reason"], "over_budget");
    ann.handle("rare", "{}").await;
    upstream.run().await.says("done").await;
    assert_eq!(refused(&ann, "rare", -31014).await["reason"], "rate_limited");

    proxy.kill();
    let proxy = ground.start().await;
    let (ann, bo) = (proxy.client().bearer(ANN), proxy.client().bearer(BO));
    assert_eq!(refused(&ann, "costly", -31015).await["reason"], "over_budget");
    for _ in 0..3 {
        bo.handle("costly", "{}").await;
        upstream.run().await.says("done").await;
    }
    let sent = upstream.ledger().iter().filter(|line| line.starts_with("costly")).count();
    assert_eq!(sent, 5, "a refused call was sent");
}

#[tokio::test]
async fn a_greedy_owner_leaves_a_slot_and_a_start_of_a_tool_to_the_next() {
    let upstream = Upstream::http().await;
    let rest = format!(
        "[[owner.token]]\nname = \"ann\"\ntoken = \"{ANN}\"\n[[owner.token]]\nname = \"bo\"\ntoken = \"{BO}\"\n\
         [[tool]]\nmatch = \"long\"\nmode = \"task\"\nmax_running = 3\n[[tool]]\nmatch = \"rare\"\nmode = \"task\"\nrate = \"2/2h\""
    );
    let ground = Ground::new(&upstream, &rest);
    let proxy = ground.start().await;
    let (ann, bo) = (proxy.client().bearer(ANN), proxy.client().bearer(BO));
    let mut runs = Vec::new();
    for _ in 0..2 {
        ann.handle("long", "{}").await;
        runs.push(upstream.run().await);
    }
    let waits = ann.handle("long", "{}").await;
    let status = ann.get(&waits).await.result()["statusMessage"].clone();
    assert_eq!(status, "queued: next in line for a free slot");
    let bos = bo.handle("long", "{}").await;
    upstream.run().await.says("done").await;
    assert_eq!(bo.ended(&bos).await.result()["status"], "completed");
    for run in &mut runs {
        run.says("done").await;
    }
    upstream.run().await.says("done").await;
    assert_eq!(ann.ended(&waits).await.result()["status"], "completed");

    ann.handle("rare", "{}").await;
    upstream.run().await.says("done").await;
    assert_eq!(refused(&ann, "rare", -31014).await["reason"], "rate_limited");
    bo.handle("rare", "{}").await;
    upstream.run().await.says("done").await;
}
