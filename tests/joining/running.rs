//! The first call runs when it is repeated.

use std::time::Duration;

use raincheck::config::{Fallback, Mode, OwnerRules, ToolPolicy};
use raincheck::protocol::{Outcome, RpcError, WaitsFor};
use raincheck::runner::Bounds;
use serde_json::json;
use tokio::time::timeout;

use crate::callers::{
    KINDS, Kind, assert_joined, assert_same_handle, call, done, export, id_of, keyed, outcome, policy, said,
};
use crate::support::calls::{shown, text};
use crate::support::layer::{PATIENCE, Proxy};

#[tokio::test]
async fn a_repeat_of_a_held_call_gets_the_same_result_whoever_asks() {
    for first in KINDS {
        for second in KINDS {
            let mut proxy = Proxy::new(policy(Mode::Auto));
            let one = proxy.send(call(first)).await;
            let (_, server) = proxy.next_sent().await;
            let two = proxy.send(call(second)).await;
            let more = proxy.send(call(second)).await;
            server.done(done());
            let Outcome::Result(result) = outcome(one).await else { panic!("{first:?} {second:?}") };
            assert_eq!(result.as_str(), crate::callers::RESULT);
            assert_joined(outcome(two).await);
            assert_joined(outcome(more).await);
            proxy.assert_sent_no_more();
        }
    }
}

