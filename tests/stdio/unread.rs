//! Hosts that close stdin and never read what is left for them: more than the queue and the pipe take.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::host::{Connection, Machine, modern};
use crate::legacy;

fn request(id: &str, method: &str, params: &Value) -> String {
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// Requests that are refused at once, each under a long id.
fn refused(count: usize) -> String {
    request(&"q".repeat(500), "tools/list", &json!({})).repeat(count)
}

async fn write(client: &mut Connection, lines: &str) {
    tokio::time::timeout(PATIENCE, client.raw(lines.as_bytes())).await.expect("it is not read");
}

/// The host closes stdin and does no more.
async fn ends(client: &mut Connection) {
    client.end_input();
    let began = Instant::now();
    assert_eq!(client.ended().await.code(), Some(0), "{}", client.log());
    // The grace time is 20 s, but nothing runs any more.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}: {}", began.elapsed(), client.log());
    client.says("the client does not read its answers").await;
}

#[tokio::test]
async fn answers_of_a_legacy_client_that_are_never_read_do_not_hold_the_end_up() {
    let machine = Machine::with("full");
    let mut client = legacy::client(&machine, "2025-11-25").await;
    for _ in 0..120 {
        client.ask("tools/call", json!({ "name": "big", "arguments": { "bytes": 20_000 } })).await;
    }
    machine.noted("big", 120).await;
    ends(&mut client).await;
}

#[tokio::test]
async fn answers_to_batches_that_are_never_read_do_not_hold_the_end_up() {
    let machine = Machine::with("full,version=2025-03-26");
    let mut client = legacy::client(&machine, "2025-03-26").await;
    for id in 0..90 {
        let call = json!({ "jsonrpc": "2.0", "id": format!("b{id}"), "method": "tools/call",
            "params": { "name": "big", "arguments": { "bytes": 40_000 } } });
        client.send(&json!([call])).await;
    }
    machine.noted("big", 90).await;
    ends(&mut client).await;
}

#[tokio::test]
async fn subscriptions_that_are_never_read_do_not_hold_the_end_up() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let params = modern(json!({ "notifications": { "toolsListChanged": true } }));
    let lines: String =
        (0..300).map(|n| request(&format!("{}{n}", "l".repeat(600)), "subscriptions/listen", &params)).collect();
    write(&mut client, &lines).await;
    ends(&mut client).await;
}

#[tokio::test]
async fn requests_about_tasks_whose_answers_are_never_read_do_not_hide_the_end_of_the_input() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let params = modern(json!({ "taskId": "06h2t96gt7fg05le90c4u35r1erefpmhh050" }));
    let lines: String = (0..400).map(|n| request(&format!("{}{n}", "g".repeat(300)), "tasks/get", &params)).collect();
    write(&mut client, &lines).await;
    ends(&mut client).await;
}

/// What stands behind them is taken all the same: it was written by a host that was there.
#[tokio::test]
async fn refusals_that_are_never_read_do_not_hide_the_end_of_the_input() {
    let machine = Machine::with("full");
    let mut client = machine.start(&[]);
    let call = json!({ "name": "echo", "arguments": {} });
    let lines =
        [refused(300), request("i", "initialize", &legacy::hello("2025-11-25")), request("c", "tools/call", &call)];
    write(&mut client, &lines.concat()).await;
    ends(&mut client).await;
    assert_eq!(machine.ledger("echo"), 1);
}

#[tokio::test]
async fn a_signal_after_the_end_of_the_input_is_heeded_at_once_although_answers_are_not_read() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    client.call("hold", json!({})).await;
    machine.noted("hold", 1).await;
    write(&mut client, &refused(300)).await;
    client.end_input();
    client.says("nothing more is read").await;
    let began = Instant::now();
    client.signal(Signal::SIGTERM);
    assert_eq!(client.ended().await.code(), Some(0), "{}", client.log());
    // The call has 20 s otherwise.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}: {}", began.elapsed(), client.log());
}
