//! The first call asks when it is repeated.

use raincheck::config::Mode;
use raincheck::protocol::{Answer, Ask, Asking, Event, Json, Outcome, Question, QuestionKind, ReplySender};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::callers::{
    Kind, assert_joined, assert_same_handle, call, done, export, id_of, keyed, outcome, policy, said,
};
use crate::support::calls;
use crate::support::layer::{PATIENCE, Proxy};

fn ask(server: &ReplySender) -> Asking {
    ask_with(server, &json!({ "message": "who?", "requestedSchema": { "type": "object", "properties": {} } }))
}

fn ask_with(server: &ReplySender, params: &Value) -> Asking {
    let question = Question { kind: QuestionKind::Elicitation, params: Json::from_value(params), key: None };
    let (ask, asking) = Ask::new(question);
    server.event(Event::Ask(ask));
    asking
}

async fn answered(asking: &mut Asking) -> Value {
    match timeout(PATIENCE, asking.answer()).await.expect("no answer") {
        Answer::Result(result) => result.read().unwrap(),
        Answer::Error(error) | Answer::Undeclared(error) => panic!("{error}"),
    }
}

fn retry(kind: Kind, round: &Value) -> raincheck::protocol::Call {
    let mut params = export();
    params["requestState"] = round["requestState"].clone();
    params["inputResponses"] = json!({ "input-1": { "action": "accept" } });
    keyed(kind, "k", params)
}

