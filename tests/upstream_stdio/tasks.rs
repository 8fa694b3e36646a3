//! Servers that run calls as tasks of 2025-11-25, over stdio: all that belongs to a task comes on the one channel.

use raincheck::config::SessionCount;
use raincheck::protocol::{Answer, Notification};

use super::*;
use crate::scripted::tasks::handle;

fn ann(session: ClientSession) -> Caller {
    caller("ann", session, &json!({ "elicitation": {} }))
}

impl Bench {
    async fn must(&self, caller: &Caller, count: usize) -> Reply {
        let reply = self.ask_as(caller.clone(), Method::CallTool, json!({ "name": "must", "arguments": {} }));
        self.noted("created", count).await;
        reply
    }

    /// Has the server say something of a task.
    async fn task(&self, caller: &Caller, number: usize, step: &str) {
        let params = json!({ "which": handle(number), "step": step });
        result(self.ask_as(caller.clone(), Method::of("test/task"), params)).await;
    }
}

#[tokio::test]
async fn progress_and_status_of_a_task_reach_its_call_before_the_next_poll_and_its_handle_nobody() {
    let bench = Bench::new("tasks");
    let ann = ann(ClientSession::Stateless);
    let mut reply = bench.must(&ann, 1).await;
    assert_eq!(progress_of(Some(next(&mut reply).await)), "1: begun");
    bench.task(&ann, 0, "status").await;
    assert_eq!(progress_of(Some(next(&mut reply).await)), "2: half");
    bench.task(&ann, 0, "progress").await;
    assert_eq!(progress_of(Some(next(&mut reply).await)), "3 of 9: rows");
    // What it asks comes at any time.
    bench.task(&ann, 0, "ask").await;
    let ask = asked(&mut reply).await;
    assert_eq!(ask.question().params.as_str(), r#"{"message":"theirs-0","_meta":{"a/b":1}}"#);
    ask.answer(Answer::Result(raw(r#"{"action":"accept","content":{"n":1.0}}"#)));
    bench.noted("answered", 1).await;
    assert_eq!(bench.ledger("polled"), 0);
    bench.task(&ann, 0, "done").await;
    let told = result(reply).await;
    assert_eq!(told["told"]["result"].to_string(), r#"{"action":"accept","content":{"n":1.0}}"#);
    assert_eq!(told.get("_meta"), None);
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_question_that_names_its_task_comes_out_of_the_call_which_that_is_of() {
    let bench = Bench::with("tasks", Limits::default(), |config| config.sessions = SessionCount::One);
    let ann = ann(ClientSession::Stateless);
    let mut calls = [bench.must(&ann, 1).await, bench.must(&ann, 2).await, bench.must(&ann, 3).await];
    for number in [0, 2, 1] {
        bench.task(&ann, number, "ask").await;
        let mut ask = loop {
            match next(&mut calls[number]).await {
                Event::Ask(ask) => break Some(ask),
                Event::Progress(_) => {}
                other => panic!("{other:?}"),
            }
        };
        let ask = ask.take().unwrap();
        assert_eq!(ask.question().params.member("message").unwrap().read::<Value>().unwrap(), handle(number));
        ask.answer(Answer::Result(raw(r#"{"action":"decline"}"#)));
    }
    bench.noted("answered", 3).await;
    drop(calls);
    bench.noted("tasks/cancel", 3).await;
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_question_of_a_task_that_was_offered_and_not_declared_ends_the_call() {
    let bench = Bench::with("tasks", Limits::default(), |config| {
        config.offer = vec![raincheck::config::Offer::Elicitation];
    });
    let ann = caller("ann", ClientSession::Stateless, &json!({}));
    let reply = bench.must(&ann, 1).await;
    bench.task(&ann, 0, "ask").await;
    let Outcome::Error(error) = outcome(reply).await else { panic!() };
    assert_eq!(error.code(), -32021);
    bench.noted("tasks/cancel", 1).await;
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_legacy_client_hears_nothing_of_the_servers_own_tasks() {
    let bench = Bench::new("tasks");
    let client = ann(ClientSession::Legacy(1));
    let hello = json!({
        "protocolVersion": "2025-11-25", "clientInfo": { "name": "c", "version": "1" },
        "capabilities": { "elicitation": {} },
    });
    let mut session = bench.ask_as(client.clone(), Method::Attach, hello);
    assert!(matches!(next(&mut session).await, Event::Attached(_)));
    let mut reply = bench.must(&client, 1).await;
    assert_eq!(progress_of(Some(next(&mut reply).await)), "1: begun");
    bench.task(&client, 0, "status").await;
    assert_eq!(progress_of(Some(next(&mut reply).await)), "2: half");
    let params = json!({ "which": handle(0), "step": "log" });
    let mut logging = bench.ask_as(client.clone(), Method::of("test/task"), params);
    let Event::Log(log) = next(&mut logging).await else { panic!() };
    assert_eq!(log.as_str(), r#"{"data":1,"level":"info"}"#);
    // What is for the client comes, and nothing before it.
    bench.task(&client, 0, "list").await;
    let Event::Notification(Notification { method, params }) = next(&mut session).await else { panic!() };
    assert_eq!((method.as_str(), params.unwrap().as_str()), ("notifications/tools/list_changed", r#"{"n":1}"#));
    bench.upstream.close().await;
}

#[tokio::test]
async fn a_call_whose_task_is_lost_with_its_server_ends_at_once_and_not_with_many_polls() {
    let bench = Bench::with("tasks", Limits::default(), |config| config.sessions = SessionCount::One);
    let ann = ann(ClientSession::Stateless);
    let reply = bench.must(&ann, 1).await;
    failure(bench.ask_as(ann, Method::CallTool, json!({ "name": "die", "arguments": {} }))).await;
    assert_eq!(failure(reply).await.reason, raincheck::protocol::Reason::OutcomeUnknown);
    bench.upstream.close().await;
}
