//! What runs cost that are found again or begun again.

use raincheck::protocol::{Anchor, Method, ReplySender};

use super::*;

/// So much for each second.
fn by_the_second(units: u64) -> ToolPolicy {
    ToolPolicy { price_per_minute: cost(60 * units), ..policy(Mode::Task) }
}

/// A task of Ann's whose run can be found again.
async fn anchored(proxy: &mut Proxy) -> (String, ReplySender) {
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    sender.event(Event::Anchored(Anchor::new("place".to_owned())));
    let stored = async {
        while proxy.store.anchored(&id.parse().unwrap()).unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, stored).await.expect("where the run is is not kept");
    (id, sender)
}

/// The run goes on for so long.
async fn runs_for(time: Duration, sender: &ReplySender) {
    assert!(timeout(time, sender.cancelled()).await.is_err(), "there is enough left");
}

fn cost_of(task: &Value) -> f64 {
    task["_meta"]["dev.raincheck/cost"].as_f64().unwrap_or_else(|| panic!("{task}"))
}

#[tokio::test]
async fn a_run_that_is_found_again_goes_on_to_cost_and_is_stopped_when_the_budget_is_used_up() {
    for stops_in_order in [true, false] {
        let mut proxy = Proxy::ruled(by_the_second(10), BOUNDS, budget(20));
        let (id, _sender) = anchored(&mut proxy).await;
        let mut proxy = if stops_in_order {
            proxy.restarted(by_the_second(10), BOUNDS, budget(20)).await
        } else {
            proxy.crashes_ruled(by_the_second(10), budget(20)).await
        };
        let (call, sender) = proxy.next_sent().await;
        assert!(matches!(call.method, Method::Resume(_)), "{call:?}");
        let task = proxy.ended(&id).await;
        assert_eq!(task["error"]["data"], json!({ "reason": "over_budget" }), "{task}");
        assert!(sender.is_cancelled());
        assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::OverBudget);
    }
}

#[tokio::test]
async fn no_time_of_a_run_that_is_found_again_is_paid_twice() {
    let began = Instant::now();
    let mut proxy = Proxy::ruled(by_the_second(1), BOUNDS, budget(100));
    let (id, sender) = anchored(&mut proxy).await;
    runs_for(Duration::from_millis(1500), &sender).await;
    let mut proxy = proxy.restarted(by_the_second(1), BOUNDS, budget(100)).await;
    proxy.next_sent().await.1.done(Outcome::Result(text("{}")));
    let task = proxy.ended(&id).await;
    proxy.runner.drain();
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
    // The run is counted up to when its end is in the store, which a busy machine makes wait: neither is more than all the time.
    let all = began.elapsed().as_secs_f64();
    for cost in [cost_of(&task), spent(&proxy)] {
        assert!((1.5..=all).contains(&cost), "{cost} for {all} s");
    }
}

#[tokio::test]
async fn a_second_run_is_watched_from_its_start() {
    let policy = ToolPolicy { on_lost: OnLost::Rerun, ..by_the_second(10) };
    let mut proxy = Proxy::ruled(policy, BOUNDS, budget(40));
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, lost) = proxy.next_sent().await;
    runs_for(Duration::from_millis(3500), &lost).await;
    drop(lost);
    let (_, sender) = proxy.next_sent().await;
    let begun = Instant::now();
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let task = proxy.ended(&id).await;
    assert_eq!(task["error"]["data"]["reason"], "over_budget", "{task}");
    assert!(cost_of(&task) > 35.0, "{task}");
}

#[tokio::test]
async fn a_run_that_is_lost_when_its_budget_is_used_up_is_not_begun_again() {
    let queue_timeout = Duration::from_millis(50);
    let policy = ToolPolicy { price: cost(4), on_lost: OnLost::Rerun, queue_timeout, ..by_the_second(1) };
    let mut proxy = Proxy::ruled(policy.clone(), BOUNDS, budget(100));
    let id = id_of(&proxy.value(of("ann")).await);
    let _lost = proxy.next_sent().await;
    let mut proxy = proxy.crashes_ruled(policy, budget(3)).await;
    let task = proxy.ended(&id).await;
    let said = "outcome unknown: a run was lost, and it was not begun again: your budget of 3/1h has 0 left, too little \
                for this call; the tool may or may not have run, check before calling it again";
    let unknown = json!({ "reason": "outcome_unknown" });
    assert_eq!((&task["error"]["data"], &task["statusMessage"]), (&unknown, &json!(said)));
    assert!(proxy.sent.try_recv().is_err(), "it was begun again");
}

#[tokio::test]
async fn a_call_that_is_begun_again_pays_its_price_once() {
    let policy = ToolPolicy { price: cost(4), on_lost: OnLost::Rerun, ..policy(Mode::Task) };
    for crashes in [true, false] {
        let mut proxy = Proxy::ruled(policy.clone(), BOUNDS, budget(6));
        let id = id_of(&proxy.value(of("ann")).await);
        let (_, lost) = proxy.next_sent().await;
        if crashes {
            proxy = proxy.crashes_ruled(policy.clone(), budget(6)).await;
        } else {
            drop(lost);
        }
        let (_, sender) = proxy.next_sent().await;
        assert_eq!(proxy.get(&id).await["_meta"]["dev.raincheck/cost"], 4);
        sender.done(Outcome::Result(text("{}")));
        assert_eq!(proxy.ended(&id).await["_meta"]["dev.raincheck/cost"], 4);
        let failure = refused(&proxy, of("ann")).await;
        assert!(failure.message.contains("has 2 left"), "{failure:?}");
    }
}

#[tokio::test]
async fn a_task_shows_what_all_its_runs_have_cost() {
    for mode in [Mode::Task, Mode::Auto] {
        let by_time = ToolPolicy { price: cost(1), on_lost: OnLost::Rerun, ..by_the_second(10) };
        let policy = ToolPolicy { mode, after: Duration::from_millis(700), ..by_time };
        let mut proxy = Proxy::ruled(policy, BOUNDS, budget(1000));
        let began = Instant::now();
        let reply = proxy.send(of("ann")).await.in_background();
        let (_, lost) = proxy.next_sent().await;
        runs_for(Duration::from_millis(500), &lost).await;
        drop(lost);
        let (_, sender) = proxy.next_sent().await;
        let created = support::calls::shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
        sender.done(Outcome::Result(text("{}")));
        let task = proxy.ended(&id_of(&created)).await;
        proxy.runner.drain();
        timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
        let (shown, spent, all) = (cost_of(&task), spent(&proxy), 1.0 + 10.0 * began.elapsed().as_secs_f64());
        // A run counts a little longer than until its task shows its end, and no second of any of them counts twice.
        assert!((6.0..=spent).contains(&shown), "{shown} is shown, {spent} was spent");
        assert!(spent <= all, "{spent} was spent of {all} at most");
    }
}
