//! Rounds that a server does not take, against a server that a test plays.

use super::*;

fn refused(retry: Retry) -> Outcome {
    Outcome::Failed(Failure::new(Reason::NotStarted, "the server takes no more calls", retry).for_how("no room"))
}

/// A call whose first round has asked and was answered.
async fn in_its_second_round() -> (Server, Reply, JoinHandle<()>) {
    let (mut server, mut reply, job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", &input_required(&asks("a", "elicitation/create"), "s")).await;
    question(&mut reply).await.answer(Answer::Result(json(r#"{"action":"accept"}"#)));
    (server, reply, job)
}

#[tokio::test(start_paused = true)]
async fn a_round_that_is_not_taken_for_the_moment_is_sent_again_with_the_same_answers() {
    let (mut server, reply, _job) = in_its_second_round().await;
    let began = Instant::now();
    let (second, sender) = server.take("tools/call").await;
    sender.done(refused(Retry::After(Duration::from_secs(3))));
    let (again, sender) = server.take("tools/call").await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    assert_eq!(again.params.raw().as_str(), second.params.raw().as_str());
    // At once would be a flood.
    sender.done(refused(Retry::After(Duration::ZERO)));
    let (again, sender) = server.take("tools/call").await;
    assert_eq!((began.elapsed(), params(&again)["requestState"].as_str()), (Duration::from_secs(4), Some("s")));
    sender.done(Outcome::Result(json(r#"{"content":[]}"#)));
    assert_eq!(result(reply).await, r#"{"content":[]}"#);
}

#[tokio::test(start_paused = true)]
async fn a_later_round_that_is_never_taken_is_no_call_that_was_never_started() {
    for (retry, tries) in [(Retry::SOON, 4), (Retry::After(Duration::from_mins(1)), 1), (Retry::No, 1)] {
        let (mut server, reply, _job) = in_its_second_round().await;
        let began = Instant::now();
        for _ in 0..tries {
            server.take("tools/call").await.1.done(refused(retry));
        }
        let failure = failure(reply).await;
        assert_eq!((failure.reason, failure.retry), (Reason::OutcomeUnknown, Retry::Unknown), "{retry:?}");
        let message = &failure.message;
        assert!(message.contains("the first part of the call has run") && message.contains("no room"), "{message}");
        assert!(server.is_idle() && began.elapsed() <= Duration::from_secs(16), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_that_brings_no_answers_is_a_later_one_too() {
    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.answer("tools/call", r#"{"resultType":"input_required","requestState":"s"}"#).await;
    server.take("tools/call").await.1.done(refused(Retry::No));
    assert_eq!(failure(reply).await.reason, Reason::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn a_first_round_that_is_not_taken_never_started() {
    let (mut server, reply, _job) = modern_call(call_of(&Method::CallTool, ABLE), manners());
    server.take("tools/call").await.1.done(Outcome::Error(wants_tasks()));
    server.take("tools/call").await.1.done(refused(Retry::SOON));
    let failure = failure(reply).await;
    assert_eq!((failure.reason, failure.retry), (Reason::NotStarted, Retry::SOON));
    assert!(server.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_wait_for_the_next_try() {
    for waits in [true, false] {
        let (mut server, reply, _job) = in_its_second_round().await;
        let (_, sender) = server.take("tools/call").await;
        if waits {
            sender.done(refused(Retry::SOON));
            reply.cancel();
        } else {
            reply.cancel();
            sender.cancelled().await;
            // What was cancelled before it was sent.
            sender.done(refused(Retry::Yes));
        }
        let failure = failure(reply).await;
        assert_eq!((failure.reason, failure.retry), (Reason::OutcomeUnknown, Retry::Unknown));
        assert!(failure.message.contains("cancelled"), "{failure:?}");
        assert!(server.is_idle());
    }
}
