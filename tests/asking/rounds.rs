//! Calls that are answered with questions and retried with answers.

use std::time::Duration;

use raincheck::config::{Mode, ToolPolicy};
use raincheck::protocol::{Call, Outcome, ReplySender};
use raincheck::runner::{Bounds, Linger};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{
    SLOW, accepted, answer, ask, ask_as, asks, call, call_of, done, export, first, id_of, keys, policy, question,
    retry_of, until, update,
};
use crate::support::calls::{shown, text};
use crate::support::layer::{PATIENCE, Proxy};

/// A call of a client without tasks.
fn plain(params: Value) -> Call {
    call_of("ann", false, "tools/call", params)
}

/// What the client gets when the server asks one thing, and the server.
pub(crate) async fn asked(proxy: &mut Proxy, call: Call) -> (Value, ReplySender, raincheck::protocol::Asking) {
    let reply = proxy.send(call).await;
    let (_, server) = proxy.next_sent().await;
    let asking = ask(&server, "who?");
    (shown(timeout(PATIENCE, reply.outcome()).await.expect("no questions")), server, asking)
}

#[tokio::test]
async fn a_call_that_may_not_be_a_task_is_answered_with_its_questions_and_goes_on_when_it_is_retried() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let (round, server, mut asking) = asked(&mut proxy, plain(export())).await;
    assert_eq!(round["resultType"], "input_required");
    assert_eq!(keys(&round), ["input-1"]);
    assert_eq!(round["inputRequests"]["input-1"]["method"], "elicitation/create");
    assert!(!server.is_cancelled());
    let retry = plain(retry_of(export(), &round, &json!({ "input-1": accepted(&json!(1)) })));
    let reply = proxy.send(retry).await;
    assert_eq!(answer(&mut asking).await, Ok(accepted(&json!(1))));
    server.done(Outcome::Result(text(r#"{"content":[],"n":1E2}"#)));
    let Outcome::Result(result) = timeout(PATIENCE, reply.outcome()).await.unwrap() else { panic!() };
    assert_eq!(result.as_str(), r#"{"content":[],"n":1E2}"#);
    assert!(proxy.sent.try_recv().is_err(), "the call was sent twice");
}

#[tokio::test]
async fn prompts_and_resources_ask_in_rounds_too_and_other_methods_not_at_all() {
    let cases = [("prompts/get", json!({ "name": "p" })), ("resources/read", json!({ "uri": "file:///x" }))];
    for (method, params) in cases {
        let mut proxy = Proxy::new(policy(Mode::Auto));
        let (round, server, mut asking) = asked(&mut proxy, call(method, params.clone())).await;
        assert_eq!(round["resultType"], "input_required", "{method}");
        let retry = call(method, retry_of(params, &round, &json!({ "input-1": {} })));
        let reply = proxy.send(retry).await;
        assert_eq!(answer(&mut asking).await, Ok(json!({})));
        server.done(Outcome::Result(text("{}")));
        assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)), "{method}");
    }
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let _reply = proxy.send(call("tools/list", json!({}))).await;
    let (_, server) = proxy.next_sent().await;
    assert_eq!(answer(&mut ask(&server, "who?")).await, Err(-32601));
}

#[tokio::test]
async fn parallel_questions_are_gathered_into_one_round_and_partial_answers_leave_the_rest_for_the_next() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    let mut one = ask_as(&server, question("one", Some("user_name")));
    let mut two = ask(&server, "two");
    let round = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    assert_eq!(keys(&round), ["input-2", "user_name"]);
    let responses = json!({ "user_name": accepted(&json!("Alice")), "never-asked": {} });
    let next = proxy.value(call("tools/call", retry_of(export(), &round, &responses))).await;
    assert_eq!(answer(&mut one).await, Ok(accepted(&json!("Alice"))));
    assert_eq!((keys(&next), &next["resultType"]), (vec!["input-2".to_owned()], &json!("input_required")));
    assert_ne!(next["requestState"], round["requestState"]);
    // A retry without answers asks again, and so does one with the state of an earlier round.
    let again = proxy.value(call("tools/call", retry_of(export(), &next, &Value::Null))).await;
    assert_eq!(keys(&again), ["input-2"]);
    let stale = proxy.value(call("tools/call", retry_of(export(), &round, &responses))).await;
    assert_eq!(keys(&stale), ["input-2"]);
    let reply = proxy.send(call("tools/call", retry_of(export(), &stale, &json!({ "input-2": {} })))).await;
    assert_eq!(answer(&mut two).await, Ok(json!({})));
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn an_answer_that_came_with_the_call_serves_the_question_of_that_key_once_and_no_other() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let mut params = export();
    params["inputResponses"] = json!({ "user_name": accepted(&json!("Alice")), "input-1": {}, "unknown": null });
    let reply = proxy.send(call("tools/call", params)).await;
    let (_, server) = proxy.next_sent().await;
    assert_eq!(answer(&mut ask_as(&server, question("one", Some("user_name")))).await, Ok(accepted(&json!("Alice"))));
    // The same key again is a new question, and a key of our own was never told to the caller.
    let _again = ask_as(&server, question("two", Some("user_name")));
    let _unnamed = ask(&server, "three");
    let round = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    assert_eq!(keys(&round), ["input-2", "user_name"]);
}

