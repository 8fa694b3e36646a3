//! Ids and batches (field cases 29, 33).

use crate::bounded;
use crate::process::Ground;
use crate::upstream::{Transport, Upstream};

#[tokio::test]
async fn calls_with_the_same_id_never_get_each_others_answers() {
    for (transport, mode) in
        [(Transport::Stdio, "sync"), (Transport::Http, "sync"), (Transport::Stdio, "task"), (Transport::Http, "task")]
    {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, &format!("[[tool]]\nmatch = \"who\"\nmode = \"{mode}\""));
        let proxy = ground.start().await;
        // Two of one principal on one session behind, and three more with sessions of their own; all with id 1.
        let one = proxy.client();
        let callers = [
            ("ann", one.clone()),
            ("bo", one),
            ("cy", proxy.client().bearer("c")),
            ("di", proxy.client().bearer("d")),
            ("ed", proxy.client().bearer("e")),
        ];
        let mut calls = Vec::new();
        for (who, client) in callers {
            calls.push(tokio::spawn(async move {
                let answer = client.call("who", &format!(r#"{{"who":"{who}"}}"#)).await;
                assert_eq!(answer.value()["id"], 1);
                let mut result = answer.result();
                if result["resultType"] == "task" {
                    result = client.ended(result["taskId"].as_str().unwrap()).await.result()["result"].take();
                }
                assert_eq!(result["structuredContent"]["who"], who);
            }));
        }
        let mut runs = Vec::new();
        for _ in 0..5 {
            runs.push(upstream.run().await);
        }
        for mut run in runs.into_iter().rev() {
            let arguments = run.arguments().to_owned();
            run.answer(&format!(r#"{{"content":[],"structuredContent":{arguments}}}"#)).await;
        }
        for call in calls {
            bounded(call).await.unwrap_or_else(|error| panic!("{transport:?} {mode}: {error}"));
        }
    }
}

#[tokio::test]
async fn an_array_of_calls_is_refused_before_any_of_them_runs() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "");
    let proxy = ground.start().await;
    let client = proxy.client();
    let call = client.text("tools/call", r#""name":"slow","arguments":{}"#);
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for array in [format!("[{call},{call},{notification}]"), "[]".to_owned(), "[1]".to_owned()] {
        let answer = client.send("tools/call", "slow", array.clone()).await;
        assert_eq!((answer.status, answer.error()["code"].as_i64()), (400, Some(-32600)), "{array}");
    }
    // What comes later does run, so the ledger would have told.
    let calling = tokio::spawn(async move { client.call("quick", "{}").await });
    upstream.run().await.says("ran").await;
    bounded(calling).await.unwrap().result();
    assert_eq!(upstream.ledger(), ["quick null"]);
}
