//! Calls that were let in and wait for their server: it starts, or takes others before.

use raincheck::protocol::{ReplySender, WaitsFor};

use super::*;

/// Longer than the limits in here.
const LONG: Duration = Duration::from_millis(250);
const SHORT: Duration = Duration::from_millis(60);

/// Ann's task, which waits for that.
#[expect(clippy::unwrap_used, reason = "a test ends where it fails")]
async fn held_up(proxy: &mut Proxy, what: WaitsFor) -> (String, ReplySender) {
    let created = proxy.send_in_background(of("ann"));
    let (_, sender) = proxy.next_sent().await;
    sender.waits(what);
    let id = id_of(&created.await.unwrap());
    is_told_to_wait(proxy, &id).await;
    (id, sender)
}

/// The task says that it waits.
#[expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]
async fn is_told_to_wait(proxy: &Proxy, id: &str) {
    let told = async {
        while !proxy.get(id).await["statusMessage"].as_str().unwrap().starts_with("waiting for ") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, told).await.expect("nobody is told that it waits");
}

/// What has ended takes no slot and no place.
#[expect(clippy::expect_used, reason = "a test ends where it fails")]
async fn nothing_counts(proxy: &Proxy) {
    let gone = async {
        while (proxy.runner.running(), proxy.runner.waiting()) != (0, 0) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.expect("it counts although it has ended");
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
            let mut proxy = Proxy::gated(limited.clone(), OwnerRules::default());
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
        let mut proxy = Proxy::gated(ToolPolicy { mode, ..priced.clone() }, budget(3));
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
            loop {
                let mut reply = proxy.send_in_background(of("ann"));
                tokio::select! {
                    _ = proxy.sent.recv() => return,
                    told = &mut reply => assert_eq!(told.unwrap()["failed"], "over_budget"),
                }
            }
        };
        if mode == Mode::Task {
            timeout(PATIENCE, again).await.expect("the price of the call was kept");
        }
    }
}

#[tokio::test]
async fn the_time_for_a_turn_counts_from_the_arrival_of_a_call_and_for_a_second_run_from_its_own_start() {
    let long = PATIENCE * 3;
    let again = ToolPolicy { queue_timeout: long, on_lost: OnLost::Rerun, ..policy(Mode::Task) };
    for is_second in [false, true] {
        let mut proxy = Proxy::gated(again.clone(), OwnerRules::default());
        let mut call = of("ann");
        call.arrived -= long;
        let created = proxy.send_in_background(call);
        let (_, mut sender) = proxy.next_sent().await;
        if is_second {
            assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
            drop(sender);
            sender = proxy.next_sent().await.1;
        }
        sender.waits(WaitsFor::Turn);
        let id = id_of(&created.await.unwrap());
        if is_second {
            is_told_to_wait(&proxy, &id).await;
            assert!(!is_stopped(&sender, LONG).await, "the first run counts for the second");
        } else {
            assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "queue_timeout");
        }
    }
}

#[tokio::test]
async fn a_second_run_whose_turn_does_not_come_says_nothing_of_the_first() {
    let again = ToolPolicy { queue_timeout: LONG, on_lost: OnLost::Rerun, ..policy(Mode::Task) };
    let mut proxy = Proxy::gated(again, OwnerRules::default());
    let created = proxy.send_in_background(of("ann"));
    let (_, sender) = proxy.next_sent().await;
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
    drop(sender);
    let (_, sender) = proxy.next_sent().await;
    sender.waits(WaitsFor::Turn);
    let id = id_of(&created.await.unwrap());
    assert_eq!(proxy.ended(&id).await["error"]["data"], json!({ "reason": "outcome_unknown" }));
}

#[tokio::test]
async fn a_server_may_take_longer_to_start_than_a_call_may_wait_for_its_turn() {
    let mut proxy = Proxy::gated(ToolPolicy { queue_timeout: SHORT, ..policy(Mode::Task) }, OwnerRules::default());
    let (_, sender) = held_up(&mut proxy, WaitsFor::Start).await;
    assert!(!is_stopped(&sender, LONG).await);
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
}

