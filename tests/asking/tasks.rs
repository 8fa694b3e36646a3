//! Tasks that ask.

use std::time::Duration;

use raincheck::config::{Mode, ToolPolicy};
use raincheck::protocol::{Answer, Ask, Asking, Event, Outcome, Question, QuestionKind};
use raincheck::runner::Linger;
use serde_json::json;
use tokio::time::timeout;

use crate::client::{
    accepted, answer, ask, ask_as, asks, call, call_with, done, export, id_of, keys, policy, question, until, update,
};
use crate::support::calls::text;
use crate::support::layer::{PATIENCE, Proxy};

/// A running task and its server.
async fn running(policy: ToolPolicy) -> (Proxy, String, raincheck::protocol::ReplySender) {
    let mut proxy = Proxy::new(policy);
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    (proxy, id, server)
}

#[tokio::test]
async fn a_task_that_asks_is_input_required_until_it_is_answered() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let mut asking = ask(&server, "who?");
    let task = asks(&proxy, &id, 1).await;
    assert_eq!((&task["status"], &task["resultType"]), (&json!("input_required"), &json!("complete")));
    let request = &task["inputRequests"]["input-1"];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["message"], "who?");
    assert_eq!(request.as_object().unwrap().len(), 2);
    assert!(task["statusMessage"].as_str().unwrap().contains("waiting for input"), "{task}");

    let response = json!({ "input-1": accepted(&json!({ "name": "Ann" })) });
    assert_eq!(update(&proxy, &id, response).await, json!({ "resultType": "complete" }));
    // Removed before the acknowledgement, and forwarded.
    let after = proxy.get(&id).await;
    assert_eq!(after["status"], "working");
    assert!(after.get("inputRequests").is_none());
    assert_eq!(answer(&mut asking).await, Ok(accepted(&json!({ "name": "Ann" }))));
    server.done(done());
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

/// Why a question was refused.
async fn refusal(asking: &mut Asking) -> String {
    let Answer::Error(error) = timeout(PATIENCE, asking.answer()).await.unwrap() else { panic!("it was asked") };
    error.message().to_owned()
}

#[tokio::test]
async fn a_question_that_meets_a_cancel_is_refused_with_the_reason() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    proxy.runner.live().get(&id.parse().unwrap()).unwrap().cancel();
    assert_eq!(refusal(&mut ask(&server, "who?")).await, "the call is being stopped");
    assert_eq!(until(&proxy, &id, |task| task["status"] != "working").await["status"], "cancelled");
}

#[tokio::test]
async fn a_question_that_meets_the_leave_of_its_caller_is_refused_with_the_reason() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    drop(reply);
    assert_eq!(refusal(&mut ask(&server, "who?")).await, "the call is being stopped");
    timeout(PATIENCE, server.cancelled()).await.unwrap();
}

#[tokio::test]
async fn a_question_makes_a_quick_call_a_task_at_once() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    let mut asking = ask(&server, "who?");
    let created = crate::support::calls::shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    assert_eq!(created["resultType"], "task");
    let id = id_of(&created);
    assert_eq!(keys(&asks(&proxy, &id, 1).await), ["input-1"]);
    update(&proxy, &id, json!({ "input-1": { "action": "decline" } })).await;
    assert_eq!(answer(&mut asking).await, Ok(json!({ "action": "decline" })));
    server.done(done());
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn parallel_questions_are_answered_one_by_one_and_keys_never_repeat() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let mut first = ask(&server, "first");
    let mut second = ask_as(&server, question("second", Some("name")));
    assert_eq!(keys(&asks(&proxy, &id, 2).await), ["input-1", "name"]);
    update(&proxy, &id, json!({ "name": accepted(&json!(2)) })).await;
    assert_eq!(answer(&mut second).await, Ok(accepted(&json!(2))));
    let left = proxy.get(&id).await;
    assert_eq!((keys(&left), &left["status"]), (vec!["input-1".to_owned()], &json!("input_required")));
    // The same wish again, and a late answer to what was answered.
    let mut third = ask_as(&server, question("third", Some("name")));
    assert_eq!(keys(&asks(&proxy, &id, 2).await), ["input-1", "input-3"]);
    update(&proxy, &id, json!({ "name": accepted(&json!("late")), "input-1": accepted(&json!(1)), "x": {} })).await;
    assert_eq!(answer(&mut first).await, Ok(accepted(&json!(1))));
    update(&proxy, &id, json!({ "input-3": accepted(&json!(3)) })).await;
    assert_eq!(answer(&mut third).await, Ok(accepted(&json!(3))));
    assert_eq!(proxy.get(&id).await["status"], "working");
}

