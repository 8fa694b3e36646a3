//! The tasks layer around a scripted service: promotion, the three methods, cancels, limits, owners.

mod support;

use std::convert::Infallible;
use std::time::Duration;

use raincheck::config::{Fallback, Mode, ToolPolicy};
use raincheck::policy::Policies;
use raincheck::protocol::reply::Event;
use raincheck::protocol::{Call, Outcome, Progress, Reply, RpcError};
use raincheck::runner::{Bounds, Linger};
use raincheck::tasks::TasksLayer;
use serde_json::{Value, json};
use support::calls::{call, call_of, shown, text};
use support::layer::{PATIENCE, Proxy};
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};

const SLOW: Duration = Duration::from_hours(1);

fn policy(mode: Mode) -> ToolPolicy {
    ToolPolicy { mode, after: SLOW, ..ToolPolicy::default() }
}

/// Becomes a task as soon as a timer can fire.
fn at_once() -> ToolPolicy {
    ToolPolicy { after: Duration::from_millis(1), ..policy(Mode::Auto) }
}

fn export() -> Value {
    json!({ "name": "export", "arguments": { "n": 1 } })
}

fn id_of(created: &Value) -> String {
    created["taskId"].as_str().unwrap_or_else(|| panic!("no handle: {created}")).to_owned()
}

#[tokio::test]
async fn a_quick_call_stays_a_plain_call() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Result(text(r#"{"content":[],"big":9007199254740995}"#)));
    let Outcome::Result(result) = reply.outcome().await else { panic!() };
    assert_eq!(result.as_str(), r#"{"content":[],"big":9007199254740995}"#);
}

#[tokio::test]
async fn a_name_too_long_for_a_record_is_refused_before_anything_is_sent() {
    let named = |length: usize| call("tools/call", json!({ "name": "x".repeat(length) }));
    for mode in [Mode::Auto, Mode::Task] {
        let mut proxy = Proxy::new(ToolPolicy { mode, ..at_once() });
        let Outcome::Error(error) = proxy.send(named(1025)).await.outcome().await else { panic!("{mode:?}") };
        assert_eq!(error.code(), -32602);
        assert_eq!(proxy.value(named(1024)).await["resultType"], "task");
        assert_eq!(proxy.next_sent().await.0.params.name().unwrap().len(), 1024);
    }
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let _reply = proxy.send(named(5000)).await;
    assert_eq!(proxy.next_sent().await.0.params.name().unwrap().len(), 5000);
}

#[tokio::test]
async fn a_slow_call_becomes_a_task_and_is_sent_once() {
    let mut proxy = Proxy::new(at_once());
    let created = proxy.value(call("tools/call", export())).await;
    assert_eq!(created["resultType"], "task");
    assert_eq!(created["status"], "working");
    assert!(created["ttlMs"].is_u64() && created["pollIntervalMs"].is_u64(), "{created}");
    assert!(created.get("content").is_none());
    let id = id_of(&created);

    let (_, sender) = proxy.next_sent().await;
    let working = proxy.get(&id).await;
    assert_eq!((&working["status"], &working["resultType"]), (&json!("working"), &json!("complete")));
    sender.done(Outcome::Result(text(r#"{"content":[{"type":"text","text":"done"}],"isError":true,"n":1E2}"#)));
    let task = proxy.ended(&id).await;
    assert_eq!(task["status"], "completed");
    assert_eq!(task["result"]["resultType"], "complete");
    assert_eq!(task["result"]["isError"], true);
    assert!(proxy.sent.try_recv().is_err(), "the call was sent twice");
}

#[tokio::test]
async fn mode_task_gives_the_handle_before_the_server_answers() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Error(RpcError::with_data(-32000, "no rows", Some(&text("[1.0]")))));
    let task = proxy.ended(&id).await;
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error"], json!({ "code": -32000, "message": "no rows", "data": [1.0] }));
    assert_eq!(task["statusMessage"], "no rows");
}

#[tokio::test]
async fn only_the_request_itself_can_declare_tasks() {
    let mut proxy = Proxy::new(at_once());
    let reply = proxy.send(call_of("ann", false, "tools/call", export())).await;
    let (_, sender) = proxy.next_sent().await;
    // A declaring call of the same client becomes a task meanwhile; this one is still held.
    id_of(&proxy.value(call("tools/call", export())).await);
    sender.done(Outcome::Result(text("{}")));
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn a_tool_that_must_be_a_task_refuses_other_clients_before_anything_is_sent() {
    let mut proxy = Proxy::new(ToolPolicy { fallback: Fallback::Refuse, ..policy(Mode::Task) });
    let refused = proxy.value(call_of("ann", false, "tools/call", export())).await;
    assert_eq!(refused["error"]["code"], -32021);
    let required = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!(refused["error"]["data"]["requiredCapabilities"], required);
    let says = refused["error"]["message"].as_str().unwrap();
    for part in ["\"export\"", "[defaults]", "fallback = \"refuse\"", "fallback = \"wait\""] {
        assert!(says.contains(part), "{part} in {says}");
    }
    assert!(proxy.sent.try_recv().is_err());
}

#[tokio::test]
async fn tasks_methods_need_the_capability_before_the_id_is_looked_at() {
    let proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = |id: &str| json!({ "taskId": id, "inputResponses": {} });
        let known = proxy.value(call_of("ann", false, method, params(&id))).await;
        let unknown = proxy.value(call_of("ann", false, method, params("nothing"))).await;
        assert_eq!(known["error"]["code"], -32021, "{method}");
        assert_eq!(known, unknown, "{method}");
    }
}

#[tokio::test]
async fn a_foreign_handle_reads_exactly_like_an_unknown_one() {
    let proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let other = raincheck::task::TaskId::generate(proxy.store.clock().now()).to_string();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let foreign = proxy.asked_by("bo", method, &id).await;
        assert_eq!(foreign["error"]["code"], -32602, "{method}");
        assert_eq!(foreign, proxy.asked_by("bo", method, &other).await, "{method}");
        assert_eq!(foreign, proxy.asked_by("bo", method, "x").await, "{method}");
    }
    assert_eq!(proxy.get(&id).await["status"], "working", "a foreign cancel stopped the task");
}

#[tokio::test]
async fn a_cancel_is_forwarded_and_settles_the_task() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, sender) = proxy.next_sent().await;
    let params = json!({ "taskId": id });
    assert_eq!(proxy.value(call("tasks/cancel", params.clone())).await, json!({ "resultType": "complete" }));
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    // As Python servers answer a cancel.
    sender.done(Outcome::Error(RpcError::new(0, "Request cancelled")));
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    let again = proxy.value(call("tasks/cancel", params)).await;
    assert_eq!(again, json!({ "resultType": "complete" }));
    assert_eq!(proxy.get(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_result_that_crosses_a_cancel_wins() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, sender) = proxy.next_sent().await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_server_that_never_answers_a_cancel_does_not_keep_the_task_open() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, mut sender) = proxy.next_sent().await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    assert_eq!(proxy.ended(&id).await["status"], "cancelled");
    timeout(PATIENCE, sender.abandoned()).await.expect("the run is never given up");
}

