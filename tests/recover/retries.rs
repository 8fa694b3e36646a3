//! Retries with answers (2026-07-28, multi round-trip requests) after a restart: the run is found again, if it is there.

use raincheck::config::{AskPolicy, Mode, ToolPolicy};
use raincheck::protocol::{Anchor, Answer, Ask, Asking, Call, CallKey, ClientSession, Event};
use raincheck::protocol::{Json, Outcome, Params, Question, QuestionKind, Reason, ReplySender};
use raincheck::store::Filter;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::found::{is_resumed, stored};
use crate::support::calls::shown;
use crate::support::layer::{PATIENCE, Proxy};
use crate::{call_with, done, more_sent, rerun, tasks};

fn sync() -> ToolPolicy {
    ToolPolicy { mode: Mode::Sync, ..tasks() }
}

/// A call with a key, so that it has a record.
fn keyed() -> Call {
    let mut call = call_with("{}");
    call.caller.key = Some(CallKey::read("k").unwrap());
    call
}

fn ask(server: &ReplySender, message: &str) -> Asking {
    let params = Json::from_value(&json!({ "message": message }));
    let (ask, asking) = Ask::new(Question { kind: QuestionKind::Elicitation, params, key: None });
    server.event(Event::Ask(ask));
    asking
}

/// The retry of the call, without its key.
fn retry(round: &Value, responses: &Value) -> Call {
    let mut call = call_with("{}");
    let mut params: Value = call.params.raw().read().unwrap();
    params["requestState"] = round["requestState"].clone();
    params["inputResponses"] = responses.clone();
    call.params = Params::read(&call.method, Some(Json::from_value(&params))).unwrap();
    call
}

fn accepted(n: u8) -> Value {
    json!({ "action": "accept", "content": { "n": n } })
}

/// The only call in the store.
async fn recorded(proxy: &Proxy) -> String {
    let all = proxy.store.list(Filter::default(), None, 2).await.unwrap().tasks;
    assert_eq!(all.len(), 1);
    all[0].id.to_string()
}

/// A call that has asked and can be found again.
async fn asked(proxy: &mut Proxy, call: Call) -> (Value, ReplySender) {
    let reply = proxy.send(call).await.in_background();
    let (_, server) = proxy.next_sent().await;
    server.event(Event::Anchored(Anchor::new("place".to_owned())));
    stored(proxy, &recorded(proxy).await, "place").await;
    let _open = ask(&server, "who?");
    let round = shown(timeout(PATIENCE, reply.outcome()).await.expect("no questions"));
    assert_eq!(round["resultType"], "input_required", "{round}");
    (round, server)
}

async fn told(reply: raincheck::protocol::Reply) -> Value {
    shown(timeout(PATIENCE, reply.outcome()).await.expect("no outcome"))
}

