//! Prices and budgets.

use super::*;

#[tokio::test]
async fn a_budget_refuses_before_the_start_counts_cancelled_runs_and_survives_a_restart() {
    let priced = ToolPolicy { price: cost(2), ..policy(Mode::Task) };
    let mut proxy = Proxy::ruled(priced.clone(), BOUNDS, budget(5));
    let created = proxy.value(of("ann")).await;
    assert_eq!(created["_meta"]["dev.raincheck/cost"], 2);
    let (_, sender) = proxy.next_sent().await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id_of(&created) }))).await;
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    sender.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
    let cancelled = proxy.ended(&id_of(&created)).await;
    assert_eq!((&cancelled["status"], &cancelled["_meta"]["dev.raincheck/cost"]), (&json!("cancelled"), &json!(2)));
    proxy.value(of("ann")).await;
    proxy.next_sent().await;
    for restarts in 0..2 {
        let failure = refused(&proxy, of("ann")).await;
        let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
        assert!(failure.reason == Reason::OverBudget && failure.message.contains("has 1 left"), "{failure:?}");
        assert!(wait + Duration::from_mins(1) > HOUR && wait <= HOUR + Duration::from_secs(75), "{wait:?}");
        assert!(proxy.sent.try_recv().is_err(), "a refused call was sent");
        if restarts == 0 {
            proxy = proxy.restarted(priced.clone(), BOUNDS, budget(5)).await;
        }
    }
    // The budget of each is its own, and what costs nothing is not refused.
    proxy.value(of("bo")).await;
    let free = Proxy::ruled(policy(Mode::Task), BOUNDS, budget(0));
    assert!(free.value(of("ann")).await["_meta"].get("dev.raincheck/cost").is_none());
}

