//! The tasks layer around a scripted service: limits of tools and owners, budgets, turns.

mod support;

use std::time::{Duration, Instant};

use raincheck::config::{Budget, Ceilings, Cost, Mode, OnLost, OwnerLimits, OwnerRules, Rate, ToolPolicy};
use raincheck::protocol::reply::Event;
use raincheck::protocol::{
    Call, ClientSession, Failure, Outcome, Principal, Progress, Reason, Retry, RpcError, TaskSupport,
};
use raincheck::runner::Bounds;
use raincheck::store::Shelf;
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
async fn a_result_that_crosses_a_cancel_is_not_to_be_too_large_either() {
    let mut proxy = Proxy::new(ToolPolicy { max_result: Some(10), ..policy(Mode::Task) });
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    sender.done(Outcome::Result(text(r#"{"content":[],"t":"larger than ten bytes"}"#)));
    assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "too_large");
}

#[tokio::test]
async fn what_is_no_call_of_a_tool_may_be_silent_and_its_result_large() {
    let idle_timeout = Some(Duration::from_millis(30));
    let mut proxy = Proxy::new(ToolPolicy { idle_timeout, max_result: Some(10), ..policy(Mode::Auto) });
    let reply = proxy.send(call("prompts/get", json!({ "name": "p" }))).await.in_background();
    let (_, sender) = proxy.next_sent().await;
    assert!(timeout(Duration::from_millis(200), sender.cancelled()).await.is_err(), "it was stopped");
    sender.done(Outcome::Result(text(r#"{"messages":[],"t":"larger than ten bytes"}"#)));
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
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
    let _held = proxy.send(legacy(of("ann"))).await;
    let _runs = (proxy.next_sent().await, proxy.next_sent().await);
    for call in [of("ann"), legacy(of("ann")), of("bo")] {
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
async fn of_two_rates_that_refuse_a_call_the_one_is_told_that_takes_longer() {
    for (of_tool, of_owner, said) in [(1, 2, "rate of the owner"), (2, 1, "\"export\" may be started")] {
        let rate = |hours| Some(Rate { count: 1, per: HOUR * hours });
        let limits = OwnerLimits { rate: rate(of_owner), ..OwnerLimits::default() };
        let rules = OwnerRules { all: limits, ..OwnerRules::default() };
        let proxy = Proxy::ruled(ToolPolicy { rate: rate(of_tool), ..policy(Mode::Task) }, BOUNDS, rules);
        proxy.value(of("ann")).await;
        let failure = refused(&proxy, of("ann")).await;
        let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
        assert!(failure.message.contains(said) && wait > HOUR, "{failure:?}");
    }
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
async fn the_last_places_of_the_line_are_for_owners_who_have_fewer_than_are_left() {
    let proxy = Proxy::bounded(policy(Mode::Task), Bounds { running: 1, waiting: 16 });
    for _ in 0..15 {
        assert_eq!(proxy.value(of("greedy")).await["resultType"], "task");
    }
    let failure = refused(&proxy, of("greedy")).await;
    assert!(failure.reason == Reason::QueueFull && failure.message.contains("your share"), "{failure:?}");
    for other in ["ann", "bo"] {
        assert_eq!(proxy.value(of(other)).await["resultType"], "task");
    }
    let failure = refused(&proxy, of("cy")).await;
    assert!(failure.reason == Reason::QueueFull && failure.message.contains("limits.queue"), "{failure:?}");
    assert!(!failure.message.contains("your share"), "{failure:?}");
}

/// Waits until so many wait.
async fn wait_in_line(proxy: &Proxy, count: usize) {
    let so_many = async {
        while proxy.runner.waiting() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, so_many).await.unwrap_or_else(|_| panic!("it is not so that {count} wait"));
}

#[tokio::test]
async fn who_leaves_the_line_leaves_a_place_in_it() {
    let rules =
        OwnerRules { all: OwnerLimits { max_queued: Some(1), ..OwnerLimits::default() }, ..OwnerRules::default() };
    let limits = ToolPolicy { max_running: Some(1), max_queued: Some(1), ..policy(Mode::Sync) };
    let mut proxy = Proxy::ruled(limits, BOUNDS, rules);
    let _held = proxy.send(of("ann")).await.in_background();
    let _running = proxy.next_sent().await;
    for _ in 0..3 {
        let waiting = proxy.send(of("ann")).await.in_background();
        wait_in_line(&proxy, 1).await;
        assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::QueueFull);
        drop(waiting);
        wait_in_line(&proxy, 0).await;
    }
}

#[tokio::test]
async fn what_is_no_call_of_a_tool_counts_for_no_limit_of_its_owner() {
    let limits = OwnerLimits { max_queued: Some(1), ..OwnerLimits::default() };
    let rules = OwnerRules { all: limits, ..OwnerRules::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), Bounds { running: 1, waiting: 100 }, rules);
    proxy.value(of("ann")).await;
    let _running = proxy.next_sent().await;
    let _waiting = proxy.send(call("prompts/get", json!({ "name": "p" }))).await.in_background();
    assert_eq!(proxy.value(of("ann")).await["resultType"], "task");
    assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::QueueFull);
}

/// Time that a call has spent before it comes here, in reading its body for one, is time that its caller waits.
#[tokio::test]
async fn the_times_of_a_call_count_from_its_arrival() {
    let early = || Call { arrived: tokio::time::Instant::now() - HOUR, ..of("ann") };
    let proxy = Proxy::new(policy(Mode::Auto));
    assert_eq!(proxy.value(early()).await["resultType"], "task", "its time to be held is over");
    let proxy = Proxy::new(ToolPolicy { max_running: Some(1), queue_timeout: HOUR / 2, ..policy(Mode::Sync) });
    let _running = proxy.send(early()).await.in_background();
    assert_eq!(proxy.value(early()).await["failed"], "queue_timeout");
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
    // When the first of its tasks may expire: `timeout` and `keep` after it was made.
    let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
    assert!(failure.reason == Reason::Store && wait <= HOUR * 49 / 2 && wait > HOUR * 24, "{failure:?}");
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
async fn a_call_whose_task_cannot_be_made_costs_nothing() {
    let rules = OwnerRules { all: OwnerLimits { max_tasks: Some(1), ..budget(3).all }, ..OwnerRules::default() };
    let proxy = Proxy::ruled(ToolPolicy { price: cost(1), ..policy(Mode::Task) }, BOUNDS, rules);
    proxy.value(of("ann")).await;
    for _ in 0..4 {
        assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::Store);
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
    let kept = proxy.store.shelf(Shelf::Budget).unwrap();
    let (_, spent) = kept[0].1.split_last_chunk().unwrap();
    assert!(u64::from_be_bytes(*spent) >= 100_000, "the first 100 ms are not in it");
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

/// With limits for the runs of Ann's.
fn anns(run: Ceilings) -> OwnerRules {
    let limits = OwnerLimits { run, ..OwnerLimits::default() };
    OwnerRules { named: [("ann".to_owned(), limits)].into(), ..OwnerRules::default() }
}

#[tokio::test]
async fn a_run_has_the_lower_of_what_its_tool_and_its_owner_allow() {
    let short = Some(Duration::from_millis(40));
    let none = Ceilings::default();
    let silent = [
        ("timeout", Ceilings { timeout: short, ..none.clone() }),
        ("idle_timeout", Ceilings { idle_timeout: short, ..none.clone() }),
    ];
    for (reason, run) in silent {
        let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, anns(run));
        let (others, of_ann) = (id_of(&proxy.value(of("bo")).await), id_of(&proxy.value(of("ann")).await));
        let _runs = (proxy.next_sent().await, proxy.next_sent().await);
        assert_eq!(proxy.ended(&of_ann).await["error"]["data"]["reason"], reason);
        assert_eq!(proxy.asked_by("bo", "tasks/get", &others).await["status"], "working");
    }
    let result = || Outcome::Result(text(r#"{"content":[],"t":"xxxxxxxxxxxxxxxxxxxx"}"#));
    for (allowed, lower) in [(Some(9), None), (None, Some(9)), (Some(9), Some(90)), (Some(90), Some(9))] {
        let owner = anns(Ceilings { max_result: allowed, ..none.clone() });
        let mut proxy = Proxy::ruled(ToolPolicy { max_result: lower, ..policy(Mode::Task) }, BOUNDS, owner);
        let id = id_of(&proxy.value(of("ann")).await);
        proxy.next_sent().await.1.done(result());
        assert_eq!(proxy.ended(&id).await["error"]["data"]["reason"], "too_large");
    }
}

#[tokio::test]
async fn what_an_owner_may_wait_holds_in_the_line_and_in_the_next_process() {
    let one = || ToolPolicy { max_running: Some(1), ..policy(Mode::Task) };
    let queue_timeout = Some(Duration::from_millis(40));
    let mut proxy = Proxy::ruled(one(), BOUNDS, anns(Ceilings { queue_timeout, ..Ceilings::default() }));
    proxy.value(of("bo")).await;
    let _run = proxy.next_sent().await;
    let late = id_of(&proxy.value(of("ann")).await);
    assert_eq!(proxy.ended(&late).await["error"]["data"]["reason"], "queue_timeout");
    // What was left is Ann's there too.
    let mut proxy = Proxy::ruled(one(), BOUNDS, OwnerRules::default());
    proxy.value(of("bo")).await;
    let _run = proxy.next_sent().await;
    let left = id_of(&proxy.value(of("ann")).await);
    let run = Ceilings { timeout: Some(Duration::from_millis(40)), ..Ceilings::default() };
    let mut proxy = proxy.restarted(one(), BOUNDS, anns(run)).await;
    let _run = proxy.next_sent().await;
    assert_eq!(proxy.ended(&left).await["error"]["data"]["reason"], "timeout");
}