#[tokio::test]
async fn a_cancelled_run_keeps_its_slot_until_the_server_answers() {
    for linger in [Linger::AtMost(SLOW), Linger::UntilTimeout] {
        let policy = ToolPolicy { max_running: Some(1), ..policy(Mode::Task) };
        let mut proxy = Proxy::lingering(policy, linger);
        let first = id_of(&proxy.value(call("tools/call", export())).await);
        let (_, running) = proxy.next_sent().await;
        let waiting = proxy.value(call("tools/call", export())).await;
        assert_eq!(waiting["statusMessage"], "queued: next in line for a free slot", "of a run that goes on");
        proxy.value(call("tasks/cancel", json!({ "taskId": id_of(&waiting) }))).await;
        assert_eq!(proxy.runner.lingering(), 0);
        proxy.value(call("tasks/cancel", json!({ "taskId": first }))).await;
        assert_eq!(proxy.ended(&first).await["status"], "cancelled");
        let second = proxy.value(call("tools/call", export())).await;
        let rule = if linger == Linger::UntilTimeout { "(cancel = \"ignored\")" } else { "(cancel_grace)" };
        let says = second["statusMessage"].as_str().unwrap();
        let begins = "queued: next in line for a free slot; one is kept for a run that was stopped, until its server has \
                      answered, for up to ";
        assert!(says.starts_with(begins) && says.ends_with(rule), "{says}");
        assert_eq!((proxy.runner.running(), proxy.runner.lingering()), (1, 1));
        let early = timeout(Duration::from_millis(200), proxy.sent.recv()).await;
        assert!(early.is_err(), "the slot was given away while the server may still be at work");
        running.done(Outcome::Error(RpcError::new(-32800, "cancelled")));
        let _second = proxy.next_sent().await;
        assert_eq!((proxy.runner.running(), proxy.runner.lingering()), (1, 0));
    }
}

