//! What a cancel meets: the end of the run, the handle on its way, a dying server, a free slot, another cancel.

use std::time::Duration;

use raincheck::config::{Mode, ToolPolicy};
use raincheck::protocol::{Failure, Outcome, RpcError};
use raincheck::store::Shelf;
use raincheck::task::Canceller;
use serde_json::json;
use tokio::time::timeout;

use crate::found::{anchored, is_resumed};
use crate::support::calls::call;
use crate::support::layer::{PATIENCE, Proxy};
use crate::{begin, call_with, cancel, done, more_sent, one_at_a_time, rerun, tasks};

#[tokio::test]
async fn of_a_cancel_and_an_end_one_wins_and_stays() {
    let mut proxy = Proxy::new(tasks());
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..40 {
        let id = begin(&proxy, "{}").await;
        let (_, sender) = proxy.next_sent().await;
        if round % 2 == 0 {
            sender.done(done("end"));
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            cancel(&proxy, &id).await;
        } else {
            cancel(&proxy, &id).await;
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            // Servers may answer a cancel with an error, or with nothing.
            match round % 3 {
                0 => sender.done(Outcome::Error(RpcError::new(-32800, "cancelled"))),
                1 => sender.done(done("end")),
                _ => drop(sender),
            }
        }
        let ended = proxy.ended(&id).await;
        let status = ended["status"].as_str().unwrap().to_owned();
        assert!(status == "completed" || status == "cancelled", "{ended}");
        cancel(&proxy, &id).await;
        let after = proxy.get(&id).await;
        assert_eq!((&after["status"], &after["lastUpdatedAt"]), (&ended["status"], &ended["lastUpdatedAt"]));
        seen.insert(status);
    }
    assert_eq!(seen.len(), 2, "both are to be seen");
}

