//! Tasks of 2025-11-25 (`fallback = "legacy_tasks"`).

use std::sync::Arc;

use raincheck::clock::{Clock, ManualClock, SystemClock};
use raincheck::protocol::error::code;
use raincheck::protocol::reshape::OFFERED_TASKS;
use raincheck::protocol::{
    Answer, Ask, CallKey, Event, Failure, Method, Outcome, Question, QuestionKind, Reason, Reply, Retry, RpcError,
    TaskSupport,
};
use tokio::time::timeout;

use super::support::calls::{call, shown};
use super::support::layer::PATIENCE;
use super::*;

pub(crate) const RELATED: &str = "io.modelcontextprotocol/related-task";

pub(crate) fn policy() -> ToolPolicy {
    ToolPolicy { fallback: Fallback::LegacyTasks, after: Duration::from_hours(1), ..ToolPolicy::default() }
}

/// A request in the session of somebody who was told of tasks.
fn request_of(who: &str, method: &str, params: &Value) -> Call {
    let mut call = legacy_call(who, method, params.clone(), json!({ "elicitation": {} }));
    call.caller.tasks = TaskSupport::Augmenting;
    call
}

fn request(method: &str, params: &Value) -> Call {
    request_of("ann", method, params)
}

pub(crate) fn export(task: &Value) -> Call {
    request("tools/call", &json!({ "name": "export", "arguments": { "n": 1 }, "task": task }))
}

pub(crate) fn of_task(method: &str, id: &str) -> Call {
    request(method, &json!({ "taskId": id }))
}

pub(crate) fn id_of(task: &Value) -> String {
    task["taskId"].as_str().unwrap_or_else(|| panic!("no task: {task}")).to_owned()
}

/// Starts Ann's `export` as a task: its handle, and the way to end it.
async fn started(proxy: &mut Proxy, task: &Value) -> (Value, ReplySender) {
    let reply = proxy.send_in_background(export(task));
    let (_, sender) = proxy.next_sent().await;
    (reply.await.unwrap()["task"].take(), sender)
}

pub(crate) async fn next(reply: &mut Reply) -> Event {
    timeout(PATIENCE, reply.next()).await.expect("nothing comes").unwrap()
}

async fn done(reply: &mut Reply) -> Outcome {
    loop {
        if let Event::Done(outcome) = next(reply).await {
            return outcome;
        }
    }
}

pub(crate) fn result(text: &str) -> Outcome {
    Outcome::Result(support::calls::text(text))
}

