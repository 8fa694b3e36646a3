//! The tasks layer around a scripted service: limits of tools and owners, budgets, turns.

mod support;

use std::time::{Duration, Instant};

use raincheck::config::{Budget, Cost, Mode, OwnerLimits, OwnerRules, Rate, ToolPolicy};
use raincheck::protocol::reply::Event;
use raincheck::protocol::{
    Call, ClientSession, Failure, Outcome, Principal, Progress, Reason, Retry, RpcError, TaskSupport,
};
use raincheck::runner::Bounds;
use serde_json::{Value, json};
use support::calls::{call, call_of, text};
use support::layer::{PATIENCE, Proxy};
use tokio::time::timeout;

const BOUNDS: Bounds = Bounds { running: 100, waiting: 100 };
const HOUR: Duration = Duration::from_hours(1);

fn policy(mode: Mode) -> ToolPolicy {
    ToolPolicy { mode, after: HOUR, ..ToolPolicy::default() }
}

const fn cost(units: u64) -> Cost {
    Cost::from_millionths(units * 1_000_000)
}

fn budget(units: u64) -> OwnerRules {
    let budget = Some(Budget { amount: cost(units), per: HOUR });
    OwnerRules { all: OwnerLimits { budget, ..OwnerLimits::default() }, ..OwnerRules::default() }
}

fn of(who: &str) -> Call {
    call_of(who, true, "tools/call", json!({ "name": "export" }))
}

fn id_of(created: &Value) -> String {
    created["taskId"].as_str().unwrap_or_else(|| panic!("no handle: {created}")).to_owned()
}

