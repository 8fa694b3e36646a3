//! Calls whose server does not read them: their requests wait to be written until the call is given up.

use raincheck::protocol::{CallKey, Reply, ReplySender, WaitsFor};
use raincheck::task::State;

use super::*;

/// What is told of a call that was never sent.
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where it fails")]
fn assert_never_sent(failure: &Value, how: &str) {
    assert_eq!(failure["data"]["reason"], "not_started", "{failure}");
    let message = failure["message"].as_str().unwrap();
    assert!(message.contains(how) && message.contains("the tool has not run"), "{message}");
    assert!(message.contains("the server has not read the request"), "{message}");
}

/// The next call, which its server does not read before it is stopped.
async fn unread(proxy: &mut Proxy) -> ReplySender {
    let (_, sender) = proxy.next_sent().await;
    sender.is_to_be_written();
    sender
}

/// The upstream withdraws its request when it is told to stop.
#[expect(clippy::expect_used, reason = "a test ends where it fails")]
async fn is_withdrawn(sender: ReplySender) {
    timeout(PATIENCE, sender.cancelled()).await.expect("it goes on");
    sender.done(Outcome::Failed(Failure::new(Reason::NotStarted, "never sent", Retry::Yes)));
}

#[expect(clippy::expect_used, reason = "a test ends where it fails")]
async fn failed(reply: Reply) -> Failure {
    match timeout(PATIENCE, reply.outcome()).await.expect("no outcome") {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_limit_that_ends_a_call_which_was_never_read_says_that_the_tool_has_not_run_and_costs_nothing() {
    let limits = [
        ("(timeout)", ToolPolicy { timeout: Duration::from_millis(20), ..policy(Mode::Task) }),
        ("(idle_timeout)", ToolPolicy { idle_timeout: Some(Duration::from_millis(20)), ..policy(Mode::Task) }),
    ];
    for (how, limit) in limits {
        for mode in [Mode::Task, Mode::Sync] {
            let mut proxy = Proxy::ruled(ToolPolicy { mode, price: cost(2), ..limit.clone() }, BOUNDS, budget(3));
            let reply = proxy.send(of("ann")).await.in_background();
            let sender = unread(&mut proxy).await;
            let told = tokio::spawn(reply.outcome());
            is_withdrawn(sender).await;
            let told = support::calls::shown(timeout(PATIENCE, told).await.unwrap().unwrap());
            if mode == Mode::Task {
                let task = proxy.ended(&id_of(&told)).await;
                assert_never_sent(&task["error"], how);
                assert_eq!(task["error"]["data"]["retryable"], true, "{task}");
            } else {
                assert_eq!(told["failed"], "not_started", "{told}");
            }
            // What it would have cost is there again.
            let again = async {
                loop {
                    let mut reply = proxy.send_in_background(of("ann"));
                    tokio::select! {
                        _ = proxy.sent.recv() => return,
                        told = &mut reply => if told.unwrap()["failed"] != "over_budget" { return },
                    }
                }
            };
            timeout(PATIENCE, again).await.expect("the price of the call was kept");
        }
    }
}

#[tokio::test]
async fn what_was_read_in_the_moment_of_the_timeout_may_have_run() {
    let mut proxy = Proxy::new(ToolPolicy { timeout: Duration::from_millis(20), ..policy(Mode::Sync) });
    for ends in [Some(Outcome::Result(text("{}"))), None] {
        let reply = proxy.send(of("ann")).await.in_background();
        let sender = unread(&mut proxy).await;
        timeout(PATIENCE, sender.cancelled()).await.unwrap();
        match ends {
            Some(outcome) => sender.done(outcome),
            None => drop(sender),
        }
        let failure = failed(reply).await;
        assert_eq!((failure.reason, failure.retry), (Reason::Timeout, Retry::Unknown), "{}", failure.message);
    }
}

#[tokio::test]
async fn a_cancelled_task_that_was_never_read_says_that_nothing_was_sent() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(of("ann")).await);
    let sender = unread(&mut proxy).await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    is_withdrawn(sender).await;
    let ended = proxy.ended(&id).await;
    assert_eq!(ended["status"], "cancelled");
    assert_eq!(ended["statusMessage"], "cancelled on request before it was sent; the tool has not run");
    let owner = proxy.store.owner(&Principal::Named("ann".into()));
    let task = proxy.store.get(&owner, &id.parse().unwrap()).await.unwrap().unwrap();
    assert!(matches!(task.state, State::Cancelled { sent: false, .. }), "{:?}", task.state);
}

