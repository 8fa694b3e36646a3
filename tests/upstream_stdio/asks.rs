//! Questions of a server in mid-call.

use raincheck::config::Offer;
use raincheck::protocol::{Answer, QuestionKind, Reason};

use super::*;

fn modern(abilities: &Value) -> Caller {
    caller("ann", ClientSession::Stateless, abilities)
}

fn elicitation(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": { "message": "who?", "n": 1.50 } })
}

impl Bench {
    fn asking(&self, caller: &Caller, question: &Value) -> Reply {
        self.ask_as(caller.clone(), Method::CallTool, json!({ "name": "question", "arguments": question }))
    }
}

#[tokio::test]
async fn a_question_comes_out_of_its_call_and_the_answer_goes_back_as_it_was_spelled() {
    let bench = Bench::new("plain");
    let mut reply = bench.asking(&modern(&json!({ "elicitation": {} })), &elicitation(&json!("q\u{2028}")));
    let ask = asked(&mut reply).await;
    assert_eq!(ask.question().kind, QuestionKind::Elicitation);
    assert_eq!(ask.question().params.as_str(), r#"{"message":"who?","n":1.5}"#);
    ask.answer(Answer::Result(raw(r#"{"action":"accept","content":{"n":1.0}}"#)));
    let told = result(reply).await["answer"].clone();
    assert_eq!(told["id"], "q\u{2028}");
    assert_eq!(told["result"].to_string(), r#"{"action":"accept","content":{"n":1.0}}"#);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_question_whose_parameters_are_null_is_asked_without() {
    let bench = Bench::new("plain");
    let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "roots/list", "params": null });
    let mut reply = bench.asking(&modern(&json!({ "roots": {} })), &question);
    let ask = asked(&mut reply).await;
    assert_eq!((ask.question().kind, ask.question().params.as_str()), (QuestionKind::Roots, "{}"));
    ask.answer(Answer::Result(raw(r#"{"roots":[]}"#)));
    assert_eq!(result(reply).await["answer"]["result"], json!({ "roots": [] }));
    bench.upstream.close().await;
}

#[tokio::test]
async fn what_was_not_declared_is_refused_at_once_and_the_call_goes_on() {
    let bench = Bench::new("plain");
    let told = result(bench.asking(&modern(&json!({ "roots": {} })), &elicitation(&json!(1)))).await;
    assert_eq!(told["answer"]["error"]["code"], -32601);
    let text = told["answer"]["error"]["message"].as_str().unwrap();
    assert!(text.contains("did not declare the capability elicitation"), "{text}");
    bench.upstream.close().await;
}

#[tokio::test]
async fn what_was_offered_and_not_declared_ends_the_call_and_tells_the_server_to_stop() {
    let bench = Bench::with("plain", Limits::default(), |config| config.offer = vec![Offer::Elicitation]);
    let ann = modern(&json!({ "roots": {} }));
    let arguments = elicitation(&json!(1));
    let reply = bench.ask_as(ann.clone(), Method::CallTool, json!({ "name": "only-ask", "arguments": arguments }));
    let Outcome::Error(error) = outcome(reply).await else { panic!() };
    assert_eq!(error.code(), -32021);
    let data: Value = error.raw().member("data").unwrap().read().unwrap();
    assert_eq!(data, json!({ "requiredCapabilities": { "elicitation": {} } }));
    bench.noted("cancelled", 1).await;
    bench.noted("answered", 1).await;
    let opening = result(bench.ask_as(ann, Method::CallTool, json!({ "name": "opening", "arguments": {} }))).await;
    assert_eq!(opening["opening"]["capabilities"], json!({ "roots": {}, "elicitation": {} }));
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_question_that_the_server_withdraws_disappears_though_its_call_goes_on() {
    let bench = Bench::new("plain");
    let ann = modern(&json!({ "elicitation": {} }));
    let arguments = elicitation(&json!(5));
    let mut reply = bench.ask_as(ann.clone(), Method::CallTool, json!({ "name": "only-ask", "arguments": arguments }));
    let ask = asked(&mut reply).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
    // Another session would not do, so not a call that could ask.
    let said = bench.ask_as(ann, Method::Other("test/say".to_owned()), cancel);
    result(said).await;
    tokio::time::timeout(PATIENCE, ask.withdrawn()).await.unwrap();
    drop(reply);
    bench.upstream.close().await;
}

#[tokio::test]
async fn the_server_hears_what_each_client_can_be_asked_and_never_of_another_ones() {
    let bench = Bench::new("plain");
    let of = |abilities: Value| {
        let caller = modern(&abilities);
        let reply = bench.ask_as(caller, Method::CallTool, json!({ "name": "opening", "arguments": {} }));
        async { result(reply).await["opening"].clone() }
    };
    let spelled =
        json!({ "sampling": { "tools": {} }, "elicitation": { "url": {}, "form": {} }, "extensions": {}, "x": {} });
    let opening = of(spelled).await;
    assert_eq!(
        opening["capabilities"],
        json!({ "elicitation": { "form": {}, "url": {} }, "sampling": { "tools": {} } })
    );
    assert_eq!(opening["clientInfo"]["name"], "raincheck");
    assert_eq!(of(json!({ "elicitation": {} })).await["capabilities"], json!({ "elicitation": {} }));
    assert_eq!(of(json!({ "elicitation": null })).await["capabilities"], json!({}));
    assert_eq!(of(json!({})).await["capabilities"], json!({}));
    assert_eq!(bench.ledger("start"), 3);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_second_process_is_started_only_when_the_first_is_busy_and_the_client_can_be_asked() {
    use raincheck::config::SessionCount::{Auto, One, Pool};
    let cases = [
        (Auto, json!({}), 1),
        (Auto, json!({ "roots": {} }), 2),
        (One, json!({ "roots": {} }), 1),
        (Pool, json!({}), 2),
    ];
    for (sessions, abilities, starts) in cases {
        let bench = Bench::with("plain", Limits::default(), |config| config.sessions = sessions);
        let ann = modern(&abilities);
        let call = |tool: &str| bench.ask_as(ann.clone(), Method::CallTool, json!({ "name": tool, "arguments": {} }));
        let held = call("hold");
        bench.noted("hold", 1).await;
        result(call("who")).await;
        // The second one is free again.
        result(call("who")).await;
        // A list never needs a process of its own.
        let _ = outcome(bench.ask_as(ann.clone(), Method::ListTools, json!({}))).await;
        assert_eq!(bench.ledger("start"), starts, "{sessions:?} {abilities}");
        drop(held);
        bench.upstream.close().await;
    }
}

#[tokio::test]
async fn without_room_for_another_process_calls_run_beside_each_other() {
    let bench = Bench::with("plain", Limits::default(), |config| config.max_sessions = 1);
    let ann = modern(&json!({ "roots": {} }));
    let call = |tool: &str| bench.ask_as(ann.clone(), Method::CallTool, json!({ "name": tool, "arguments": {} }));
    let held = call("hold");
    bench.noted("hold", 1).await;
    result(call("release")).await;
    assert_eq!(result(held).await, json!({}));
    assert_eq!(bench.ledger("start"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn with_serial_the_next_call_is_sent_when_the_server_is_done_with_the_last_one() {
    let bench = Bench::with("plain", Limits::default(), |config| config.serial = true);
    let held = bench.call("hold", json!({}));
    bench.noted("hold", 1).await;
    let next = bench.call("echo", json!({}));
    let list = bench.send("ann", Method::ListTools, json!({}));
    // Whoever waits may leave.
    list.cancel();
    assert_eq!(failure(list).await.reason, Reason::NotStarted);
    drop(held);
    bench.noted("cancelled", 1).await;
    // What needs no turn gets through, so it is not the way that is blocked.
    let said = json!({ "jsonrpc": "2.0", "method": "notifications/x" });
    assert_eq!(result(bench.send("ann", Method::Notify("test/release".to_owned()), said)).await, json!({}));
    result(next).await;
    let text = std::fs::read_to_string(bench.dir.path().join("ledger")).unwrap();
    assert_eq!(text.lines().collect::<Vec<_>>(), ["start", "hold", "cancelled", "released", "echo"]);
    bench.upstream.close().await;
}

#[tokio::test]
async fn with_serial_a_server_that_does_not_answer_a_cancel_is_waited_for_no_longer_than_cancel_grace() {
    let bench = Bench::with("plain", Limits::default(), |config| {
        (config.serial, config.cancel_grace) = (true, Duration::from_millis(50));
    });
    drop(bench.call("hold", json!({})));
    result(bench.call("echo", json!({}))).await;
    let held = bench.call("hold", json!({}));
    bench.noted("hold", 1).await;
    drop(held);
    result(bench.call("echo", json!({}))).await;
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_server_that_asks_at_its_start_when_nothing_runs_is_told_so() {
    let bench = Bench::new("asks-at-start");
    let ann = modern(&json!({ "roots": {} }));
    let _ = outcome(bench.ask_as(ann.clone(), Method::ListTools, json!({}))).await;
    bench.noted("answered", 1).await;
    let told = result(bench.ask_as(ann, Method::CallTool, json!({ "name": "opening", "arguments": {} }))).await;
    let answers: Vec<_> = told["told"].as_array().unwrap().iter().filter(|told| told["id"] == "start").collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["error"]["code"], -32603);
    bench.upstream.close().await;
}

#[tokio::test]
async fn clients_see_the_tools_for_what_they_declared_and_a_form_client_is_never_sent_to_a_url() {
    let bench = Bench::new("plain");
    let list = |abilities: Value| {
        let reply = bench.ask_as(modern(&abilities), Method::ListTools, json!({}));
        async { result(reply).await["tools"].as_array().unwrap().len() }
    };
    let both = json!({ "elicitation": { "form": {}, "url": {} } });
    assert_eq!((list(json!({ "elicitation": {} })).await, list(json!({})).await, list(both.clone()).await), (2, 1, 2));
    let by_url = json!({
        "jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "params": { "mode": "url", "url": "https://x/" },
    });
    let told = result(bench.asking(&modern(&json!({ "elicitation": {} })), &by_url)).await;
    assert_eq!(told["answer"]["error"]["code"], -32602);
    let mut reply = bench.asking(&modern(&both), &by_url);
    asked(&mut reply).await.answer(Answer::Result(raw(r#"{"action":"accept"}"#)));
    assert_eq!(result(reply).await["answer"]["result"]["action"], "accept");
    bench.upstream.close().await;
}
