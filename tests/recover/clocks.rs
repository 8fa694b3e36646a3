//! The clock of the machine jumps while tasks run.

use std::sync::Arc;
use std::time::Duration;

use raincheck::clock::{Clock, ManualClock, SystemClock, Timestamp};
use raincheck::config::{Cost, Mode, ToolPolicy};
use raincheck::protocol::Answer;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::found::asks;
use crate::support::calls::call;
use crate::support::layer::{PATIENCE, Proxy};
use crate::{ARGUMENTS, begin, call_with, done, tasks};

/// Hours, in seconds: more than any test takes.
const JUMPS: [i64; 2] = [7200, -7200];

fn priced() -> ToolPolicy {
    ToolPolicy {
        price: Cost::from_millionths(1_000_000),
        price_per_minute: Cost::from_millionths(60_000_000),
        ..tasks()
    }
}

fn jump(clock: &ManualClock, seconds: i64) {
    clock.set(Timestamp::from_millis(clock.now().as_millis().saturating_add_signed(seconds * 1000)));
}

/// It has run for less than a minute, by all that is said of it.
fn assert_young(task: &Value) {
    let meta = &task["_meta"];
    assert!(meta["dev.raincheck/elapsedMs"].as_u64().unwrap() < 60_000, "{task}");
    let cost = meta["dev.raincheck/cost"].as_f64().unwrap();
    assert!((1.0..60.0).contains(&cost), "{task}");
    assert!(task["pollIntervalMs"].as_u64().unwrap() < 6000, "{task}");
}

#[tokio::test]
async fn what_is_said_of_a_run_is_by_a_clock_that_does_not_jump() {
    for seconds in JUMPS {
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let mut proxy = Proxy::timed(clock.clone(), priced());
        let id = begin(&proxy, ARGUMENTS).await;
        let (_, server) = proxy.next_sent().await;
        jump(&clock, seconds);
        let runs = proxy.get(&id).await;
        assert_young(&runs);
        assert!(!runs["statusMessage"].as_str().unwrap().contains('h'), "{runs}");

        let mut asking = asks(&proxy, &id, &server, "input-1").await;
        jump(&clock, seconds);
        let waits = proxy.get(&id).await;
        assert_young(&waits);
        assert_eq!(waits["statusMessage"], "waiting for input: the tool has a question", "{waits}");
        let responses = json!({ "input-1": { "action": "accept" } });
        proxy.value(call("tasks/update", json!({ "taskId": id, "inputResponses": responses }))).await;
        assert!(matches!(timeout(PATIENCE, asking.answer()).await.unwrap(), Answer::Result(_)));
        assert_young(&proxy.get(&id).await);

        jump(&clock, seconds);
        server.done(done("x"));
        let ended = proxy.ended(&id).await;
        let cost = ended["_meta"]["dev.raincheck/cost"].as_f64().unwrap();
        assert!((1.0..60.0).contains(&cost), "{ended}");
    }
}

/// Only the clock of the machine knows how long a run of an earlier process has taken.
#[tokio::test]
async fn after_a_restart_a_run_has_taken_what_the_clock_of_the_machine_says_and_nothing_less_than_nothing() {
    for (seconds, least) in [(7200, 7200), (-7200, 0)] {
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let mut proxy = Proxy::timed(clock.clone(), ToolPolicy { timeout: Duration::from_hours(9), ..priced() });
        let (id, _server) = crate::found::anchored(&mut proxy).await;
        jump(&clock, seconds);
        let mut proxy = proxy.crashes_until(clock, ToolPolicy { timeout: Duration::from_hours(9), ..priced() }).await;
        let _server = proxy.next_sent().await;
        let runs = proxy.get(&id).await;
        let elapsed = runs["_meta"]["dev.raincheck/elapsedMs"].as_u64().unwrap() / 1000;
        assert!((least..least + 60).contains(&elapsed), "{runs}");
    }
}

/// The repeat of a held call gets its handle when the call is due, and no hour later.
#[tokio::test]
async fn a_repeat_gets_its_handle_when_the_first_call_is_due() {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let policy = ToolPolicy { mode: Mode::Auto, after: Duration::from_millis(300), ..tasks() };
    let mut proxy = Proxy::timed(clock.clone(), policy);
    let keyed = || {
        let mut call = call_with("{}");
        call.caller.key = Some(raincheck::protocol::CallKey::read("k").unwrap());
        call
    };
    let first = proxy.send_in_background(keyed());
    let _server = proxy.next_sent().await;
    jump(&clock, -7200);
    let repeat = proxy.value(keyed()).await;
    assert_eq!(repeat["resultType"], "task", "{repeat}");
    assert_eq!(timeout(PATIENCE, first).await.unwrap().unwrap()["taskId"], repeat["taskId"]);
}
