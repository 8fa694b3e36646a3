//! Questions of a call that is held, and of a job that was given out in words.

use std::time::Duration;

use raincheck::config::ToolPolicy;
use raincheck::protocol::{Answer, Ask, Event, Outcome, Question, QuestionKind, Reply};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::calls::{call_of, legacy_call, shown, text};
use crate::support::layer::{PATIENCE, Proxy};
use crate::{Kind, LIST, ReplySender, at_once, in_words, job, next_call, started, tool, words};

const FORM: &str = r#"{"message":"Which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}},"required":["colour"]}}"#;

fn form() -> Question {
    Question { kind: QuestionKind::Elicitation, params: text(FORM), key: None }
}

async fn next(reply: &mut Reply) -> Event {
    timeout(PATIENCE, reply.next()).await.expect("nothing comes").unwrap()
}

fn answered(answer: Answer) -> Value {
    match answer {
        Answer::Result(result) => result.read().unwrap(),
        Answer::Error(error) | Answer::Undeclared(error) => panic!("refused: {error}"),
    }
}

#[tokio::test]
async fn a_question_of_a_job_is_shown_by_a_check_and_answered_by_a_tool() {
    let mut proxy = Proxy::new(at_once());
    let (handle, sender) = started(&mut proxy, Kind::Legacy).await;
    let id = job(&handle);
    let (ask, mut asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    let asked = proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": id }))).await;
    let text = words(&asked);
    assert!(text.contains("Which colour?") && text.contains("\"required\":[\"colour\"]"), "{text}");
    assert!(text.contains("`answer_job`") && text.contains("\"input-1\""), "{text}");
    let question = &asked["structuredContent"]["questions"][0];
    assert_eq!((&question["question"], &question["method"]), (&json!("input-1"), &json!("elicitation/create")));
    assert_eq!(question["params"]["message"], "Which colour?");
    assert_eq!(proxy.get(&id).await["status"], "input_required");

    let refused = [
        (json!({ "job": id, "question": "input-9" }), "\"input-1\""),
        (json!({ "job": id, "action": "agree" }), "accept, decline or cancel"),
        (json!({ "job": id, "content": "red" }), "must be an object"),
        (json!({ "job": id, "content": { "size": 1 } }), "\"colour\" is required: text"),
        (json!({ "job": id, "content": { "colour": 5 } }), "\"colour\" must be text, not 5"),
        (json!({ "job": id, "content": { "colour": "red", "size": 1 } }), "no field \"size\"; it has: colour"),
    ];
    for (arguments, expected) in refused {
        let refused = proxy.value(tool(Kind::Legacy, "answer_job", &arguments)).await;
        assert!(refused["isError"] == true && words(&refused).contains(expected), "{refused}");
    }
    let arguments = json!({ "job": id, "question": "input-1", "content": { "colour": "red" } });
    let given = proxy.value(tool(Kind::Legacy, "answer_job", &arguments)).await;
    assert!(given["isError"] == false && words(&given).contains("The job goes on"), "{given}");
    let answer = answered(timeout(PATIENCE, asking.answer()).await.unwrap());
    assert_eq!(answer, json!({ "action": "accept", "content": { "colour": "red" } }));
    let late = proxy.value(tool(Kind::Legacy, "answer_job", &arguments)).await;
    assert!(late["isError"] == true && words(&late).contains("asks nothing now"), "{late}");
    sender.done(Outcome::Result(raincheck::protocol::Json::from_value(&json!({ "content": [] }))));
    assert_eq!(proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": id }))).await, json!({ "content": [] }));
}

#[tokio::test]
async fn completions_and_folders_can_be_given_too() {
    let cases = [
        (
            QuestionKind::Sampling,
            json!({ "content": { "text": "blue" } }),
            json!({ "role": "assistant", "content": { "type": "text", "text": "blue" }, "model": "unknown", "stopReason": "endTurn" }),
        ),
        (
            QuestionKind::Roots,
            json!({ "content": { "roots": [{ "uri": "file:///a" }] } }),
            json!({ "roots": [{ "uri": "file:///a" }] }),
        ),
        (QuestionKind::Elicitation, json!({ "action": "decline" }), json!({ "action": "decline" })),
    ];
    for (kind, mut arguments, expected) in cases {
        let (proxy, id, sender) = job_of_everything().await;
        arguments["job"] = json!(id);
        let (ask, mut asking) = Ask::new(Question { kind, params: text("{}"), key: None });
        sender.event(Event::Ask(ask));
        proxy.value(tool(Kind::Legacy, "check_job", &arguments)).await;
        let given = proxy.value(tool(Kind::Legacy, "answer_job", &arguments)).await;
        assert_eq!(given["isError"], false, "{given}");
        assert_eq!(answered(timeout(PATIENCE, asking.answer()).await.unwrap()), expected);
    }
}

#[tokio::test]
async fn an_answer_of_the_wrong_type_is_told_what_is_right_and_the_tool_hears_nothing_of_it() {
    let form = json!({ "message": "?", "requestedSchema": { "type": "object", "required": ["n"], "properties": {
        "n": { "type": "integer", "minimum": 1 }, "b": { "type": "boolean" }, "e": { "enum": ["a", "b"] },
        "m": { "type": "string", "format": "email" }, "l": { "type": "array", "items": { "enum": ["x", "y"] }, "maxItems": 1 },
        "o": { "type": "object" } } } });
    let cases = [
        (QuestionKind::Elicitation, json!({ "n": "1" }), "\"n\" must be a whole number, 1 or more, not \"1\""),
        (QuestionKind::Elicitation, json!({ "n": 0 }), "1 or more, not 0"),
        (QuestionKind::Elicitation, json!({ "n": 1.5 }), "not 1.5"),
        (
            QuestionKind::Elicitation,
            json!({ "n": 1, "b": "yes", "e": "c" }),
            "\"b\" must be true or false, not \"yes\"; \"e\" must be one of a, b",
        ),
        (QuestionKind::Elicitation, json!({ "n": 1, "m": "ann" }), "an e-mail address"),
        (QuestionKind::Elicitation, json!({ "n": 1, "l": ["x", "y"] }), "at most 1"),
        (QuestionKind::Sampling, json!({ "text": 1 }), "must have \"text\""),
        (QuestionKind::Sampling, json!({ "role": "assistant", "content": "blue" }), "A whole message has"),
        (QuestionKind::Roots, json!({ "roots": ["file:///a"] }), "a list such as"),
        (QuestionKind::Roots, json!({}), "a list such as"),
    ];
    for (kind, content, expected) in cases {
        let (mut proxy, id, sender) = job_of_everything().await;
        let (ask, mut asking) = Ask::new(Question { kind, params: text(&form.to_string()), key: None });
        sender.event(Event::Ask(ask));
        proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": id }))).await;
        let wrong = proxy.value(tool(Kind::Legacy, "answer_job", &json!({ "job": id, "content": content }))).await;
        assert!(wrong["isError"] == true && words(&wrong).contains(expected), "{content}: {wrong}");
        assert!(words(&wrong).contains("Nothing was answered"), "{wrong}");
        assert_eq!(proxy.get(&id).await["status"], "input_required", "{content}");
        timeout(Duration::ZERO, asking.answer()).await.expect_err("it was answered");
        assert!(proxy.sent.try_recv().is_err());
    }
}

#[tokio::test]
async fn an_answer_goes_out_as_it_is_spelled_and_may_be_spelled_as_a_string() {
    let form = r#"{"message":"?","requestedSchema":{"type":"object","properties":{"n":{"type":"number"},"o":{"type":"object"}}}}"#;
    for content in
        [json!("{\"n\": 1.0, \"o\": {\"x\": 1E2}}"), json!({ "n": 1.0, "o": { "x": 1 } }), json!({}), json!(null)]
    {
        let (proxy, id, sender) = job_of_everything().await;
        let (ask, mut asking) = Ask::new(Question { kind: QuestionKind::Elicitation, params: text(form), key: None });
        sender.event(Event::Ask(ask));
        proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": id }))).await;
        let given = proxy.value(tool(Kind::Legacy, "answer_job", &json!({ "job": id, "content": content }))).await;
        assert_eq!(given["isError"], false, "{given}");
        let Answer::Result(answer) = timeout(PATIENCE, asking.answer()).await.unwrap() else { panic!("refused") };
        if content.is_string() {
            assert_eq!(answer.as_str(), r#"{"action":"accept","content":{"n": 1.0, "o": {"x": 1E2}}}"#);
        }
    }
}

#[tokio::test]
async fn of_several_answers_at_once_one_counts_and_the_others_are_told_so() {
    for round in 0..20 {
        let (proxy, id, sender) = job_of_everything().await;
        let (ask, mut asking) = Ask::new(form());
        sender.event(Event::Ask(ask));
        proxy.value(tool(Kind::Legacy, "check_job", &json!({ "job": id }))).await;
        let answers = (0..4).map(|n| {
            let arguments = json!({ "job": id, "question": "input-1", "content": { "colour": n.to_string() } });
            proxy.send_in_background(tool(Kind::Legacy, "answer_job", &arguments))
        });
        let answers: Vec<_> = answers.collect();
        let mut given = Vec::new();
        for (n, answer) in answers.into_iter().enumerate() {
            let said = answer.await.unwrap();
            if words(&said).contains("was given") {
                assert_eq!(said["isError"], false);
                given.push(n.to_string());
            } else {
                let is_late = words(&said).contains("not open any more") || words(&said).contains("asks nothing now");
                assert!(said["isError"] == true && is_late, "{said}");
            }
        }
        let answer = answered(timeout(PATIENCE, asking.answer()).await.unwrap());
        assert_eq!(given, [answer["content"]["colour"].as_str().unwrap()], "round {round}");
    }
}

/// A job whose client can be asked everything.
async fn job_of_everything() -> (Proxy, String, ReplySender) {
    let mut proxy = Proxy::new(at_once());
    let everything = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    let params = json!({ "name": "export", "arguments": {} });
    let reply = proxy.send_in_background(legacy_call("ann", "tools/call", params, everything));
    let (_, sender) = next_call(&mut proxy, LIST).await;
    let id = job(&reply.await.unwrap());
    (proxy, id, sender)
}

#[tokio::test]
async fn a_client_who_is_held_is_asked_itself() {
    let mut proxy = Proxy::new(ToolPolicy { hold: Duration::from_hours(1), ..in_words() });
    let mut reply = {
        let call = tool(Kind::Legacy, "export", &json!({}));
        let service = proxy.sending(call);
        let (_, sender) = next_call(&mut proxy, LIST).await;
        let (ask, mut asking) = Ask::new(form());
        sender.event(Event::Ask(ask));
        let mut reply = service.await.unwrap();
        let Event::Ask(asked) = next(&mut reply).await else { panic!("not asked") };
        assert_eq!(asked.question().params.as_str(), FORM);
        asked.answer(Answer::Result(text(r#"{"action": "cancel"}"#)));
        let Answer::Result(answer) = timeout(PATIENCE, asking.answer()).await.unwrap() else { panic!() };
        assert_eq!(answer.as_str(), r#"{"action": "cancel"}"#);
        // One that the server takes back is taken back from the client.
        let (ask, asking) = Ask::new(form());
        sender.event(Event::Ask(ask));
        let Event::Ask(asked) = next(&mut reply).await else { panic!("not asked") };
        drop(asking);
        timeout(PATIENCE, asked.withdrawn()).await.expect("it is still asked");
        sender.done(Outcome::Result(text("{}")));
        reply
    };
    assert!(matches!(next(&mut reply).await, Event::Done(Outcome::Result(_))));
}

#[tokio::test]
async fn a_question_that_nobody_has_answered_by_the_time_of_the_handle_goes_on_in_the_job() {
    let mut proxy = Proxy::new(ToolPolicy { hold: Duration::from_millis(500), ..in_words() });
    let service = proxy.sending(tool(Kind::Legacy, "export", &json!({})));
    let (_, sender) = next_call(&mut proxy, LIST).await;
    let (ask, mut asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    let mut reply = service.await.unwrap();
    let Event::Ask(asked) = next(&mut reply).await else { panic!("not asked") };
    let Event::Done(outcome) = next(&mut reply).await else { panic!("no handle") };
    // As the front takes it back when the call is answered.
    timeout(PATIENCE, asked.withdrawn()).await.expect("it is still asked");
    drop(asked);
    let handle = shown(outcome);
    assert!(words(&handle).contains("Which colour?") && words(&handle).contains("`answer_job`"), "{handle}");
    let arguments = json!({ "job": job(&handle), "content": { "colour": "red" } });
    let given = proxy.value(tool(Kind::Legacy, "answer_job", &arguments)).await;
    assert_eq!(given["isError"], false, "{given}");
    assert_eq!(answered(timeout(PATIENCE, asking.answer()).await.unwrap())["content"]["colour"], "red");
}

#[tokio::test]
async fn a_store_without_room_leaves_the_client_held_and_asked() {
    let mut proxy = Proxy::full(ToolPolicy { hold: Duration::from_millis(300), ..in_words() });
    let service = proxy.sending(tool(Kind::Legacy, "export", &json!({})));
    let (_, sender) = next_call(&mut proxy, LIST).await;
    let mut reply = service.await.unwrap();
    let (ask, mut asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    let Event::Ask(asked) = next(&mut reply).await else { panic!("not asked") };
    // The call was to become a job meanwhile, and could not.
    timeout(Duration::from_secs(1), asked.withdrawn()).await.expect_err("it was taken back");
    asked.answer(Answer::Result(text(r#"{"action":"decline"}"#)));
    assert_eq!(answered(timeout(PATIENCE, asking.answer()).await.unwrap()), json!({ "action": "decline" }));
    sender.done(Outcome::Result(text("{}")));
    assert!(matches!(next(&mut reply).await, Event::Done(Outcome::Result(_))));
}

#[tokio::test]
async fn a_modern_client_that_was_asked_gets_its_handle_after_the_answers() {
    let call = |more: Value| {
        let mut params = json!({ "name": "export", "arguments": {} });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut call = call_of("ann", false, "tools/call", params);
        call.caller.abilities = raincheck::protocol::Abilities::of(text(r#"{"elicitation":{}}"#));
        call
    };
    let mut proxy = Proxy::new(ToolPolicy { hold: Duration::from_millis(300), ..in_words() });
    let reply = proxy.send_in_background(call(json!({})));
    let (_, sender) = next_call(&mut proxy, LIST).await;
    let (ask, mut asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    let asked = reply.await.unwrap();
    assert_eq!(asked["resultType"], "input_required");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answers = json!({ "requestState": asked["requestState"], "inputResponses": { key: { "action": "decline" } } });
    let handle = proxy.value(call(answers)).await;
    assert_eq!(answered(timeout(PATIENCE, asking.answer()).await.unwrap()), json!({ "action": "decline" }));
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    proxy.ended(&job(&handle)).await;
    let check = tool(Kind::Modern, "check_job", &json!({ "job": job(&handle) }));
    assert_eq!(proxy.value(check).await, json!({ "content": [] }));
}