#[tokio::test]
async fn what_was_never_sent_costs_nothing() {
    let priced = ToolPolicy { price: cost(2), max_running: Some(1), ..policy(Mode::Task) };
    let mut proxy = Proxy::ruled(priced, BOUNDS, budget(4));
    proxy.value(of("ann")).await;
    let _running = proxy.next_sent().await;
    let queued = id_of(&proxy.value(of("ann")).await);
    assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::OverBudget, "what is queued is reserved");
    proxy.value(call("tasks/cancel", json!({ "taskId": queued }))).await;
    assert_eq!(proxy.ended(&queued).await["_meta"]["dev.raincheck/cost"], 0);
    let again = async {
        while !matches!(proxy.ask(of("ann")).await, Outcome::Task(_)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.expect("the price of the cancelled call was kept");
}

#[tokio::test]
async fn a_call_whose_task_cannot_be_made_costs_nothing() {
    let rules = OwnerRules { all: OwnerLimits { max_tasks: Some(1), ..budget(3).all }, ..OwnerRules::default() };
    let proxy = Proxy::ruled(ToolPolicy { price: cost(1), ..policy(Mode::Task) }, BOUNDS, rules);
    proxy.value(of("ann")).await;
    for _ in 0..4 {
        let of_the_store = async {
            // What was reserved is given back a moment after the refusal.
            while refused(&proxy, of("ann")).await.reason != Reason::Store {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, of_the_store).await.expect("a call that came to nothing was paid for");
    }
}

#[tokio::test]
async fn what_a_start_costs_is_in_the_store_before_the_call_is_sent_and_what_its_time_costs_when_it_has_ended() {
    let spent = |proxy: &Proxy| proxy.store.shelf(Shelf::Budget).unwrap();
    let mut proxy = Proxy::ruled(ToolPolicy { price: cost(2), ..policy(Mode::Sync) }, BOUNDS, budget(5));
    let _held = proxy.send(of("ann")).await;
    let _running = proxy.next_sent().await;
    assert_eq!(spent(&proxy).len(), 1);
    // Long before it would be counted in its course.
    let mut proxy = Proxy::ruled(ToolPolicy { price_per_minute: cost(60), ..policy(Mode::Sync) }, BOUNDS, budget(5));
    let held = proxy.send(of("ann")).await;
    let (_, sender) = proxy.next_sent().await;
    assert!(timeout(Duration::from_millis(20), sender.cancelled()).await.is_err(), "there is enough left");
    assert!(spent(&proxy).is_empty());
    sender.done(Outcome::Result(text("{}")));
    timeout(PATIENCE, held.outcome()).await.unwrap();
    proxy.runner.drain();
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
    assert_eq!(spent(&proxy).len(), 1);
}

#[tokio::test]
async fn the_time_of_a_run_that_was_lost_costs_although_it_is_begun_again() {
    let policy = ToolPolicy { price_per_minute: cost(60), on_lost: OnLost::Rerun, ..policy(Mode::Sync) };
    let mut proxy = Proxy::ruled(policy, BOUNDS, budget(5));
    let held = proxy.send(of("ann")).await;
    let (_, lost) = proxy.next_sent().await;
    assert!(timeout(Duration::from_millis(100), lost.cancelled()).await.is_err(), "there is enough left");
    drop(lost);
    proxy.next_sent().await.1.done(Outcome::Result(text("{}")));
    timeout(PATIENCE, held.outcome()).await.unwrap();
    proxy.runner.drain();
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
    assert!(spent(&proxy) >= 0.1, "the first 100 ms are not in it");
}

#[tokio::test]
async fn a_call_whose_budget_is_used_up_while_it_waits_is_not_sent() {
    let by_time =
        ToolPolicy { price: cost(1), price_per_minute: cost(600), max_running: Some(1), ..policy(Mode::Task) };
    let mut proxy = Proxy::ruled(by_time, BOUNDS, budget(3));
    let first = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    let second = id_of(&proxy.value(of("ann")).await);
    assert_eq!(proxy.ended(&first).await["error"]["data"], json!({ "reason": "over_budget" }));
    drop(sender);
    let task = proxy.ended(&second).await;
    assert_eq!(task["error"]["data"]["reason"], "over_budget", "{task}");
    assert!(task["error"]["data"]["retryAfterMs"].is_number(), "{task}");
    assert!(proxy.sent.try_recv().is_err(), "it was sent");
}

#[tokio::test]
async fn the_announced_life_of_a_task_covers_its_run_and_where_it_waits_the_wait_too() {
    let limits = ToolPolicy {
        max_running: Some(1),
        queue_timeout: Duration::from_secs(100),
        timeout: Duration::from_secs(10),
        keep: Some(Duration::from_secs(1)),
        ..policy(Mode::Task)
    };
    let proxy = Proxy::new(limits);
    assert_eq!(proxy.value(of("ann")).await["ttlMs"], 11_000);
    assert_eq!(proxy.value(of("ann")).await["ttlMs"], 111_000);
}

#[tokio::test]
async fn a_call_dearer_than_the_whole_budget_is_not_worth_trying_again() {
    let proxy = Proxy::ruled(ToolPolicy { price: cost(6), ..policy(Mode::Sync) }, BOUNDS, budget(5));
    let failure = refused(&proxy, of("ann")).await;
    assert_eq!((failure.reason, failure.retry), (Reason::OverBudget, Retry::No));
}

#[tokio::test]
async fn a_run_is_stopped_when_its_minutes_have_used_the_budget_up() {
    let by_time = ToolPolicy { price_per_minute: cost(600), ..policy(Mode::Task) };
    let mut proxy = Proxy::ruled(by_time, BOUNDS, budget(2));
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    let task = proxy.ended(&id).await;
    assert_eq!((&task["status"], &task["error"]["data"]), (&json!("failed"), &json!({ "reason": "over_budget" })));
    assert!(sender.is_cancelled());
    let spent = task["_meta"]["dev.raincheck/cost"].as_f64().unwrap();
    assert!((1.9..100.0).contains(&spent), "{spent}");
    let failure = refused(&proxy, of("ann")).await;
    assert!(failure.reason == Reason::OverBudget && matches!(failure.retry, Retry::After(_)), "{failure:?}");
}