async fn answered(asking: &mut Asking) -> Value {
    match timeout(PATIENCE, asking.answer()).await.expect("no answer") {
        Answer::Result(result) => result.read().unwrap(),
        Answer::Error(error) | Answer::Undeclared(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_retry_finds_the_run_that_the_next_process_has_found_and_is_asked_again_what_it_asks_there() {
    for stops_in_order in [false, true] {
        let mut proxy = Proxy::new(sync());
        let (round, server) = asked(&mut proxy, keyed()).await;
        let mut proxy = if stops_in_order {
            let proxy = proxy.stops(sync()).await;
            assert!(server.is_left_running());
            proxy
        } else {
            proxy.crashes(sync()).await
        };
        let (resumed, server) = proxy.next_sent().await;
        assert!(is_resumed(&resumed, "place"), "{resumed:?}");
        let first = proxy.send(retry(&round, &json!({ "input-1": accepted(1) }))).await.in_background();
        let mut asking = ask(&server, "who else?");
        let second = told(first).await;
        assert_eq!(second["resultType"], "input_required", "{second}");
        assert_eq!(second["inputRequests"]["input-1"]["params"]["message"], "who else?");
        // The old answer is not one to the new question.
        let early = told(proxy.send(retry(&round, &json!({ "input-1": accepted(1) }))).await).await;
        assert_eq!(early["inputRequests"], second["inputRequests"], "{early}");
        let mut foreign = retry(&second, &json!({ "input-1": accepted(3) }));
        foreign.caller.principal = raincheck::protocol::Principal::Named("bo".into());
        assert_eq!(told(proxy.send(foreign).await).await["error"]["code"], -32602);
        let malformed = retry(&second, &json!({ "input-1": null }));
        assert_eq!(told(proxy.send(malformed).await).await["error"]["code"], -32602);
        let last = retry(&second, &json!({ "input-1": accepted(2), "never-asked": 1 }));
        let reply = proxy.send(last.clone()).await.in_background();
        assert_eq!(answered(&mut asking).await, accepted(2));
        server.done(done("found"));
        assert_eq!(told(reply).await["content"][0]["text"], "found");
        // The answer was lost on its way.
        assert_eq!(told(proxy.send(last).await).await["content"][0]["text"], "found");
        assert_eq!(told(proxy.send(retry(&round, &json!({}))).await).await["content"][0]["text"], "found");
        assert_eq!(more_sent(&mut proxy), 0);
    }
}

#[tokio::test]
async fn a_retry_gets_what_the_run_has_come_to_since() {
    let mut proxy = Proxy::new(sync());
    let (round, _server) = asked(&mut proxy, keyed()).await;
    let id = recorded(&proxy).await;
    let mut proxy = proxy.crashes(sync()).await;
    let (_, server) = proxy.next_sent().await;
    server.done(done("found"));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
    assert_eq!(told(proxy.send(retry(&round, &json!({}))).await).await["content"][0]["text"], "found");
}

#[tokio::test]
async fn a_parked_run_that_may_run_again_is_begun_again_and_found_by_the_retry() {
    let policy = || ToolPolicy { mode: Mode::Sync, ..rerun() };
    for stops_in_order in [false, true] {
        let mut proxy = Proxy::new(policy());
        let reply = proxy.send(keyed()).await.in_background();
        let (_, server) = proxy.next_sent().await;
        let _open = ask(&server, "who?");
        let round = told(reply).await;
        let mut proxy = if stops_in_order { proxy.stops(policy()).await } else { proxy.crashes(policy()).await };
        let (again, server) = proxy.next_sent().await;
        assert_eq!(again.method, raincheck::protocol::Method::CallTool);
        let reply = proxy.send(retry(&round, &json!({ "input-1": accepted(1) }))).await;
        server.done(done("second"));
        assert_eq!(told(reply).await["content"][0]["text"], "second");
        assert_eq!(more_sent(&mut proxy), 0);
    }
}

/// The handle was lost on its way, and so the client knows nothing but the state.
#[tokio::test]
async fn a_retry_finds_the_task_that_its_call_became() {
    let policy = || ToolPolicy { ask: AskPolicy::First, ..tasks() };
    let mut proxy = Proxy::new(policy());
    let reply = proxy.send(call_with("{}")).await;
    let (_, server) = proxy.next_sent().await;
    let mut asking = ask(&server, "who?");
    let round = told(reply).await;
    let last = retry(&round, &json!({ "input-1": accepted(1) }));
    let created = told(proxy.send(last.clone()).await).await;
    let id = created["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
    assert_eq!(answered(&mut asking).await, accepted(1));
    server.event(Event::Anchored(Anchor::new("place".to_owned())));
    stored(&proxy, &id, "place").await;
    let mut proxy = proxy.crashes(policy()).await;
    let (_, server) = proxy.next_sent().await;
    assert_eq!(told(proxy.send(last.clone()).await).await["taskId"], id);
    server.done(done("found"));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
    assert_eq!(told(proxy.send(last).await).await["taskId"], id);
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn of_a_run_that_is_gone_a_retry_hears_that_nobody_knows_its_outcome() {
    let mut proxy = Proxy::new(sync());
    let reply = proxy.send(call_with("{}")).await;
    let (_, server) = proxy.next_sent().await;
    let _open = ask(&server, "who?");
    let round = told(reply).await;
    let mut proxy = proxy.crashes(sync()).await;
    let told = proxy.ask(retry(&round, &json!({ "input-1": accepted(1) }))).await;
    let Outcome::Failed(failure) = told else { panic!("{told:?}") };
    assert_eq!(failure.reason, Reason::OutcomeUnknown);
    assert_eq!(more_sent(&mut proxy), 0);
}

#[tokio::test]
async fn a_repeat_is_asked_what_a_found_run_asks_if_it_can_be() {
    let mut proxy = Proxy::new(sync());
    let (_, _server) = asked(&mut proxy, keyed()).await;
    let mut proxy = proxy.crashes(sync()).await;
    let (_, server) = proxy.next_sent().await;
    let repeat = proxy.send(keyed()).await.in_background();
    let mut asking = ask(&server, "who else?");
    let round = told(repeat).await;
    assert_eq!(round["inputRequests"]["input-1"]["params"]["message"], "who else?", "{round}");
    let mut legacy = keyed();
    legacy.caller.session = ClientSession::Legacy(7);
    let mut mute = keyed();
    mute.caller.abilities = raincheck::protocol::Abilities::none();
    for cannot in [legacy, mute] {
        let told = proxy.ask(cannot).await;
        let Outcome::Failed(failure) = told else { panic!("{told:?}") };
        assert!(failure.message.contains("this caller cannot be asked"), "{}", failure.message);
    }
    let reply = proxy.send(retry(&round, &json!({ "input-1": accepted(2) }))).await;
    assert_eq!(answered(&mut asking).await, accepted(2));
    server.done(done("found"));
    assert_eq!(told(reply).await["content"][0]["text"], "found");
}
