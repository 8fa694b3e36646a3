//! Runs that wait for input hold slots: nobody may take those of all others with questions that stay unanswered.

use std::time::Duration;

use raincheck::config::{Mode, OwnerRules};
use raincheck::protocol::Outcome;
use raincheck::runner::Bounds;
use serde_json::json;
use tokio::time::timeout;

use crate::client::{answer, ask, asks, call, call_of, done, export, id_of, policy, retry_of, update};
use crate::rounds::asked;
use crate::support::layer::{PATIENCE, Proxy};

const EIGHT: Bounds = Bounds { running: 8, waiting: 10, rate: None };

#[tokio::test]
async fn a_principal_may_have_a_quarter_of_the_slots_wait_for_input_and_others_still_can() {
    let mut proxy = Proxy::bounded(policy(Mode::Sync), EIGHT);
    let mut parked = Vec::new();
    for _ in 0..2 {
        parked.push(asked(&mut proxy, call("tools/call", export())).await);
    }
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    assert!(answer(&mut ask(&server, "who?")).await.is_err(), "too many of Ann's runs wait");
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
    for _ in 0..2 {
        parked.push(asked(&mut proxy, call_of("bo", true, "tools/call", export())).await);
    }
    // Once one is answered, another may wait.
    let (round, _server, mut asking) = parked.swap_remove(0);
    let _reply = proxy.send(call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })))).await;
    answer(&mut asking).await.unwrap();
    let (round, ..) = asked(&mut proxy, call("tools/call", export())).await;
    assert_eq!(round["resultType"], "input_required");
}

#[tokio::test]
async fn tasks_that_wait_for_input_count_too_and_give_their_place_back_with_the_answer() {
    let mut proxy = Proxy::bounded(policy(Mode::Task), EIGHT);
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let id = id_of(&proxy.value(call("tools/call", export())).await);
        let (_, server) = proxy.next_sent().await;
        tasks.push((id, server));
    }
    let mut first = ask(&tasks[0].1, "who?");
    asks(&proxy, &tasks[0].0, 1).await;
    let mut second = ask(&tasks[1].1, "who?");
    asks(&proxy, &tasks[1].0, 1).await;
    // A run that waits already may ask more.
    let mut more = ask(&tasks[1].1, "and?");
    asks(&proxy, &tasks[1].0, 2).await;
    assert!(answer(&mut ask(&tasks[2].1, "who?")).await.is_err(), "too many of Ann's runs wait");
    update(&proxy, &tasks[0].0, json!({ "input-1": {} })).await;
    answer(&mut first).await.unwrap();
    let mut third = ask(&tasks[2].1, "who, again?");
    asks(&proxy, &tasks[2].0, 1).await;
    for (id, responses) in
        [(&tasks[1].0, json!({ "input-1": {}, "input-2": {} })), (&tasks[2].0, json!({ "input-1": {} }))]
    {
        update(&proxy, id, responses).await;
    }
    for asking in [&mut second, &mut more, &mut third] {
        answer(asking).await.unwrap();
    }
}

#[tokio::test]
async fn a_parked_run_keeps_its_slot_and_at_most_half_of_all_slots_wait_for_input() {
    let mut proxy = Proxy::bounded(policy(Mode::Sync), Bounds { running: 4, waiting: 10, rate: None });
    let mut parked = Vec::new();
    for who in ["ann", "bo"] {
        parked.push(asked(&mut proxy, call_of(who, true, "tools/call", export())).await);
    }
    let reply = proxy.send(call_of("cy", true, "tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    assert!(answer(&mut ask(&server, "who?")).await.is_err(), "too many wait");
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
    let cys = call_of("cy", true, "tools/call", export());
    let _two = [proxy.send(call("tools/call", export())).await, proxy.send(cys).await];
    let _running = (proxy.next_sent().await, proxy.next_sent().await);
    let _queued = proxy.send(call("tools/call", export())).await;
    let early = timeout(Duration::from_millis(100), proxy.sent.recv()).await;
    assert!(early.is_err(), "the slot of a parked run was given away");
}

#[tokio::test]
async fn what_an_owner_left_waits_for_input_in_the_same_share_as_what_it_calls_anew() {
    let of = || call_of("of a gateway", true, "tools/call", export());
    let mut proxy = Proxy::bounded(policy(Mode::Task), Bounds { running: 1, ..EIGHT });
    for _ in 0..3 {
        proxy.value(of()).await;
    }
    let _running = proxy.next_sent().await;
    let mut proxy = proxy.restarted(policy(Mode::Task), EIGHT, OwnerRules::default()).await;
    let left = [proxy.next_sent().await.1, proxy.next_sent().await.1];
    let mut asked = Vec::new();
    for server in &left {
        asked.push(ask(server, "who?"));
    }
    for asking in &mut asked {
        let early = timeout(Duration::from_millis(50), answer(asking)).await;
        assert!(early.is_err(), "{early:?}");
    }
    proxy.value(of()).await;
    let (_, server) = proxy.next_sent().await;
    assert!(answer(&mut ask(&server, "who?")).await.is_err(), "too many of its runs wait");
}
