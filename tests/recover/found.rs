//! Runs whose server tells where they are.

use std::time::Duration;

use raincheck::config::{Mode, ToolPolicy};
use raincheck::protocol::{Anchor, Answer, Ask, Event, Failure, Json, Method, Outcome, Question, QuestionKind};
use raincheck::protocol::{Call, CallKey, Reason, ReplySender};
use raincheck::store::Filter;
use serde_json::json;
use tokio::time::timeout;

use crate::support::calls::{call, shown};
use crate::support::layer::{PATIENCE, Proxy};
use crate::{ARGUMENTS, begin, call_with, cancel, done, more_sent, reason, rerun, tasks};

fn at(words: &str) -> Event {
    Event::Anchored(Anchor::new(words.to_owned()))
}

/// Waits until the store says that the run is there.
pub(crate) async fn stored(proxy: &Proxy, id: &str, words: &str) {
    let looked = async {
        loop {
            let anchored = proxy.store.anchored(&id.parse().unwrap()).unwrap();
            if anchored.is_some_and(|anchored| anchored.anchor == Anchor::new(words.to_owned())) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, looked).await.expect("where the run is is not kept");
}

/// A task whose run is at `place`, in the store.
pub(crate) async fn anchored(proxy: &mut Proxy) -> (String, ReplySender) {
    let id = begin(proxy, ARGUMENTS).await;
    let (_, sender) = proxy.next_sent().await;
    sender.event(at("place"));
    stored(proxy, &id, "place").await;
    (id, sender)
}

pub(crate) fn is_resumed(call: &Call, words: &str) -> bool {
    call.method == Method::Resume(Anchor::new(words.to_owned())) && call.params.name() == Some("export")
}

#[tokio::test]
async fn a_run_is_found_again_after_a_crash_and_its_answer_settles_the_task() {
    let mut proxy = Proxy::new(tasks());
    let (id, _sender) = anchored(&mut proxy).await;
    let mut proxy = proxy.crashes(tasks()).await;
    let (resumed, sender) = proxy.next_sent().await;
    assert!(is_resumed(&resumed, "place"), "{resumed:?}");
    assert!(resumed.caller.abilities.has(QuestionKind::Elicitation));
    sender.event(at("further"));
    stored(&proxy, &id, "further").await;
    let mut proxy = proxy.crashes(tasks()).await;
    let (resumed, sender) = proxy.next_sent().await;
    assert!(is_resumed(&resumed, "further"), "{resumed:?}");
    sender.done(done("found"));
    assert_eq!(proxy.ended(&id).await["result"]["content"][0]["text"], "found");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_run_that_the_server_does_not_know_is_lost_or_begun_again() {
    for (policy, sent) in [(tasks(), 0), (rerun(), 1)] {
        let mut proxy = Proxy::new(policy.clone());
        let (id, _sender) = anchored(&mut proxy).await;
        let mut proxy = proxy.crashes(policy).await;
        let (resumed, sender) = proxy.next_sent().await;
        assert!(is_resumed(&resumed, "place"));
        sender.done(Outcome::Failed(Failure::outcome_unknown("404")));
        if sent == 0 {
            assert_eq!(reason(&proxy.ended(&id).await), "outcome_unknown");
        } else {
            let (again, sender) = proxy.next_sent().await;
            assert_eq!(again.params.raw(), call_with(ARGUMENTS).params.raw());
            sender.done(done("second"));
            assert_eq!(proxy.ended(&id).await["status"], "completed");
        }
        assert_eq!(more_sent(&mut proxy), 0);
    }
}

#[tokio::test]
async fn where_a_run_is_is_written_at_once_and_then_once_a_second() {
    let mut proxy = Proxy::new(tasks());
    let (id, sender) = anchored(&mut proxy).await;
    let begun = std::time::Instant::now();
    for number in 0..10 {
        sender.event(at(&number.to_string()));
        tokio::task::yield_now().await;
    }
    stored(&proxy, &id, "9").await;
    assert!(begun.elapsed() > Duration::from_millis(700), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_held_call_becomes_a_task_that_can_be_found_again() {
    let mut proxy = Proxy::new(ToolPolicy { mode: Mode::Auto, after: Duration::from_millis(200), ..tasks() });
    let mut reply = proxy.send(call_with("{}")).await;
    let (_, sender) = proxy.next_sent().await;
    sender.event(at("early"));
    // Where a run is concerns no client.
    let first = timeout(PATIENCE, reply.next()).await.unwrap().unwrap();
    let Event::Done(outcome) = first else { panic!("{first:?}") };
    let created = shown(outcome);
    stored(&proxy, created["taskId"].as_str().unwrap(), "early").await;
    let mut proxy = proxy.stops(tasks()).await;
    assert!(sender.is_left_running());
    assert!(is_resumed(&proxy.next_sent().await.0, "early"));
}

#[tokio::test]
async fn of_a_run_that_is_found_again_the_time_before_counts_but_not_that_of_its_questions() {
    let policy = || ToolPolicy { timeout: Duration::from_hours(1), ..tasks() };
    for asked in [true, false] {
        let mut proxy = Proxy::new(policy());
        let (id, sender) = anchored(&mut proxy).await;
        if asked {
            let _open = asks(&proxy, &id, &sender, "input-1").await;
        }
        let mut proxy = proxy.crashes_for(Duration::from_hours(2), policy()).await;
        let (_, sender) = proxy.next_sent().await;
        if asked {
            let stopped = timeout(Duration::from_millis(100), sender.cancelled()).await;
            assert!(stopped.is_err(), "it has not run for so long");
            sender.done(done("found"));
            assert_eq!(proxy.ended(&id).await["status"], "completed");
        } else {
            assert_eq!(reason(&proxy.ended(&id).await), "timeout");
        }
    }
}

#[tokio::test]
async fn the_silence_of_a_run_that_is_found_again_counts_from_then() {
    let policy =
        || ToolPolicy { idle_timeout: Some(Duration::from_secs(2)), timeout: Duration::from_hours(1), ..tasks() };
    let mut proxy = Proxy::new(policy());
    let (id, _sender) = anchored(&mut proxy).await;
    let mut proxy = proxy.crashes_for(Duration::from_mins(10), policy()).await;
    let (_, sender) = proxy.next_sent().await;
    assert!(timeout(Duration::from_millis(200), sender.cancelled()).await.is_err(), "it is not known to be silent");
    assert_eq!(reason(&proxy.ended(&id).await), "idle_timeout", "now it is");
}

#[tokio::test]
async fn a_held_call_with_a_key_is_found_again_although_it_cannot_become_a_task() {
    let policy = || ToolPolicy { mode: Mode::Sync, ..tasks() };
    for stops_in_order in [false, true] {
        let mut proxy = Proxy::new(policy());
        let held = proxy.send(keyed()).await.in_background();
        let (_, sender) = proxy.next_sent().await;
        sender.event(at("place"));
        let recorded = proxy.store.list(Filter::default(), None, 2).await.unwrap().tasks;
        assert_eq!(recorded.len(), 1);
        stored(&proxy, &recorded[0].id.to_string(), "place").await;
        let joined = proxy.send(keyed()).await.in_background();
        let mut proxy = if stops_in_order {
            let proxy = proxy.stops(policy()).await;
            assert!(sender.is_left_running());
            let (held, joined) = (shown(held.outcome().await), shown(joined.outcome().await));
            assert_eq!((&held["failed"], &held), (&json!("stopping"), &joined));
            proxy
        } else {
            proxy.crashes(policy()).await
        };
        let (resumed, sender) = proxy.next_sent().await;
        assert!(is_resumed(&resumed, "place"), "{resumed:?}");
        let repeat = proxy.send(keyed()).await;
        sender.done(done("found"));
        let said = shown(timeout(PATIENCE, repeat.outcome()).await.unwrap());
        assert_eq!(said["content"][0]["text"], "found");
        assert_eq!(more_sent(&mut proxy), 0);
    }
}

/// A call with a key.
fn keyed() -> Call {
    let mut call = call_with("{}");
    call.caller.key = Some(CallKey::read("k").unwrap());
    call
}

#[tokio::test]
async fn a_repeat_of_a_run_that_was_found_again_is_left_once_more_with_it() {
    let policy = || ToolPolicy { mode: Mode::Sync, ..tasks() };
    let mut proxy = Proxy::new(policy());
    let _held = proxy.send(keyed()).await.in_background();
    let (_, sender) = proxy.next_sent().await;
    sender.event(at("place"));
    let recorded = proxy.store.list(Filter::default(), None, 2).await.unwrap().tasks;
    stored(&proxy, &recorded[0].id.to_string(), "place").await;
    let mut proxy = proxy.crashes(policy()).await;
    let (_, _found) = proxy.next_sent().await;
    let repeat = proxy.send(keyed()).await.in_background();
    proxy.stops(policy()).await;
    let Outcome::Failed(failure) = timeout(PATIENCE, repeat.outcome()).await.unwrap() else { panic!() };
    assert_eq!((failure.reason, failure.retry.retryable()), (Reason::Stopping, Some(true)));
    assert!(failure.message.contains("left to the next process"), "{}", failure.message);
}

#[tokio::test]
async fn a_stop_leaves_a_run_that_can_be_found_again_and_does_not_stop_it() {
    let mut proxy = Proxy::new(tasks());
    let (id, sender) = anchored(&mut proxy).await;
    let mut proxy = proxy.stops(tasks()).await;
    assert!(sender.is_left_running());
    let (resumed, sender) = proxy.next_sent().await;
    assert!(is_resumed(&resumed, "place"));
    sender.done(done("found"));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_question_that_was_open_is_asked_again_under_a_new_key() {
    for stopped in [false, true] {
        let mut proxy = Proxy::new(tasks());
        let (id, sender) = anchored(&mut proxy).await;
        let _first = asks(&proxy, &id, &sender, "input-1").await;
        let mut proxy = if stopped { proxy.stops(tasks()).await } else { proxy.crashes(tasks()).await };
        let (_, sender) = proxy.next_sent().await;
        let mut asking = asks(&proxy, &id, &sender, "input-2").await;
        assert!(proxy.get(&id).await["inputRequests"]["input-1"].is_null());
        let responses = json!({ "input-2": { "action": "accept" } });
        let update = call("tasks/update", json!({ "taskId": id, "inputResponses": responses }));
        assert_eq!(proxy.value(update).await, json!({ "resultType": "complete" }));
        assert!(matches!(timeout(PATIENCE, asking.answer()).await.unwrap(), Answer::Result(_)));
        sender.done(done("answered"));
        assert_eq!(proxy.ended(&id).await["status"], "completed");
    }
}

/// The server asks, which the task shows under this key.
pub(crate) async fn asks(proxy: &Proxy, id: &str, sender: &ReplySender, key: &str) -> raincheck::protocol::Asking {
    let (ask, asking) = Ask::new(Question { kind: QuestionKind::Elicitation, params: Json::empty_object(), key: None });
    sender.event(Event::Ask(ask));
    let asked = async {
        while proxy.get(id).await["inputRequests"][key].is_null() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, asked).await.expect("it does not ask");
    asking
}

#[tokio::test]
async fn a_run_that_was_found_again_can_be_cancelled() {
    let mut proxy = Proxy::new(tasks());
    let (id, _sender) = anchored(&mut proxy).await;
    let mut proxy = proxy.crashes(tasks()).await;
    // Before anybody has looked at it.
    cancel(&proxy, &id).await;
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    let sent = std::iter::from_fn(|| proxy.sent.try_recv().ok());
    assert!(sent.into_iter().all(|(call, sender)| is_resumed(&call, "place") && sender.is_cancelled()));
}
