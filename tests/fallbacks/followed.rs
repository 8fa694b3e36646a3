//! What a client of 2025-11-25 is told of its tasks while it does not ask (`fallback = "legacy_tasks"`).

use futures_util::FutureExt;
use raincheck::protocol::{Ask, ClientSession, Event, Json, Method, Progress, Reply};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::augmented::{RELATED, export, form, id_of, next, of_task, policy, result};
use crate::support::calls::{legacy_call, text};
use crate::support::layer::{PATIENCE, Proxy};
use crate::{Call, ReplySender};

/// The stream of a session of Ann's, and the way for its server to say something on it.
async fn session(proxy: &mut Proxy, number: u64) -> (Reply, ReplySender) {
    let mut attach = legacy_call("ann", "initialize", json!({}), json!({}));
    attach.caller.session = ClientSession::Legacy(number);
    let mut reply = proxy.send(Call { method: Method::Attach, ..attach }).await.in_background();
    let (_, sender) = proxy.next_sent().await;
    sender.event(Event::Attached(text(r#"{"capabilities":{}}"#)));
    assert!(matches!(next(&mut reply).await, Event::Attached(_)));
    (reply, sender)
}

/// A task of that session, and the way to end it.
async fn task(proxy: &mut Proxy, number: u64, token: Option<Value>) -> (String, ReplySender) {
    let mut call = export(&json!({}));
    call.caller.session = ClientSession::Legacy(number);
    call.caller.progress_token = token.map(|token| Json::from_value(&token));
    let reply = proxy.send_in_background(call);
    let (_, sender) = proxy.next_sent().await;
    (id_of(&reply.await.unwrap()["task"]), sender)
}

fn reported(progress: &str, message: Option<&str>) -> Event {
    let (progress, message) = (text(progress), message.map(str::to_owned));
    Event::Progress(Progress { progress, total: Some(text("1e1")), message })
}

async fn told(reply: &mut Reply) -> (String, Json) {
    let Event::Notification(said) = next(reply).await else { panic!("no notification") };
    (said.method, said.params.unwrap())
}

async fn status(reply: &mut Reply) -> Value {
    let (method, params) = told(reply).await;
    assert_eq!(method, "notifications/tasks/status");
    params.read().unwrap()
}

/// Nobody follows a task any more.
async fn only_history_is_written(proxy: &Proxy) {
    let left = async {
        while proxy.runs.running() > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, left).await.expect("something goes on");
}

#[tokio::test]
async fn the_session_is_told_of_progress_under_the_token_of_the_call_and_of_each_change_until_the_task_has_ended() {
    let mut proxy = Proxy::new(policy());
    let (mut own, _sender) = session(&mut proxy, 7).await;
    let (mut other, _other_sender) = session(&mut proxy, 8).await;
    let (id, sender) = task(&mut proxy, 7, Some(json!("p1"))).await;
    for (progress, message) in [("1.0", Some("rows")), ("2e0", None)] {
        sender.event(reported(progress, message));
        let (method, params) = told(&mut own).await;
        let message = message.map_or_else(String::new, |message| format!(r#""message":"{message}","#));
        assert_eq!(method, "notifications/progress");
        assert_eq!(
            params.as_str(),
            format!(
                r#"{{"progressToken":"p1","progress":{progress},"total":1e1,{message}"_meta":{{"{RELATED}":{{"taskId":"{id}"}}}}}}"#
            )
        );
    }
    let (ask, asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    let asked = status(&mut own).await;
    assert_eq!((&asked["taskId"], &asked["status"]), (&json!(id), &json!("input_required")));
    assert_eq!(asked.get("_meta"), None, "2025-11-25, tasks, task notifications");
    drop(asking);
    assert_eq!(status(&mut own).await["status"], "working");
    sender.event(reported("3", None));
    assert_eq!(told(&mut own).await.0, "notifications/progress");
    sender.done(result("{}"));
    assert_eq!(status(&mut own).await["status"], "completed");
    only_history_is_written(&proxy).await;
    assert!(own.next().now_or_never().is_none(), "something was said after the end");
    assert!(other.next().now_or_never().is_none(), "another session was told");
}

#[tokio::test]
async fn who_waits_for_the_result_is_told_there_and_the_session_again_when_it_has_left() {
    let mut proxy = Proxy::new(policy());
    let (mut own, _sender) = session(&mut proxy, 7).await;
    let (id, sender) = task(&mut proxy, 7, Some(json!(5))).await;
    let mut waiting = proxy.send(of_task("tasks/result", &id)).await.in_background();
    // It waits once it asks what the task asks.
    let (ask, asking) = Ask::new(form());
    sender.event(Event::Ask(ask));
    while !matches!(next(&mut waiting).await, Event::Ask(_)) {}
    drop(asking);
    assert_eq!(status(&mut waiting).await["status"], "working");
    while own.next().now_or_never().is_some() {}
    sender.event(reported("1", None));
    let (method, params) = told(&mut waiting).await;
    assert_eq!(method, "notifications/progress");
    assert_eq!(params.read::<Value>().unwrap()["progressToken"], 5);
    assert!(own.next().now_or_never().is_none(), "told on both streams");

    drop(waiting);
    let left = async {
        while proxy.runs.running() > 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, left).await.expect("the wait goes on");
    sender.event(reported("2", None));
    assert_eq!(told(&mut own).await.1.read::<Value>().unwrap()["progress"], 2);
}

#[tokio::test]
async fn without_a_token_there_is_no_progress_and_a_session_that_has_gone_is_forgotten() {
    let mut proxy = Proxy::new(policy());
    let (mut own, _sender) = session(&mut proxy, 7).await;
    let (_id, sender) = task(&mut proxy, 7, None).await;
    sender.event(reported("1", None));
    sender.done(result("{}"));
    assert_eq!(status(&mut own).await["status"], "completed", "not the progress");

    let (id, sender) = task(&mut proxy, 7, Some(json!(1))).await;
    drop(own);
    sender.event(reported("1", None));
    sender.done(result(r#"{"content":[]}"#));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
    only_history_is_written(&proxy).await;
    // And one that was never opened is told nothing.
    let (id, sender) = task(&mut proxy, 9, Some(json!(1))).await;
    sender.done(result("{}"));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_burst_of_progress_is_told_by_its_newest_and_never_after_the_end() {
    let mut proxy = Proxy::new(policy());
    let (mut own, _sender) = session(&mut proxy, 7).await;
    let (id, sender) = task(&mut proxy, 7, Some(json!(1))).await;
    for progress in 0..2000 {
        sender.event(reported(&progress.to_string(), None));
        if progress % 10 == 0 {
            tokio::task::yield_now().await;
        }
    }
    sender.done(result("{}"));
    assert_eq!(proxy.ended(&id).await["status"], "completed");
    only_history_is_written(&proxy).await;
    let mut last = -1;
    let mut ended = false;
    while let Some(Some(Event::Notification(said))) = own.next().now_or_never() {
        assert!(!ended, "{} after the end", said.method);
        let params: Value = said.params.unwrap().read().unwrap();
        if said.method == "notifications/progress" {
            let progress = params["progress"].as_i64().unwrap();
            assert!(progress > last, "{progress} after {last}");
            last = progress;
        } else {
            ended = params["status"] == "completed";
        }
    }
    assert!(ended, "the end is never dropped for progress");
}