#[tokio::test]
async fn malformed_answers_are_refused_before_anything_is_changed() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let mut asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    for bad in [json!([]), json!(1), json!(null), json!({ "input-1": null }), json!({ "input-1": 1, "x": {} })] {
        let refused = update(&proxy, &id, bad.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{bad}");
        assert_eq!(keys(&proxy.get(&id).await), ["input-1"], "{bad}");
    }
    // What stands under a key that is not open is ignored, whatever it is.
    let taken = update(&proxy, &id, json!({ "input-1": {}, "other": 1 })).await;
    assert_eq!(taken, json!({ "resultType": "complete" }));
    assert_eq!(answer(&mut asking).await, Ok(json!({})));
    let late = update(&proxy, &id, json!({ "input-1": null })).await;
    assert_eq!(late, json!({ "resultType": "complete" }), "it has been answered");
}

#[tokio::test]
async fn only_the_owner_can_answer() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let mut asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    let params = json!({ "taskId": id, "inputResponses": { "input-1": { "action": "accept" } } });
    let foreign = proxy.value(crate::client::call_of("bo", true, "tasks/update", params)).await;
    assert_eq!(foreign["error"]["code"], -32602);
    assert_eq!(keys(&proxy.get(&id).await), ["input-1"]);
    update(&proxy, &id, json!({ "input-1": { "action": "cancel" } })).await;
    assert_eq!(answer(&mut asking).await, Ok(json!({ "action": "cancel" })));
}

#[tokio::test]
async fn a_question_that_the_server_withdraws_disappears() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let asking = ask(&server, "who?");
    let mut other = ask(&server, "and?");
    asks(&proxy, &id, 2).await;
    drop(asking);
    assert_eq!(keys(&asks(&proxy, &id, 1).await), ["input-2"]);
    update(&proxy, &id, json!({ "input-1": accepted(&json!(1)), "input-2": accepted(&json!(2)) })).await;
    assert_eq!(answer(&mut other).await, Ok(accepted(&json!(2))));
    assert_eq!(proxy.get(&id).await["status"], "working");
}

#[tokio::test]
async fn a_task_whose_questions_nobody_answers_fails_with_a_reason_of_its_own() {
    let policy = ToolPolicy { ask_timeout: Duration::from_millis(50), ..policy(Mode::Task) };
    let (proxy, id, server) = running(policy).await;
    let mut asking = ask(&server, "who?");
    let task = until(&proxy, &id, |task| task["status"] == "failed").await;
    assert_eq!(task["error"]["data"], json!({ "reason": "input_timeout" }));
    assert_eq!(task["_meta"]["dev.raincheck/reason"], "input_timeout");
    assert!(server.is_cancelled());
    assert!(answer(&mut asking).await.is_err());
}

#[tokio::test]
async fn the_time_limit_of_a_run_stands_still_while_it_waits_for_input() {
    let policy = ToolPolicy { timeout: Duration::from_millis(300), ..policy(Mode::Task) };
    let (proxy, id, server) = running(policy).await;
    let mut asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    let waited = timeout(Duration::from_millis(600), server.cancelled()).await;
    assert!(waited.is_err(), "the run was stopped while it waited for input");
    assert_eq!(proxy.get(&id).await["status"], "input_required");
    update(&proxy, &id, json!({ "input-1": {} })).await;
    assert!(answer(&mut asking).await.is_ok());
    let task = until(&proxy, &id, |task| task["status"] == "failed").await;
    assert_eq!(task["error"]["data"]["reason"], "timeout");
}

#[tokio::test]
async fn a_task_is_cancelled_while_it_asks_and_its_questions_are_refused() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let mut asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
    timeout(PATIENCE, server.cancelled()).await.unwrap();
    assert!(answer(&mut asking).await.is_err());
    // It asks once more although it was told to stop.
    assert!(answer(&mut ask(&server, "really?")).await.is_err());
    let task = until(&proxy, &id, |task| task["status"] == "cancelled").await;
    assert!(task.get("inputRequests").is_none());
}

