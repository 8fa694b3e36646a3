//! What a `requestState` is good for, and copies of the retry that brings it.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use raincheck::clock::Timestamp;
use raincheck::config::{Mode, OnLost, ToolPolicy};
use raincheck::policy::Policies;
use raincheck::protocol::{Outcome, Reason, Reply};
use raincheck::tasks::TasksLayer;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::{Layer, ServiceExt};

use crate::client::{answer, call, done, export, policy, retry_of};
use crate::rounds::asked;
use crate::support::calls::shown;
use crate::support::layer::{PATIENCE, Proxy, Scripted};

fn retry(round: &Value) -> raincheck::protocol::Call {
    call("tools/call", retry_of(export(), round, &json!({ "input-1": {} })))
}

/// Copies of a retry, one after the other, so that none waits to be seen.
async fn copies(proxy: &Proxy, round: &Value, count: usize) -> Vec<Reply> {
    let mut replies = Vec::new();
    for _ in 0..count {
        replies.push(proxy.send(retry(round)).await);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    replies
}

/// The bytes of a state: task, round, end of the round, seal.
fn bytes_of(round: &Value) -> Vec<u8> {
    let (_, text) = round["requestState"].as_str().unwrap().split_once('.').unwrap();
    BASE64URL_NOPAD.decode(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_round_ends_after_ten_minutes_although_a_task_would_wait_for_a_day() {
    let mut proxy = Proxy::new(ToolPolicy { ask_timeout: Duration::from_hours(24), ..policy(Mode::Sync) });
    let before = proxy.store.clock().now();
    let (round, _server, _asking) = asked(&mut proxy, call("tools/call", export())).await;
    let ends = Timestamp::from_millis(u64::from_be_bytes(bytes_of(&round)[40..48].try_into().unwrap()));
    let limit = Duration::from_mins(10);
    assert!(before.after(limit) <= ends && ends <= proxy.store.clock().now().after(limit), "{ends}");
}

#[tokio::test]
async fn a_call_whose_caller_was_asked_is_not_begun_again_when_its_run_is_lost() {
    let mut proxy = Proxy::new(ToolPolicy { on_lost: OnLost::Rerun, ..policy(Mode::Sync) });
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let reply = proxy.send(retry(&round)).await;
    answer(&mut asking).await.unwrap();
    drop(server);
    assert_eq!(shown(timeout(PATIENCE, reply.outcome()).await.unwrap())["failed"], "outcome_unknown");
    assert!(proxy.sent.try_recv().is_err(), "it would ask again what was answered");
}

#[tokio::test]
async fn a_state_is_refused_whichever_of_its_bits_is_another() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let bytes = bytes_of(&round);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let forged = json!({ "requestState": format!("raincheck-1.{}", BASE64URL_NOPAD.encode(&changed)) });
        assert_eq!(proxy.value(retry(&forged)).await["error"]["code"], -32602, "byte {at}");
    }
    let reply = proxy.send(retry(&round)).await;
    answer(&mut asking).await.unwrap();
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn a_state_is_worth_nothing_at_another_server() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, _server, _asking) = asked(&mut proxy, call("tools/call", export())).await;
    let (scripted, mut sent) = Scripted::new();
    let policies = Policies::uniform(policy(Mode::Sync));
    let other = TasksLayer::new(proxy.runner.clone(), "others", policies).layer(scripted);
    let said = shown(timeout(PATIENCE, other.oneshot(retry(&round)).await.unwrap().outcome()).await.unwrap());
    assert_eq!(said["error"]["code"], -32602, "{said}");
    assert!(sent.try_recv().is_err(), "it was sent as a new call");
}

#[tokio::test]
async fn a_copy_of_the_last_retry_that_comes_as_the_run_ends_gets_the_outcome_too() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let first = proxy.send(retry(&round)).await;
    answer(&mut asking).await.unwrap();
    // Without a pause: the copy has not been looked at when the outcome comes.
    let copy = proxy.send(retry(&round)).await;
    server.done(done());
    for reply in [first, copy] {
        let outcome = timeout(PATIENCE, reply.outcome()).await.unwrap();
        assert!(matches!(outcome, Outcome::Result(_)), "{outcome:?}");
    }
}

#[tokio::test]
async fn of_many_copies_of_a_retry_some_wait_and_the_rest_is_told_that_it_is_too_many() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let mut replies = vec![proxy.send(retry(&round)).await];
    answer(&mut asking).await.unwrap();
    // Who has left takes nobody's place.
    drop(copies(&proxy, &round, 8).await);
    replies.extend(copies(&proxy, &round, 11).await);
    server.done(done());
    let (mut told, mut refused) = (0, 0);
    for reply in replies {
        match timeout(PATIENCE, reply.outcome()).await.unwrap() {
            Outcome::Result(_) => told += 1,
            Outcome::Failed(failure) if failure.reason == Reason::Busy => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((told, refused), (9, 3), "the first and eight copies");
}
