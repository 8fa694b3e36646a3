//! Keys that are made of the arguments (`dedupe`).

use std::time::Duration;

use raincheck::config::{Dedupe, Mode, ToolPolicy};
use raincheck::protocol::{Call, Failure, Outcome, Principal, Reason, Retry, RpcError};
use raincheck::task::{Cause, State};
use serde_json::json;

use crate::callers::{KINDS, Kind, assert_joined, call, call_of, done, export, keyed, outcome, policy};
use crate::support::layer::Proxy;

fn plain(kind: Kind) -> Call {
    call_of(Principal::Named("ann".into()), kind, export())
}

fn with(dedupe: Dedupe) -> Proxy {
    Proxy::new(ToolPolicy { dedupe, ..policy(Mode::Auto) })
}

#[tokio::test]
async fn calls_that_run_at_the_same_time_are_one_and_later_ones_are_not() {
    for first in KINDS {
        for second in KINDS {
            let mut proxy = with(Dedupe::Running);
            for _ in 0..10 {
                let one = proxy.send(plain(first)).await;
                let (_, server) = proxy.next_sent().await;
                let two = proxy.send(plain(second)).await;
                // Until the second has joined.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                server.done(done());
                let Outcome::Result(result) = outcome(one).await else { panic!() };
                assert_eq!(result.as_str(), crate::callers::RESULT, "an old result");
                assert_joined(outcome(two).await);
                proxy.assert_sent_no_more();
            }
        }
    }
}

#[tokio::test]
async fn a_call_within_the_window_is_the_same_call() {
    let mut proxy = with(Dedupe::Window(Duration::from_hours(1)));
    let one = proxy.send(plain(Kind::Plain)).await;
    proxy.next_sent().await.1.done(done());
    outcome(one).await;
    for kind in KINDS {
        assert_joined(outcome(proxy.send(plain(kind)).await).await);
    }
    proxy.assert_sent_no_more();
    let mut other = export();
    other["arguments"] = json!({ "n": 2 });
    let _two = proxy.send(call_of(Principal::Named("ann".into()), Kind::Plain, other)).await;
    let _three = proxy.send(call_of(Principal::Named("bo".into()), Kind::Plain, export())).await;
    proxy.next_sent().await;
    proxy.next_sent().await;
}

#[tokio::test]
async fn a_call_that_failed_or_was_cancelled_is_begun_anew_within_the_window() {
    for kind in KINDS {
        let mut proxy = with(Dedupe::Window(Duration::from_hours(1)));
        let timeout = Failure::new(Reason::Timeout, "too long", Retry::Unknown);
        for failed in [Outcome::Error(RpcError::new(-32000, "no")), Outcome::Failed(timeout)] {
            let one = proxy.send(plain(kind)).await;
            proxy.next_sent().await.1.done(failed);
            outcome(one).await;
        }
        // Its caller leaves, so it is stopped; the next one comes while the server has not answered that.
        let one = proxy.send(plain(kind)).await;
        let (_, server) = proxy.next_sent().await;
        drop(one);
        server.cancelled().await;
        let again = proxy.send(plain(kind)).await.in_background();
        server.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
        let (_, server) = proxy.next_sent().await;
        server.done(done());
        let Outcome::Result(result) = outcome(again).await else { panic!("{kind:?}") };
        assert_eq!(result.as_str(), crate::callers::RESULT, "a run of its own");
        assert_joined(outcome(proxy.send(plain(kind)).await).await);
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_call_that_an_operator_or_its_owner_stops_holds_nobody_who_calls_again() {
    let mut proxy = with(Dedupe::Window(Duration::from_hours(1)));
    let _held = proxy.send(plain(Kind::Plain)).await.in_background();
    let (_, server) = proxy.next_sent().await;
    let page = proxy.store.list(raincheck::store::Filter::default(), None, 9).await.unwrap();
    proxy.runner.cancel(&page.tasks[0], raincheck::task::Canceller::Operator).await.unwrap();
    server.cancelled().await;
    let again = proxy.send(plain(Kind::Plain)).await.in_background();
    // Until the second would have joined.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    server.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
    proxy.next_sent().await.1.done(done());
    let Outcome::Result(_) = outcome(again).await else { panic!() };
}

#[tokio::test]
async fn a_run_that_was_lost_is_not_begun_anew_within_the_window() {
    let mut proxy = with(Dedupe::Window(Duration::from_hours(1)));
    let one = proxy.send(plain(Kind::Plain)).await;
    drop(proxy.next_sent().await);
    for lost in [outcome(one).await, outcome(proxy.send(plain(Kind::Plain)).await).await] {
        let Outcome::Failed(failure) = lost else { panic!() };
        assert_eq!(failure.reason, Reason::OutcomeUnknown);
        assert!(!failure.message.contains("key"), "nobody gave one: {}", failure.message);
    }
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn who_looks_at_a_lost_task_is_told_of_what_leads_to_it_again_and_of_no_key() {
    let table = [
        (
            Dedupe::Window(Duration::from_mins(10)),
            Some("the same call within 10m of its start leads to this end again"),
        ),
        (Dedupe::Running, None),
    ];
    for (dedupe, expected) in table {
        let mut proxy = with(dedupe);
        let one = proxy.send(plain(Kind::Plain)).await;
        drop(proxy.next_sent().await);
        let Outcome::Failed(_) = outcome(one).await else { panic!() };
        let task = proxy.store.list(raincheck::store::Filter::default(), None, 2).await.unwrap().tasks.remove(0);
        let State::Failed { cause: Cause::Ours(failure) } = &task.state else { panic!("{:?}", task.state) };
        let told = raincheck::runner::view::told(&task, failure).message;
        assert!(!told.contains("key"), "{told}");
        match expected {
            Some(words) => assert!(told.contains(words), "{told}"),
            None => assert_eq!(told, failure.message),
        }
    }
}

#[tokio::test]
async fn a_window_that_is_over_joins_nobody() {
    let mut proxy = with(Dedupe::Window(Duration::from_millis(1)));
    for _ in 0..3 {
        let one = proxy.send(plain(Kind::Plain)).await;
        let (_, server) = proxy.next_sent().await;
        let started = proxy.store.clock().now();
        while proxy.store.clock().now().since(started) <= Duration::from_millis(2) {
            tokio::task::yield_now().await;
        }
        server.done(done());
        let Outcome::Result(result) = outcome(one).await else { panic!() };
        assert_eq!(result.as_str(), crate::callers::RESULT);
    }
}

#[tokio::test]
async fn a_key_of_the_callers_goes_first() {
    let mut proxy = with(Dedupe::Running);
    let _one = proxy.send(call(Kind::Plain)).await;
    proxy.next_sent().await;
    let _two = proxy.send(keyed(Kind::Plain, "other", export())).await;
    proxy.next_sent().await;
    let _three = proxy.send(plain(Kind::Plain)).await;
    proxy.next_sent().await;
}

#[tokio::test]
async fn nothing_is_joined_where_nobody_asked_for_it() {
    let mut proxy = with(Dedupe::Off);
    let _one = proxy.send(plain(Kind::Plain)).await;
    proxy.next_sent().await;
    let _two = proxy.send(plain(Kind::Plain)).await;
    proxy.next_sent().await;
}