#[tokio::test]
async fn draining_ends_a_task_that_waits_for_input_since_nobody_could_answer() {
    let mut proxy = Proxy::lingering(policy(Mode::Task), Linger::AtMost(Duration::from_hours(1)));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    let mut asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    proxy.runner.drain();
    let task = until(&proxy, &id, |task| task["status"] == "failed").await;
    assert_eq!(task["error"]["data"]["reason"], "outcome_unknown");
    assert!(answer(&mut asking).await.is_err());
    timeout(PATIENCE, proxy.runner.idle()).await.expect("somebody still waits");
}

#[tokio::test]
async fn a_question_while_the_proxy_drains_is_refused_and_the_run_may_end() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    proxy.runner.drain();
    assert!(answer(&mut ask(&server, "who?")).await.is_err());
    server.done(done());
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn stopping_records_an_asking_task_as_lost() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let _asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    proxy.runs.stop();
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
    let task = proxy.get(&id).await;
    assert_eq!((&task["status"], &task["error"]["data"]["reason"]), (&json!("failed"), &json!("outcome_unknown")));
}

#[tokio::test]
async fn a_tool_that_ends_without_its_answer_completes() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let _asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    server.done(Outcome::Result(text(r#"{"content":[],"isError":true}"#)));
    let task = until(&proxy, &id, |task| task["status"] == "completed").await;
    assert!(task.get("inputRequests").is_none());
    assert_eq!(update(&proxy, &id, json!({ "input-1": {} })).await, json!({ "resultType": "complete" }));
}

#[tokio::test]
async fn a_task_that_asks_too_much_at_once_is_refused_the_rest() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let large = "x".repeat(200 << 10);
    let mut first = ask(&server, &large);
    let mut second = ask(&server, &large);
    assert!(answer(&mut second).await.is_err());
    let mut third = ask(&server, "small");
    assert_eq!(keys(&asks(&proxy, &id, 2).await), ["input-1", "input-2"]);
    update(&proxy, &id, json!({ "input-1": {}, "input-2": {} })).await;
    assert!(answer(&mut first).await.is_ok() && answer(&mut third).await.is_ok());
    // There is room again.
    let _again = ask(&server, &large);
    asks(&proxy, &id, 1).await;
}

#[tokio::test]
async fn only_what_the_client_declared_is_asked() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    // Declares tasks and nothing that it could be asked.
    let id = id_of(&proxy.value(crate::support::calls::call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    assert_eq!(answer(&mut ask(&server, "who?")).await, Err(-32601));
    let roots = Question { kind: QuestionKind::Roots, params: text("{}"), key: None };
    assert_eq!(answer(&mut ask_as(&server, roots)).await, Err(-32601));
    assert_eq!(proxy.get(&id).await["status"], "working");
}

#[tokio::test]
async fn a_completion_with_tools_is_asked_of_those_who_declared_that() {
    let with_tools = |params: &str| Question { kind: QuestionKind::Sampling, params: text(params), key: None };
    for (declared, is_asked) in [(json!({ "sampling": {} }), false), (json!({ "sampling": { "tools": {} } }), true)] {
        for params in [r#"{"messages":[],"tools":[]}"#, r#"{"messages":[],"toolChoice":{"mode":"none"}}"#] {
            let mut proxy = Proxy::new(policy(Mode::Task));
            let id = id_of(&proxy.value(call_with(&declared, "tools/call", export())).await);
            let (_, server) = proxy.next_sent().await;
            let mut asking = ask_as(&server, with_tools(params));
            if is_asked {
                asks(&proxy, &id, 1).await;
            } else {
                assert_eq!(answer(&mut asking).await, Err(-32601), "{params}");
            }
        }
    }
}

#[tokio::test]
async fn a_question_has_nothing_that_its_readers_revision_does_not_have() {
    let url = r#"{"mode":"url","elicitationId":"e","message":"m", "url":"https://e.example","n":1E2}"#;
    let form = r#"{"message":"m","elicitationId":"e","requestedSchema":{}}"#;
    let question = |params: &str| Question { kind: QuestionKind::Elicitation, params: text(params), key: None };
    let declared = json!({ "elicitation": { "form": {}, "url": {} } });
    for (asked, expected) in [(url, r#"{"mode":"url","message":"m","url":"https://e.example","n":1E2}"#), (form, form)]
    {
        let expected =
            format!(r#""inputRequests":{{"input-1":{{"method":"elicitation/create","params":{expected}}}}}"#);
        let mut proxy = Proxy::new(policy(Mode::Task));
        let id = id_of(&proxy.value(call_with(&declared, "tools/call", export())).await);
        let (_, server) = proxy.next_sent().await;
        let _asking = ask_as(&server, question(asked));
        asks(&proxy, &id, 1).await;
        let Outcome::Shaped(task) = proxy.ask(call("tasks/get", json!({ "taskId": id }))).await else { panic!() };
        assert!(task.clone().into_json().as_str().contains(&expected), "{task:?}");

        let mut proxy = Proxy::new(policy(Mode::Sync));
        let reply = proxy.send(call_with(&declared, "tools/call", export())).await;
        let (_, server) = proxy.next_sent().await;
        let _asking = ask_as(&server, question(asked));
        let Outcome::Shaped(round) = timeout(PATIENCE, reply.outcome()).await.unwrap() else { panic!() };
        assert!(round.clone().into_json().as_str().contains(&expected), "{round:?}");
    }
}

#[tokio::test]
async fn raw_parameters_and_answers_keep_their_spelling() {
    let (proxy, id, server) = running(policy(Mode::Task)).await;
    let params = r#"{"maxTokens":1E2,"messages":[],"x": {"b":1,"a":9007199254740995}}"#;
    let sampling = Question { kind: QuestionKind::Sampling, params: text(params), key: None };
    let mut asking = ask_as(&server, sampling);
    asks(&proxy, &id, 1).await;
    let Outcome::Shaped(shown) = proxy.ask(call("tasks/get", json!({ "taskId": id }))).await else { panic!() };
    let expected = format!(r#""inputRequests":{{"input-1":{{"method":"sampling/createMessage","params":{params}}}}}"#);
    assert!(shown.into_json().as_str().contains(&expected));
    let mut update = call("tasks/update", json!({ "taskId": id }));
    let raw = r#"{"z":1.0,"a":123456789012345678901234567890}"#;
    let with_meta = update.params.meta().unwrap().as_str().to_owned();
    let whole = format!(r#"{{"taskId":"{id}","inputResponses":{{"input-1":{raw}}},"_meta":{with_meta}}}"#);
    update.params = raincheck::protocol::Params::read(&update.method, Some(text(&whole))).unwrap();
    proxy.value(update).await;
    let raincheck::protocol::Answer::Result(result) = asking.answer().await else { panic!() };
    assert_eq!(result.as_str(), raw);
}

#[tokio::test]
async fn a_question_of_the_session_makes_no_task_and_is_asked_when_there_is_one() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let of_session = |server: &raincheck::protocol::ReplySender| {
        let (ask, asking) = Ask::of_session(question("which folders?", None));
        server.event(Event::Ask(ask));
        asking
    };
    let quick = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    let mut unanswered = of_session(&server);
    server.done(done());
    assert!(matches!(timeout(PATIENCE, quick.outcome()).await.unwrap(), Outcome::Result(_)), "it became a task");
    refusal(&mut unanswered).await;

    let slow = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    let (mut first, mut second) = (of_session(&server), ask(&server, "who?"));
    // The question of the call makes it a task, and then both are asked.
    let id = id_of(&crate::support::calls::shown(timeout(PATIENCE, slow.outcome()).await.unwrap()));
    let task = asks(&proxy, &id, 2).await;
    assert_eq!(task["inputRequests"]["input-1"]["params"]["message"], "who?");
    assert_eq!(task["inputRequests"]["input-2"]["params"]["message"], "which folders?");
    update(&proxy, &id, json!({ "input-1": accepted(&json!(1)), "input-2": accepted(&json!(2)) })).await;
    assert_eq!(answer(&mut first).await, Ok(accepted(&json!(2))));
    assert_eq!(answer(&mut second).await, Ok(accepted(&json!(1))));
    server.done(done());
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}