#[tokio::test]
async fn a_retry_comes_from_the_same_caller_with_the_same_request_or_is_refused() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let responses = json!({ "input-1": accepted(&json!(1)) });
    let retry = |params: Value| retry_of(params, &round, &responses);
    let state = round["requestState"].as_str().unwrap().to_owned();
    let mut tampered = retry(export());
    let last = if state.ends_with('A') { "B" } else { "A" };
    tampered["requestState"] = json!(format!("{}{last}", &state[..state.len() - 1]));
    let mut cut = retry(export());
    cut["requestState"] = json!(&state[..20]);
    let refused = [
        call_of("bo", true, "tools/call", retry(export())),
        call("tools/call", retry(json!({ "name": "other", "arguments": { "n": 1 } }))),
        call("tools/call", retry(json!({ "name": "export", "arguments": { "n": 2 } }))),
        call("tools/call", retry(json!({ "name": "export" }))),
        call("prompts/get", retry(export())),
        call("tools/call", tampered),
        call("tools/call", cut),
    ];
    for retry in refused {
        let shown = proxy.value(retry.clone()).await;
        assert_eq!(shown["error"]["code"], -32602, "{retry:?}");
    }
    let mut malformed = retry(export());
    malformed["inputResponses"] = json!({ "input-1": 1 });
    assert_eq!(proxy.value(call("tools/call", malformed)).await["error"]["code"], -32602);
    assert!(proxy.sent.try_recv().is_err(), "a refused retry was sent as a new call");
    // In another order of members, and with the state's run untouched by all that.
    let reordered = json!({ "arguments": { "n": 1 }, "name": "export" });
    let mut reordered = retry(reordered);
    // Nor is what stands under a key that is not open any fault.
    reordered["inputResponses"]["never-asked"] = json!(1);
    let reply = proxy.send(call("tools/call", reordered)).await;
    assert_eq!(answer(&mut asking).await, Ok(accepted(&json!(1))));
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn a_state_that_is_not_ours_goes_to_the_server_which_may_speak_the_revision_itself() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let mut params = export();
    params["requestState"] = json!("their-state");
    let _reply = proxy.send(call("tools/call", params)).await;
    let (sent, _server) = proxy.next_sent().await;
    assert_eq!(sent.params.request_state().unwrap().as_str(), "\"their-state\"");
}

#[tokio::test]
async fn in_front_of_a_server_that_issues_no_states_a_strange_one_is_refused_and_never_a_new_run() {
    let mut proxy = Proxy::refusing(policy(Mode::Sync));
    for (method, params) in [("tools/call", export()), ("prompts/get", json!({ "name": "p" }))] {
        for state in [json!("their-state"), json!(7), json!(""), json!("raincheck-1."), json!("raincheck-1.AAAA")] {
            let mut params = params.clone();
            params["requestState"] = state.clone();
            assert_eq!(proxy.value(call(method, params)).await["error"]["code"], -32602, "{method} {state}");
        }
    }
    assert!(proxy.sent.try_recv().is_err(), "a refused call was sent");
    // Answers that nobody asked for are ignored.
    let mut unasked = export();
    unasked["inputResponses"] = json!({ "user_name": {} });
    let _reply = proxy.send(call("tools/call", unasked)).await;
    proxy.next_sent().await;
}

#[tokio::test]
async fn a_concurrent_retry_joins_and_both_get_the_outcome() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let retry = |n: i32| call("tools/call", retry_of(export(), &round, &json!({ "input-1": accepted(&json!(n)) })));
    let one = proxy.send(retry(1)).await;
    let two = proxy.send(retry(2)).await;
    let first = answer(&mut asking).await.unwrap();
    assert_eq!(first, accepted(&json!(1)), "the answers of the first retry count");
    drop(one);
    tokio::task::yield_now().await;
    assert!(!server.is_cancelled(), "somebody still waits");
    server.done(done());
    assert!(matches!(timeout(PATIENCE, two.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn the_run_is_stopped_when_all_who_retried_have_left() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let retry = || call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })));
    let (one, two) = (proxy.send(retry()).await, proxy.send(retry()).await);
    answer(&mut asking).await.unwrap();
    drop((one, two));
    timeout(PATIENCE, server.cancelled()).await.expect("the run goes on for nobody");
    timeout(PATIENCE, proxy.runner.idle()).await.expect("somebody still waits");
    assert_eq!(proxy.value(retry()).await["failed"], "outcome_unknown");
    assert!(proxy.sent.try_recv().is_err(), "the call was sent anew");
}