pub(crate) fn form() -> Question {
    let params = support::calls::text(r#"{"message":"Which colour?","requestedSchema":{"type":"object"}}"#);
    Question { kind: QuestionKind::Elicitation, params, key: None }
}

#[tokio::test]
async fn a_call_that_asks_for_it_is_a_task_before_it_is_sent_and_its_result_comes_back_as_it_was_spelled() {
    let mut proxy = Proxy::new(policy());
    let reply = proxy.send_in_background(export(&json!({ "ttl": 60_000 })));
    let (sent, sender) = proxy.next_sent().await;
    assert_eq!(sent.params.raw().as_str(), r#"{"arguments":{"n":1},"name":"export"}"#, "without `task`");
    let created = reply.await.unwrap();
    let task = &created["task"];
    assert_eq!(created.as_object().unwrap().len(), 1, "{created}");
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60_000)), "{created}");
    assert!(task["pollInterval"].is_u64() && task["createdAt"].is_string() && task["lastUpdatedAt"].is_string());
    let id = id_of(task);
    assert_eq!(proxy.value(of_task("tasks/get", &id)).await["status"], "working");

    let mut waiting = proxy.send(of_task("tasks/result", &id)).await.in_background();
    sender.done(result(r#"{"content":[],"n":1.0,"_meta":{"a/b":1e2}}"#));
    let Outcome::Shaped(outcome) = done(&mut waiting).await else { panic!() };
    assert_eq!(
        outcome.into_json().as_str(),
        format!(r#"{{"content":[],"n":1.0,"_meta":{{"a/b":1e2,"{RELATED}":{{"taskId":"{id}"}}}}}}"#)
    );
    let ended = proxy.value(of_task("tasks/get", &id)).await;
    assert_eq!((&ended["status"], ended.get("ttlMs"), ended.get("resultType")), (&json!("completed"), None, None));
    // It is the same task for a client of 2026-07-28, and the other way round.
    assert_eq!(proxy.get(&id).await["result"]["n"], 1.0);
    let theirs = proxy.send_in_background(call("tools/call", json!({ "name": "export" })));
    let (_, sender) = proxy.next_sent().await;
    sender.done(result("{}"));
    assert_eq!(theirs.await.unwrap(), json!({}), "quick enough for a plain result");
}

#[tokio::test]
async fn a_task_of_another_era_is_read_in_the_shapes_of_this_one() {
    let mut proxy = Proxy::new(ToolPolicy { mode: Mode::Task, ..policy() });
    let theirs = proxy.send_in_background(call("tools/call", json!({ "name": "export" })));
    let (_, sender) = proxy.next_sent().await;
    let id = id_of(&theirs.await.unwrap());
    sender.done(result(r#"{"resultType":"complete","content":[]}"#));
    proxy.ended(&id).await;
    assert_eq!(proxy.value(of_task("tasks/get", &id)).await["status"], "completed");
    let result = proxy.value(of_task("tasks/result", &id)).await;
    assert_eq!(result, json!({ "content": [], "_meta": { RELATED: { "taskId": id } } }));
}

#[tokio::test]
async fn a_wish_for_time_to_live_counts_within_what_the_config_keeps() {
    let keep = Some(Duration::from_mins(1));
    let mut proxy = Proxy::new(ToolPolicy { keep, timeout: Duration::from_mins(2), ..policy() });
    for (task, ttl) in [(json!({ "ttl": 5_000 }), 5_000), (json!({ "ttl": 1e12 }), 60_000), (json!({}), 180_000)] {
        let (created, _sender) = started(&mut proxy, &task).await;
        assert_eq!(created["ttl"], ttl, "{task}");
    }
    for bad in [json!(1), json!([]), json!({ "ttl": "1" }), json!({ "ttl": -1 })] {
        let refused = proxy.value(export(&bad)).await;
        assert_eq!(refused["error"]["code"], code::INVALID_PARAMS, "{bad} {refused}");
    }
    assert!(proxy.sent.try_recv().is_err(), "nothing was sent for those");
}

#[tokio::test]
async fn a_call_without_that_is_held_and_a_tool_without_the_fallback_is_no_task() {
    let mut proxy = Proxy::new(ToolPolicy { mode: Mode::Task, ..policy() });
    let held = proxy.send_in_background(request("tools/call", &json!({ "name": "export" })));
    let (_, sender) = proxy.next_sent().await;
    sender.done(result(r#"{"content":[1.0]}"#));
    assert_eq!(held.await.unwrap(), json!({ "content": [1.0] }));

    for policy in [ToolPolicy { mode: Mode::Sync, ..policy() }, ToolPolicy { fallback: Fallback::Wait, ..policy() }] {
        let mut proxy = Proxy::new(policy);
        let refused = proxy.value(export(&json!({}))).await;
        assert_eq!(refused["error"]["code"], code::METHOD_NOT_FOUND, "{refused}");
        assert!(proxy.sent.try_recv().is_err());
    }
}

#[tokio::test]
async fn errors_and_failures_of_the_call_are_those_of_its_result() {
    let mut proxy = Proxy::new(policy());
    let own = r#"{"code":-32000,"message":"no","data":{"n":1.0}}"#;
    let gone = Failure::new(Reason::OutcomeUnknown, "the server died", Retry::Unknown);
    let cases = [
        (Outcome::Error(RpcError::from_server(support::calls::text(own)).unwrap()), "no", json!("server_error")),
        (Outcome::Failed(gone), "the server died", json!("outcome_unknown")),
        (result(r#"{"isError":true,"content":[{"type":"text","text":"out of paper"}]}"#), "out of paper", json!(null)),
    ];
    for (outcome, why, reason) in cases {
        let is_result = matches!(outcome, Outcome::Result(_));
        let (task, sender) = started(&mut proxy, &json!({})).await;
        let id = id_of(&task);
        let mut waiting = proxy.send(of_task("tasks/result", &id)).await.in_background();
        sender.done(outcome);
        match done(&mut waiting).await {
            Outcome::Error(error) => assert_eq!(error.raw().as_str(), own),
            Outcome::Failed(failure) => assert_eq!(failure.reason, Reason::OutcomeUnknown),
            other => assert!(is_result && shown(other)["isError"] == true),
        }
        let ended = proxy.value(of_task("tasks/get", &id)).await;
        assert_eq!((&ended["status"], &ended["statusMessage"]), (&json!("failed"), &json!(why)));
        // What the tool itself says of its failure is no failure of the call.
        assert_eq!(ended["_meta"]["dev.raincheck/reason"], reason, "{ended}");
    }
}

#[tokio::test]
async fn what_the_tool_asks_is_asked_where_the_result_is_waited_for() {
    let mut proxy = Proxy::new(policy());
    let (task, sender) = started(&mut proxy, &json!({})).await;
    let id = id_of(&task);
    let mut early = proxy.send(of_task("tasks/result", &id)).await.in_background();
    let (ask, mut asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    // Who waits already is told, and asked.
    let Event::Notification(told) = next(&mut early).await else { panic!() };
    let params: Value = told.params.unwrap().read().unwrap();
    assert_eq!((told.method.as_str(), &params["status"]), ("notifications/tasks/status", &json!("input_required")));
    let Event::Ask(unanswered) = next(&mut early).await else { panic!() };
    let asked: Value = unanswered.question().params.read().unwrap();
    assert_eq!((&asked["message"], &asked["_meta"][RELATED]["taskId"]), (&json!("Which colour?"), &json!(id)));
    assert_eq!(proxy.value(of_task("tasks/get", &id)).await["status"], "input_required");
    // The client leaves without an answer, comes back, and is asked again.
    drop(unanswered);
    drop(early);
    let mut late = proxy.send(of_task("tasks/result", &id)).await.in_background();
    let Event::Ask(again) = next(&mut late).await else { panic!() };
    again.answer(Answer::Result(support::calls::text(r#"{"action":"accept","content":{"n":1e2}}"#)));
    let Answer::Result(answer) = timeout(PATIENCE, asking.answer()).await.unwrap() else { panic!("refused") };
    assert_eq!(answer.as_str(), r#"{"action":"accept","content":{"n":1e2}}"#);
    let Event::Notification(told) = next(&mut late).await else { panic!() };
    assert_eq!(told.params.unwrap().read::<Value>().unwrap()["status"], "working");
    sender.done(result("{}"));
    assert_eq!(shown(done(&mut late).await)["_meta"][RELATED]["taskId"], id);
}

#[tokio::test]
async fn a_question_is_taken_back_when_somebody_else_has_answered_it_and_an_error_is_an_answer() {
    let mut proxy = Proxy::new(policy());
    let (task, sender) = started(&mut proxy, &json!({})).await;
    let id = id_of(&task);
    let mut waiting = proxy.send(of_task("tasks/result", &id)).await.in_background();
    let (ask, mut asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    let question = loop {
        if let Event::Ask(question) = next(&mut waiting).await {
            break question;
        }
    };
    let key = proxy.get(&id).await["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let responses = json!({ "taskId": id, "inputResponses": { key: { "action": "decline" } } });
    proxy.value(call("tasks/update", responses)).await;
    assert!(matches!(timeout(PATIENCE, asking.answer()).await.unwrap(), Answer::Result(_)));
    timeout(PATIENCE, question.withdrawn()).await.expect("it stays open");

    let (ask, mut asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    let question = loop {
        if let Event::Ask(question) = next(&mut waiting).await {
            break question;
        }
    };
    question.answer(Answer::Error(RpcError::new(-1, "the user said no")));
    let Answer::Error(error) = timeout(PATIENCE, asking.answer()).await.unwrap() else { panic!() };
    assert_eq!(error.code(), -1);
}

#[tokio::test]
async fn a_cancel_ends_the_task_before_it_is_answered_and_a_second_one_is_refused() {
    let mut proxy = Proxy::new(policy());
    let (task, sender) = started(&mut proxy, &json!({})).await;
    let id = id_of(&task);
    let cancelling = proxy.send_in_background(of_task("tasks/cancel", &id));
    timeout(PATIENCE, sender.cancelled()).await.expect("the server is not told");
    assert_eq!(cancelling.await.unwrap()["status"], "cancelled");
    let again = proxy.value(of_task("tasks/cancel", &id)).await;
    assert_eq!(again["error"]["code"], code::INVALID_PARAMS, "{again}");
    assert!(again["error"]["message"].as_str().unwrap().contains("cancelled"));
    let result = proxy.value(of_task("tasks/result", &id)).await;
    assert_eq!(result["error"]["code"], code::INVALID_PARAMS, "{result}");
}

#[tokio::test]
async fn leaving_a_wait_stops_nothing_else() {
    let mut proxy = Proxy::new(policy());
    let (task, sender) = started(&mut proxy, &json!({})).await;
    let id = id_of(&task);
    let waiting = proxy.send(of_task("tasks/result", &id)).await.in_background();
    waiting.cancel();
    drop(waiting);
    let left = async {
        while proxy.runs.running() > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, left).await.expect("the wait goes on");
    assert!(!sender.is_cancelled());
    assert_eq!(proxy.value(of_task("tasks/get", &id)).await["status"], "working");
    let mut other = proxy.send(of_task("tasks/result", &id)).await.in_background();
    sender.done(result(r#"{"content":[]}"#));
    assert!(matches!(done(&mut other).await, Outcome::Shaped(_)));
}

#[tokio::test]
async fn a_wait_for_a_run_that_is_left_to_the_next_process_ends_with_a_word_when_to_ask_again() {
    let mut proxy = Proxy::new(ToolPolicy { on_lost: raincheck::config::OnLost::Rerun, ..policy() });
    let (task, _sender) = started(&mut proxy, &json!({})).await;
    let id = id_of(&task);
    let waits = proxy.send(of_task("tasks/result", &id)).await.in_background();
    let proxy = proxy.stops(policy()).await;
    let Outcome::Failed(failure) = timeout(PATIENCE, waits.outcome()).await.unwrap() else { panic!() };
    assert_eq!((failure.reason, failure.retry.retryable()), (Reason::Stopping, Some(true)));
    assert_eq!(id_of(&proxy.value(of_task("tasks/get", &id)).await), id, "the next process has it");
}

#[tokio::test]
async fn tasks_of_others_are_unknown_and_not_listed() {
    let mut proxy = Proxy::new(policy());
    let (task, _sender) = started(&mut proxy, &json!({})).await;
    let id = id_of(&task);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let unknown = proxy.value(request_of("bob", method, &json!({ "taskId": "nothing" }))).await;
        assert_eq!(unknown["error"]["code"], code::INVALID_PARAMS, "{unknown}");
        let foreign = proxy.value(request_of("bob", method, &json!({ "taskId": id }))).await;
        assert_eq!(foreign, unknown);
        let unnamed = proxy.value(request(method, &json!({}))).await;
        assert_eq!(unnamed["error"]["code"], code::INVALID_PARAMS);
    }
    assert_eq!(proxy.value(request_of("bob", "tasks/list", &json!({}))).await, json!({ "tasks": [] }));
    let mut nobody = request("tasks/list", &json!({}));
    nobody.caller.principal = raincheck::protocol::Principal::Anonymous;
    assert_eq!(proxy.value(nobody).await["error"]["code"], code::METHOD_NOT_FOUND);
}

#[tokio::test]
async fn all_tasks_are_listed_page_by_page_the_newest_first() {
    // Of tasks of the same millisecond none is the newest.
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let mut proxy = Proxy::timed(clock.clone(), policy());
    let mut made = Vec::new();
    for _ in 0..60 {
        clock.advance(Duration::from_millis(1));
        let (task, sender) = started(&mut proxy, &json!({})).await;
        sender.done(result("{}"));
        made.insert(0, id_of(&task));
    }
    let first = proxy.value(request("tasks/list", &json!({}))).await;
    let cursor = first["nextCursor"].as_str().expect("more").to_owned();
    let second = proxy.value(request("tasks/list", &json!({ "cursor": cursor }))).await;
    assert_eq!(second.get("nextCursor"), None);
    let tasks = [&first, &second].into_iter().flat_map(|page| page["tasks"].as_array().unwrap());
    let listed: Vec<String> = tasks.map(id_of).collect();
    assert_eq!(listed, made);
    for bad in [json!("x"), json!(1), json!({})] {
        let refused = proxy.value(request("tasks/list", &json!({ "cursor": bad }))).await;
        assert_eq!(refused["error"]["code"], code::INVALID_PARAMS, "{bad}");
    }
}

#[tokio::test]
async fn a_session_is_told_of_tasks_only_where_a_tool_has_the_fallback() {
    for (policy, offered) in [(policy(), true), (ToolPolicy::default(), false)] {
        let mut proxy = Proxy::new(policy);
        let attach = legacy_call("ann", "initialize", json!({}), json!({}));
        let mut reply = proxy.send(Call { method: Method::Attach, ..attach }).await.in_background();
        let (_, sender) = proxy.next_sent().await;
        sender.event(Event::Attached(text(r#"{"capabilities":{"tasks":{}}}"#)));
        let Event::Attached(result) = next(&mut reply).await else { panic!() };
        assert_eq!(result.member(OFFERED_TASKS).is_some(), offered);
        let list = proxy.send_in_background(request("tools/list", &json!({})));
        let (_, sender) = proxy.next_sent().await;
        sender.done(Outcome::Result(text(LIST)));
        let support = offered.then(|| json!({ "taskSupport": "optional" }));
        assert_eq!(list.await.unwrap()["tools"][0].get("execution"), support.as_ref());
    }
}

#[tokio::test]
async fn a_task_of_a_call_with_a_key_is_kept_for_as_long_as_that_counts_and_not_as_asked() {
    let proxy = Proxy::new(policy());
    let mut keyed = export(&json!({ "ttl": 60_000 }));
    keyed.caller.key = Some(CallKey::read("k").unwrap());
    let created = proxy.value(keyed).await;
    let ttl = created["task"]["ttl"].as_u64().unwrap();
    assert!(u128::from(ttl) > policy().key_window.as_millis(), "{created}");
}
