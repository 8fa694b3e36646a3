//! How it ends: of itself, by signals, by a host that is gone.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::host::{Machine, modern_with};

#[tokio::test]
async fn what_was_asked_before_the_end_of_the_input_is_answered() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let held = client.call("hold", json!({})).await;
    machine.noted("hold", 1).await;
    let released = client.call("release", json!({})).await;
    let mut ids: Vec<_> = client.close().await.iter().map(|answer| answer["id"].clone()).collect();
    ids.sort_by_key(Value::as_u64);
    assert_eq!(ids, [held, released]);
    machine.noted("eof", 1).await;
}

#[tokio::test]
async fn a_host_that_reads_no_more_ends_it_even_if_nothing_is_to_be_written() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    // Without Tasks nothing comes before the end of the call.
    client.ask("tools/call", modern_with(json!({ "name": "hold", "arguments": {} }), json!({}))).await;
    machine.noted("hold", 1).await;
    client.end_output();
    assert_eq!(client.ended().await.code(), Some(0));
    machine.noted("eof", 1).await;
}

#[tokio::test]
async fn at_the_end_of_the_input_a_held_call_has_the_grace_time_and_is_told() {
    let machine = Machine::new().env("RAINCHECK_SHUTDOWN_GRACE", "100ms");
    let mut client = machine.start(&[]);
    let id = client.call("hold", json!({})).await;
    machine.noted("hold", 1).await;
    let rest = client.close().await;
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &id));
    assert_eq!(rest[0]["error"]["data"]["reason"], "outcome_unknown", "{rest:?}");
}

#[tokio::test]
async fn sigterm_ends_it_in_good_order() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let id = client.call("echo", json!({})).await;
    client.answer(&id).await;
    client.signal(Signal::SIGTERM);
    assert_eq!(client.ended().await.code(), Some(0), "{}", client.log());
    assert_eq!(machine.ledger("eof"), 1);
}

#[tokio::test]
async fn a_host_that_is_impatient_after_the_end_of_the_input_is_not_kept_waiting() {
    let machine = Machine::new();
    let mut client = machine.start(&["--after", "1ms"]);
    let id = client.call("hold", json!({})).await;
    let handle = client.answer(&id).await["result"]["taskId"].clone();
    machine.noted("hold", 1).await;
    client.end_input();
    // The SDKs' order: end the input, then SIGTERM. The grace time is 20 s.
    let started = std::time::Instant::now();
    client.says("nothing more is read").await;
    client.signal(Signal::SIGTERM);
    assert_eq!(client.ended().await.code(), Some(0), "{}", client.log());
    assert!(started.elapsed() < std::time::Duration::from_secs(10));
    let mut next = machine.start(&[]);
    let task = next.task(&handle).await;
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("outcome_unknown")));
    next.close().await;
}

#[tokio::test]
async fn a_host_that_is_impatient_while_the_server_ends_is_not_kept_waiting() {
    let machine = Machine::with("stubborn");
    let mut client = machine.start(&[]);
    let id = client.ask("tools/call", modern_with(json!({ "name": "who", "arguments": {} }), json!({}))).await;
    let pid = client.answer(&id).await["result"]["pid"].as_i64().unwrap();
    client.end_input();
    // Nothing runs any more: only the server is waited for, which takes four seconds.
    machine.noted("eof", 1).await;
    client.signal(Signal::SIGTERM);
    // Its last words may be read after its end.
    client.says("stopping:").await;
    assert_eq!(client.ended().await.code(), Some(0), "{}", client.log());
    assert!(!client.log().contains("was ended by"), "{}", client.log());
    crate::signs::ended(pid.try_into().unwrap(), crate::PATIENCE).await;
}

#[tokio::test]
async fn a_killed_proxy_leaves_no_server_behind() {
    let machine = Machine::with("stubborn");
    let mut client = machine.start(&[]);
    let id = client.call("who", json!({})).await;
    let pid = client.answer(&id).await["result"]["pid"].as_i64().unwrap();
    client.signal(Signal::SIGKILL);
    client.ended().await;
    crate::signs::ended(pid.try_into().unwrap(), crate::PATIENCE).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_started_is_the_answer_to_the_call() {
    let machine = Machine::new();
    let arguments = ["stdio", "--", "/no/such/program"].map(str::to_owned);
    let mut client = machine.start_with(&arguments);
    let id = client.call("x", Value::Null).await;
    let answer = client.answer(&id).await;
    assert_eq!(answer["error"]["data"]["reason"], "not_started", "{answer}");
    client.close().await;
}

#[tokio::test]
async fn sigterm_does_not_wait_long_for_a_host_that_does_not_read() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    // More than wait in queues and pipes.
    for _ in 0..200 {
        client.call("big", json!({ "bytes": 50_000 })).await;
    }
    machine.noted("big", 200).await;
    // The grace time is 20 s, but nothing runs any more.
    let started = std::time::Instant::now();
    client.signal(Signal::SIGTERM);
    assert_eq!(client.ended().await.code(), Some(0), "{}", client.log());
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_wrong_command_is_told_before_the_first_request() {
    let client = Machine::new().start_with(&["stdio", "--", "/no/such/program"].map(str::to_owned));
    client.says("calls will fail for now").await;
    client.close().await;
}