async fn refused(proxy: &Proxy, call: Call) -> Failure {
    match proxy.ask(call).await {
        Outcome::Failed(failure) => failure,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_silent_run_is_stopped_and_says_that_nobody_knows_whether_to_try_again() {
    let idle_timeout = Some(Duration::from_millis(30));
    let mut proxy = Proxy::new(ToolPolicy { idle_timeout, ..policy(Mode::Task) });
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    let task = proxy.ended(&id).await;
    assert_eq!((&task["status"], &task["error"]["data"]), (&json!("failed"), &json!({ "reason": "idle_timeout" })));
    assert!(task["statusMessage"].as_str().unwrap().contains("idle_timeout"), "{task}");
    assert!(sender.is_cancelled());
}

#[tokio::test]
async fn a_run_that_reports_progress_is_not_idle() {
    let idle_timeout = Some(Duration::from_millis(500));
    let mut proxy = Proxy::new(ToolPolicy { idle_timeout, ..policy(Mode::Task) });
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    let started = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while started.elapsed() < Duration::from_millis(1200) {
        ticks.tick().await;
        sender.event(Event::Progress(Progress { progress: text("1"), total: None, message: None }));
    }
    assert_eq!(proxy.get(&id).await["status"], "working");
    let task = proxy.ended(&id).await;
    assert_eq!(task["error"]["data"]["reason"], "idle_timeout", "it is silent now");
}

#[tokio::test]
async fn a_result_over_the_limit_fails_the_call_and_the_task_and_one_of_just_that_size_does_not() {
    let large = format!(r#"{{"content":[],"t":"{}"}}"#, "x".repeat(100));
    for (limit, fits) in [(large.len(), true), (large.len() - 1, false)] {
        for mode in [Mode::Sync, Mode::Task] {
            let mut proxy = Proxy::new(ToolPolicy { max_result: Some(limit), ..policy(mode) });
            let reply = proxy.send(of("ann")).await;
            let (_, sender) = proxy.next_sent().await;
            sender.done(Outcome::Result(text(&large)));
            let outcome = timeout(PATIENCE, reply.outcome()).await.unwrap();
            match outcome {
                Outcome::Task(handle) => {
                    let created: Value = handle.created.clone().into_json().read().unwrap();
                    handle.delivery.delivered();
                    let task = proxy.ended(&id_of(&created)).await;
                    assert_eq!(task["status"] == "completed", fits, "{task}");
                    let data = json!({ "reason": "too_large", "retryable": false });
                    assert!(fits || task["error"]["data"] == data, "{task}");
                }
                Outcome::Failed(failure) => {
                    assert_eq!((fits, failure.reason, failure.retry), (false, Reason::TooLarge, Retry::No));
                    assert!(failure.message.contains("max_result"), "{}", failure.message);
                }
                Outcome::Result(_) => assert!(fits),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn starts_over_the_rate_are_refused_with_the_time_to_come_back_also_to_legacy_clients() {
    let rate = Some(Rate { count: 2, per: HOUR });
    let mut proxy = Proxy::new(ToolPolicy { rate, ..policy(Mode::Task) });
    let legacy = |mut call: Call| {
        call.caller.session = ClientSession::Legacy(7);
        call.caller.tasks = TaskSupport::Undeclared;
        call
    };
    proxy.value(of("ann")).await;
    let _held = proxy.send(legacy(of("bo"))).await;
    let _runs = (proxy.next_sent().await, proxy.next_sent().await);
    for call in [of("cy"), legacy(of("cy")), of("dan")] {
        let failure = refused(&proxy, call).await;
        let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
        assert_eq!(failure.reason, Reason::RateLimited);
        assert!(wait <= HOUR / 2 && wait + Duration::from_secs(30) > HOUR / 2, "{wait:?}");
    }
    assert!(proxy.sent.try_recv().is_err(), "a refused call was sent");
    // Other methods are no tools.
    let _list = proxy.send(call("resources/list", json!({}))).await;
    proxy.next_sent().await;
}

#[tokio::test]
async fn an_owner_with_long_runs_of_a_tool_leaves_a_slot_and_a_start_of_it_to_others() {
    let runs_two = ToolPolicy { max_running: Some(2), ..policy(Mode::Task) };
    let starts_two = ToolPolicy { rate: Some(Rate { count: 2, per: HOUR }), ..policy(Mode::Task) };
    let mut proxy = Proxy::new(runs_two);
    let status = |task: Value| task["statusMessage"].as_str().unwrap().to_owned();
    proxy.value(of("greedy")).await;
    let (_, running) = proxy.next_sent().await;
    assert!(
        status(proxy.value(of("greedy")).await).starts_with("queued: next in line"),
        "it waits, and is not refused"
    );
    assert!(status(proxy.value(of("ann")).await).starts_with("running"), "ann waits for a greedy one");
    assert_eq!(proxy.next_sent().await.0.caller.principal, Principal::Named("ann".into()));
    running.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.next_sent().await.0.caller.principal, Principal::Named("greedy".into()));

    let proxy = Proxy::new(starts_two);
    proxy.value(of("greedy")).await;
    let failure = refused(&proxy, of("greedy")).await;
    assert_eq!(failure.reason, Reason::RateLimited);
    assert!(failure.message.contains("your share"), "{}", failure.message);
    proxy.value(of("ann")).await;
}

#[tokio::test]
async fn a_greedy_owner_with_a_thousand_queued_tasks_delays_another_by_one_turn() {
    let mut proxy = Proxy::bounded(policy(Mode::Task), Bounds { running: 1, waiting: 2000 });
    proxy.value(of("greedy")).await;
    let (_, mut running) = proxy.next_sent().await;
    for _ in 0..1000 {
        proxy.value(of("greedy")).await;
    }
    let other = proxy.value(of("other")).await;
    assert_eq!(other["statusMessage"], "queued: number 2 in line for a free slot");
    for _ in 0..2 {
        running.done(Outcome::Result(text("{}")));
        running = proxy.next_sent().await.1;
    }
    let params = json!({ "taskId": id_of(&other) });
    let task = proxy.value(call_of("other", true, "tasks/get", params)).await;
    assert!(task["statusMessage"].as_str().unwrap().starts_with("running"), "{task}");
    proxy.runner.drain();
    running.done(Outcome::Result(text("{}")));
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
}

#[tokio::test]
async fn limits_of_an_owner_hold_for_that_owner_alone_and_a_name_may_have_others() {
    let limits = OwnerLimits { max_running: Some(1), max_queued: Some(1), ..OwnerLimits::default() };
    let named = [("ann".to_owned(), OwnerLimits::default())].into();
    let proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, OwnerRules { all: limits, named, ..OwnerRules::default() });
    for who in ["bo", "cy"] {
        assert!(proxy.value(of(who)).await["statusMessage"].as_str().unwrap().starts_with("running"));
        assert!(proxy.value(of(who)).await["statusMessage"].as_str().unwrap().starts_with("queued"));
        assert_eq!(refused(&proxy, of(who)).await.reason, Reason::QueueFull);
    }
    for _ in 0..5 {
        assert!(proxy.value(of("ann")).await["statusMessage"].as_str().unwrap().starts_with("running"));
    }
}

#[tokio::test]
async fn what_a_named_owner_left_has_the_limits_of_that_name_after_a_restart() {
    let one = OwnerLimits { max_running: Some(1), ..OwnerLimits::default() };
    let issuer = "https://login.example";
    let named = [("ann".to_owned(), one)].into();
    let rules = OwnerRules { named, issuer: Some(issuer.to_owned()), ..OwnerRules::default() };
    let subject = Principal::Subject { issuer: issuer.into(), subject: "ann".into() };
    for principal in [Principal::Named("ann".into()), subject] {
        let call = || {
            let mut call = of("ann");
            call.caller.principal = principal.clone();
            call
        };
        let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, rules.clone());
        for _ in 0..4 {
            proxy.value(call()).await;
        }
        proxy.next_sent().await;
        let mut proxy = proxy.restarted(policy(Mode::Task), BOUNDS, rules.clone()).await;
        let (sent, _running) = proxy.next_sent().await;
        assert_eq!(sent.caller.principal, principal);
        // A new one comes behind those that were left.
        let new = proxy.value(call()).await;
        assert_eq!(new["statusMessage"], "queued: number 3 in line for a free slot");
        assert!(proxy.sent.try_recv().is_err(), "two run");
    }
}

#[tokio::test]
async fn what_an_owner_left_whose_name_is_not_in_the_config_counts_with_what_it_calls_after_a_restart() {
    let all = OwnerLimits { max_running: Some(1), ..OwnerLimits::default() };
    let rules = OwnerRules { all, ..OwnerRules::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, rules.clone());
    for _ in 0..4 {
        proxy.value(of("of a gateway")).await;
    }
    proxy.next_sent().await;
    let mut proxy = proxy.restarted(policy(Mode::Task), BOUNDS, rules).await;
    let (_, running) = proxy.next_sent().await;
    let new = proxy.value(of("of a gateway")).await;
    assert_eq!(new["statusMessage"], "queued: number 3 in line for a free slot");
    assert!(proxy.sent.try_recv().is_err(), "two run");
    // Others are others.
    proxy.value(of("another")).await;
    assert_eq!(proxy.next_sent().await.0.caller.principal, Principal::Named("another".into()));
    running.done(Outcome::Result(text("{}")));
    proxy.next_sent().await;
    assert!(proxy.sent.try_recv().is_err(), "two run");
}

#[tokio::test]
async fn an_owner_who_has_all_its_tasks_is_refused_before_anything_is_sent_and_delays_nobody() {
    let limits = OwnerLimits { max_tasks: Some(2), ..OwnerLimits::default() };
    let named = [("bo".to_owned(), OwnerLimits { max_tasks: None, ..limits.clone() })].into();
    let rules = OwnerRules { all: limits, named, ..OwnerRules::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, rules.clone());
    for _ in 0..2 {
        proxy.value(of("ann")).await;
        proxy.next_sent().await;
    }
    let failure = refused(&proxy, of("ann")).await;
    assert_eq!((failure.reason, failure.retry), (Reason::Store, Retry::After(Duration::from_mins(1))));
    assert!(failure.message.contains("max_tasks of the owner"), "{}", failure.message);
    assert!(proxy.sent.try_recv().is_err());
    for _ in 0..3 {
        proxy.value(of("bo")).await;
    }
    let proxy = proxy.restarted(policy(Mode::Task), BOUNDS, rules).await;
    assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::Store);
}

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
    assert!((1.9..10.0).contains(&spent), "{spent}");
    let failure = refused(&proxy, of("ann")).await;
    assert!(failure.reason == Reason::OverBudget && matches!(failure.retry, Retry::After(_)), "{failure:?}");
}