#[tokio::test]
async fn a_run_that_panics_leaves_the_outcome_unknown() {
    let proxy = Proxy::new(policy(Mode::Task));
    let broken = service_fn(async |_: Call| Ok::<_, Infallible>(Reply::ready(Outcome::Result(text("no JSON: a bug")))));
    let policies = Policies::uniform(policy(Mode::Task));
    let service = TasksLayer::new(proxy.runner.clone(), "reports", policies).layer(broken);
    let reply = service.oneshot(call("tools/call", export())).await.unwrap();
    let task = proxy.ended(&id_of(&shown(timeout(PATIENCE, reply.outcome()).await.unwrap()))).await;
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("outcome_unknown")));
}

#[tokio::test]
async fn a_caller_who_hangs_up_before_the_handle_cancels_the_call() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, sender) = proxy.next_sent().await;
    drop(reply);
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
}

#[tokio::test]
async fn a_handle_that_never_goes_out_cancels_the_task() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let outcome = proxy.ask(call("tools/call", export())).await;
    let Outcome::Task(handle) = outcome else { panic!() };
    let created: Value = handle.created.clone().into_json().read().unwrap();
    let (_, sender) = proxy.next_sent().await;
    drop(handle);
    timeout(PATIENCE, sender.cancelled()).await.unwrap();
    drop(sender);
    assert_eq!(proxy.ended(&id_of(&created)).await["status"], "cancelled");
}

#[tokio::test]
async fn a_caller_who_leaves_after_the_handle_changes_nothing() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, sender) = proxy.next_sent().await;
    assert!(!sender.is_cancelled());
    sender.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn progress_is_shown_in_the_status_message_and_never_changes_on_a_poll() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, sender) = proxy.next_sent().await;
    let progress = Progress { progress: text("3"), total: Some(text("5")), message: Some("rows".to_owned()) };
    sender.event(Event::Progress(progress));
    let polling = async {
        loop {
            let task = proxy.get(&id).await;
            if task["statusMessage"].as_str().unwrap().ends_with("progress 3 of 5: rows") {
                return task;
            }
            tokio::task::yield_now().await;
        }
    };
    let task = timeout(PATIENCE, polling).await.expect("the progress is not shown");
    let numbers = json!({ "progress": 3, "total": 5, "message": "rows" });
    assert_eq!(task["_meta"]["dev.raincheck/progress"], numbers);
    assert_eq!(proxy.get(&id).await["lastUpdatedAt"], task["lastUpdatedAt"]);
}

#[tokio::test]
async fn events_reach_a_caller_who_is_held() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let mut reply = proxy.send(call("tools/call", export())).await;
    let (_, sender) = proxy.next_sent().await;
    sender.event(Event::Log(text(r#"{"level":"info","data":1}"#)));
    assert!(matches!(timeout(PATIENCE, reply.next()).await.unwrap(), Some(Event::Log(_))));
    sender.done(Outcome::Result(text("{}")));
    assert!(matches!(reply.outcome().await, Outcome::Result(_)));
}

#[tokio::test]
async fn a_run_ends_at_its_hard_limit_with_a_reason() {
    let mut proxy = Proxy::new(ToolPolicy { timeout: Duration::from_millis(20), ..policy(Mode::Task) });
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, sender) = proxy.next_sent().await;
    let task = proxy.ended(&id).await;
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error"]["data"]["reason"], "timeout");
    assert_eq!(task["_meta"]["dev.raincheck/reason"], "timeout");
    assert!(task["error"]["code"].as_i64().unwrap() > -32000);
    assert!(sender.is_cancelled());
}

#[tokio::test]
async fn other_methods_are_passed_on_and_bounded_too() {
    let mut proxy = Proxy::new(ToolPolicy { timeout: Duration::from_millis(20), ..policy(Mode::Task) });
    let reply = proxy.send(call("resources/read", json!({ "uri": "file:///x" }))).await;
    let (_, sender) = proxy.next_sent().await;
    let outcome = timeout(PATIENCE, reply.outcome()).await.expect("a silent server is waited for");
    assert_eq!(shown(outcome)["failed"], "timeout");
    assert!(sender.is_cancelled());
}

#[tokio::test]
async fn a_call_that_waits_for_a_slot_is_working_and_tells_its_place() {
    let mut proxy = Proxy::new(ToolPolicy { max_running: Some(1), ..policy(Mode::Task) });
    let first = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, running) = proxy.next_sent().await;
    let second = id_of(&proxy.value(call("tools/call", export())).await);
    let third = id_of(&proxy.value(call("tools/call", export())).await);
    let queued = proxy.get(&third).await;
    assert_eq!(queued["status"], "working");
    assert_eq!(queued["statusMessage"], "queued: number 2 in line for a free slot");
    assert!(proxy.sent.try_recv().is_err(), "sent without a slot");

    running.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.ended(&first).await["status"], "completed");
    let (_, running) = proxy.next_sent().await;
    assert_eq!(proxy.get(&third).await["statusMessage"], "queued: next in line for a free slot");
    proxy.value(call("tasks/cancel", json!({ "taskId": third }))).await;
    assert_eq!(proxy.ended(&third).await["status"], "cancelled");
    running.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.ended(&second).await["status"], "completed");
    assert!(proxy.sent.try_recv().is_err(), "a cancelled queued call was sent");
}

