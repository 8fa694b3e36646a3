//! The first call has ended when it is repeated.

use std::time::Duration;

use raincheck::config::{Dedupe, Mode, ToolPolicy};
use raincheck::protocol::{Failure, Outcome, Principal, Reason, Retry, RpcError};
use raincheck::store::Filter;
use raincheck::task::Canceller;
use serde_json::json;

use crate::callers::{
    KINDS, Kind, assert_joined, assert_same_handle, call, call_of, done, export, id_of, keyed, outcome, policy, said,
};
use crate::support::calls::{self, text};
use crate::support::layer::Proxy;

#[tokio::test]
async fn a_repeat_of_a_quick_call_gets_the_result_again() {
    for first in KINDS {
        let mut proxy = Proxy::new(policy(Mode::Auto));
        let one = proxy.send(call(first)).await;
        proxy.next_sent().await.1.done(done());
        outcome(one).await;
        for second in KINDS {
            assert_joined(outcome(proxy.send(call(second)).await).await);
        }
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn the_key_of_a_call_of_which_nobody_has_a_handle_is_kept_from_its_end_on_and_no_longer() {
    let (timeout, keep, key_window) = (Duration::from_hours(1), Some(Duration::from_secs(1)), Duration::from_mins(2));
    let after = Duration::from_millis(20);
    let limits = || ToolPolicy { after, timeout, keep, key_window, ..policy(Mode::Auto) };
    for (is_told, expected) in [(false, key_window), (true, timeout)] {
        let mut proxy = Proxy::new(limits());
        let one = proxy.send(call(Kind::Plain)).await.in_background();
        let (_, server) = proxy.next_sent().await;
        if is_told {
            id_of(&said(proxy.send(call(Kind::Tasks)).await).await);
        }
        server.done(done());
        outcome(one).await;
        let task = proxy.store.list(Filter::default(), None, 2).await.unwrap().tasks.remove(0);
        let kept = task.expires().unwrap().since(task.updated);
        assert!(kept >= key_window && kept.abs_diff(expected) < Duration::from_mins(3), "{kept:?}");
    }
    // What was told to nobody is kept for its window nevertheless.
    let dedupe = Dedupe::Window(Duration::from_mins(10));
    let mut proxy = Proxy::new(ToolPolicy { dedupe, ..limits() });
    let one = proxy.send(call_of(Principal::Named("ann".into()), Kind::Plain, export())).await;
    proxy.next_sent().await.1.done(done());
    outcome(one).await;
    let task = proxy.store.list(Filter::default(), None, 2).await.unwrap().tasks.remove(0);
    let kept = task.expires().unwrap().since(task.created);
    assert!((10..12).contains(&(kept.as_secs() / 60)), "{kept:?}");
}

#[tokio::test]
async fn a_repeat_of_a_task_that_has_ended_gets_its_handle_or_its_outcome() {
    let ends = [
        (done(), "completed"),
        (Outcome::Error(RpcError::with_data(-32000, "no rows", Some(&text("[1.0]")))), "failed"),
        (Outcome::Failed(Failure::outcome_unknown("gone")), "failed"),
    ];
    for (end, status) in ends {
        let mut proxy = Proxy::new(policy(Mode::Task));
        let id = id_of(&proxy.value(call(Kind::Tasks)).await);
        proxy.next_sent().await.1.done(end);
        let task = proxy.ended(&id).await;
        assert_eq!(task["status"], status);
        if task["error"]["code"] == -31001 {
            let said = task["error"]["message"].as_str().unwrap();
            assert!(said.contains("a new run needs a new key"), "{said}");
            assert_eq!(task["statusMessage"], said);
        }
        assert_same_handle(&said(proxy.send(call(Kind::Tasks)).await).await, &id, status);
        for second in [Kind::Plain, Kind::Legacy] {
            let again = outcome(proxy.send(call(second)).await).await;
            match again {
                Outcome::Result(_) => assert_joined(again),
                Outcome::Error(error) => assert_eq!(error.raw().read::<serde_json::Value>().unwrap(), task["error"]),
                Outcome::Failed(failure) => {
                    assert_eq!((failure.reason, failure.retry), (Reason::OutcomeUnknown, Retry::Unknown));
                    assert!(failure.message.contains("another key"), "{}", failure.message);
                }
                other => panic!("{other:?}"),
            }
        }
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_slow_call_that_was_held_is_a_task_for_those_who_may_have_a_handle() {
    let after = Duration::from_millis(20);
    let mut proxy = Proxy::new(ToolPolicy { after, ..policy(Mode::Auto) });
    let one = proxy.send(call(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    // Longer than `after`, as the clock of the store sees it.
    let started = proxy.store.clock().now();
    while proxy.store.clock().now().since(started) <= after {
        tokio::task::yield_now().await;
    }
    server.done(done());
    assert!(matches!(outcome(one).await, Outcome::Result(_)));
    let handle = said(proxy.send(call(Kind::Tasks)).await).await;
    let id = id_of(&handle);
    assert_same_handle(&handle, &id, "completed");
    assert_eq!(proxy.get(&id).await["result"]["n"], 100.0);
    assert_joined(outcome(proxy.send(call(Kind::Plain)).await).await);
}

#[tokio::test]
async fn a_cancel_ends_the_call_for_all() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let one = proxy.send(call(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    let id = id_of(&said(proxy.send(call(Kind::Tasks)).await).await);
    let three = proxy.send(call(Kind::Legacy)).await;
    let acknowledged = proxy.value(calls::call("tasks/cancel", json!({ "taskId": id }))).await;
    assert_eq!(acknowledged, json!({ "resultType": "complete" }));
    tokio::time::timeout(crate::support::layer::PATIENCE, server.cancelled()).await.unwrap();
    server.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
    for held in [one, three] {
        let Outcome::Failed(failure) = outcome(held).await else { panic!() };
        assert!(failure.message.contains("was cancelled"), "{}", failure.message);
    }
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    assert_same_handle(&said(proxy.send(call(Kind::Tasks)).await).await, &id, "cancelled");
    assert!(matches!(outcome(proxy.send(call(Kind::Plain)).await).await, Outcome::Failed(_)));
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn all_are_told_that_it_was_the_operator_who_stopped_the_call() {
    for kind in [Kind::Plain, Kind::Legacy] {
        let mut proxy = Proxy::new(policy(Mode::Auto));
        let one = proxy.send(call(kind)).await.in_background();
        let (_, server) = proxy.next_sent().await;
        let two = proxy.send(call(kind)).await.in_background();
        let page = proxy.store.list(Filter::default(), None, 2).await.unwrap();
        proxy.runner.cancel(&page.tasks[0], Canceller::Operator).await.unwrap();
        tokio::time::timeout(crate::support::layer::PATIENCE, server.cancelled()).await.unwrap();
        server.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
        for held in [one, two, proxy.send(call(kind)).await] {
            let Outcome::Failed(failure) = outcome(held).await else { panic!() };
            assert_eq!((failure.reason, failure.retry), (Reason::OutcomeUnknown, Retry::No));
            assert!(failure.message.starts_with("the operator has cancelled the call; "), "{}", failure.message);
        }
        let ended = proxy.get(&page.tasks[0].id.to_string()).await;
        assert_eq!(ended["statusMessage"], "cancelled by the operator");
    }
}

#[tokio::test]
async fn of_a_call_that_is_cancelled_before_it_was_sent_all_are_told_that_the_tool_has_not_run() {
    for by in [Canceller::Owner, Canceller::Operator] {
        let mut proxy = Proxy::new(ToolPolicy { max_running: Some(1), ..policy(Mode::Task) });
        id_of(&proxy.value(keyed(Kind::Tasks, "other", json!({ "name": "export" }))).await);
        let (_, _server) = proxy.next_sent().await;
        let id = id_of(&proxy.value(call(Kind::Tasks)).await);
        let joined = proxy.send(call(Kind::Plain)).await.in_background();
        let page = proxy.store.list(Filter::default(), None, 2).await.unwrap();
        let task = page.tasks.iter().find(|task| task.id.to_string() == id).unwrap();
        proxy.runner.cancel(task, by).await.unwrap();
        for reply in [joined, proxy.send(call(Kind::Plain)).await] {
            let Outcome::Failed(failure) = outcome(reply).await else { panic!() };
            assert_eq!((failure.reason, failure.retry), (Reason::NotStarted, Retry::No));
            assert!(failure.message.contains("before it was sent; the tool has not run"), "{}", failure.message);
            assert_eq!(failure.message.contains("operator"), by == Canceller::Operator, "{}", failure.message);
        }
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_result_that_crosses_a_cancel_is_everybodys() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let one = proxy.send(call(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    let id = id_of(&said(proxy.send(call(Kind::Tasks)).await).await);
    proxy.value(calls::call("tasks/cancel", json!({ "taskId": id }))).await;
    tokio::time::timeout(crate::support::layer::PATIENCE, server.cancelled()).await.unwrap();
    server.done(done());
    assert!(matches!(outcome(one).await, Outcome::Result(_)));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_call_that_was_never_taken_may_be_sent_again_with_its_key() {
    for kind in KINDS {
        let mut proxy = Proxy::new(policy(Mode::Auto));
        let one = proxy.send(call(kind)).await;
        let failure = Failure::new(Reason::NotStarted, "the server is away", Retry::After(Duration::from_secs(1)));
        proxy.next_sent().await.1.done(Outcome::Failed(failure));
        assert_eq!(said(one).await["failed"], "not_started");
        let two = proxy.send(call(kind)).await;
        proxy.next_sent().await.1.done(done());
        let Outcome::Result(result) = outcome(two).await else { panic!("{kind:?}") };
        assert_eq!(result.as_str(), crate::callers::RESULT);
    }
}

#[tokio::test]
async fn what_has_a_key_is_kept_for_as_long_as_the_key_counts() {
    let minutes = Duration::from_mins;
    for (keep, window, kept) in [(1, 60, 60), (60, 1, 60)] {
        let limits = ToolPolicy { keep: Some(minutes(keep)), key_window: minutes(window), ..policy(Mode::Task) };
        let timeout = limits.timeout;
        let proxy = Proxy::new(limits);
        let created = said(proxy.send(call(Kind::Tasks)).await).await;
        assert_eq!(created["ttlMs"], u64::try_from((timeout + minutes(kept)).as_millis()).unwrap());
    }
}

#[tokio::test]
async fn the_first_caller_too_is_told_that_its_key_leads_to_the_same_end_again() {
    let unknown = || Failure::outcome_unknown("gone");
    let busy = || Failure::new(Reason::Busy, "busy", Retry::SOON);
    for (failure, is_used_up) in [(unknown(), true), (busy(), false)] {
        let mut proxy = Proxy::new(policy(Mode::Sync));
        let held = proxy.send(call(Kind::Plain)).await;
        proxy.next_sent().await.1.done(Outcome::Failed(failure));
        let Outcome::Failed(told) = outcome(held).await else { panic!() };
        assert_eq!(told.message.contains("the same key leads to this end again"), is_used_up, "{}", told.message);
    }
}
