//! How long a task is expected to take: learned from the runs of its tool, kept in the store, told to the client.
#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use std::time::{Duration, Instant};

use raincheck::config::{Mode, ToolPolicy};
use raincheck::history::End;
use raincheck::protocol::{Failure, Outcome, Reason, Retry, RpcError, WaitsFor};
use raincheck::runner::{Bounds, Runner};
use raincheck::store::Shelf;
use raincheck::task::Canceller;
use serde_json::{Value, json};
use support::calls::{call, shown, text};
use support::layer::{PATIENCE, Proxy};
use tokio::time::timeout;

const EXPECTED: &str = "dev.raincheck/expected";

fn policy(mode: Mode) -> ToolPolicy {
    ToolPolicy { mode, after: Duration::from_hours(1), ..ToolPolicy::default() }
}

fn export() -> Value {
    json!({ "name": "export", "arguments": {} })
}

fn good() -> Outcome {
    Outcome::Result(text(r#"{"content":[]}"#))
}

/// How many runs of the tool were learned from.
fn samples(runner: &Runner) -> Vec<(String, u32)> {
    runner.history().all().into_iter().map(|tool| (tool.tool, tool.sketch.samples())).collect()
}

/// Calls the tool and lets the server answer so.
async fn run(proxy: &mut Proxy, outcome: Outcome) {
    let reply = proxy.send(call("tools/call", export())).await;
    proxy.next_sent().await.1.done(outcome);
    timeout(PATIENCE, reply.outcome()).await.unwrap();
}

#[tokio::test]
async fn a_tool_is_learned_from_what_it_ended_well_whether_or_not_it_was_a_task() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    proxy.runner.history().meters().know("reports", ["export"]);
    run(&mut proxy, Outcome::Error(RpcError::new(-32602, "unknown tool"))).await;
    assert_eq!(samples(&proxy.runner), []);
    run(&mut proxy, good()).await;
    run(&mut proxy, Outcome::Result(text(r#"{"isError":true,"content":[]}"#))).await;
    run(&mut proxy, Outcome::Error(RpcError::new(-32602, "no"))).await;
    run(&mut proxy, Outcome::Failed(Failure::new(Reason::OutcomeUnknown, "lost", Retry::Unknown))).await;
    run(&mut proxy, good()).await;
    assert_eq!(samples(&proxy.runner), [("export".to_owned(), 2)]);
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, sender) = proxy.next_sent().await;
    drop(reply);
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    sender.done(good());
    let counted = async {
        while proxy.runner.history().meters().all()[0].2.ends[3] == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, counted).await.unwrap();
    assert_eq!(proxy.runner.history().meters().all()[0].2.ends, [2, 1, 2, 1, 0, 1]);
    assert_eq!(samples(&proxy.runner), [("export".to_owned(), 2)]);
    // Other methods are no tools.
    let reply = proxy.send(call("prompts/list", json!({}))).await;
    proxy.next_sent().await.1.done(good());
    timeout(PATIENCE, reply.outcome()).await.unwrap();
    assert_eq!(samples(&proxy.runner).len(), 1);
}

#[tokio::test]
async fn what_the_server_takes_to_start_is_no_time_of_the_tool() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let sent = Instant::now();
    let reply = proxy.sending(call("tools/call", export()));
    let (_, sender) = proxy.next_sent().await;
    sender.waits(WaitsFor::Start);
    let reply = reply.await.unwrap();
    while sent.elapsed() < Duration::from_millis(200) {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    assert!(sender.begins().await);
    sender.done(good());
    timeout(PATIENCE, reply.outcome()).await.unwrap();
    let took = began.elapsed();
    let learned = Duration::from_millis(proxy.runner.history().measured().remove(0).max_ms);
    // What is learned is as exact as an eighth.
    assert!(learned <= took + took / 4, "{learned:?} instead of {took:?}");
}

#[tokio::test]
async fn a_task_says_what_is_expected_of_it_once_enough_is_known() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let learn = |runner: &Runner, millis| {
        let now = runner.store().clock().now();
        runner.history().ended("reports", "export", End::Completed, Duration::from_millis(millis), now);
    };
    (0..4).for_each(|_| learn(&proxy.runner, 15_000));
    let created = proxy.value(call("tools/call", export())).await;
    assert_eq!(created["_meta"].get(EXPECTED), None);
    assert!(created["_meta"]["dev.raincheck/elapsedMs"].is_u64(), "{created}");
    assert_eq!(created["statusMessage"], "running for 0s");
    learn(&proxy.runner, 15_000);
    let created = proxy.value(call("tools/call", export())).await;
    let id = created["taskId"].as_str().unwrap().to_owned();
    let got = proxy.get(&id).await;
    for task in [&created, &got] {
        let expected = &task["_meta"][EXPECTED];
        assert!(expected["p50Ms"].as_u64().unwrap().abs_diff(15_000) < 1000, "{expected}");
        assert_eq!((&expected["samples"], &expected["p95Ms"]), (&json!(5), &expected["p50Ms"]));
        assert!(task["statusMessage"].as_str().unwrap().ends_with("; usually takes about 15s"), "{task}");
        assert_eq!(task["pollIntervalMs"], 10_000);
    }
    // What has ended is not expected to do anything.
    proxy.next_sent().await;
    proxy.next_sent().await.1.done(good());
    assert_eq!(proxy.ended(&id).await.get("_meta"), None);
}

#[tokio::test]
async fn the_time_before_a_call_became_a_task_is_time_of_its_run() {
    let after = Duration::from_millis(300);
    let mut proxy = Proxy::new(ToolPolicy { after, ..policy(Mode::Auto) });
    let call = call("tools/call", export());
    let arrived = call.arrived;
    let reply = proxy.send(call).await;
    let (_, _sender) = proxy.next_sent().await;
    // It ran by then, and became a task at that time after its arrival.
    let least = after.saturating_sub(arrived.elapsed());
    let created = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    let elapsed = created["_meta"]["dev.raincheck/elapsedMs"].as_u64().unwrap();
    assert!(elapsed + 1 >= u64::try_from(least.as_millis()).unwrap(), "{created}, but {least:?}");
}

#[tokio::test]
async fn what_was_learned_is_saved_before_the_proxy_stops_and_known_after_a_start() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    for _ in 0..5 {
        run(&mut proxy, good()).await;
    }
    let shelf = || proxy.store.shelf(Shelf::History).unwrap().len();
    assert_eq!(shelf(), 0, "a run must not wait for a write");
    proxy.runner.drain();
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
    assert_eq!(shelf(), 1);
    let next = Runner::new(proxy.store.clone(), proxy.runs.clone(), Bounds { running: 1, waiting: 1, rate: None });
    assert_eq!(samples(&next), [("export".to_owned(), 5)]);
    assert!(next.history().expected("reports", "export").is_some());
}

#[tokio::test]
async fn a_task_says_who_cancelled_it() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    for (by, says) in [(Canceller::Operator, "cancelled by the operator"), (Canceller::Owner, "cancelled on request")] {
        let created = proxy.value(call("tools/call", export())).await;
        let id = created["taskId"].as_str().unwrap().to_owned();
        let (_, sender) = proxy.next_sent().await;
        let task = proxy.store.look(&id.parse().unwrap()).unwrap().unwrap();
        proxy.runner.cancel(&task, by).await.unwrap();
        timeout(PATIENCE, sender.cancelled()).await.unwrap();
        sender.done(Outcome::Error(RpcError::new(0, "cancelled")));
        let ended = proxy.ended(&id).await;
        assert_eq!((&ended["status"], &ended["statusMessage"]), (&json!("cancelled"), &json!(says)));
        // Too late to be said by another.
        proxy.runner.cancel(&task, Canceller::Owner).await.unwrap();
        assert_eq!(proxy.get(&id).await["statusMessage"], says);
    }
}
