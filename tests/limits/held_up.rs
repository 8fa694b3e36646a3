//! Calls that have a slot and wait for their server: it starts, or takes others before.

use raincheck::protocol::{ReplySender, WaitsFor};

use super::*;

/// Longer than the limits in here.
const LONG: Duration = Duration::from_millis(250);
const SHORT: Duration = Duration::from_millis(60);

/// Ann's task, which waits for that.
#[expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]
async fn held_up(proxy: &mut Proxy, what: WaitsFor) -> (String, ReplySender) {
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    sender.waits(what);
    let told = async {
        while !proxy.get(&id).await["statusMessage"].as_str().unwrap().starts_with("waiting for ") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, told).await.expect("nobody is told that it waits");
    (id, sender)
}

async fn is_stopped(sender: &ReplySender, within: Duration) -> bool {
    timeout(within, sender.cancelled()).await.is_ok()
}

#[tokio::test]
async fn while_a_call_waits_for_its_server_it_does_not_run() {
    let timed = ToolPolicy { timeout: SHORT, ..policy(Mode::Task) };
    let idle = ToolPolicy { idle_timeout: Some(SHORT), ..policy(Mode::Task) };
    for (limited, reason) in [(timed, "timeout"), (idle, "idle_timeout")] {
        for what in [WaitsFor::Start, WaitsFor::Turn] {
            let mut proxy = Proxy::new(limited.clone());
            let (id, sender) = held_up(&mut proxy, what).await;
            assert!(!is_stopped(&sender, LONG).await, "{reason} while it waits for {what:?}");
            assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
            assert!(proxy.get(&id).await["statusMessage"].as_str().unwrap().starts_with("running for 0s"));
            assert!(is_stopped(&sender, PATIENCE).await, "no {reason} of the run itself");
            assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], reason);
        }
    }
}

#[tokio::test]
async fn a_turn_that_does_not_come_in_time_ends_a_call_that_was_never_sent() {
    let priced = ToolPolicy { queue_timeout: LONG, price: cost(2), ..policy(Mode::Task) };
    for mode in [Mode::Task, Mode::Sync] {
        let mut proxy = Proxy::ruled(ToolPolicy { mode, ..priced.clone() }, BOUNDS, budget(3));
        let reply = proxy.send_in_background(of("ann"));
        let (_, sender) = proxy.next_sent().await;
        sender.waits(WaitsFor::Turn);
        let told = reply.await.unwrap();
        let told = if mode == Mode::Task { proxy.ended(&id_of(&told)).await } else { told };
        if mode == Mode::Task {
            let data = json!({ "reason": "queue_timeout", "retryable": true, "retryAfterMs": 5000 });
            assert_eq!(told["error"]["data"], data, "{told}");
        } else {
            assert_eq!(told["failed"], "queue_timeout", "{told}");
        }
        assert!(!timeout(PATIENCE, sender.begins()).await.unwrap(), "it was sent after that");
        sender.done(Outcome::Failed(Failure::new(Reason::NotStarted, "", Retry::Yes)));
        // What it would have cost is there again.
        let again = async {
            while matches!(proxy.ask(of("ann")).await, Outcome::Failed(refused) if refused.reason == Reason::OverBudget)
            {
                tokio::task::yield_now().await;
            }
        };
        if mode == Mode::Task {
            timeout(PATIENCE, again).await.expect("the price of the call was kept");
        }
    }
}

#[tokio::test]
async fn the_time_that_a_call_waits_for_its_server_costs_nothing() {
    // A unit each 20 ms.
    let priced = ToolPolicy { price_per_minute: cost(3000), ..policy(Mode::Task) };
    let mut proxy = Proxy::ruled(priced, BOUNDS, budget(5));
    let (id, sender) = held_up(&mut proxy, WaitsFor::Turn).await;
    assert!(!is_stopped(&sender, LONG).await, "it has used up the budget");
    assert_eq!(proxy.get(&id).await["_meta"]["dev.raincheck/cost"], 0);
    assert!(sender.begins().await);
    assert!(is_stopped(&sender, PATIENCE).await, "its run costs nothing");
    assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "over_budget");
}

#[tokio::test]
async fn a_call_that_waits_becomes_a_task_in_time_and_its_handle_says_what_it_waits_for() {
    let mut proxy = Proxy::new(ToolPolicy { mode: Mode::Auto, after: SHORT, ..policy(Mode::Auto) });
    let created = proxy.send_in_background(of("ann"));
    let (_, sender) = proxy.next_sent().await;
    sender.waits(WaitsFor::Start);
    let created = created.await.unwrap();
    assert_eq!(created["statusMessage"], "waiting for the server to start");
    sender.waits(WaitsFor::Turn);
    let told = async {
        while proxy.get(&id_of(&created)).await["statusMessage"]
            != "waiting for the server to take its next call (serial)"
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, told).await.expect("it still waits for the start");
    assert!(sender.begins().await);
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert_eq!(proxy.ended(&id_of(&created)).await["status"], "completed");
}

#[tokio::test]
async fn a_task_that_waits_for_its_server_is_cancelled_unsent() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let (id, sender) = held_up(&mut proxy, WaitsFor::Turn).await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    assert!(!timeout(PATIENCE, sender.begins()).await.unwrap());
    drop(sender);
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_task_that_waits_for_its_server_at_a_crash_or_a_stop_was_not_started() {
    for crashes in [true, false] {
        let mut proxy = Proxy::new(policy(Mode::Task));
        let (id, sender) = held_up(&mut proxy, WaitsFor::Turn).await;
        let mut proxy =
            if crashes { proxy.crashes(policy(Mode::Task)).await } else { proxy.stops(policy(Mode::Task)).await };
        assert!(!timeout(PATIENCE, sender.begins()).await.unwrap(), "it is sent after all");
        let ended = proxy.ended(&id).await;
        let expected = if crashes { "not_started" } else { "stopping" };
        assert_eq!(ended["error"]["data"]["reason"], expected, "{ended}");
        assert_eq!(ended["error"]["data"]["retryable"], true);
        assert!(proxy.sent.try_recv().is_err(), "it was sent");
    }
}

#[tokio::test]
async fn a_task_that_begins_after_a_wait_is_lost_by_a_crash_as_any_run() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let (id, sender) = held_up(&mut proxy, WaitsFor::Turn).await;
    assert!(sender.begins().await);
    let proxy = proxy.crashes(policy(Mode::Task)).await;
    assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "outcome_unknown");
}
