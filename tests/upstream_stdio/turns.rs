//! What a call waits for before it goes to its server, and in which order calls get there.

use raincheck::protocol::{Reason, WaitsFor};

use super::*;

async fn event(reply: &mut Reply) -> Option<Event> {
    tokio::time::timeout(PATIENCE, reply.next()).await.expect("nothing comes")
}

/// Has the server answer what it holds.
async fn release(bench: &Bench) {
    let said = json!({ "jsonrpc": "2.0", "method": "notifications/x" });
    result(bench.send("ann", Method::Notify("test/release".to_owned()), said)).await;
}

/// The next call of `who`, which waits for its turn.
async fn in_line(bench: &Bench, who: &str, tool: &str) -> Reply {
    let mut reply = bench.call_as(who, tool, json!({}));
    let said = event(&mut reply).await;
    assert!(matches!(said, Some(Event::Waits(WaitsFor::Turn))), "{said:?}");
    reply
}

#[tokio::test]
async fn a_call_says_what_it_waits_for_and_goes_to_the_server_only_when_it_is_let_go() {
    let bench = Bench::with("plain", Limits::default(), |config| config.serial = true);
    let mut held = bench.call("hold", json!({}));
    assert!(matches!(event(&mut held).await, Some(Event::Waits(WaitsFor::Start))));
    assert!(held.keep_back());
    assert!(matches!(event(&mut held).await, Some(Event::Began)));
    held.let_go();
    bench.noted("hold", 1).await;
    let mut next = in_line(&bench, "ann", "echo").await;
    assert!(next.keep_back());
    drop(held);
    bench.noted("cancelled", 1).await;
    release(&bench).await;
    assert!(matches!(event(&mut next).await, Some(Event::Began)));
    // It has its turn, and is not let go.
    next.cancel();
    assert_eq!(failure(next).await.reason, Reason::NotStarted);
    result(bench.call("who", json!({}))).await;
    assert_eq!(bench.ledger("echo"), 0);
    // Where nothing is waited for, nothing is said.
    let mut at_once = bench.call("echo", json!({}));
    assert!(!at_once.keep_back());
    assert!(matches!(event(&mut at_once).await, Some(Event::Done(_))));
    // What is kept back before that asks all the same.
    let mut kept = bench.unread("ann", Method::CallTool, json!({ "name": "echo", "arguments": {} }));
    assert!(kept.keep_back());
    assert!(matches!(event(&mut kept).await, Some(Event::Began)));
    kept.let_go();
    assert!(matches!(event(&mut kept).await, Some(Event::Done(_))));
    bench.upstream.close().await;
}

#[tokio::test]
async fn an_owner_with_many_calls_in_the_line_of_a_shared_server_delays_the_next_owner_by_one() {
    let bench = Bench::with("plain", Limits::default(), |config| (config.share, config.serial) = (true, true));
    let held = bench.call("hold", json!({}));
    bench.noted("hold", 1).await;
    let mut calls = Vec::new();
    for who in ["ann", "ann", "ann", "ann", "bo"] {
        calls.push(in_line(&bench, who, if who == "bo" { "who" } else { "echo" }).await);
    }
    release(&bench).await;
    result(held).await;
    let bo = result(calls.pop().unwrap()).await;
    assert!(bo["pid"].is_u64(), "{bo}");
    // One before it, and perhaps the next already.
    let before = bench.ledger("echo");
    assert!(before <= 2, "{before} calls of ann came before that of bo");
    for call in calls {
        result(call).await;
    }
    bench.upstream.close().await;
}