#[tokio::test]
async fn two_cancels_are_one() {
    let mut proxy = Proxy::new(tasks());
    let id = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    let cancels = || proxy.value(call("tasks/cancel", json!({ "taskId": id })));
    let (first, second) = tokio::join!(cancels(), cancels());
    assert_eq!((first, second), (json!({ "resultType": "complete" }), json!({ "resultType": "complete" })));
    sender.cancelled().await;
    drop(sender);
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_server_that_dies_of_a_cancel_leaves_the_task_cancelled() {
    let mut proxy = Proxy::new(tasks());
    let id = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    cancel(&proxy, &id).await;
    sender.cancelled().await;
    sender.done(Outcome::Failed(Failure::outcome_unknown("the server ended")));
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_server_that_dies_before_the_cancel_leaves_the_outcome_unknown() {
    let mut proxy = Proxy::new(tasks());
    let id = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    drop(sender);
    assert_eq!(crate::reason(&proxy.ended(&id).await), "outcome_unknown");
    cancel(&proxy, &id).await;
    assert_eq!(crate::reason(&proxy.get(&id).await), "outcome_unknown");
}

#[tokio::test]
async fn a_cancel_that_meets_a_free_slot_stops_what_was_sent_and_sends_nothing_else() {
    let mut proxy = Proxy::new(one_at_a_time());
    for round in 0..20 {
        let first = begin(&proxy, "{}").await;
        let (_, sender) = proxy.next_sent().await;
        let second = begin(&proxy, r#"{"n":2}"#).await;
        sender.done(done("first"));
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        cancel(&proxy, &second).await;
        assert_eq!(proxy.ended(&second).await["status"], "cancelled");
        assert_eq!(proxy.ended(&first).await["status"], "completed");
        let sent: Vec<_> = std::iter::from_fn(|| proxy.sent.try_recv().ok()).collect();
        assert!(sent.len() <= 1 && sent.iter().all(|(_, sender)| sender.is_cancelled()));
    }
}

#[tokio::test]
async fn a_caller_who_leaves_while_the_handle_is_made_cancels_the_run() {
    let mut proxy = Proxy::new(ToolPolicy { mode: Mode::Auto, after: Duration::from_millis(5), ..tasks() });
    for round in 0..20 {
        let reply = proxy.send(call_with("{}")).await.in_background();
        let (_, sender) = proxy.next_sent().await;
        // Before the threshold; else while the store writes, or when the handle is there and nobody has read it.
        while round % 4 != 0 && proxy.runner.live().is_empty() {
            tokio::task::yield_now().await;
        }
        for _ in 0..round * 5 {
            tokio::task::yield_now().await;
        }
        drop(reply);
        timeout(PATIENCE, sender.cancelled()).await.expect("the run goes on for nobody");
    }
    let live = async {
        while !proxy.runner.live().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, live).await.expect("a task goes on that nobody knows");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_cancel_while_the_outcome_is_written_changes_nothing() {
    let mut proxy = Proxy::new(tasks());
    for _ in 0..10 {
        let id = begin(&proxy, "{}").await;
        let (_, sender) = proxy.next_sent().await;
        // Large outcomes are files, which take a moment.
        sender.done(done(&"x".repeat(2_000_000)));
        tokio::task::yield_now().await;
        cancel(&proxy, &id).await;
        assert_eq!(proxy.ended(&id).await["status"], "completed");
    }
}

#[tokio::test]
async fn a_cancelled_run_is_not_begun_again_by_the_next_process() {
    let mut proxy = Proxy::new(rerun());
    let id = begin(&proxy, "{}").await;
    // The server does not answer the cancel.
    let (_call, _sender) = proxy.next_sent().await;
    cancel(&proxy, &id).await;
    let mut proxy = proxy.crashes(rerun()).await;
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    assert_eq!(more_sent(&mut proxy), 0);
    no_cancel_is_kept(&proxy).await;
}

#[tokio::test]
async fn who_has_cancelled_a_run_is_known_to_the_next_process() {
    for (by, said) in [(Canceller::Owner, "on request"), (Canceller::Operator, "by the operator")] {
        let mut proxy = Proxy::new(rerun());
        let id = begin(&proxy, "{}").await;
        let (_call, _sender) = proxy.next_sent().await;
        let task = proxy.store.look(&id.parse().unwrap()).unwrap().unwrap();
        proxy.runner.cancel(&task, by).await.unwrap();
        let proxy = proxy.crashes(rerun()).await;
        let message = proxy.ended(&id).await["statusMessage"].as_str().unwrap().to_owned();
        assert!(message.contains(said), "{message}");
    }
}

#[tokio::test]
async fn a_cancelled_run_that_is_found_again_is_told_to_stop() {
    let mut proxy = Proxy::new(tasks());
    let (id, _sender) = anchored(&mut proxy).await;
    cancel(&proxy, &id).await;
    let mut proxy = proxy.crashes(tasks()).await;
    let (call, sender) = proxy.next_sent().await;
    assert!(is_resumed(&call, "place"));
    timeout(PATIENCE, sender.cancelled()).await.expect("it is not told");
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    no_cancel_is_kept(&proxy).await;
}

#[tokio::test]
async fn a_cancel_is_forgotten_when_it_has_had_its_effect() {
    let mut proxy = Proxy::new(tasks());
    let id = begin(&proxy, "{}").await;
    let (_call, _sender) = proxy.next_sent().await;
    cancel(&proxy, &id).await;
    let kept = proxy.runner.store().shelf(Shelf::Cancel).unwrap();
    assert_eq!(kept, [(id.clone(), b"u".to_vec())]);
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    no_cancel_is_kept(&proxy).await;
    // A process that died in between has left one, and the next start finds that its task has ended.
    proxy.runner.store().shelve(Shelf::Cancel, &id, Some(b"u".to_vec())).await.unwrap();
    proxy.runner.abandon(Vec::new());
    no_cancel_is_kept(&proxy).await;
}

/// Stops the run of a task without a pause: what the test does next is there at the same time.
fn stop(proxy: &Proxy, id: &str) {
    proxy.runner.live().get(&id.parse().unwrap()).unwrap().cancel();
}

#[tokio::test]
async fn a_free_slot_that_meets_a_cancel_sends_nothing() {
    let mut proxy = Proxy::new(one_at_a_time());
    begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    let second = begin(&proxy, r#"{"n":2}"#).await;
    stop(&proxy, &second);
    sender.done(done("first"));
    assert_eq!(proxy.ended(&second).await["status"], "cancelled");
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_run_that_is_lost_as_it_is_cancelled_is_not_begun_again() {
    let mut proxy = Proxy::new(rerun());
    let id = begin(&proxy, "{}").await;
    let (_, sender) = proxy.next_sent().await;
    stop(&proxy, &id);
    drop(sender);
    assert_eq!(crate::reason(&proxy.ended(&id).await), "outcome_unknown");
    assert_eq!(more_sent(&mut proxy), 0);
}

/// What is kept is forgotten a moment after the end.
async fn no_cancel_is_kept(proxy: &Proxy) {
    let forgotten = async {
        while !proxy.runner.store().shelf(Shelf::Cancel).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, forgotten).await.expect("a cancel stays");
}