#[tokio::test]
async fn a_repeat_of_a_task_gets_the_same_handle_or_waits_for_the_result() {
    for second in KINDS {
        let mut proxy = Proxy::new(policy(Mode::Task));
        let id = id_of(&proxy.value(call(Kind::Tasks)).await);
        let (_, server) = proxy.next_sent().await;
        let two = proxy.send(call(second)).await;
        if second == Kind::Tasks {
            assert_same_handle(&said(two).await, &id, "working");
            server.done(done());
        } else {
            server.done(done());
            assert_joined(outcome(two).await);
        }
        assert_eq!(proxy.ended(&id).await["result"]["big"], 9_007_199_254_740_995_u64);
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_caller_who_may_have_a_handle_gets_one_although_the_first_may_not() {
    for first in [Kind::Plain, Kind::Legacy] {
        let mut proxy = Proxy::new(policy(Mode::Task));
        let one = proxy.send(call(first)).await;
        let (_, server) = proxy.next_sent().await;
        let handle = said(proxy.send(call(Kind::Tasks)).await).await;
        let id = id_of(&handle);
        assert_same_handle(&handle, &id, "working");
        let three = proxy.send(call(Kind::Legacy)).await;
        server.done(done());
        let Outcome::Result(result) = outcome(one).await else { panic!("{first:?}") };
        assert_eq!(result.as_str(), crate::callers::RESULT);
        assert_joined(outcome(three).await);
        assert_eq!(proxy.ended(&id).await["status"], "completed");
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_held_call_that_becomes_slow_gives_its_handle_to_all_who_may_have_one() {
    let after = Duration::from_millis(30);
    let mut proxy = Proxy::new(ToolPolicy { after, ..policy(Mode::Auto) });
    let one = proxy.send(call(Kind::Tasks)).await;
    let (_, server) = proxy.next_sent().await;
    let two = proxy.send(call(Kind::Tasks)).await;
    let three = proxy.send(call(Kind::Plain)).await;
    let created = said(one).await;
    let id = id_of(&created);
    assert!(created["_meta"]["dev.raincheck/joined"].is_null(), "{created}");
    assert_same_handle(&said(two).await, &id, "working");
    server.done(Outcome::Error(RpcError::new(-32000, "no rows")));
    assert_eq!(said(three).await, json!({ "error": { "code": -32000, "message": "no rows" } }));
    assert_eq!(proxy.ended(&id).await["status"], "failed");
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn a_repeat_of_a_call_that_waits_for_a_slot_joins_it() {
    let mut proxy = Proxy::bounded(policy(Mode::Auto), Bounds { running: 1, waiting: 10, rate: None });
    let _busy = proxy.send(keyed(Kind::Plain, "other", export())).await;
    let (_, busy) = proxy.next_sent().await;
    let one = proxy.send(call(Kind::Plain)).await;
    let two = proxy.send(call(Kind::Tasks)).await;
    tokio::task::yield_now().await;
    busy.done(done());
    let (_, server) = proxy.next_sent().await;
    server.done(done());
    assert!(matches!(outcome(one).await, Outcome::Result(_)));
    assert_joined(outcome(two).await);
    proxy.assert_sent_no_more();
}

/// The record of the first is made when it is sent, or when it has waited for `after` itself.
#[tokio::test]
async fn what_a_repeat_has_waited_counts_although_the_record_of_the_first_is_new() {
    let after = Duration::from_mins(10);
    let patient = |kind| {
        let mut call = call(kind);
        call.arrived = call.arrived.checked_sub(after).unwrap();
        call
    };
    for first in KINDS {
        let mut proxy = Proxy::gated(ToolPolicy { after, ..policy(Mode::Auto) }, OwnerRules::default());
        let one = proxy.send(patient(first)).await.in_background();
        let (_, server) = proxy.next_sent().await;
        server.waits(WaitsFor::Start);
        let two = proxy.send(patient(Kind::Tasks)).await.in_background();
        let late = proxy.send(call(Kind::Tasks)).await.in_background();
        if first == Kind::Tasks {
            let (created, joined) = (said(one).await, said(two).await);
            assert_same_handle(&joined, &id_of(&created), "working");
            assert!(timeout(PATIENCE, server.begins()).await.unwrap(), "it is not sent");
            server.done(done());
        } else {
            assert!(timeout(PATIENCE, server.begins()).await.unwrap(), "it is not sent");
            let joined = said(two).await;
            assert_same_handle(&joined, &id_of(&joined), "working");
            server.done(done());
            assert!(matches!(outcome(one).await, Outcome::Result(_)), "{first:?}");
        }
        assert_joined(outcome(late).await);
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn when_the_first_leaves_the_line_a_repeat_takes_its_place() {
    let mut proxy = Proxy::bounded(policy(Mode::Auto), Bounds { running: 1, waiting: 10, rate: None });
    let _busy = proxy.send(keyed(Kind::Plain, "other", export())).await;
    let (_, busy) = proxy.next_sent().await;
    let one = proxy.send(call(Kind::Plain)).await;
    let two = proxy.send(call(Kind::Plain)).await;
    tokio::task::yield_now().await;
    drop(one);
    busy.done(done());
    let (_, server) = proxy.next_sent().await;
    server.done(done());
    assert!(matches!(outcome(two).await, Outcome::Result(_)));
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn while_the_proxy_stops_a_repeat_still_joins_and_a_first_call_is_refused() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let ended = proxy.send(keyed(Kind::Plain, "ended", export())).await;
    proxy.next_sent().await.1.done(done());
    outcome(ended).await;
    let one = proxy.send(call(Kind::Plain)).await.in_background();
    let (_, server) = proxy.next_sent().await;
    proxy.runner.drain();
    let two = proxy.send(call(Kind::Plain)).await.in_background();
    let Outcome::Failed(failure) = outcome(proxy.send(keyed(Kind::Plain, "new", export())).await).await else {
        panic!()
    };
    assert_eq!(failure.reason, raincheck::protocol::Reason::Stopping);
    assert_joined(outcome(proxy.send(keyed(Kind::Plain, "ended", export())).await).await);
    server.done(done());
    assert!(matches!(outcome(one).await, Outcome::Result(_)));
    assert_joined(outcome(two).await);
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn two_that_arrive_together_run_once() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    for round in 0..100 {
        let key = round.to_string();
        let kinds = [KINDS[round % 3], KINDS[(round / 3) % 3]];
        let calls = kinds.map(|kind| {
            let (service, call) = (proxy.service.clone(), keyed(kind, &key, export()));
            tokio::spawn(async move { tower::ServiceExt::oneshot(service, call).await.unwrap().outcome().await })
        });
        let (_, server) = proxy.next_sent().await;
        server.done(done());
        let mut joined = 0;
        for outcome in calls {
            let value = shown(tokio::time::timeout(PATIENCE, outcome).await.unwrap().unwrap());
            assert_eq!(value["n"], 100.0, "{value}");
            joined += usize::from(value["_meta"]["dev.raincheck/joined"] == true);
        }
        assert_eq!(joined, 1, "round {round}");
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_repeat_of_a_call_that_must_be_a_task_is_refused_where_the_first_would_be() {
    let mut proxy = Proxy::new(ToolPolicy { fallback: Fallback::Refuse, ..policy(Mode::Task) });
    id_of(&proxy.value(call(Kind::Tasks)).await);
    let (_, _server) = proxy.next_sent().await;
    assert_eq!(said(proxy.send(call(Kind::Plain)).await).await["error"]["code"], -32021);
}

#[tokio::test]
async fn what_the_store_cannot_take_is_refused_before_anything_is_sent() {
    for (mode, kind) in [(Mode::Auto, Kind::Tasks), (Mode::Task, Kind::Tasks), (Mode::Sync, Kind::Legacy)] {
        let mut proxy = Proxy::full(policy(mode));
        assert_eq!(said(proxy.send(call(kind)).await).await["failed"], "store", "{mode:?}");
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn the_outcome_is_in_the_store_when_the_caller_has_it() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let one = proxy.send(call(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    server.done(Outcome::Result(text(&format!(r#"{{"content":[],"x":"{}"}}"#, "y".repeat(100_000)))));
    outcome(one).await;
    assert!(proxy.runner.live().is_empty(), "it is still to be settled");
    let again = said(proxy.send(call(Kind::Plain)).await).await;
    assert_eq!(again["x"].as_str().map(str::len), Some(100_000));
    proxy.assert_sent_no_more();
}
