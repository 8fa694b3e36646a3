//! What goes past the runner: legacy callers' questions, sessions, notifications.

use std::time::Duration;

use raincheck::config::{Mode, ToolPolicy};
use raincheck::protocol::{Answer, Event, Method, Notification, Outcome, Reason};
use raincheck::runner::Bounds;
use serde_json::json;
use tokio::time::timeout;

use crate::client::{accepted, answer, ask, call, done, export, legacy, policy};
use crate::support::calls::text;
use crate::support::layer::{PATIENCE, Proxy};

#[tokio::test]
async fn the_questions_of_a_legacy_client_go_to_it_as_they_are_in_every_mode() {
    for (mode, method) in [(Mode::Auto, "tools/call"), (Mode::Task, "tools/call"), (Mode::Sync, "completion/complete")]
    {
        let mut proxy = Proxy::new(policy(mode));
        let mut reply = proxy.send(legacy(call(method, export()))).await;
        let (_, server) = proxy.next_sent().await;
        let mut asking = ask(&server, "who?");
        let event = timeout(PATIENCE, reply.next()).await.expect("the question does not come");
        let Some(Event::Ask(question)) = event else { panic!("{mode:?} {event:?}") };
        question.answer(Answer::Result(text(&accepted(&json!(1)).to_string())));
        assert_eq!(answer(&mut asking).await, Ok(accepted(&json!(1))));
        server.done(done());
        assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
    }
}

#[tokio::test]
async fn a_legacy_client_who_was_asked_can_answer_while_the_proxy_stops() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let mut reply = proxy.send(legacy(call("tools/call", export()))).await;
    let (_, server) = proxy.next_sent().await;
    let mut asking = ask(&server, "who?");
    let Some(Event::Ask(question)) = timeout(PATIENCE, reply.next()).await.unwrap() else { panic!() };
    proxy.runner.drain();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    question.answer(Answer::Result(text(&accepted(&json!(1)).to_string())));
    assert_eq!(answer(&mut asking).await, Ok(accepted(&json!(1))));
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));
}

#[tokio::test]
async fn no_time_runs_while_a_legacy_client_is_asked_but_that_of_the_question() {
    let limit = Duration::from_secs(2);
    let limited = ToolPolicy { timeout: limit, idle_timeout: Some(limit / 2), ..policy(Mode::Auto) };
    let mut proxy = Proxy::new(limited);
    let mut reply = proxy.send(legacy(call("tools/call", export()))).await;
    let (_, server) = proxy.next_sent().await;
    let mut asking = ask(&server, "who?");
    let Some(Event::Ask(question)) = timeout(PATIENCE, reply.next()).await.unwrap() else { panic!() };
    assert!(timeout(limit * 2, server.cancelled()).await.is_err(), "the run was given up");
    question.answer(Answer::Result(text(&accepted(&json!(1)).to_string())));
    assert_eq!(answer(&mut asking).await, Ok(accepted(&json!(1))));
    server.done(done());
    assert!(matches!(timeout(PATIENCE, reply.outcome()).await.unwrap(), Outcome::Result(_)));

    let mut proxy = Proxy::new(ToolPolicy { ask_timeout: Duration::from_millis(50), ..policy(Mode::Auto) });
    let mut reply = proxy.send(legacy(call("tools/call", export()))).await;
    let (_, server) = proxy.next_sent().await;
    let _asking = ask(&server, "who?");
    let Some(Event::Ask(_unanswered)) = timeout(PATIENCE, reply.next()).await.unwrap() else { panic!() };
    let Outcome::Failed(failure) = timeout(PATIENCE, reply.outcome()).await.unwrap() else { panic!() };
    assert_eq!(failure.reason, Reason::InputTimeout);
}

#[tokio::test]
async fn sessions_streams_and_notifications_take_no_slot_and_have_no_time_limit() {
    let policy = ToolPolicy { timeout: Duration::from_millis(20), ..policy(Mode::Task) };
    let mut proxy = Proxy::bounded(policy, Bounds { running: 1, waiting: 0, rate: None });
    let mut attach = legacy(call("initialize", json!({})));
    attach.method = Method::Attach;
    let mut session = proxy.send(attach).await;
    let (_, server) = proxy.next_sent().await;
    let mut notify = legacy(call("x", json!({})));
    notify.method = Method::Notify("notifications/roots/list_changed".to_owned());
    let notified = proxy.send(notify).await;
    let (_, taken) = proxy.next_sent().await;
    let mut listen = proxy.send(call("subscriptions/listen", json!({ "notifications": {} }))).await;
    let (_, stream) = proxy.next_sent().await;
    taken.done(Outcome::Result(text("{}")));
    assert!(matches!(timeout(PATIENCE, notified.outcome()).await.unwrap(), Outcome::Result(_)));
    assert!(timeout(Duration::from_millis(200), server.cancelled()).await.is_err(), "a session has a time limit");
    let said = || Event::Notification(Notification { method: "notifications/x".to_owned(), params: None });
    server.event(said());
    stream.event(said());
    for reply in [&mut session, &mut listen] {
        let event = timeout(PATIENCE, reply.next()).await.unwrap();
        assert!(matches!(&event, Some(Event::Notification(said)) if said.method == "notifications/x"), "{event:?}");
    }
    drop((session, listen));
    timeout(PATIENCE, server.cancelled()).await.expect("the session stays open");
    timeout(PATIENCE, stream.cancelled()).await.expect("the stream stays open");
}
