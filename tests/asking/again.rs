//! Retries that come again: the client lost the answer, or declares less than before.

use raincheck::config::Mode;
use raincheck::protocol::{Call, Outcome};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{
    accepted, answer, ask, ask_as, call, call_of, call_with, done, export, first, id_of, keys, policy, question,
    retry_of,
};
use crate::rounds::asked;
use crate::support::calls::{shown, text};
use crate::support::layer::{PATIENCE, Proxy};

fn retry(round: &Value, responses: &Value) -> Call {
    call("tools/call", retry_of(export(), round, responses))
}

#[tokio::test]
async fn a_retry_that_comes_again_gets_the_same_outcome_and_never_a_new_run() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let mut reply = proxy.send(retry(&round, &json!({ "input-1": {} }))).await;
    answer(&mut asking).await.unwrap();
    server.done(Outcome::Result(text(r#"{"content":[],"n":1E2}"#)));
    for _ in 0..3 {
        let Outcome::Result(result) = timeout(PATIENCE, reply.outcome()).await.unwrap() else { panic!() };
        assert_eq!(result.as_str(), r#"{"content":[],"n":1E2}"#);
        reply = proxy.send(retry(&round, &json!({ "input-1": {} }))).await;
    }
    // To nobody else, and for nothing else.
    let strange = call_of("bo", true, "tools/call", retry_of(export(), &round, &json!({ "input-1": {} })));
    assert_eq!(proxy.value(strange).await["error"]["code"], -32602);
    assert!(proxy.sent.try_recv().is_err(), "the call was sent anew");
}

#[tokio::test]
async fn a_run_that_ended_while_its_caller_was_away_gives_its_outcome_to_each_retry() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, asking) = asked(&mut proxy, call("tools/call", export())).await;
    // The server's own patience ended first.
    drop(asking);
    server.done(Outcome::Result(text(r#"{"content":[],"isError":true}"#)));
    for _ in 0..3 {
        assert_eq!(proxy.value(retry(&round, &json!({ "input-1": {} }))).await["isError"], true);
    }
}

#[tokio::test]
async fn an_outcome_is_kept_for_the_round_that_led_to_it_and_not_for_an_earlier_one() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (first_round, server, mut one) = asked(&mut proxy, call("tools/call", export())).await;
    let reply = proxy.send(retry(&first_round, &json!({ "input-1": {} }))).await;
    answer(&mut one).await.unwrap();
    let mut two = ask(&server, "and?");
    let second_round = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    let reply = proxy.send(retry(&second_round, &json!({ "input-2": {} }))).await;
    answer(&mut two).await.unwrap();
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
    let stale = proxy.value(retry(&first_round, &json!({ "input-1": {} }))).await;
    assert_eq!(stale["failed"], "outcome_unknown");
    assert!(stale["message"].as_str().unwrap().contains("earlier round"), "{stale}");
    assert_eq!(proxy.value(retry(&second_round, &json!({ "input-2": {} }))).await["content"], json!([]));
}

#[tokio::test]
async fn what_a_retry_does_not_declare_any_more_is_not_asked_of_it() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let less = json!({ "sampling": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let reply = proxy.send(call_with(&less, "tools/call", retry_of(export(), &round, &Value::Null))).await;
    assert_eq!(answer(&mut asking).await, Err(-32601), "it was asked of a client that did not declare it");
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn what_a_retry_does_not_declare_any_more_is_not_asked_in_its_task_either() {
    let mut proxy = Proxy::new(first(Mode::Task));
    let reply = proxy.send(call("tools/call", export())).await;
    let (_, server) = proxy.next_sent().await;
    let (mut form, mut sampling) = (ask(&server, "who?"), {
        let mut question = question("think", None);
        question.kind = raincheck::protocol::QuestionKind::Sampling;
        ask_as(&server, question)
    });
    let round = shown(timeout(PATIENCE, reply.outcome()).await.unwrap());
    assert_eq!(keys(&round), ["input-1", "input-2"]);
    let less = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let answers = json!({ "input-1": accepted(&json!(1)) });
    let created = proxy.value(call_with(&less, "tools/call", retry_of(export(), &round, &answers))).await;
    assert_eq!(answer(&mut form).await, Ok(accepted(&json!(1))));
    assert_eq!(answer(&mut sampling).await, Err(-32601));
    assert_eq!(created["status"], "working", "{created}");
    server.done(done());
    assert_eq!(proxy.ended(&id_of(&created)).await["status"], "completed");
}

/// A question about which a retry that waits with others says nothing must not reach it: each request counts alone.
#[tokio::test]
async fn a_copy_of_a_held_retry_that_declares_less_is_told_so_and_the_other_has_the_round() {
    for less_comes_first in [false, true] {
        let mut proxy = Proxy::new(policy(Mode::Sync));
        let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
        let params = || retry_of(export(), &round, &json!({ "input-1": {} }));
        let less = || call_with(&json!({ "sampling": {} }), "tools/call", params());
        let (full, less) = if less_comes_first {
            let less = proxy.send(less()).await;
            (proxy.send(call("tools/call", params())).await, less)
        } else {
            let full = proxy.send(call("tools/call", params())).await;
            (full, proxy.send(less()).await)
        };
        answer(&mut asking).await.unwrap();
        let mut more = ask(&server, "and?");
        let (full, less) = tokio::join!(timeout(PATIENCE, full.outcome()), timeout(PATIENCE, less.outcome()));
        let (next, less) = (shown(full.unwrap()), shown(less.unwrap()));
        assert_eq!((&next["resultType"], keys(&next)), (&json!("input_required"), vec!["input-2".to_owned()]));
        assert_eq!(less["error"]["code"], -32021, "{less}");
        assert_eq!(less["error"]["data"]["requiredCapabilities"], json!({ "elicitation": {} }));
        let reply = proxy.send(retry(&next, &json!({ "input-2": accepted(&json!(2)) }))).await;
        assert_eq!(answer(&mut more).await, Ok(accepted(&json!(2))));
        server.done(done());
        assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
    }
}

#[tokio::test]
async fn a_question_that_none_of_the_copies_of_a_retry_declares_is_refused_and_the_call_goes_on() {
    let mut proxy = Proxy::new(policy(Mode::Sync));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let less = || {
        let params = retry_of(export(), &round, &json!({ "input-1": {} }));
        call_with(&json!({ "sampling": {} }), "tools/call", params)
    };
    let (one, two) = (proxy.send(less()).await, proxy.send(less()).await);
    answer(&mut asking).await.unwrap();
    assert_eq!(answer(&mut ask(&server, "and?")).await, Err(-32601));
    server.done(done());
    assert!(matches!(timeout(PATIENCE, one.outcome()).await.unwrap(), Outcome::Result(_)));
    assert!(matches!(timeout(PATIENCE, two.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn a_copy_of_a_held_retry_that_declares_no_tasks_gets_no_handle() {
    let mut proxy = Proxy::new(first(Mode::Auto));
    let (round, server, mut asking) = asked(&mut proxy, call("tools/call", export())).await;
    let params = || retry_of(export(), &round, &json!({ "input-1": {} }));
    let full = proxy.send(call("tools/call", params())).await;
    let plain = proxy.send(call_of("ann", false, "tools/call", params())).await;
    answer(&mut asking).await.unwrap();
    let _more = ask(&server, "and?");
    let (full, plain) = tokio::join!(timeout(PATIENCE, full.outcome()), timeout(PATIENCE, plain.outcome()));
    let (created, plain) = (shown(full.unwrap()), shown(plain.unwrap()));
    assert_eq!(created["resultType"], "task", "{created}");
    assert_eq!(plain["error"]["code"], -32021, "{plain}");
    let extensions = &plain["error"]["data"]["requiredCapabilities"]["extensions"];
    assert_eq!(*extensions, json!({ "io.modelcontextprotocol/tasks": {} }));
    server.done(done());
}
