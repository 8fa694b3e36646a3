//! Which call an answer belongs to, of servers that answer more than calls, or under no id of ours.

use raincheck::protocol::Reason;

use super::*;

/// Ways to answer a notification.
const NOTES: [&str; 5] = ["refused", "unnamed", "done", "done-unnamed", "minus-one"];

#[tokio::test]
async fn the_first_request_does_not_get_the_answer_to_the_notification_before_it() {
    for notes in NOTES {
        let bench = Bench::new(&format!("notes={notes}"));
        let first = bench.send("ann", Method::of("tools/list"), json!({}));
        assert_eq!(result(first).await["tools"][0]["name"], "plain", "{notes}");
        let call = bench.call_as("bo", "echo", json!({ "n": 1 }));
        assert_eq!(result(call).await["arguments"]["n"], 1, "{notes}");
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_cancel_that_the_server_answers_harms_no_other_call() {
    for notes in NOTES {
        let bench = Bench::new(&format!("notes={notes}"));
        let cancelled = bench.call("hold", json!({ "n": 1 }));
        bench.noted("hold", 1).await;
        let other = bench.call("hold", json!({ "n": 2 }));
        bench.noted("hold", 2).await;
        cancelled.cancel();
        bench.noted("cancelled", 1).await;
        assert_eq!(result(bench.call("echo", json!({ "n": 3 }))).await["arguments"]["n"], 3, "{notes}");
        result(bench.call("release", json!({}))).await;
        assert_eq!(result(other).await["n"], 2, "{notes}");
        assert_eq!(result(cancelled).await["n"], 1, "{notes}");
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_stray_answer_ends_none_of_the_calls_that_run() {
    for id in ["999999", "\"abc\"", "-1", "[]"] {
        let bench = Bench::new("plain");
        let (one, two) = (bench.call("hold", json!({ "n": 1 })), bench.call("hold", json!({ "n": 2 })));
        bench.noted("hold", 2).await;
        let id: Value = serde_json::from_str(id).unwrap();
        for stray in [
            json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": "no" } }),
        ] {
            assert_eq!(result(bench.call("say", stray)).await, json!({}), "{id}");
        }
        result(bench.call("release", json!({}))).await;
        assert_eq!((result(one).await, result(two).await), (json!({ "n": 1 }), json!({ "n": 2 })), "{id}");
        // And none that runs alone.
        let stray = json!({ "jsonrpc": "2.0", "id": id, "result": { "stray": true } });
        assert_eq!(result(bench.call("say", stray)).await, json!({}), "{id}");
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_read_a_call_ends_it_though_it_cannot_name_it() {
    let bench = Bench::new("plain");
    result(bench.call("echo", json!({}))).await;
    let Outcome::Error(error) = outcome(bench.call("unreadable", json!({}))).await else { panic!() };
    assert_eq!(error.code(), -32700);
    bench.upstream.close().await;
}

#[tokio::test]
async fn an_answer_that_does_not_call_itself_json_rpc_ends_its_call_at_once() {
    let bench = Bench::new("plain");
    let failure = failure(bench.call("bare", json!({}))).await;
    assert_eq!(failure.reason, Reason::BadAnswer);
    assert!(failure.message.contains("\"jsonrpc\" must be \"2.0\""), "{}", failure.message);
    bench.upstream.close().await;
}

#[tokio::test]
async fn an_answer_that_is_nested_too_deep_is_told_with_the_limit() {
    let bench = Bench::with("plain", Limits { depth: 20, ..Limits::default() }, |_| {});
    let failure = failure(bench.call("deep", json!({}))).await;
    assert_eq!(failure.reason, Reason::BadAnswer);
    for part in ["20 levels", "limits.depth"] {
        assert!(failure.message.contains(part), "{}", failure.message);
    }
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_handshake_that_is_no_message_is_told_without_a_tool_that_may_have_run() {
    let bench = Bench::new("breaks-handshake");
    let failure = failure(bench.call("echo", json!({}))).await;
    assert_eq!(failure.reason, Reason::NotStarted);
    assert!(failure.message.contains("no valid JSON-RPC message"), "{}", failure.message);
    assert!(!failure.message.contains("run"), "{}", failure.message);
    bench.upstream.close().await;
}
