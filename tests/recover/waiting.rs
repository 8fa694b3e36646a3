//! Tasks that wait for a slot when their process ends.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use raincheck::config::ToolPolicy;
use raincheck::protocol::{CallKey, Credentials, Principal};
use raincheck::store::{Ending, Shelf};
use serde_json::json;
use tokio::time::timeout;

use crate::found::asks;
use crate::support::layer::{PATIENCE, Proxy};
use crate::{ARGUMENTS, begin, call_with, cancel, done, more_sent, one_at_a_time, reason, tasks};

#[tokio::test]
async fn a_task_that_waited_at_a_crash_is_sent_by_the_next_process_as_its_client_spelled_it() {
    let mut proxy = Proxy::new(one_at_a_time());
    let running = begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let waiting = begin(&proxy, ARGUMENTS).await;
    let mut proxy = proxy.crashes(one_at_a_time()).await;
    assert_eq!(reason(&proxy.ended(&running).await), "outcome_unknown");
    let (call, sender) = proxy.next_sent().await;
    assert_eq!(call.params.raw(), call_with(ARGUMENTS).params.raw());
    assert!(call.caller.abilities.has(raincheck::protocol::QuestionKind::Elicitation));
    let ann = proxy.store.owner(&Principal::Named("ann".into()));
    assert_eq!(proxy.store.owner(&call.caller.principal), ann, "limits of its owner hold");
    assert_eq!(proxy.get(&waiting).await["status"], "working");
    sender.done(done("late"));
    assert_eq!(proxy.ended(&waiting).await["result"]["content"][0]["text"], "late");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn large_arguments_are_sent_whole() {
    let large = format!(r#"{{"text":"{}"}}"#, "é".repeat(40_000));
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    begin(&proxy, &large).await;
    let mut proxy = proxy.crashes(one_at_a_time()).await;
    assert_eq!(proxy.next_sent().await.0.params.raw(), call_with(&large).params.raw());
}

#[tokio::test]
async fn a_task_that_came_with_credentials_fails_as_not_started() {
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let mut call = call_with(ARGUMENTS);
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer top-secret"));
    call.caller.credentials = Credentials::new(headers);
    let id = proxy.value(call).await["taskId"].as_str().unwrap().to_owned();
    let mut proxy = proxy.crashes(one_at_a_time()).await;
    let task = proxy.ended(&id).await;
    assert_eq!(task["error"]["data"], json!({ "reason": "not_started", "retryable": true }));
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_stop_leaves_a_task_that_waits_to_the_next_process() {
    let mut proxy = Proxy::new(one_at_a_time());
    let running = begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let waiting = begin(&proxy, ARGUMENTS).await;
    let mut proxy = proxy.stops(one_at_a_time()).await;
    let (call, sender) = proxy.next_sent().await;
    assert_eq!(call.params.raw(), call_with(ARGUMENTS).params.raw());
    sender.done(done("fine"));
    assert_eq!(proxy.ended(&waiting).await["status"], "completed");
    assert_eq!(reason(&proxy.get(&running).await), "outcome_unknown");
}

#[tokio::test]
async fn tasks_of_an_earlier_process_wait_in_the_line_like_all_others() {
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let first = begin(&proxy, r#"{"n":1}"#).await;
    let second = begin(&proxy, r#"{"n":2}"#).await;
    let mut proxy = proxy.crashes(one_at_a_time()).await;
    let (_, sender) = proxy.next_sent().await;
    assert_eq!(more_sent(&mut proxy), 0, "there is one slot");
    sender.done(done("one"));
    let (_, sender) = proxy.next_sent().await;
    sender.done(done("two"));
    for id in [first, second] {
        assert_eq!(proxy.ended(&id).await["status"], "completed");
    }
}

#[tokio::test]
async fn the_time_that_a_task_has_waited_before_a_restart_counts() {
    let hours = Duration::from_hours;
    let policy = || ToolPolicy { queue_timeout: hours(3), ..one_at_a_time() };
    for (pause, is_over) in [(hours(4), true), (hours(2), false)] {
        let mut proxy = Proxy::new(policy());
        begin(&proxy, "{}").await;
        let (_call, _sender) = proxy.next_sent().await;
        let ids = [begin(&proxy, r#"{"n":1}"#).await, begin(&proxy, r#"{"n":2}"#).await];
        let mut proxy = proxy.crashes_for(pause, policy()).await;
        let (call, _sender) = proxy.next_sent().await;
        let waiting = &ids[usize::from(call.params.raw().as_str().contains(r#""n":1"#))];
        if is_over {
            let task = proxy.ended(waiting).await;
            assert_eq!(
                task["error"]["data"],
                json!({ "reason": "queue_timeout", "retryable": true, "retryAfterMs": 5000 })
            );
        } else {
            let message = proxy.get(waiting).await["statusMessage"].clone();
            assert!(message.as_str().unwrap().starts_with("queued"), "{message}");
        }
        assert_eq!(more_sent(&mut proxy), 0);
    }
}

#[tokio::test]
async fn a_task_of_an_earlier_process_can_be_cancelled_while_it_waits() {
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let ids = [begin(&proxy, r#"{"n":1}"#).await, begin(&proxy, r#"{"n":2}"#).await];
    let mut proxy = proxy.crashes(one_at_a_time()).await;
    let (call, sender) = proxy.next_sent().await;
    let running = usize::from(call.params.raw().as_str().contains(r#""n":2"#));
    cancel(&proxy, &ids[1 - running]).await;
    assert_eq!(proxy.ended(&ids[1 - running]).await["status"], "cancelled");
    cancel(&proxy, &ids[running]).await;
    sender.cancelled().await;
    assert_eq!(proxy.ended(&ids[running]).await["status"], "cancelled");
    drop(sender);
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_crash_loop_sends_nothing_twice() {
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(begin(&proxy, &format!("{{\"n\":{n}}}")).await);
    }
    let mut sent = Vec::new();
    for _ in 0..10 {
        proxy = proxy.crashes(tasks()).await;
        // Each process gets on a little.
        tokio::task::yield_now().await;
        sent.extend(std::iter::from_fn(|| proxy.sent.try_recv().ok()).map(|(call, _)| call.params.raw().clone()));
    }
    let mut proxy = proxy.crashes(tasks()).await;
    let (_none, nothing) = tokio::sync::mpsc::unbounded_channel();
    let mut rest = std::mem::replace(&mut proxy.sent, nothing);
    // Those that no process has got to are sent now, and lost.
    let lost = async {
        while let Some((call, _)) = rest.recv().await {
            sent.push(call.params.raw().clone());
        }
    };
    let ended = async {
        for id in &ids {
            let task = proxy.ended(id).await;
            assert_eq!(reason(&task), "outcome_unknown", "{task}");
        }
    };
    tokio::select! {
        () = ended => {}
        () = lost => panic!("the service is gone"),
    }
    let mut once: Vec<_> = sent.iter().map(|params| params.as_str().to_owned()).collect();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), sent.len(), "sent twice");
}

#[tokio::test]
async fn a_task_whose_server_is_gone_from_the_configuration_ends() {
    let mut proxy = Proxy::new(one_at_a_time());
    let running = begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let waiting = begin(&proxy, ARGUMENTS).await;
    let ann = proxy.store.owner(&Principal::Named("ann".into()));
    let mut left = Vec::new();
    for id in [&running, &waiting] {
        left.push(proxy.store.get(&ann, &id.parse().unwrap()).await.unwrap().unwrap());
    }
    // One that was cancelled, of which the last process had no time left to write it.
    let cancelled = begin(&proxy, "{}").await;
    left.push(proxy.store.look(&cancelled.parse().unwrap()).unwrap().unwrap());
    proxy.store.shelve(Shelf::Cancel, &cancelled, Some(b"u".to_vec())).await.unwrap();
    proxy.runner.abandon(left);
    assert_eq!(proxy.ended(&cancelled).await["status"], "cancelled");
    let task = proxy.ended(&waiting).await;
    assert_eq!((reason(&task), &task["error"]["data"]["retryable"]), (&json!("not_started"), &json!(true)));
    assert_eq!(reason(&proxy.ended(&running).await), "outcome_unknown");
    let settled = proxy.store.settle(&running.parse().unwrap(), Ending::Cancelled).await;
    assert!(settled.is_err());
}

#[tokio::test]
async fn a_repeat_of_a_call_that_was_left_to_the_next_process_is_told_so() {
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let keyed = || {
        let mut call = call_with(ARGUMENTS);
        call.caller.key = Some(CallKey::read("k").unwrap());
        call
    };
    let waiting = proxy.value(keyed()).await["taskId"].as_str().unwrap().to_owned();
    proxy.runner.drain();
    let left = async {
        while proxy.runner.live().get(&waiting.parse().unwrap()).is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, left).await.expect("it is not left");
    let said = proxy.value(keyed()).await;
    assert_eq!(said["failed"], "stopping");
    assert!(said["message"].as_str().unwrap().contains("left to the next process"), "{said}");
}

#[tokio::test]
async fn the_client_of_a_task_that_waited_can_be_asked_what_it_declared() {
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    let id = begin(&proxy, ARGUMENTS).await;
    let mut proxy = proxy.crashes(one_at_a_time()).await;
    let (_, sender) = proxy.next_sent().await;
    let _asking = asks(&proxy, &id, &sender, "input-1").await;
}
