//! The tasks layer around a scripted service: limits of tools and owners, budgets, turns.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

mod budgets;
mod held_up;
mod lost;
mod newcomers;
mod owners;
mod restarts;
#[path = "../support/mod.rs"]
mod support;
mod unread;

use std::time::{Duration, Instant};

use raincheck::config::{Budget, Ceilings, Cost, Mode, OnLost, OwnerLimits, OwnerRules, Rate, ToolPolicy};
use raincheck::protocol::reply::Event;
use raincheck::protocol::{
    Call, ClientSession, Failure, Outcome, Principal, Progress, Reason, Retry, RpcError, StopCause, TaskSupport,
};
use raincheck::runner::Bounds;
use raincheck::store::Shelf;
use serde_json::{Value, json};
use support::calls::{call, call_of, text};
use support::layer::{PATIENCE, Proxy};
use tokio::time::timeout;

const BOUNDS: Bounds = Bounds { running: 100, waiting: 100, rate: None };
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

/// All that was spent, as it is in the store.
fn spent(proxy: &Proxy) -> f64 {
    let kept = proxy.store.shelf(Shelf::Budget).unwrap();
    let slices = kept.iter().flat_map(|(_, ledger)| ledger.as_chunks::<16>().0);
    let millionths: u64 = slices.map(|slice| u64::from_be_bytes(*slice.last_chunk().unwrap())).sum();
    Duration::from_micros(millionths).as_secs_f64()
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
async fn a_server_is_told_why_it_is_to_stop() {
    let soon = Duration::from_millis(30);
    for (policy, reason) in [
        (ToolPolicy { idle_timeout: Some(soon), ..policy(Mode::Task) }, Reason::IdleTimeout),
        (ToolPolicy { timeout: soon, ..policy(Mode::Task) }, Reason::Timeout),
    ] {
        let mut proxy = Proxy::new(policy);
        let id = id_of(&proxy.value(of("ann")).await);
        let (_, sender) = proxy.next_sent().await;
        proxy.ended(&id).await;
        assert_eq!(sender.stop_cause(), StopCause::GivenUp(reason));
    }
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(of("ann")).await);
    let (_, sender) = proxy.next_sent().await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    assert_eq!(sender.stop_cause(), StopCause::Caller);
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
async fn an_error_of_a_server_is_bounded_as_its_results_are() {
    let error = RpcError::with_data(-32050, "boom", Some(&text(&format!("\"{}\"", "z".repeat(1000)))));
    let size = error.raw().len();
    for (limit, fits) in [(size, true), (size - 1, false)] {
        let mut proxy = Proxy::new(ToolPolicy { max_result: Some(limit), ..policy(Mode::Task) });
        let id = id_of(&proxy.value(of("ann")).await);
        proxy.next_sent().await.1.done(Outcome::Error(error.clone()));
        let task = proxy.ended(&id).await;
        if fits {
            assert_eq!(task["error"]["code"], -32050);
        } else {
            assert_eq!(task["error"]["data"], json!({ "reason": "too_large", "retryable": false }), "{task}");
            let said = task["statusMessage"].as_str().unwrap();
            assert!(said.contains("-32050") && said.contains("boom") && said.contains("max_result"), "{said}");
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
    // The next start is kept for cy, and the one behind that for dan.
    for (call, told) in [(of("cy"), HOUR / 2), (legacy(of("cy")), HOUR / 2), (of("dan"), HOUR), (of("cy"), HOUR / 2)] {
        let failure = refused(&proxy, call).await;
        let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
        assert_eq!(failure.reason, Reason::RateLimited);
        assert!(wait <= told && wait + Duration::from_secs(30) > told, "{wait:?}");
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