#[tokio::test]
async fn a_caller_who_does_not_come_back_in_time_loses_the_run() {
    let policy = ToolPolicy { ask_timeout: Duration::from_millis(200), ..policy(Mode::Sync) };
    let mut proxy = Proxy::new(policy);
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    assert_eq!(round["resultType"], "input_required");
    timeout(PATIENCE, server.cancelled()).await.expect("the run waits for ever");
    assert!(answer(&mut asking).await.is_err());
    let late = proxy.value(call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })))).await;
    assert_eq!(late["failed"], "outcome_unknown");
    assert!(late["message"].as_str().unwrap().contains("too late"), "{late}");
}

#[tokio::test]
async fn a_question_that_is_withdrawn_before_it_was_put_to_the_caller_never_is() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    drop(ask(&server, "who?"));
    let early = timeout(Duration::from_millis(200), proxy.sent.recv()).await;
    assert!(early.is_err());
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn questions_that_come_while_the_caller_is_away_are_asked_in_the_next_round() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let mut more = ask(&server, "and?");
    let next = proxy.value(call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })))).await;
    answer(&mut asking).await.unwrap();
    assert_eq!(keys(&next), ["input-2"]);
    let _reply = proxy.send(call("tools/call", retry_of(export(), &next, &json!({ "input-2": {} })))).await;
    answer(&mut more).await.unwrap();
}

#[tokio::test]
async fn draining_ends_parked_runs() {
    let mut proxy = Proxy::lingering(policy(Mode::Sync), Linger::AtMost(SLOW));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    proxy.runner.drain();
    timeout(PATIENCE, server.cancelled()).await.expect("a parked run keeps the proxy from stopping");
    assert!(answer(&mut asking).await.is_err());
    timeout(PATIENCE, proxy.runner.idle()).await.expect("somebody still waits");
    let late = proxy.value(call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })))).await;
    assert_eq!(late["failed"], "outcome_unknown");
}

#[tokio::test]
async fn with_ask_first_the_first_question_comes_before_the_task() {
    for mode in [Mode::Auto, Mode::Task] {
        let mut proxy = Proxy::new(first(mode));
        let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
        assert_eq!(round["resultType"], "input_required", "{mode:?}");
        let reply = proxy.send(call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })))).await;
        answer(&mut asking).await.unwrap();
        if mode == Mode::Auto {
            // A later question makes it a task.
            let _more = ask(&server, "and?");
            let created = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
            assert_eq!(created["resultType"], "task");
            let id = id_of(&created);
            assert_eq!(keys(&asks(&proxy, &id, 1).await), ["input-2"]);
            update(&proxy, &id, json!({ "input-2": {} })).await;
            server.done(done());
            assert_eq!(proxy.ended(&id).await["status"], "completed");
        } else {
            let created = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
            assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
            let id = id_of(&created);
            server.done(done());
            assert_eq!(proxy.ended(&id).await["status"], "completed");
        }
    }
}

#[tokio::test]
async fn with_ask_first_a_call_that_does_not_ask_in_time_becomes_a_task_and_asks_there() {
    let mut proxy = Proxy::new(ToolPolicy { after: Duration::from_millis(20), ..first(Mode::Task) });
    let created = proxy.value(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    let id = id_of(&created);
    let _asking = ask(&server, "who?");
    assert_eq!(keys(&asks(&proxy, &id, 1).await), ["input-1"]);
}

#[tokio::test]
async fn with_ask_first_a_question_that_is_withdrawn_does_not_keep_the_call_from_becoming_a_task() {
    let mut proxy = Proxy::new(ToolPolicy { after: Duration::from_millis(150), ..first(Mode::Auto) });
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, _server) = {
        let (sent, server) = proxy.next_sent().await;
        drop(ask(&server, "who?"));
        (sent, server)
    };
    let created = shown(timeout(PATIENCE, reply.outcome()).await.expect("the call is held for ever"));
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
}

#[tokio::test]
async fn a_parked_run_that_has_ended_gives_its_slot_back() {
    let mut proxy = Proxy::bounded(policy(Mode::Sync), Bounds { running: 1, waiting: 1, rate: None });
    let (round, server, asking) = asked(&mut proxy, call("tools/call", export())).await;
    let _queued = proxy.send(call("tools/call", export())).await;
    drop(asking);
    server.done(Outcome::Result(text(r#"{"content":[],"first":true}"#)));
    let (_, _second) = proxy.next_sent().await;
    let retry = call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })));
    assert_eq!(proxy.value(retry).await["first"], true);
}

