use bytes::Bytes;

use super::*;
use crate::protocol::Reply;

fn json(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

fn outcome(text: &str) -> Outcome {
    Outcome::Result(json(text))
}

/// A call that was sent: its id and its reply.
fn sent(pending: &Pending) -> (u64, Reply) {
    let (sender, reply) = Reply::channel();
    let id = pending.add(sender).unwrap().id;
    assert!(pending.send(id));
    (id, reply)
}

async fn show(reply: Reply) -> String {
    let outcome = tokio::time::timeout(std::time::Duration::from_secs(10), reply.outcome());
    match outcome.await.expect("the call hangs") {
        Outcome::Result(json) => json.as_str().to_owned(),
        Outcome::Failed(failure) => format!("{:?}", failure.reason),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn answers_in_any_order_find_their_calls_and_a_second_answer_is_dropped() {
    let pending = Pending::default();
    let (ann, ann_reply) = sent(&pending);
    let (bo, bo_reply) = sent(&pending);
    pending.answer(Some(&json(&bo.to_string())), outcome("\"bo\""));
    pending.answer(Some(&json(&bo.to_string())), outcome("\"again\""));
    pending.answer(Some(&json(&ann.to_string())), outcome("\"ann\""));
    assert_eq!(show(ann_reply).await, "\"ann\"");
    assert_eq!(show(bo_reply).await, "\"bo\"");
    assert_eq!(pending.waiting(), 0);
}

#[tokio::test]
async fn a_call_alone_gets_its_answer_whatever_the_server_makes_of_the_id() {
    for spelling in ["1", "\"1\"", "1.0", "1e0", "0", "null", "\"0\""] {
        let pending = Pending::default();
        let (_, reply) = sent(&pending);
        pending.answer(Some(&json(spelling)), outcome("{}"));
        assert_eq!(show(reply).await, "{}", "{spelling}");
    }
    let pending = Pending::default();
    let (_, reply) = sent(&pending);
    pending.answer(None, outcome("{}"));
    assert_eq!(show(reply).await, "{}");
}

#[tokio::test]
async fn answers_that_name_no_call_end_two_calls_in_errors_and_the_next_call_works() {
    for spelling in ["0", "null"] {
        let pending = Pending::default();
        let (_, one) = sent(&pending);
        let (_, two) = sent(&pending);
        pending.answer(Some(&json(spelling)), outcome("\"one\""));
        assert_eq!(show(one).await, "OutcomeUnknown");
        assert_eq!(show(two).await, "OutcomeUnknown");
        pending.answer(Some(&json(spelling)), outcome("\"two\""));
        let (_, three) = sent(&pending);
        pending.answer(Some(&json(spelling)), outcome("\"three\""));
        assert_eq!(show(three).await, "\"three\"");
    }
}

#[tokio::test]
async fn an_answer_without_id_is_not_given_to_a_call_while_an_abandoned_one_is_owed_its_own() {
    let pending = Pending::default();
    let (id, reply) = sent(&pending);
    let Stopped::Running(stopping) = pending.stop(id) else { panic!() };
    drop(reply);
    stopping.finish(id, &pending, Duration::ZERO).await;
    let (_, next) = sent(&pending);
    pending.answer(Some(&json("0")), outcome("\"secret of the first\""));
    assert_eq!(show(next).await, "OutcomeUnknown");
}

#[tokio::test]
async fn an_id_that_was_never_given_fails_the_waiting_call_instead_of_letting_it_hang() {
    for spelling in ["99", "\"x\"", "-1", "[]", "1.5", "18446744073709551616"] {
        let pending = Pending::default();
        let (_, reply) = sent(&pending);
        pending.answer(Some(&json(spelling)), outcome("{}"));
        assert_eq!(show(reply).await, "BadAnswer", "{spelling}");
    }
}

/// A server that has answered a call by its id.
async fn proven() -> Pending {
    let pending = Pending::default();
    let (id, reply) = sent(&pending);
    assert_eq!(pending.answer(Some(&json(&id.to_string())), outcome("{}")), Taken::ByCall(id));
    show(reply).await;
    pending
}

fn refusal() -> Outcome {
    Outcome::Error(crate::protocol::RpcError::new(-32700, "cannot be read"))
}

#[tokio::test]
async fn strays_of_a_server_that_names_calls_are_for_none_whether_one_runs_or_two() {
    let pending = proven().await;
    let (one, one_reply) = sent(&pending);
    let (two, two_reply) = sent(&pending);
    for runs in [2, 1] {
        assert_eq!(pending.waiting(), runs);
        assert!(matches!(pending.answer(Some(&json("99")), outcome("{}")), Taken::ByNone(_)));
        assert!(matches!(pending.answer(Some(&json("\"x\"")), refusal()), Taken::ByNone(_)));
        for id in [Some(&json("0")), Some(&json("null")), None] {
            assert!(matches!(pending.answer(id, outcome("{}")), Taken::ByNone(_)));
        }
        pending.answer(Some(&json(&two.to_string())), outcome("\"two\""));
    }
    assert_eq!(show(two_reply).await, "\"two\"");
    pending.answer(Some(&json(&one.to_string())), outcome("\"one\""));
    assert_eq!(show(one_reply).await, "\"one\"");
}

#[tokio::test]
async fn an_error_without_id_is_for_the_lone_call_unless_a_note_may_have_caused_it() {
    let pending = proven().await;
    pending.note();
    let (one, one_reply) = sent(&pending);
    assert!(matches!(pending.answer(None, refusal()), Taken::ByNone(_)));
    assert_eq!(pending.answer(None, refusal()), Taken::ByCall(one));
    assert!(matches!(one_reply.outcome().await, Outcome::Error(_)));

    // The note is used up by an answer to what came behind it.
    pending.note();
    let (two, _two_reply) = sent(&pending);
    pending.answer(Some(&json(&two.to_string())), outcome("{}"));
    let (three, _three_reply) = sent(&pending);
    assert_eq!(pending.answer(None, refusal()), Taken::ByCall(three));

    let ((_, _four), (_, _five)) = (sent(&pending), sent(&pending));
    assert!(matches!(pending.answer(None, refusal()), Taken::ByNone(_)));
    assert!(matches!(pending.answer_unread(outcome("{}")), Taken::ByNone(_)));
    assert_eq!(pending.waiting(), 2);
}

#[tokio::test]
async fn what_was_not_asked_yet_cannot_be_answered() {
    let pending = proven().await;
    let (sender, _reply) = Reply::channel();
    let id = pending.add(sender).unwrap().id;
    assert!(matches!(pending.answer(Some(&json(&id.to_string())), outcome("{}")), Taken::ByNone(_)));
    assert!(!pending.awaits(&json(&id.to_string())));
    assert!(pending.send(id));
    assert!(pending.awaits(&json(&id.to_string())));
}

#[tokio::test]
async fn progress_reaches_its_call_only_under_our_token_and_before_the_answer() {
    let pending = Pending::default();
    let (id, mut reply) = sent(&pending);
    let (_, mut other) = sent(&pending);
    pending.progress(&json(r#"{"progressToken":"ghost","progress":1}"#));
    pending.progress(&json(r#"{"progressToken":77,"progress":1}"#));
    pending.progress(&json(r#"{"progress":1}"#));
    pending.progress(&json(&format!(r#"{{"progressToken":{id},"progress":2,"total":4}}"#)));
    pending.answer(Some(&json(&id.to_string())), outcome("{}"));
    pending.progress(&json(&format!(r#"{{"progressToken":{id},"progress":3}}"#)));
    let Some(Event::Progress(progress)) = reply.next().await else { panic!() };
    assert_eq!(progress.describe(), "2 of 4");
    assert!(matches!(reply.next().await, Some(Event::Done(Outcome::Result(_)))));
    assert!(reply.next().await.is_none());
    pending.close("it ended");
    assert!(matches!(other.next().await, Some(Event::Done(Outcome::Failed(_)))));
}

#[tokio::test]
async fn a_log_line_goes_to_the_only_call_that_runs() {
    let pending = Pending::default();
    let (_, mut one) = sent(&pending);
    pending.log(&json(r#"{"level":"info"}"#));
    let (_, _two) = sent(&pending);
    pending.log(&json(r#"{"level":"debug"}"#));
    assert!(matches!(one.next().await, Some(Event::Log(_))));
    pending.answer(Some(&json("1")), outcome("{}"));
    assert!(matches!(one.next().await, Some(Event::Done(_))));
}

#[tokio::test]
async fn the_end_of_a_connection_gives_unsent_calls_back_and_tells_the_others() {
    let pending = Pending::default();
    let (_, sent_reply) = sent(&pending);
    let (sender, _queued_reply) = Reply::channel();
    let mut queued = pending.add(sender).unwrap();
    let (failed, _failed_reply) = sent(&pending);
    pending.not_taken(failed);
    pending.close("the process ended");
    assert_eq!(show(sent_reply).await, "OutcomeUnknown");
    assert!(queued.settled().await.is_some());
    assert!(!pending.send(queued.id));
    assert!(pending.add(Reply::channel().0).is_err());
}

#[tokio::test]
async fn a_stopped_call_is_never_sent_if_it_was_not_and_may_still_be_answered_if_it_was() {
    let pending = Pending::default();
    let (sender, _reply) = Reply::channel();
    let unsent = pending.add(sender).unwrap().id;
    assert!(matches!(pending.stop(unsent), Stopped::NotSent(_)));
    assert!(!pending.send(unsent));

    let (id, reply) = sent(&pending);
    let Stopped::Running(stopping) = pending.stop(id) else { panic!() };
    pending.answer(Some(&json(&id.to_string())), outcome("\"late\""));
    stopping.finish(id, &pending, Duration::ZERO).await;
    assert_eq!(show(reply).await, "\"late\"");
    assert!(matches!(pending.stop(id), Stopped::Over));
}

#[tokio::test]
async fn abandoned_calls_that_are_never_answered_do_not_pile_up() {
    let pending = Pending::default();
    for _ in 0..REMEMBERED * 2 {
        let (id, _reply) = sent(&pending);
        pending.abandon(id);
    }
    assert!(pending.table().entries.len() <= REMEMBERED);
    assert_eq!(pending.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_call_that_was_waited_for_keeps_its_turn_for_no_longer_than_one_that_was_not() {
    const LINGER: Duration = Duration::from_secs(30);
    for waited in [Duration::ZERO, LINGER / 3, LINGER] {
        let pending = Pending::default();
        let (id, reply) = sent(&pending);
        let Stopped::Running(stopping) = pending.stop(id) else { panic!("it runs") };
        let since = Instant::now();
        let leaves = async {
            tokio::time::sleep(waited).await;
            drop(reply);
        };
        tokio::join!(stopping.finish(id, &pending, LINGER), leaves);
        let kept = since.elapsed();
        assert!(kept >= LINGER && kept < LINGER + Duration::from_secs(1), "waited {waited:?}, kept for {kept:?}");
    }
}