#[tokio::test]
async fn time_in_the_queue_counts_for_the_threshold() {
    let mut proxy = Proxy::new(ToolPolicy { max_running: Some(1), ..at_once() });
    id_of(&proxy.value(call("tools/call", export())).await);
    let (_, running) = proxy.next_sent().await;
    let queued = proxy.value(call("tools/call", export())).await;
    assert_eq!(queued["statusMessage"], "queued: next in line for a free slot");
    running.done(Outcome::Result(text("{}")));
    let (_, running) = proxy.next_sent().await;
    running.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.ended(&id_of(&queued)).await["status"], "completed");
}

#[tokio::test]
async fn a_full_queue_refuses_before_anything_is_sent() {
    let mut proxy = Proxy::bounded(policy(Mode::Task), Bounds { running: 1, waiting: 1, rate: None });
    proxy.value(call("tools/call", export())).await;
    let _running = proxy.next_sent().await;
    proxy.value(call("tools/call", export())).await;
    let refused = proxy.value(call("tools/call", export())).await;
    assert_eq!(refused["failed"], "queue_full", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("limits.queue"));
}

#[tokio::test]
async fn a_call_that_waits_too_long_fails_as_never_sent() {
    let queue_timeout = Duration::from_millis(20);
    let mut proxy = Proxy::new(ToolPolicy { max_running: Some(1), queue_timeout, ..policy(Mode::Task) });
    proxy.value(call("tools/call", export())).await;
    let _running = proxy.next_sent().await;
    let task = proxy.ended(&id_of(&proxy.value(call("tools/call", export())).await)).await;
    assert_eq!(task["error"]["data"], json!({ "reason": "queue_timeout", "retryable": true, "retryAfterMs": 5000 }));
}

#[tokio::test]
async fn stopping_records_open_runs_as_lost_and_refuses_new_calls() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let _running = proxy.next_sent().await;
    proxy.runs.stop();
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
    let task = proxy.get(&id).await;
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("outcome_unknown")));
    assert!(task["error"]["data"].get("retryable").is_none());
    assert_eq!(proxy.value(call("tools/call", export())).await["failed"], "stopping");
}

#[tokio::test]
async fn draining_lets_runs_end_but_starts_nothing_and_waits_for_no_answer_to_a_stop() {
    let policy = ToolPolicy { max_running: Some(3), ..policy(Mode::Task) };
    let mut proxy = Proxy::lingering(policy, Linger::AtMost(SLOW));
    let running = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, sender) = proxy.next_sent().await;
    let cancelled = id_of(&proxy.value(call("tools/call", export())).await);
    let _ignores_cancels = proxy.next_sent().await;
    let queued = id_of(&proxy.value(call("tools/call", export())).await);
    proxy.value(call("tasks/cancel", json!({ "taskId": cancelled }))).await;
    assert_eq!(proxy.ended(&cancelled).await["status"], "cancelled");
    proxy.runner.drain();
    assert_eq!(proxy.value(call("tools/call", export())).await["failed"], "stopping");
    assert_eq!(proxy.get(&running).await["status"], "working");
    sender.done(Outcome::Result(text("{}")));
    timeout(PATIENCE, proxy.runner.idle()).await.expect("somebody still waits");
    assert_eq!(proxy.get(&running).await["status"], "completed");
    // Left to the next process, which sends it.
    let queued = proxy.get(&queued).await;
    assert_eq!((&queued["status"], &queued["statusMessage"]), (&json!("working"), &json!("queued for a free slot")));
}

