//! What comes at the same time.

use raincheck::config::Mode;
use raincheck::protocol::{Answer, Outcome};
use serde_json::json;

use crate::client::{accepted, answer, ask, asks, call, done, export, id_of, policy, retry_of, until, update};
use crate::support::calls::{shown, text};
use crate::support::layer::{PATIENCE, Proxy};

const ROUNDS: usize = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_answers_to_one_question_exactly_one_counts_and_both_are_acknowledged() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    for round in 1..=ROUNDS {
        let mut asking = ask(&server, "who?");
        asks(&proxy, &id, 1).await;
        let key = format!("input-{round}");
        let (one, two) = tokio::join!(
            update(&proxy, &id, json!({ &key: accepted(&json!(1)) })),
            update(&proxy, &id, json!({ &key: accepted(&json!(2)) })),
        );
        assert_eq!((&one, &two), (&json!({ "resultType": "complete" }), &json!({ "resultType": "complete" })));
        let got = answer(&mut asking).await.unwrap();
        assert!(got == accepted(&json!(1)) || got == accepted(&json!(2)), "{got}");
        assert_eq!(proxy.get(&id).await["status"], "working");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_that_meets_a_withdrawal_leaves_the_task_working() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    for round in 1..=ROUNDS {
        let asking = ask(&server, "who?");
        asks(&proxy, &id, 1).await;
        let withdrawing = tokio::spawn(async move { drop(asking) });
        let acknowledged = update(&proxy, &id, json!({ format!("input-{round}"): {} })).await;
        assert_eq!(acknowledged, json!({ "resultType": "complete" }));
        withdrawing.await.unwrap();
        until(&proxy, &id, |task| task["status"] == "working").await;
    }
    server.done(done());
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_that_meets_a_cancel_leaves_the_task_cancelled() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    for _ in 0..8 {
        let id = id_of(&proxy.value(call("tools/call", export())).await);
        let (_, server) = proxy.next_sent().await;
        let mut asking = ask(&server, "who?");
        asks(&proxy, &id, 1).await;
        let (cancelled, answered) = tokio::join!(
            proxy.value(call("tasks/cancel", json!({ "taskId": id }))),
            update(&proxy, &id, json!({ "input-1": {} })),
        );
        assert_eq!(
            (&cancelled, &answered),
            (&json!({ "resultType": "complete" }), &json!({ "resultType": "complete" }))
        );
        // Answered or refused, but not left waiting.
        let _ = answer(&mut asking).await;
        drop(server);
        let task = until(&proxy, &id, |task| task["status"] == "cancelled").await;
        assert!(task.get("inputRequests").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_question_that_meets_the_end_of_its_run_does_not_keep_the_task_open() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    for _ in 0..ROUNDS {
        let id = id_of(&proxy.value(call("tools/call", export())).await);
        let (_, server) = proxy.next_sent().await;
        let mut asking = ask(&server, "who?");
        server.done(done());
        let task = until(&proxy, &id, |task| task["status"] == "completed").await;
        assert!(task.get("inputRequests").is_none());
        assert!(answer(&mut asking).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_retries_at_once_one_answers_and_both_get_the_same_outcome() {
    for _ in 0..8 {
        let mut proxy = Proxy::new(policy(Mode::Sync));
        let reply = proxy.send(call("tools/call", export())).await;
        let (_, server) = proxy.next_sent().await;
        let mut asking = ask(&server, "who?");
        let round = shown(tokio::time::timeout(PATIENCE, reply.outcome()).await.unwrap());
        let retry = |n: i32| call("tools/call", retry_of(export(), &round, &json!({ "input-1": accepted(&json!(n)) })));
        let (one, two) = tokio::join!(proxy.send(retry(1)), proxy.send(retry(2)));
        let got = answer(&mut asking).await.unwrap();
        // The second may not have been looked at yet.
        server.done(Outcome::Result(text(&got.to_string())));
        let (one, two) = (shown(one.outcome().await), shown(two.outcome().await));
        assert_eq!(one, two);
        assert!(one == accepted(&json!(1)) || one == accepted(&json!(2)), "{one}");
    }
}

/// A client that leaves before the acknowledgement must not take along an answer that the record does not ask for
/// any more.
#[tokio::test]
async fn an_answer_reaches_the_server_although_its_client_left() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let id = id_of(&proxy.value(call("tools/call", export())).await);
    let (_, server) = proxy.next_sent().await;
    let mut asking = ask(&server, "who?");
    asks(&proxy, &id, 1).await;
    {
        let service = proxy.service.clone();
        let update = call("tasks/update", json!({ "taskId": id, "inputResponses": { "input-1": {} } }));
        let mut updating = Box::pin(tower::ServiceExt::oneshot(service, update));
        assert!(futures_util::FutureExt::now_or_never(&mut updating).is_none(), "it was answered at once");
    }
    let got = tokio::time::timeout(PATIENCE, asking.answer()).await.expect("the answer is lost");
    assert!(matches!(got, Answer::Result(_)));
    until(&proxy, &id, |task| task["status"] == "working").await;
}

/// A server answers a call whose question was refused with a result of its own, which is not what was asked for.
#[tokio::test]
async fn what_a_tool_makes_of_a_question_that_a_cancel_refused_does_not_win() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    for knows in [true, false] {
        let id = id_of(&proxy.value(call("tools/call", export())).await);
        let (_, server) = proxy.next_sent().await;
        let mut asking = ask(&server, "who?");
        asks(&proxy, &id, 1).await;
        proxy.value(call("tasks/cancel", json!({ "taskId": id }))).await;
        if knows {
            answer(&mut asking).await.unwrap_err();
        } else {
            server.cancelled().await;
        }
        server.done(done());
        assert_eq!(until(&proxy, &id, |task| task["status"] != "input_required").await["status"], "cancelled");
    }
}
