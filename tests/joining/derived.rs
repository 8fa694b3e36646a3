//! Keys that are made of the arguments (`dedupe`).

use std::time::Duration;

use raincheck::config::{Dedupe, Mode, ToolPolicy};
use raincheck::protocol::{Call, Outcome, Principal};
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