#[tokio::test]
async fn a_service_that_panics_leaves_a_settled_task() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    // The scripted server goes away with the call, as after a panic.
    drop(proxy.next_sent().await);
    let task = proxy.ended(&id).await;
    assert_eq!(task["error"]["data"]["reason"], "outcome_unknown");
}

#[tokio::test]
async fn a_result_that_no_client_could_read_fails_the_task() {
    for result in ["[]", "1", r#"{"content":[],"content":[]}"#, r#"{"resultType":"input_required"}"#] {
        let mut proxy = Proxy::new(policy(Mode::Task));
        let id = id_of(&proxy.value(call("tools/call", export())).await);
        let (_, sender) = proxy.next_sent().await;
        sender.done(Outcome::Result(text(result)));
        let task = proxy.ended(&id).await;
        assert_eq!(task["error"]["data"], json!({ "reason": "bad_answer", "retryable": false }), "{result}");
    }
}

/// Whatever a task is or holds, to read it is a plain request (trap 2: two examples of the extension say "task").
#[tokio::test]
async fn every_state_of_a_task_is_read_as_a_complete_result() {
    let mut proxy = Proxy::new(at_once());
    let mut ends = Vec::new();
    let error = RpcError::new(-32050, "crashed");
    let is_error = Outcome::Result(text(r#"{"content":[],"isError":true}"#));
    for (outcome, status) in [(Outcome::Error(error), "failed"), (is_error, "completed")] {
        let id = id_of(&proxy.value(call("tools/call", export())).await);
        assert_eq!(proxy.get(&id).await["resultType"], "complete");
        proxy.next_sent().await.1.done(outcome);
        ends.push((id, status));
    }
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    ends.push((id, "cancelled"));
    for (id, status) in ends {
        let task = proxy.ended(&id).await;
        assert_eq!((&task["resultType"], &task["status"]), (&json!("complete"), &json!(status)), "{task}");
    }
}

#[tokio::test]
async fn an_update_is_acknowledged_and_unknown_keys_are_ignored() {
    let proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    for responses in [json!({ "never-asked": {} }), json!({ "never-asked": 1, "nor-this": null })] {
        let params = json!({ "taskId": id, "inputResponses": responses });
        assert_eq!(proxy.value(call("tasks/update", params)).await, json!({ "resultType": "complete" }), "{responses}");
    }
    let malformed = proxy.value(call("tasks/update", json!({ "taskId": id }))).await;
    assert_eq!(malformed["error"]["code"], -32602);
}

#[tokio::test]
async fn a_task_kept_for_ever_says_null() {
    let proxy = Proxy::new(ToolPolicy { keep: None, ..policy(Mode::Task) });
    let created = proxy.value(call("tools/call", export())).await;
    assert_eq!(created.get("ttlMs"), Some(&Value::Null));
}

#[tokio::test]
async fn a_call_without_a_tool_is_refused() {
    let proxy = Proxy::new(policy(Mode::Auto));
    for params in [json!({}), json!({ "name": 1 })] {
        assert_eq!(proxy.value(call("tools/call", params)).await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn discover_says_that_there_are_tasks() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let service = proxy.service.clone();
    let asking = tokio::spawn(async move {
        let reply = tower::ServiceExt::oneshot(service, call("server/discover", json!({}))).await.unwrap();
        shown(reply.outcome().await)
    });
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Result(text(r#"{"capabilities":{"tools":{},"tasks":{}}}"#)));
    let capabilities = json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!(asking.await.unwrap()["capabilities"], capabilities);
}

#[tokio::test]
async fn a_task_of_the_servers_own_is_no_handle_of_ours() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Result(text(r#"{"resultType": "task","taskId":"theirs","status":"working"}"#)));
    let Outcome::Failed(failure) = reply.outcome().await else { panic!("their handle went out") };
    assert_eq!(failure.reason, raincheck::protocol::Reason::BadAnswer);
}
