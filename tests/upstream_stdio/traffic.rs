//! What goes to and fro.

use futures_util::future::join_all;
use raincheck::config::UpstreamEra;
use raincheck::protocol::{Reason, WaitsFor};

use super::*;

#[tokio::test]
async fn many_cold_calls_wait_for_one_handshake_and_none_overtakes_it() {
    let bench = Bench::new("plain");
    let calls = (0..32).map(|n| result(bench.call("echo", json!({ "n": n }))));
    let answers = tokio::time::timeout(PATIENCE, join_all(calls)).await.unwrap();
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer["arguments"]["n"], n);
    }
    assert_eq!(result(bench.call("who", json!({}))).await["handshakes"], 1);
    assert_eq!(bench.ledger("start"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn answers_in_reverse_order_reach_their_own_callers() {
    let bench = Bench::new("plain");
    let ann = bench.call("hold", json!({ "who": "ann" }));
    let bo = bench.call("hold", json!({ "who": "bo" }));
    bench.noted("hold", 2).await;
    result(bench.call("release", json!({}))).await;
    assert_eq!(result(ann).await["who"], "ann");
    assert_eq!(result(bo).await["who"], "bo");
    bench.upstream.close().await;
}

#[tokio::test]
async fn confused_ids_work_one_at_a_time_and_never_swap_results() {
    for ids in ["string", "zero", "null"] {
        let bench = Bench::new(&format!("ids={ids}"));
        for n in 0..3 {
            assert_eq!(result(bench.call("echo", json!({ "n": n }))).await["arguments"]["n"], n, "{ids}");
        }
        let ann = bench.call("hold", json!({ "who": "ann" }));
        let bo = bench.call("hold", json!({ "who": "bo" }));
        bench.noted("hold", 2).await;
        let _released = bench.call("release", json!({}));
        if ids == "string" {
            assert_eq!(result(ann).await["who"], "ann");
            assert_eq!(result(bo).await["who"], "bo");
        } else {
            assert_eq!(failure(ann).await.reason, Reason::OutcomeUnknown, "{ids}");
            assert_eq!(failure(bo).await.reason, Reason::OutcomeUnknown, "{ids}");
        }
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_server_that_logs_to_its_output_is_understood() {
    let bench = Bench::new("banner,chatty");
    assert_eq!(result(bench.call("echo", json!({ "a": 1 }))).await["arguments"], json!({ "a": 1 }));
    bench.upstream.close().await;
}

#[tokio::test]
async fn separators_survive_the_way_out_and_the_way_back() {
    let bench = Bench::new("plain");
    let text = "l\u{2028}m\u{2029}n\u{85}\r\n\t\u{0}";
    assert_eq!(result(bench.call("echo", json!({ "t": text }))).await["arguments"]["t"], text);
    assert_eq!(result(bench.call("separators", json!({}))).await["t"], "left\u{2028}right");
    bench.upstream.close().await;
}

#[tokio::test]
async fn arguments_with_raw_line_ends_arrive_as_one_line() {
    let bench = Bench::new("plain");
    let method = Method::CallTool;
    let params = raw("{\"name\":\"echo\",\r\n\"arguments\":{\n\"big\":\r1.0\n}}");
    let params = Params::read(&method, Some(params)).unwrap();
    let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
    let call = Call { method, params, caller, arrived: tokio::time::Instant::now() };
    let reply = bench.upstream.clone().call(call).await.unwrap();
    assert_eq!(result(reply).await["arguments"], json!({ "big": 1.0 }));
    bench.upstream.close().await;
}

#[tokio::test]
async fn large_results_pass_and_too_large_ones_fail_their_own_call_only() {
    let limits = Limits { message: 15 << 20, ..Limits::default() };
    let bench = Bench::with("plain", limits, |_| {});
    let held = bench.call("hold", json!({ "still": "here" }));
    for mebibytes in [1, 9, 14] {
        let bytes = mebibytes << 20;
        let answer = result(bench.call("big", json!({ "bytes": bytes }))).await;
        assert_eq!(answer["text"].as_str().unwrap().len(), bytes);
    }
    let refused = failure(bench.call("big", json!({ "bytes": 80 << 20 }))).await;
    assert_eq!(refused.reason, Reason::TooLarge);
    assert!(refused.message.contains("limits.message"), "{}", refused.message);
    result(bench.call("release", json!({}))).await;
    assert_eq!(result(held).await, json!({ "still": "here" }));
    assert_eq!(bench.ledger("start"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_large_request_is_written_whole() {
    let bench = Bench::new("plain");
    let text = "y".repeat(5 << 20);
    assert_eq!(result(bench.call("echo", json!({ "t": text }))).await["arguments"]["t"].as_str().unwrap(), text);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_server_that_asks_before_it_works_is_answered_at_once() {
    let bench = Bench::new("plain");
    let answer = result(bench.call("ask", json!({}))).await;
    assert_eq!(answer, json!({ "ping": {}, "codes": [null, -32601, -32601] }));
    bench.upstream.close().await;
}

#[tokio::test]
async fn late_progress_and_invented_tokens_hurt_nobody() {
    let bench = Bench::new("plain");
    let held = bench.call("hold", json!({ "n": 1 }));
    bench.noted("hold", 1).await;
    let mut late = bench.call("late-progress", json!({}));
    assert!(matches!(late.next().await, Some(Event::Done(Outcome::Result(_)))));
    assert!(late.next().await.is_none());
    let mut early = bench.call("progress", json!({}));
    assert_eq!(progress_of(early.next().await), "1 of 2");
    result(early).await;
    result(bench.call("release", json!({}))).await;
    assert_eq!(result(held).await, json!({ "n": 1 }));
    assert_eq!(bench.ledger("start"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn principals_have_processes_of_their_own_unless_they_share() {
    let bench = Bench::new("plain");
    let (ann, bo) = (pid(&bench, "ann").await, pid(&bench, "bo").await);
    assert_ne!(ann, bo);
    assert_eq!(pid(&bench, "ann").await, ann);
    bench.upstream.close().await;

    let shared = Bench::with("plain", Limits::default(), |config| config.share = true);
    assert_eq!(pid(&shared, "ann").await, pid(&shared, "bo").await);
    shared.upstream.close().await;
}

#[tokio::test]
async fn one_principals_stuck_server_stops_nobody_else() {
    let bench = Bench::new("plain");
    let deaf = bench.call_as("ann", "deaf", json!({}));
    bench.noted("deaf", 1).await;
    // Far more than a pipe and the queue hold, so that the writer is stuck.
    let text = "z".repeat(100_000);
    let stuck: Vec<_> = (0..100).map(|_| bench.call_as("ann", "echo", json!({ "t": text }))).collect();
    assert_eq!(result(bench.call_as("bo", "echo", json!({ "n": 1 }))).await["arguments"]["n"], 1);
    let last = stuck.into_iter().next_back().unwrap();
    last.cancel();
    assert_eq!(failure(last).await.reason, Reason::NotStarted);
    drop(deaf);
    tokio::time::timeout(PATIENCE, bench.upstream.close()).await.unwrap();
}

#[tokio::test]
async fn a_modern_server_gets_plain_calls_without_a_handshake() {
    for era in [UpstreamEra::Modern, UpstreamEra::Auto, UpstreamEra::Legacy] {
        let bench = Bench::with("modern", Limits::default(), |config| config.era = era);
        let answer = result(bench.call("echo", json!({}))).await;
        assert_eq!(answer["meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28", "{era:?}");
        assert_eq!(answer["meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}), "{era:?}");
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_legacy_server_is_found_out_though_it_is_silent_to_discover() {
    for script in ["silent-to-discover", "plain"] {
        let bench = Bench::with(script, Limits::default(), |config| config.era = UpstreamEra::Auto);
        let answer = result(bench.call("echo", json!({}))).await;
        assert!(answer["meta"].get("io.modelcontextprotocol/protocolVersion").is_none());
        assert!(answer["meta"]["progressToken"].is_u64());
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn a_call_says_that_it_waits_for_its_server_where_it_does() {
    for (serial, what) in [(false, WaitsFor::Start), (true, WaitsFor::Turn)] {
        let bench = Bench::with("plain", Limits::default(), |config| config.serial = serial);
        let mut first = bench.call("echo", json!({}));
        let event = |event: Option<Event>| match event {
            Some(Event::Waits(what)) => format!("{what:?}"),
            Some(Event::Began) => "began".to_owned(),
            Some(Event::Done(Outcome::Result(_))) => "done".to_owned(),
            other => panic!("{other:?}"),
        };
        for expected in [format!("{what:?}").as_str(), "began", "done"] {
            assert_eq!(event(tokio::time::timeout(PATIENCE, first.next()).await.unwrap()), expected);
        }
        let mut second = bench.call("echo", json!({}));
        assert_eq!(event(tokio::time::timeout(PATIENCE, second.next()).await.unwrap()), "done");
        bench.upstream.close().await;
    }
}