#[tokio::test]
async fn an_operator_ends_a_held_call_that_was_never_read_as_one_that_has_not_run() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let reply = proxy.send(of("ann")).await.in_background();
    let sender = unread(&mut proxy).await;
    // Held calls are shown once they have run for a second.
    let held = async {
        loop {
            if let Some(held) = proxy.runner.held().all().pop() {
                return held;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, held).await.expect("it is not shown").cancel();
    is_withdrawn(sender).await;
    let failure = failed(reply).await;
    assert_eq!(failure.reason, Reason::NotStarted, "{}", failure.message);
    assert!(failure.message.contains("operator has cancelled"), "{}", failure.message);
}

/// A call with a key.
#[expect(clippy::unwrap_used, reason = "a test ends where it fails")]
fn keyed() -> Call {
    let mut call = of("ann");
    call.caller.key = Some(CallKey::read("k").unwrap());
    call
}

/// The grace time of a stop is over while the server of the call does not read it; the next process.
#[expect(clippy::unwrap_used, reason = "a test ends where it fails")]
async fn stopped(mut proxy: Proxy, policy: ToolPolicy) -> Proxy {
    let withdrawn = tokio::spawn(is_withdrawn(unread(&mut proxy).await));
    let proxy = proxy.restarted(policy, BOUNDS, budget(3)).await;
    withdrawn.await.unwrap();
    proxy
}

#[tokio::test]
async fn a_held_call_that_was_never_read_ends_at_a_stop_as_not_sent_and_its_price_and_its_key_are_free() {
    let policy = ToolPolicy { price: cost(2), ..policy(Mode::Sync) };
    let proxy = Proxy::ruled(policy.clone(), BOUNDS, budget(3));
    let told = proxy.send_in_background(keyed());
    let mut proxy = stopped(proxy, policy).await;
    let told = told.await.unwrap();
    assert_eq!(told["failed"], "stopping", "{told}");
    assert!(spent(&proxy).abs() < f64::EPSILON, "{}", spent(&proxy));
    let _again = proxy.send(keyed()).await.in_background();
    proxy.next_sent().await;
}

#[tokio::test]
async fn a_task_that_was_never_read_is_left_to_the_next_process_as_one_that_waits_however_often_that_happens() {
    for on_lost in [OnLost::Unknown, OnLost::Rerun] {
        // What is large has a file of its own.
        for rows in [1, 10_000] {
            let policy = ToolPolicy { price: cost(2), on_lost, ..policy(Mode::Task) };
            let proxy = Proxy::ruled(policy.clone(), BOUNDS, budget(3));
            let call = || {
                call_of(
                    "ann",
                    true,
                    "tools/call",
                    json!({ "name": "export", "arguments": { "rows": "x".repeat(rows) } }),
                )
            };
            let id = id_of(&proxy.value(call()).await);
            let proxy = stopped(proxy, policy.clone()).await;
            assert_eq!(proxy.get(&id).await["status"], "working", "{on_lost:?}");
            let mut proxy = stopped(proxy, policy).await;
            let (sent, sender) = proxy.next_sent().await;
            let arguments = |call: &Call| call.params.raw().read::<Value>().unwrap()["arguments"].clone();
            assert_eq!(arguments(&sent), arguments(&call()));
            let owner = proxy.store.owner(&Principal::Named("ann".into()));
            let task = proxy.store.get(&owner, &id.parse().unwrap()).await.unwrap().unwrap();
            assert_eq!(task.reruns, 0, "it was never begun");
            sender.done(Outcome::Result(text("{}")));
            assert_eq!(proxy.ended(&id).await["status"], "completed");
            proxy.runner.drain();
            timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
            assert!((spent(&proxy) - 2.0).abs() < f64::EPSILON, "{}", spent(&proxy));
        }
    }
}

#[tokio::test]
async fn a_task_that_was_never_read_and_was_promoted_is_left_too() {
    let policy = ToolPolicy { mode: Mode::Auto, after: Duration::ZERO, ..policy(Mode::Auto) };
    let mut proxy = Proxy::new(policy.clone());
    let created = proxy.send_in_background(of("ann"));
    let sender = unread(&mut proxy).await;
    let id = id_of(&created.await.unwrap());
    let withdrawn = tokio::spawn(is_withdrawn(sender));
    let mut proxy = proxy.stops(policy).await;
    withdrawn.await.unwrap();
    proxy.next_sent().await.1.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

/// A server that died with the call in its line: the call waits again for one.
#[tokio::test]
async fn a_task_that_waits_again_is_left_to_the_next_process() {
    let mut proxy = Proxy::gated(policy(Mode::Task), OwnerRules::default());
    let created = proxy.send_in_background(of("ann"));
    let (_, sender) = proxy.next_sent().await;
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
    let id = id_of(&created.await.unwrap());
    sender.waits(WaitsFor::Start);
    let owner = proxy.store.owner(&Principal::Named("ann".into()));
    let is_recorded = async {
        while !matches!(proxy.store.get(&owner, &id.parse().unwrap()).await.unwrap().unwrap().state, State::Queued) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, is_recorded).await.expect("that it waits is not recorded");
    let mut proxy = proxy.stops(policy(Mode::Task)).await;
    let (_, sender) = proxy.next_sent().await;
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
    sender.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_call_that_was_read_in_the_moment_of_a_stop_may_have_run() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(keyed()).await);
    let sender = unread(&mut proxy).await;
    let read = tokio::spawn(async move {
        sender.cancelled().await;
        drop(sender);
    });
    let proxy = proxy.stops(policy(Mode::Task)).await;
    read.await.unwrap();
    assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "outcome_unknown");
}