#[tokio::test]
async fn a_task_that_asks_is_shown_to_the_repeat_which_can_answer() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let one = proxy.send(call(Kind::Tasks)).await;
    let (_, server) = proxy.next_sent().await;
    let mut asking = ask(&server);
    let created = said(one).await;
    let id = id_of(&created);
    assert_eq!(created["status"], "input_required", "{created}");
    assert_same_handle(&said(proxy.send(call(Kind::Tasks)).await).await, &id, "input_required");
    let held = proxy.send(call(Kind::Plain)).await;
    let responses = json!({ "taskId": id, "inputResponses": { "input-1": { "action": "accept" } } });
    assert_eq!(proxy.value(calls::call("tasks/update", responses)).await, json!({ "resultType": "complete" }));
    assert_eq!(answered(&mut asking).await, json!({ "action": "accept" }));
    server.done(done());
    assert_joined(outcome(held).await);
    assert_eq!(proxy.ended(&id).await["status"], "completed");
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn a_round_of_questions_is_put_to_the_repeat_too_and_whoever_answers_goes_on() {
    for second in [Kind::Plain, Kind::Tasks] {
        let mut proxy = Proxy::new(policy(Mode::Sync));
        let one = proxy.send(call(Kind::Plain)).await;
        let (_, server) = proxy.next_sent().await;
        let waits = proxy.send(call(second)).await;
        let mut asking = ask(&server);
        let round = said(one).await;
        assert_eq!(round["resultType"], "input_required", "{round}");
        let mut marked = round.clone();
        marked["_meta"]["dev.raincheck/joined"] = json!(true);
        assert_eq!(said(waits).await, marked);
        assert_eq!(said(proxy.send(call(second)).await).await, marked);
        // This one cannot be asked in this way.
        let legacy = proxy.send(call(Kind::Legacy)).await;
        let retried = proxy.send(retry(second, &round)).await;
        assert_eq!(answered(&mut asking).await, json!({ "action": "accept" }));
        let late = proxy.send(call(Kind::Plain)).await;
        server.done(done());
        assert!(matches!(outcome(retried).await, Outcome::Result(_)));
        assert_joined(outcome(legacy).await);
        assert_joined(outcome(late).await);
        assert_joined(outcome(proxy.send(call(second)).await).await);
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_run_that_ends_while_its_caller_is_away_is_found_by_the_repeat() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let one = proxy.send(call(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    let _asking = ask(&server);
    let mut round = said(one).await;
    server.done(done());
    let again = loop {
        let again = outcome(proxy.send(call(Kind::Plain)).await).await;
        // Until the end has come to the store, the round is open.
        if let Outcome::Shaped(open) = &again {
            round["_meta"]["dev.raincheck/joined"] = json!(true);
            assert_eq!(open.clone().into_json().read::<Value>().unwrap(), round);
            continue;
        }
        break again;
    };
    assert_joined(again);
    let Outcome::Result(result) = outcome(proxy.send(retry(Kind::Plain, &round)).await).await else { panic!() };
    assert_eq!(result.as_str(), crate::callers::RESULT);
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn a_legacy_caller_is_asked_and_not_those_who_joined() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let mut one = proxy.send(call(Kind::Legacy)).await;
    let (_, server) = proxy.next_sent().await;
    let two = proxy.send(call(Kind::Plain)).await;
    let mut asking = ask(&server);
    let Some(Event::Ask(asked)) = timeout(PATIENCE, one.next()).await.unwrap() else { panic!() };
    asked.answer(Answer::Result(Json::from_value(&json!({ "action": "decline" }))));
    assert_eq!(answered(&mut asking).await, json!({ "action": "decline" }));
    server.done(done());
    assert!(matches!(outcome(one).await, Outcome::Result(_)));
    assert_joined(outcome(two).await);
}

#[tokio::test]
async fn a_caller_who_has_left_is_not_waited_for_when_the_tool_asks() {
    for first in [Kind::Plain, Kind::Legacy] {
        let mut proxy = Proxy::new(policy(Mode::Auto));
        let one = proxy.send(call(first)).await;
        let (_, server) = proxy.next_sent().await;
        drop(one);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let refused = timeout(PATIENCE, ask(&server).answer()).await.expect("nobody is left who could answer");
        assert!(matches!(refused, Answer::Error(_)), "{first:?}");
        server.done(done());
        assert_joined(outcome(proxy.send(call(first)).await).await);
    }
}

/// The first caller is held, and a repeat has a handle, by which it cancels the call.
#[tokio::test]
async fn a_question_that_meets_the_cancel_of_a_held_call_is_refused_with_the_reason() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let one = proxy.send(call(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    let id = id_of(&said(proxy.send(call(Kind::Tasks)).await).await);
    proxy.runner.live().get(&id.parse().unwrap()).unwrap().cancel();
    let refused = timeout(PATIENCE, ask(&server).answer()).await.unwrap();
    let Answer::Error(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.message(), "the call is being stopped");
    assert!(matches!(outcome(one).await, Outcome::Failed(_)));
}

/// A form is not a page: who declares forms only is not sent to a URL (2026-07-28, elicitation, capabilities).
#[tokio::test]
async fn a_repeat_that_cannot_be_asked_by_url_is_not_shown_such_a_round() {
    let with_urls = || {
        let mut call = call(Kind::Plain);
        let abilities = json!({ "elicitation": { "url": {} } });
        call.caller.abilities = raincheck::protocol::Abilities::of(Json::from_value(&abilities));
        call
    };
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let one = proxy.send(with_urls()).await;
    let (_, server) = proxy.next_sent().await;
    let page = json!({ "mode": "url", "message": "sign", "url": "https://e.example", "elicitationId": "e" });
    let _asking = ask_with(&server, &page);
    let round = said(one).await;
    assert_eq!(round["resultType"], "input_required", "{round}");
    let repeat = said(proxy.send(with_urls()).await).await;
    assert_eq!((&repeat["inputRequests"], &repeat["requestState"]), (&round["inputRequests"], &round["requestState"]));
    let mut with_forms = proxy.send(call(Kind::Plain)).await;
    let early = timeout(std::time::Duration::from_millis(200), with_forms.next()).await;
    assert!(early.is_err(), "{early:?}");
    server.done(done());
    assert_joined(outcome(with_forms).await);
}