#[tokio::test]
async fn the_time_that_a_call_waits_for_its_server_costs_nothing() {
    // A unit each 20 ms.
    let priced = ToolPolicy { price_per_minute: cost(3000), ..policy(Mode::Task) };
    let mut proxy = Proxy::gated(priced, budget(5));
    let (id, sender) = held_up(&mut proxy, WaitsFor::Turn).await;
    assert!(!is_stopped(&sender, LONG).await, "it has used up the budget");
    assert_eq!(proxy.get(&id).await["_meta"]["dev.raincheck/cost"], 0);
    assert!(sender.begins().await);
    assert!(is_stopped(&sender, PATIENCE).await, "its run costs nothing");
    assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "over_budget");
}

#[tokio::test]
async fn a_try_that_the_server_did_not_take_costs_nothing_and_is_no_time_of_the_run() {
    // A unit each 20 ms, counted every second.
    let priced = ToolPolicy { price: cost(2), price_per_minute: cost(3000), ..policy(Mode::Task) };
    for goes_again in [false, true] {
        let mut proxy = Proxy::gated(priced.clone(), budget(1000));
        let (id, sender) = held_up(&mut proxy, WaitsFor::Start).await;
        assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
        assert!(!is_stopped(&sender, Duration::from_millis(1100)).await, "there is enough left");
        sender.waits(WaitsFor::Connection);
        is_told_to_wait(&proxy, &id).await;
        if goes_again {
            assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
            assert!(proxy.get(&id).await["statusMessage"].as_str().unwrap().starts_with("running for 0s"));
            sender.done(Outcome::Result(text("{}")));
        } else {
            proxy.value(call_of("ann", true, "tasks/cancel", json!({ "taskId": id }))).await;
        }
        proxy.ended(&id).await;
        proxy.runner.drain();
        timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
        let spent = spent(&proxy);
        if goes_again {
            assert!((2.0..40.0).contains(&spent), "{spent}");
        } else {
            assert!(spent == 0.0, "{spent}");
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_becomes_a_task_in_time_and_its_handle_says_what_it_waits_for() {
    let mut proxy =
        Proxy::gated(ToolPolicy { mode: Mode::Auto, after: SHORT, ..policy(Mode::Auto) }, OwnerRules::default());
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
    assert_eq!((proxy.runner.running(), proxy.runner.waiting()), (1, 0));
    assert!(sender.begins().await);
    assert_eq!((proxy.runner.running(), proxy.runner.waiting()), (1, 0));
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert_eq!(proxy.ended(&id_of(&created)).await["status"], "completed");
    nothing_counts(&proxy).await;
}

#[tokio::test]
async fn a_task_that_waits_for_its_server_is_cancelled_unsent() {
    let mut proxy = Proxy::gated(policy(Mode::Task), OwnerRules::default());
    let (id, sender) = held_up(&mut proxy, WaitsFor::Turn).await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    assert!(!timeout(PATIENCE, sender.begins()).await.unwrap());
    drop(sender);
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    nothing_counts(&proxy).await;
}

#[tokio::test]
async fn a_task_that_waits_for_its_server_at_a_crash_or_a_stop_is_sent_by_a_later_process_and_paid_once() {
    let priced = || ToolPolicy { price: cost(2), ..policy(Mode::Task) };
    for crashes in [true, false] {
        for (first, on_lost) in [(WaitsFor::Start, OnLost::Unknown), (WaitsFor::Turn, OnLost::Rerun)] {
            let priced = || ToolPolicy { on_lost, ..priced() };
            let mut proxy = Proxy::gated(priced(), budget(3));
            let (id, mut sender) = held_up(&mut proxy, first).await;
            for _ in 0..3 {
                proxy = if crashes {
                    proxy.crashes_ruled(priced(), budget(3)).await
                } else {
                    proxy.restarted(priced(), BOUNDS, budget(3)).await
                };
                assert!(!timeout(PATIENCE, sender.begins()).await.unwrap(), "it is sent after all");
                sender = proxy.next_sent().await.1;
                sender.waits(WaitsFor::Start);
                is_told_to_wait(&proxy, &id).await;
                assert_eq!(proxy.get(&id).await["_meta"]["dev.raincheck/cost"], 0);
                assert!(spent(&proxy) < 0.01, "nothing was sent");
            }
            assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
            assert!((spent(&proxy) - 2.0).abs() < 0.01, "it is paid before it goes to the server");
            sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
            assert_eq!(proxy.ended(&id).await["status"], "completed");
            assert!(refused(&proxy, of("ann")).await.message.contains("has 1 left"));
            assert!(proxy.sent.try_recv().is_err(), "it was sent twice");
        }
    }
}

#[tokio::test]
async fn a_call_that_could_not_be_sent_when_it_was_let_go_is_paid_when_it_is() {
    for mode in [Mode::Task, Mode::Sync] {
        let mut proxy = Proxy::gated(ToolPolicy { price: cost(2), mode, ..policy(mode) }, budget(3));
        let reply = proxy.send_in_background(of("ann"));
        let (_, sender) = proxy.next_sent().await;
        for _ in 0..2 {
            assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
            assert!((spent(&proxy) - 2.0).abs() < 0.01, "it is not paid");
            // By then all that was spent is written.
            assert!(!is_stopped(&sender, Duration::from_millis(1500)).await);
            // Its server has ended before it took the call, and is started again.
            sender.waits(WaitsFor::Start);
            let given_back = async {
                while spent(&proxy) > 0.0 {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, given_back).await.expect("what was not sent stays paid");
            assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::OverBudget, "its price is kept for it");
        }
        assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
        assert!((spent(&proxy) - 2.0).abs() < 0.01, "it is not paid again");
        sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
        let told = reply.await.unwrap();
        if mode == Mode::Task {
            assert_eq!(proxy.ended(&id_of(&told)).await["status"], "completed");
        }
    }
}

#[tokio::test]
async fn a_call_that_its_server_turns_out_never_to_have_taken_costs_nothing_however_late_that_is_known() {
    let reached = async |proxy: &Proxy, is: fn(f64) -> bool, why: &str| {
        let looked = async {
            while !is(spent(proxy)) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, looked).await.expect(why);
    };
    for (mode, ends) in [(Mode::Task, true), (Mode::Sync, true), (Mode::Task, false)] {
        let priced = ToolPolicy { price: cost(2), price_per_minute: cost(600), mode, ..policy(mode) };
        let mut proxy = Proxy::gated(priced, budget(500));
        let reply = proxy.send_in_background(of("ann"));
        let (_, sender) = proxy.next_sent().await;
        assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
        reached(&proxy, |spent| spent > 2.5, "its time is not counted").await;
        if ends {
            sender.done(Outcome::Failed(Failure::new(Reason::NotStarted, "connection refused", Retry::SOON)));
        } else {
            sender.waits(WaitsFor::Start);
        }
        reached(&proxy, |spent| spent < 0.01, "what was never taken is paid").await;
        if mode == Mode::Task {
            let id = id_of(&reply.await.unwrap());
            let task = if ends { proxy.ended(&id).await } else { proxy.get(&id).await };
            assert_eq!(task["_meta"]["dev.raincheck/cost"], 0, "{task}");
        }
    }
}

#[tokio::test]
async fn a_second_run_that_waits_for_its_server_at_a_crash_or_a_stop_is_sent_by_the_next_process() {
    let again = || ToolPolicy { price: cost(2), on_lost: OnLost::Rerun, ..policy(Mode::Task) };
    for crashes in [true, false] {
        let mut proxy = Proxy::gated(again(), budget(3));
        let (id, sender) = held_up(&mut proxy, WaitsFor::Start).await;
        assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
        drop(sender);
        let (_, sender) = proxy.next_sent().await;
        sender.waits(WaitsFor::Start);
        is_told_to_wait(&proxy, &id).await;
        let mut proxy = if crashes {
            proxy.crashes_ruled(again(), budget(3)).await
        } else {
            proxy.restarted(again(), BOUNDS, budget(3)).await
        };
        let (_, sender) = proxy.next_sent().await;
        assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
        assert!((spent(&proxy) - 2.0).abs() < 0.01, "it is paid once, for both runs");
        sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
        assert_eq!(proxy.ended(&id).await["status"], "completed");
    }
}

#[tokio::test]
async fn a_second_run_that_its_server_did_not_take_says_nothing_of_the_first() {
    let mut proxy = Proxy::gated(ToolPolicy { on_lost: OnLost::Rerun, ..policy(Mode::Task) }, OwnerRules::default());
    let (id, sender) = held_up(&mut proxy, WaitsFor::Start).await;
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
    drop(sender);
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Failed(Failure::new(Reason::NotStarted, "it is away", Retry::SOON)));
    assert_eq!(proxy.ended(&id).await["error"]["data"], json!({ "reason": "outcome_unknown" }));
}

#[tokio::test]
async fn a_call_that_became_a_task_while_it_waited_for_its_server_is_sent_by_the_next_process() {
    let soon = || ToolPolicy { after: Duration::from_millis(1), ..policy(Mode::Auto) };
    let mut proxy = Proxy::gated(soon(), OwnerRules::default());
    let (id, _sender) = held_up(&mut proxy, WaitsFor::Start).await;
    let mut proxy = proxy.crashes(soon()).await;
    let (_, sender) = proxy.next_sent().await;
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_task_that_begins_after_a_wait_is_lost_by_a_crash_as_any_run() {
    let mut proxy = Proxy::gated(policy(Mode::Task), OwnerRules::default());
    let (id, sender) = held_up(&mut proxy, WaitsFor::Turn).await;
    assert_eq!((proxy.runner.running(), proxy.runner.waiting()), (1, 0));
    assert!(sender.begins().await);
    assert_eq!((proxy.runner.running(), proxy.runner.waiting()), (1, 0));
    let proxy = proxy.crashes(policy(Mode::Task)).await;
    assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "outcome_unknown");
}

/// A tool of which two calls of one owner run, since the last slot is for others, and one more waits.
fn narrow() -> ToolPolicy {
    ToolPolicy { max_running: Some(3), max_queued: Some(1), ..policy(Mode::Task) }
}

/// Its server takes the call now, and answers.
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where it fails")]
async fn is_run(proxy: &Proxy, (id, sender): (String, ReplySender)) {
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap(), "it is not to be sent");
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    let task = proxy.ended(&id).await;
    assert_eq!(task["status"], "completed", "{task}");
}

#[expect(clippy::expect_used, reason = "a test ends where it fails")]
async fn slots_are_taken(proxy: &Proxy, count: usize) {
    let taken = async {
        while proxy.runner.running() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, taken).await.expect("another number of slots is taken");
}

#[tokio::test]
async fn calls_keep_their_slots_while_their_server_is_started_so_that_no_more_of_them_come_to_it_than_may_run() {
    for what in [WaitsFor::Start, WaitsFor::Connection, WaitsFor::Turn] {
        let mut proxy = Proxy::gated(narrow(), OwnerRules::default());
        let (first, second) = (held_up(&mut proxy, what).await, held_up(&mut proxy, what).await);
        let third = id_of(&proxy.value(of("ann")).await);
        assert_eq!(proxy.get(&third).await["statusMessage"], "queued: next in line for a free slot");
        assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::QueueFull);
        assert_eq!((proxy.runner.running(), proxy.runner.waiting()), (2, 1), "{what:?}");
        assert!(proxy.sent.try_recv().is_err(), "more come to the server than may run");
        is_run(&proxy, first).await;
        let (_, sender) = proxy.next_sent().await;
        is_run(&proxy, (third, sender)).await;
        is_run(&proxy, second).await;
        slots_are_taken(&proxy, 0).await;
    }
}