#[tokio::test]
async fn with_ask_first_partial_answers_keep_the_call_in_rounds() {
    let mut proxy = Proxy::new(first(Mode::Task));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    let (mut one, mut two) = (ask(&server, "one"), ask(&server, "two"));
    let round = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    let next = proxy.value(call("tools/call", retry_of(export(), &round, &json!({ "input-2": {} })))).await;
    answer(&mut two).await.unwrap();
    assert_eq!((&next["resultType"], keys(&next)), (&json!("input_required"), vec!["input-1".to_owned()]));
    let created = proxy.value(call("tools/call", retry_of(export(), &next, &json!({ "input-1": {} })))).await;
    answer(&mut one).await.unwrap();
    let id = id_of(&created);
    server.done(done());
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_retry_that_joins_a_call_which_became_a_task_gets_the_same_handle() {
    let mut proxy = Proxy::new(first(Mode::Task));
    let (round, _server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let retry = || call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })));
    let (one, two) = tokio::join!(proxy.value(retry()), proxy.value(retry()));
    answer(&mut asking).await.unwrap();
    assert_eq!(one["taskId"], two["taskId"]);
    let three = proxy.value(retry()).await;
    assert_eq!(three["taskId"], one["taskId"]);
    assert_eq!(proxy.get(&id_of(&one)).await["status"], "working");
}

#[tokio::test]
async fn the_time_limit_stands_still_while_the_caller_is_away() {
    let policy = ToolPolicy { timeout: Duration::from_millis(300), ..policy(Mode::Sync) };
    let mut proxy = Proxy::new(policy);
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let waited = timeout(Duration::from_millis(600), server.cancelled()).await;
    assert!(waited.is_err(), "the run was stopped while its caller was away");
    let reply = proxy.send(call("tools/call", retry_of(export(), &round, &json!({ "input-1": {} })))).await;
    answer(&mut asking).await.unwrap();
    assert_eq!(shown(timeout(PATIENCE, reply.outcome()).await.unwrap())["failed"], "timeout");
}

#[tokio::test]
async fn a_client_that_declares_tasks_only_when_it_retries_gets_a_handle_with_the_open_questions() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let (round, _server, mut asking) = asked(&mut proxy, plain(export())).await;
    let created = proxy.value(call("tools/call", retry_of(export(), &round, &Value::Null))).await;
    let id = id_of(&created);
    assert_eq!((&created["status"], &created["resultType"]), (&json!("input_required"), &json!("task")));
    let task = until(&proxy, &id, |task| task["status"] == "input_required").await;
    assert_eq!(keys(&task), ["input-1"]);
    update(&proxy, &id, json!({ "input-1": {} })).await;
    answer(&mut asking).await.unwrap();
}

/// Held until there is room, the question would be without anybody to answer it, and the tool would wait for nothing.
#[tokio::test]
async fn a_question_that_cannot_make_its_call_a_task_is_put_to_the_caller() {
    let mut proxy = Proxy::full(policy(Mode::Auto));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    assert_eq!((&round["resultType"], keys(&round)), (&json!("input_required"), vec!["input-1".to_owned()]));
    let retry = call("tools/call", retry_of(export(), &round, &json!({ "input-1": accepted(&json!(1)) })));
    let reply = proxy.send(retry).await;
    assert_eq!(answer(&mut asking).await, Ok(accepted(&json!(1))));
    server.done(Outcome::Result(text(r#"{"content":[]}"#)));
    let Outcome::Result(result) = timeout(PATIENCE, reply.outcome()).await.unwrap() else { panic!() };
    assert_eq!(result.as_str(), r#"{"content":[]}"#);
    assert!(proxy.sent.try_recv().is_err(), "the call was sent twice");
}

/// A late copy of an answer, which the network or a client's own retry may send, must not use up the next round.
#[tokio::test]
async fn a_state_counts_in_its_own_round_only() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (first_round, server, mut one) = asked(&mut proxy, call("tools/call", export())).await;
    let retry = call("tools/call", retry_of(export(), &first_round, &json!({ "input-1": accepted(&json!(1)) })));
    let reply = proxy.send(retry).await;
    assert_eq!(answer(&mut one).await, Ok(accepted(&json!(1))));
    let mut two = ask(&server, "and?");
    let second_round = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    assert_eq!(keys(&second_round), ["input-2"]);
    let stale = json!({ "input-1": accepted(&json!(1)), "input-2": accepted(&json!("stale")) });
    let again = proxy.value(call("tools/call", retry_of(export(), &first_round, &stale))).await;
    assert_eq!(keys(&again), ["input-2"], "the answer of the copy counted");
    let retry = call("tools/call", retry_of(export(), &again, &json!({ "input-2": accepted(&json!(2)) })));
    let reply = proxy.send(retry).await;
    assert_eq!(answer(&mut two).await, Ok(accepted(&json!(2))));
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}
