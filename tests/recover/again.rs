//! Runs that were lost, and may be begun again where the policy says so.

use std::time::Duration;

use raincheck::config::{Mode, ToolPolicy};
use raincheck::protocol::{Ask, CallKey, Event, Failure, Json, Outcome, Question, QuestionKind, Reason};
use serde_json::json;
use tokio::time::timeout;

use crate::support::layer::{PATIENCE, Proxy};
use crate::{ARGUMENTS, begin, call_with, cancel, done, more_sent, reason, rerun, tasks};

#[tokio::test]
async fn a_run_that_is_lost_by_a_crash_is_begun_again_once_and_no_more() {
    let mut proxy = Proxy::new(rerun());
    let id = begin(&proxy, ARGUMENTS).await;
    let (_call, _sender) = proxy.next_sent().await;
    let mut proxy = proxy.crashes(rerun()).await;
    let (call, _sender) = proxy.next_sent().await;
    assert_eq!(call.params.raw(), call_with(ARGUMENTS).params.raw());
    let mut proxy = proxy.crashes(rerun()).await;
    assert_eq!(reason(&proxy.ended(&id).await), "outcome_unknown");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_held_call_with_a_key_is_begun_again_once_although_it_cannot_become_a_task() {
    let policy = || ToolPolicy { mode: Mode::Sync, ..rerun() };
    let keyed = || {
        let mut call = call_with(ARGUMENTS);
        call.caller.key = Some(CallKey::read("k").unwrap());
        call
    };
    for stops_in_order in [false, true] {
        let mut proxy = Proxy::new(policy());
        let held = proxy.send(keyed()).await.in_background();
        let (_call, _sender) = proxy.next_sent().await;
        let mut proxy = if stops_in_order {
            let proxy = proxy.stops(policy()).await;
            let Outcome::Failed(failure) = held.outcome().await else { panic!() };
            assert_eq!(failure.reason, Reason::Stopping);
            assert!(failure.message.contains("next process"), "{}", failure.message);
            proxy
        } else {
            proxy.crashes(policy()).await
        };
        let (call, sender) = proxy.next_sent().await;
        assert_eq!(call.params.raw(), keyed().params.raw());
        let repeat = proxy.send(keyed()).await;
        sender.done(done("second"));
        let said = crate::support::calls::shown(timeout(PATIENCE, repeat.outcome()).await.unwrap());
        assert_eq!(
            (&said["content"][0]["text"], &said["_meta"]["dev.raincheck/joined"]),
            (&json!("second"), &json!(true))
        );
        assert_eq!(more_sent(&mut proxy), 0);
    }
    // Twice and no more, and not without the policy.
    let mut proxy = Proxy::new(policy());
    let _held = proxy.send(keyed()).await.in_background();
    let (_call, _sender) = proxy.next_sent().await;
    let mut proxy = proxy.crashes(policy()).await;
    let (_call, _sender) = proxy.next_sent().await;
    let mut proxy = proxy.crashes(policy()).await;
    let Outcome::Failed(failure) = proxy.ask(keyed()).await else { panic!() };
    assert_eq!((failure.reason, more_sent(&mut proxy)), (Reason::OutcomeUnknown, 0));
    // The same where both were in one process.
    let mut proxy = Proxy::new(policy());
    let _held = proxy.send(keyed()).await.in_background();
    drop(proxy.next_sent().await);
    let (_call, _sender) = proxy.next_sent().await;
    let mut proxy = proxy.crashes(policy()).await;
    let Outcome::Failed(failure) = proxy.ask(keyed()).await else { panic!() };
    assert_eq!((failure.reason, more_sent(&mut proxy)), (Reason::OutcomeUnknown, 0));
}

#[tokio::test]
async fn a_second_run_that_was_not_sent_before_the_next_crash_is_sent_then() {
    let mut proxy = Proxy::new(rerun());
    let id = begin(&proxy, ARGUMENTS).await;
    let (_call, _sender) = proxy.next_sent().await;
    // As far as the record of a process goes that is killed before it has sent anything.
    proxy.store.rerun(&id.parse().unwrap(), Duration::ZERO).await.unwrap();
    let mut proxy = proxy.crashes(rerun()).await;
    let (_, sender) = proxy.next_sent().await;
    sender.done(done("second"));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn without_the_policy_a_lost_run_is_never_begun_again() {
    let mut proxy = Proxy::new(tasks());
    let crashed = begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let proxy = proxy.crashes(rerun()).await;
    assert_eq!(reason(&proxy.ended(&crashed).await), "outcome_unknown", "its call was not kept");
    let mut proxy = proxy.crashes(tasks()).await;
    let lost = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    drop(sender);
    assert_eq!(reason(&proxy.ended(&lost).await), "outcome_unknown");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_run_whose_connection_is_lost_is_begun_again_once() {
    let mut proxy = Proxy::new(rerun());
    let fine = begin(&proxy, ARGUMENTS).await;
    let (_, sender) = proxy.next_sent().await;
    drop(sender);
    let (call, sender) = proxy.next_sent().await;
    assert_eq!(call.params.raw(), call_with(ARGUMENTS).params.raw());
    sender.done(done("second"));
    assert_eq!(proxy.ended(&fine).await["result"]["content"][0]["text"], "second");
    let lost = begin(&proxy, ARGUMENTS).await;
    for _ in 0..2 {
        let (_, sender) = proxy.next_sent().await;
        sender.done(Outcome::Failed(Failure::outcome_unknown("the server died")));
    }
    assert_eq!(reason(&proxy.ended(&lost).await), "outcome_unknown");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_held_call_whose_run_is_lost_is_begun_again_and_its_task_remembers_that() {
    let policy = ToolPolicy { mode: Mode::Auto, after: Duration::from_millis(300), ..rerun() };
    let mut proxy = Proxy::new(policy.clone());
    let reply = proxy.send(call_with("{}")).await;
    let (_, sender) = proxy.next_sent().await;
    drop(sender);
    let (_, sender) = proxy.next_sent().await;
    let created = crate::support::calls::shown(reply.outcome().await);
    let id = created["taskId"].as_str().unwrap().to_owned();
    drop(sender);
    assert_eq!(reason(&proxy.ended(&id).await), "outcome_unknown");
    let quick = proxy.send(call_with("{}")).await;
    let (_, sender) = proxy.next_sent().await;
    drop(sender);
    let (_, sender) = proxy.next_sent().await;
    sender.done(done("quick"));
    assert_eq!(crate::support::calls::shown(quick.outcome().await)["content"][0]["text"], "quick");
}

#[tokio::test]
async fn a_run_that_ended_in_another_way_is_not_begun_again() {
    let mut proxy = Proxy::new(rerun());
    let cancelled = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    cancel(&proxy, &cancelled).await;
    sender.cancelled().await;
    drop(sender);
    assert_eq!(proxy.ended(&cancelled).await["status"], "cancelled");
    let failed = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Error(raincheck::protocol::RpcError::new(-32603, "no")));
    assert_eq!(proxy.ended(&failed).await["error"]["code"], -32603);
    assert_eq!(more_sent(&mut proxy), 0);
}

/// Nobody knows what became of the first run: to say that the call may be sent again would be wrong.
#[tokio::test]
async fn a_second_run_that_gets_no_slot_in_time_leaves_the_outcome_unknown() {
    let mut proxy = Proxy::new(rerun());
    let ids = [begin(&proxy, r#"{"n":1}"#).await, begin(&proxy, r#"{"n":2}"#).await];
    let _runs = (proxy.next_sent().await, proxy.next_sent().await);
    let short = ToolPolicy { max_running: Some(1), queue_timeout: Duration::from_millis(50), ..rerun() };
    let mut proxy = proxy.crashes(short).await;
    let (call, _sender) = proxy.next_sent().await;
    let waiting = &ids[usize::from(call.params.raw().as_str().contains(r#""n":1"#))];
    let task = proxy.ended(waiting).await;
    assert_eq!(task["error"]["data"], json!({ "reason": "outcome_unknown" }));
    let said = "outcome unknown: a run was lost, and it was not begun again: no slot was free within 50ms \
                (queue_timeout); the tool may or may not have run, check before calling it again";
    assert_eq!(task["statusMessage"], said);
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_run_that_is_lost_while_the_proxy_stops_is_not_begun_again() {
    let mut proxy = Proxy::new(rerun());
    let id = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    proxy.runner.drain();
    drop(sender);
    assert_eq!(reason(&proxy.ended(&id).await), "outcome_unknown");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_second_run_asks_under_new_keys() {
    let mut proxy = Proxy::new(rerun());
    let id = begin(&proxy, "{}").await;
    let question = || Question { kind: QuestionKind::Elicitation, params: Json::empty_object(), key: None };
    let mut askings = Vec::new();
    for key in ["input-1", "input-2"] {
        let (_, sender) = proxy.next_sent().await;
        let (ask, asking) = Ask::new(question());
        sender.event(Event::Ask(ask));
        askings.push(asking);
        let asked = async {
            while proxy.get(&id).await["inputRequests"][key].is_null() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("it does not ask");
        drop(sender);
    }
    let ended = async {
        while proxy.get(&id).await["status"] == "input_required" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it still asks");
    assert_eq!(reason(&proxy.ended(&id).await), "outcome_unknown");
}

#[tokio::test]
async fn a_stop_leaves_a_run_that_may_be_begun_again_to_the_next_process() {
    let mut proxy = Proxy::new(rerun());
    let id = begin(&proxy, ARGUMENTS).await;
    let (_, sender) = proxy.next_sent().await;
    let mut proxy = proxy.stops(rerun()).await;
    assert!(sender.is_abandoned() && !sender.is_left_running(), "it cannot be found again");
    let (_, sender) = proxy.next_sent().await;
    sender.done(done("second"));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
    assert_eq!(json!(0), json!(more_sent(&mut proxy)));
}

#[tokio::test]
async fn a_held_call_is_begun_again_once_within_one_process() {
    let mut proxy = Proxy::new(ToolPolicy { mode: Mode::Sync, ..rerun() });
    let held = proxy.send(call_with(ARGUMENTS)).await.in_background();
    for _ in 0..2 {
        let (_call, sender) = proxy.next_sent().await;
        drop(sender);
    }
    let Outcome::Failed(failure) = timeout(PATIENCE, held.outcome()).await.unwrap() else { panic!() };
    assert_eq!((failure.reason, more_sent(&mut proxy)), (Reason::OutcomeUnknown, 0));
}
