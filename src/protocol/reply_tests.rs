//! What readers see of a reply, and who drives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use super::*;
use crate::protocol::ask::{Answer, Question, QuestionKind};
use crate::protocol::line::{RESERVED, WAITING_EVENTS};

fn text(json: &'static str) -> Json {
    Json::parse(bytes::Bytes::from_static(json.as_bytes())).unwrap()
}

fn progress() -> Event {
    Event::Progress(Progress { progress: text("1"), total: None, message: None })
}

#[tokio::test]
async fn events_come_before_the_outcome_and_nothing_after() {
    let (sender, mut reply) = Reply::channel();
    sender.event(progress());
    sender.done(Outcome::Result(text("{}")));
    assert!(matches!(reply.next().await, Some(Event::Progress(_))));
    assert!(matches!(reply.next().await, Some(Event::Done(Outcome::Result(_)))));
    assert!(reply.next().await.is_none());
}

#[tokio::test]
async fn a_reader_that_is_behind_loses_progress_but_not_the_outcome() {
    let (sender, mut reply) = Reply::channel();
    for _ in 0..1000 {
        sender.event(progress());
    }
    sender.done(Outcome::Result(text("{}")));
    let mut seen = 0;
    while let Some(Event::Progress(_)) = reply.next().await {
        seen += 1;
    }
    assert_eq!(seen, WAITING_EVENTS - RESERVED);
}

#[tokio::test]
async fn a_flood_of_progress_leaves_room_for_a_question() {
    let (sender, mut reply) = Reply::channel();
    for _ in 0..1000 {
        sender.event(progress());
    }
    let question = Question { kind: QuestionKind::Roots, params: text("{}"), key: None };
    let (ask, mut asking) = Ask::new(question);
    sender.event(Event::Ask(ask));
    while let Some(event) = reply.next().await {
        if let Event::Ask(ask) = event {
            ask.answer(Answer::Result(text("{}")));
            break;
        }
    }
    assert_eq!(asking.answer().await, Answer::Result(text("{}")));
}

#[tokio::test]
async fn a_sender_that_vanishes_leaves_the_outcome_unknown() {
    let (sender, reply) = Reply::channel();
    drop(sender);
    let Outcome::Failed(failure) = reply.outcome().await else { panic!() };
    assert_eq!(failure.reason, super::super::failure::Reason::OutcomeUnknown);
}

#[tokio::test]
async fn cancelling_keeps_listening_and_dropping_abandons() {
    let (sender, reply) = Reply::channel();
    reply.cancel();
    sender.cancelled().await;
    assert!(!sender.is_abandoned());
    drop(reply);
    assert!(sender.is_abandoned());
}

fn waiters() -> Jobs {
    Jobs::new().driven_by_waiters()
}

/// A job that takes a step at each `go`, ends with its second and counts its steps.
async fn two_steps(sender: ReplySender, go: Arc<Notify>, steps: Arc<AtomicUsize>) {
    for _ in 0..2 {
        go.notified().await;
        steps.fetch_add(1, Ordering::SeqCst);
        sender.event(progress());
    }
    sender.done(Outcome::Result(text("{}")));
}

#[tokio::test]
async fn a_job_that_its_waiter_drives_goes_on_with_each_look_and_in_the_background_when_it_is_sent_there() {
    let (jobs, go, steps) = (waiters(), Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let mut reply = Reply::driven(&jobs, "test", |sender| two_steps(sender, go.clone(), steps.clone()));
    assert_eq!(jobs.running(), 1);
    go.notify_one();
    tokio::task::yield_now().await;
    assert_eq!(steps.load(Ordering::SeqCst), 0);
    assert!(matches!(reply.next().await, Some(Event::Progress(_))));
    reply.send_to_background();
    go.notify_one();
    jobs.idle().await;
    assert_eq!(steps.load(Ordering::SeqCst), 2);
    assert!(matches!(reply.outcome().await, Outcome::Result(_)));
}

#[tokio::test]
async fn a_job_whose_waiter_leaves_learns_of_it_and_goes_on_in_the_background() {
    let jobs = waiters();
    let told = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&told);
    let mut reply = Reply::driven(&jobs, "test", |mut sender| async move {
        sender.cancelled().await;
        sender.abandoned().await;
        tokio::task::yield_now().await;
        seen.fetch_add(1, Ordering::SeqCst);
    });
    assert!(futures_util::FutureExt::now_or_never(reply.next()).is_none());
    drop(reply);
    jobs.idle().await;
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_job_goes_on_behind_the_outcome_that_it_gave_out() {
    let jobs = waiters();
    let (go, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (wait, tell) = (Arc::clone(&go), Arc::clone(&gone));
    let reply = Reply::driven(&jobs, "test", |sender| async move {
        sender.done(Outcome::Result(text("{}")));
        wait.notified().await;
        tell.notify_one();
    });
    assert!(matches!(reply.outcome().await, Outcome::Result(_)));
    assert_eq!(jobs.running(), 1);
    go.notify_one();
    gone.notified().await;
    jobs.idle().await;
}

#[tokio::test]
async fn a_job_that_panics_in_its_waiters_hands_ends_as_outcome_unknown() {
    let jobs = waiters();
    let reply = Reply::driven(&jobs, "test", |sender| async move {
        let _sender = sender;
        panic!("on purpose");
    });
    assert!(matches!(reply.outcome().await, Outcome::Failed(_)));
    jobs.idle().await;
}

#[tokio::test]
async fn a_reader_who_drives_the_job_is_not_woken_by_what_he_makes_himself() {
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (answer, answered) = oneshot::channel::<()>();
    let jobs = Jobs::new().driven_by_waiters();
    let mut reply = Reply::driven(&jobs, "a call", |sender| async move {
        let _ = answered.await;
        sender.event(progress());
        sender.done(Outcome::Result(text("{}")));
    });
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Arc::clone(&woken).into();
    let mut context = Context::from_waker(&waker);
    assert!(reply.poll_next(&mut context).is_pending());
    answer.send(()).unwrap();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert!(matches!(reply.poll_next(&mut context), Poll::Ready(Some(Event::Progress(_)))));
    assert!(matches!(reply.poll_next(&mut context), Poll::Ready(Some(Event::Done(_)))));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_gated_call_goes_when_its_reply_is_looked_at_or_let_go_if_it_was_kept_back_before() {
    let within = |sender: ReplySender| async move {
        let begun = tokio::time::timeout(Duration::from_millis(20), sender.begins()).await.ok();
        (begun, sender)
    };
    let (sender, reply) = Reply::gated();
    let (begun, sender) = within(sender).await;
    assert_eq!(begun, None, "nobody has looked");
    let mut reply = reply;
    assert!(reply.next().now_or_never().is_none());
    assert_eq!(within(sender).await.0, Some(true));
    assert!(!reply.keep_back(), "it has gone");

    let (sender, reply) = Reply::gated();
    let _goes_on = reply.in_background();
    assert_eq!(within(sender).await.0, Some(true));

    let (sender, reply) = Reply::gated();
    drop(reply);
    assert_eq!(within(sender).await.0, Some(false));

    let (sender, mut reply) = Reply::gated();
    assert!(reply.keep_back());
    let (begun, sender) = within(sender).await;
    assert_eq!(begun, None);
    assert!(matches!(reply.next().await, Some(Event::Began)));
    assert!(within(sender).await.0.is_none(), "it was not let go");

    let (sender, reply) = Reply::gated();
    assert!(reply.keep_back());
    reply.let_go();
    assert_eq!(within(sender).await.0, Some(true));
}
