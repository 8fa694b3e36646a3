//! Calls that are repeated with their key, over HTTP, across restarts and kills.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::client::{Answer, Client};
use crate::process::{Ground, Proxy};
use crate::scripted::worked;
use crate::upstream::{Transport, Upstream};
use crate::{bounded, member};

const RULES: &str =
    "[[tool]]\nmatch = \"slow\"\nmode = \"task\"\n[[tool]]\nmatch = \"auto\"\nafter = \"1h\"\ntimeout = \"2h\"";

/// The members of a result that a repeat gets as they were.
fn content(answer: &Answer) -> String {
    member(answer.raw_result(), "content").to_owned()
}

fn spawned(client: Client, tool: &'static str, arguments: &'static str) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(async move { client.call(tool, arguments).await })
}

#[tokio::test]
async fn a_call_that_is_repeated_over_http_runs_once() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, RULES);
        let proxy = ground.start().await;
        let (one, two) = (proxy.client().keyed("k-1"), proxy.client().undeclared().keyed("k-1"));
        let arguments = r#"{"n":1,"x":1.0}"#;
        let first = spawned(one.clone(), "auto", arguments);
        let mut run = upstream.run().await;
        let second = spawned(two.clone(), "auto", r#"{ "x" : 1, "n":1 }"#);
        // The client of the first loses its connection.
        first.abort();
        let again = spawned(one.clone(), "auto", arguments);
        run.answer(r#"{"content":[{"type":"text","text":"7"}],"big":9007199254740995}"#).await;
        for answer in [bounded(second).await.unwrap(), bounded(again).await.unwrap(), one.call("auto", arguments).await]
        {
            assert_eq!(content(&answer), r#"[{"type":"text","text":"7"}]"#);
            assert_eq!(member(answer.raw_result(), "big"), "9007199254740995");
            assert_eq!(answer.result()["_meta"]["dev.raincheck/joined"], true, "{}", answer.message);
        }
        let reused = one.call("auto", r#"{"n":2}"#).await.error();
        assert_eq!(reused["data"], json!({ "reason": "key_reused", "retryable": false }), "{reused}");
        assert_eq!(reused["code"], -31016);

        let handle = one.keyed("k-2").handle("slow", "{}").await;
        let mut run = upstream.run().await;
        let joined = one.keyed("k-2").call("slow", "{}").await;
        assert_eq!(
            (joined.task_id(), &joined.result()["_meta"]["dev.raincheck/joined"]),
            (handle.clone(), &json!(true))
        );
        let held = spawned(two.keyed("k-2"), "slow", "{}");
        run.says("done").await;
        assert_eq!(bounded(held).await.unwrap().result()["content"][0]["text"], "done");
        assert_eq!(one.ended(&handle).await.result()["status"], "completed");
        assert_eq!(upstream.ledger(), ["auto 1", "slow null"], "{transport:?}");
        assert_eq!((upstream.cancelled(), proxy.stop().await), (0, Some(0)));
    }
}

#[tokio::test]
async fn a_key_leads_to_its_call_after_the_proxy_was_killed() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::durable(&upstream, RULES);
    let mut proxy = ground.start().await;
    let client = proxy.client();
    let ended = client.keyed("ended").call("auto", r#"{"n":1,"ms":0,"bytes":100000}"#).await;
    let task = client.keyed("task").handle("slow", r#"{"n":2}"#).await;
    let held = spawned(client.keyed("held"), "auto", r#"{"n":3}"#);
    let _runs = (upstream.run().await, upstream.run().await);
    proxy.kill();
    assert!(bounded(held).await.is_err(), "an answer of a dead proxy");

    let proxy = ground.start().await;
    let client = proxy.client();
    let again = client.keyed("ended").call("auto", r#"{"n":1,"ms":0,"bytes":100000}"#).await;
    assert_eq!(content(&again), content(&ended));
    assert_eq!(member(again.raw_result(), "structuredContent"), member(ended.raw_result(), "structuredContent"));
    // What was lost is found out behind the start.
    client.ended(&task).await;
    let joined = client.keyed("task").call("slow", r#"{"n":2}"#).await;
    assert_eq!((joined.task_id(), &joined.result()["status"]), (task, &json!("failed")));
    for client in [client.keyed("held"), client.undeclared().keyed("held")] {
        let lost = client.call("auto", r#"{"n":3}"#).await.error();
        assert_eq!(lost["data"], json!({ "reason": "outcome_unknown" }), "{lost}");
    }
    assert_eq!(client.keyed("held").call("auto", r#"{"n":4}"#).await.error()["data"]["reason"], "key_reused");
    let mut ledger = upstream.ledger();
    ledger.sort();
    assert_eq!(ledger, ["auto 1", "auto 3", "slow 2"]);
    assert_eq!(proxy.stop().await, Some(0));
}

/// How the calls of one kill went.
struct Round {
    seen: HashMap<u64, String>,
    first: u64,
    end: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_however_the_proxy_is_killed() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::durable(&upstream, "[[tool]]\nmatch = \"auto\"\nafter = \"10ms\"");
    let (mut next, mut known, mut lost) = (0, 0, 0);
    for _ in 0..10 {
        let round = calls_until_killed(ground.start().await, next).await;
        next = round.end;
        let proxy = ground.start().await;
        for n in round.first..round.end {
            let answer = proxy.client().undeclared().keyed(&format!("k{n}")).call("auto", &arguments(n)).await;
            if answer.value().get("error").is_some() {
                assert_eq!(answer.error()["data"]["reason"], "outcome_unknown", "{}", answer.message);
                assert!(!round.seen.contains_key(&n), "an outcome that a client had is gone");
                lost += 1;
            } else {
                assert_eq!(content(&answer), member(&worked(n, 3000), "content"));
                known += usize::from(round.seen.contains_key(&n));
            }
        }
        assert_eq!(proxy.stop().await, Some(0));
    }
    let mut runs: HashMap<String, usize> = HashMap::new();
    for line in upstream.ledger() {
        *runs.entry(line).or_default() += 1;
    }
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    assert!(known > 20 && lost > 5, "{known} were answered before the kill, {lost} were lost by it");
}

fn arguments(n: u64) -> String {
    format!(r#"{{"n":{n},"ms":{},"bytes":3000}}"#, [0, 0, 1, 15][usize::try_from(n % 4).unwrap()])
}

/// Calls with keys from `first` on, until the proxy is killed.
async fn calls_until_killed(mut proxy: Proxy, first: u64) -> Round {
    let (answers, mut seen) = watch::channel(0);
    let mut callers = Vec::new();
    for n in first..first + 24 {
        let (client, answers) = (proxy.client().undeclared().keyed(&format!("k{n}")), answers.clone());
        callers.push(tokio::spawn(async move {
            // Each is sent twice at once.
            let text = client.text("tools/call", &format!(r#""name":"auto","arguments":{}"#, arguments(n)));
            let (one, two) = tokio::join!(
                client.try_send("tools/call", "auto", text.clone()),
                client.try_send("tools/call", "auto", text.clone())
            );
            answers.send_modify(|count| *count += 1);
            let seen = one.ok().or(two.ok())?;
            Some((n, serde_json::from_str::<Value>(&seen.message).ok()?["result"].to_string()))
        }));
    }
    let enough = rand::random_range(0..20);
    bounded(seen.wait_for(|count| *count >= enough)).await.unwrap();
    // Not always right behind an answer.
    tokio::time::sleep(Duration::from_micros(rand::random_range(0..2000))).await;
    proxy.kill();
    let mut seen = HashMap::new();
    for caller in callers {
        seen.extend(bounded(caller).await.unwrap());
    }
    Round { seen, first, end: first + 24 }
}

#[tokio::test]
async fn raincheck_call_repeats_with_its_key() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "");
    let proxy = ground.start().await;
    let url = format!("{}/mcp", proxy.base);
    let call = |key: &'static str| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_raincheck"));
        command.args(["call", &url, "auto", r#"{"n":5,"ms":0,"bytes":8}"#, "--json", "--key", key]);
        async move { bounded(command.output()).await.unwrap() }
    };
    let quoted = r#""k\"\\""#;
    for (key, joined) in [(quoted, Value::Null), (quoted, json!(true)), ("other", Value::Null)] {
        let output = call(key).await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["_meta"]["dev.raincheck/joined"], joined, "{result}");
    }
    assert_eq!(upstream.ledger(), ["auto 5", "auto 5"]);
    assert_eq!(call("not a key").await.status.code(), Some(64));
}