#[tokio::test]
async fn however_many_wait_in_the_line_no_call_with_a_handle_ends_because_its_server_is_started_again() {
    for on_lost in [OnLost::Unknown, OnLost::Rerun] {
        let mut proxy = Proxy::gated(ToolPolicy { on_lost, ..narrow() }, OwnerRules::default());
        let (first, second) = (held_up(&mut proxy, WaitsFor::Start).await, held_up(&mut proxy, WaitsFor::Start).await);
        let third = id_of(&proxy.value(of("ann")).await);
        let mut runs = Vec::new();
        for (id, sender) in [first, second] {
            assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
            let sender = match on_lost {
                // Its server has ended before it took the call.
                OnLost::Unknown => sender,
                OnLost::Rerun => {
                    drop(sender);
                    proxy.next_sent().await.1
                }
            };
            sender.waits(WaitsFor::Start);
            is_told_to_wait(&proxy, &id).await;
            runs.push((id, sender));
        }
        for run in runs {
            is_run(&proxy, run).await;
        }
        let (_, sender) = proxy.next_sent().await;
        is_run(&proxy, (third, sender)).await;
    }
}

#[tokio::test]
async fn an_owner_who_may_not_wait_keeps_its_slot_while_its_server_starts() {
    let all = OwnerLimits { max_queued: Some(0), ..OwnerLimits::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, OwnerRules { all, ..OwnerRules::default() });
    let (_, sender) = held_up(&mut proxy, WaitsFor::Start).await;
    assert_eq!((proxy.runner.running(), proxy.runner.waiting()), (1, 0));
    assert!(!is_stopped(&sender, SHORT).await);
    assert!(timeout(PATIENCE, sender.begins()).await.unwrap());
}
