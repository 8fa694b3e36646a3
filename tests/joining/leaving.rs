//! Callers who leave.

use raincheck::config::{Dedupe, Mode, OwnerRules, ToolPolicy};
use raincheck::protocol::{Call, Outcome, Principal, Reason, Reply, ReplySender, WaitsFor};
use tokio::time::timeout;

use crate::callers::{
    Kind, assert_joined, assert_same_handle, call, call_of, done, export, id_of, outcome, policy, said,
};
use crate::support::layer::{PATIENCE, Proxy};

fn derived(kind: Kind) -> Call {
    call_of(Principal::Named("ann".into()), kind, export())
}

fn deduping(mode: Mode) -> Proxy {
    Proxy::new(ToolPolicy { dedupe: Dedupe::Running, ..policy(mode) })
}

/// Lets those who were told of something do it.
async fn settle_down() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_with_a_key_goes_on_when_its_caller_is_gone_and_a_repeat_finds_it() {
    for kind in [Kind::Tasks, Kind::Plain] {
        let mut proxy = Proxy::new(policy(Mode::Auto));
        let one = proxy.send(call(kind)).await;
        let (_, server) = proxy.next_sent().await;
        drop(one);
        settle_down().await;
        assert!(!server.is_cancelled(), "{kind:?}");
        let two = proxy.send(call(kind)).await;
        server.done(done());
        assert_joined(outcome(two).await);
        assert_joined(outcome(proxy.send(call(kind)).await).await);
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_task_whose_handle_was_lost_stays_for_the_repeat() {
    let mut proxy = Proxy::new(policy(Mode::Task));
    let Outcome::Task(lost) = outcome(proxy.send(call(Kind::Tasks)).await).await else { panic!() };
    let (_, server) = proxy.next_sent().await;
    let id = id_of(&lost.created.clone().into_json().read().unwrap());
    drop(lost.delivery);
    settle_down().await;
    assert!(!server.is_cancelled());
    assert_same_handle(&said(proxy.send(call(Kind::Tasks)).await).await, &id, "working");
}

#[tokio::test]
async fn a_call_that_is_cancelled_by_its_only_caller_is_stopped() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let one = proxy.send(call(Kind::Legacy)).await;
    let (_, server) = proxy.next_sent().await;
    one.cancel();
    timeout(PATIENCE, server.cancelled()).await.unwrap();
    let Outcome::Failed(failure) = outcome(one).await else { panic!() };
    assert!(failure.message.contains("was cancelled"), "{}", failure.message);
    assert!(matches!(outcome(proxy.send(call(Kind::Plain)).await).await, Outcome::Failed(_)));
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn who_cancels_takes_nothing_from_the_others() {
    let mut proxy = Proxy::new(policy(Mode::Auto));
    let one = proxy.send(call(Kind::Legacy)).await;
    let (_, server) = proxy.next_sent().await;
    let two = proxy.send(call(Kind::Plain)).await;
    settle_down().await;
    one.cancel();
    settle_down().await;
    assert!(!server.is_cancelled());
    server.done(done());
    assert_joined(outcome(two).await);
}

#[tokio::test]
async fn without_a_key_of_their_own_the_last_who_leaves_stops_the_call() {
    let mut proxy = deduping(Mode::Auto);
    let one = proxy.send(derived(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    let two = proxy.send(derived(Kind::Tasks)).await;
    let three = proxy.send(derived(Kind::Plain)).await;
    settle_down().await;
    drop(one);
    settle_down().await;
    assert!(!server.is_cancelled(), "two still wait");
    drop(two);
    settle_down().await;
    assert!(!server.is_cancelled(), "one still waits");
    drop(three);
    timeout(PATIENCE, server.cancelled()).await.unwrap();
}

#[tokio::test]
async fn a_repeat_that_leaves_takes_nothing_from_the_first() {
    let mut proxy = deduping(Mode::Auto);
    let one = proxy.send(derived(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    let two = proxy.send(derived(Kind::Plain)).await;
    settle_down().await;
    drop(two);
    settle_down().await;
    assert!(!server.is_cancelled());
    server.done(done());
    assert!(matches!(outcome(one).await, Outcome::Result(_)));
}

#[tokio::test]
async fn a_handle_that_a_repeat_has_keeps_the_call_going() {
    let mut proxy = deduping(Mode::Task);
    let one = proxy.send(derived(Kind::Plain)).await;
    let (_, server) = proxy.next_sent().await;
    let id = id_of(&said(proxy.send(derived(Kind::Tasks)).await).await);
    drop(one);
    settle_down().await;
    assert!(!server.is_cancelled());
    server.done(done());
    assert_eq!(proxy.ended(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_handle_that_was_lost_stops_a_call_without_a_key_that_nobody_else_waits_for() {
    for waits in [false, true] {
        let mut proxy = deduping(Mode::Task);
        let Outcome::Task(lost) = outcome(proxy.send(derived(Kind::Tasks)).await).await else { panic!() };
        let (_, server) = proxy.next_sent().await;
        let two = if waits { Some(proxy.send(derived(Kind::Plain)).await) } else { None };
        settle_down().await;
        drop(lost.delivery);
        if let Some(two) = two {
            settle_down().await;
            assert!(!server.is_cancelled());
            server.done(done());
            assert_joined(outcome(two).await);
        } else {
            timeout(PATIENCE, server.cancelled()).await.unwrap();
        }
    }
}

/// A call of the one tool, which has one slot, in the line behind another one.
async fn in_line(proxy: &mut Proxy, second: Call) -> ((ReplySender, Reply), Reply) {
    let first = proxy.send(call_of(Principal::Named("bo".into()), Kind::Plain, export())).await.in_background();
    let (_, running) = proxy.next_sent().await;
    let second = proxy.send(second).await.in_background();
    settle_down().await;
    assert_eq!(proxy.runner.waiting(), 1);
    ((running, first), second)
}

fn narrow(mode: Mode, dedupe: Dedupe) -> ToolPolicy {
    ToolPolicy { max_running: Some(1), dedupe, ..policy(mode) }
}

#[tokio::test]
async fn a_call_with_a_key_goes_on_when_its_caller_leaves_while_it_waits_for_a_slot_also_in_the_next_process() {
    for (mode, restarts) in [(Mode::Auto, false), (Mode::Sync, false), (Mode::Auto, true), (Mode::Sync, true)] {
        let mut proxy = Proxy::new(narrow(mode, Dedupe::Off));
        let ((running, _first), left) = in_line(&mut proxy, call(Kind::Plain)).await;
        drop(left);
        settle_down().await;
        if restarts {
            proxy = proxy.crashes(narrow(mode, Dedupe::Off)).await;
        } else {
            assert_eq!(proxy.runner.waiting(), 1, "{mode:?}: it left the line with its caller");
            running.done(done());
        }
        proxy.next_sent().await.1.done(done());
        assert_joined(outcome(proxy.send(call(Kind::Plain)).await).await);
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn a_call_with_a_key_goes_on_when_its_caller_leaves_while_its_server_starts() {
    let mut proxy = Proxy::gated(policy(Mode::Auto), OwnerRules::default());
    let left = proxy.send(call(Kind::Plain)).await.in_background();
    let (_, server) = proxy.next_sent().await;
    server.waits(WaitsFor::Start);
    settle_down().await;
    drop(left);
    settle_down().await;
    let two = proxy.send(call(Kind::Plain)).await.in_background();
    assert!(timeout(PATIENCE, server.begins()).await.unwrap(), "it is not sent");
    server.done(done());
    assert_joined(outcome(two).await);
    proxy.assert_sent_no_more();
}

#[tokio::test]
async fn a_call_that_waits_and_has_no_key_of_its_own_or_is_cancelled_leaves_the_line_with_its_caller() {
    for (waits, cancels) in [(derived(Kind::Plain), false), (call(Kind::Legacy), true)] {
        let mut proxy = Proxy::new(narrow(Mode::Auto, Dedupe::Running));
        let ((running, _first), left) = in_line(&mut proxy, waits).await;
        if cancels {
            left.cancel();
        }
        drop(left);
        settle_down().await;
        assert_eq!(proxy.runner.waiting(), 0);
        running.done(done());
        settle_down().await;
        proxy.assert_sent_no_more();
    }
}

#[tokio::test]
async fn an_operator_ends_a_call_that_waits_for_all_who_have_joined_it() {
    for repeats in [call as fn(Kind) -> Call, derived] {
        let mut in_line_proxy = Proxy::new(narrow(Mode::Auto, Dedupe::Running));
        let ((running, _first), one) = in_line(&mut in_line_proxy, repeats(Kind::Plain)).await;
        let mut starting_proxy =
            Proxy::gated(ToolPolicy { dedupe: Dedupe::Running, ..policy(Mode::Auto) }, OwnerRules::default());
        let other = starting_proxy.send(repeats(Kind::Plain)).await.in_background();
        let (_, server) = starting_proxy.next_sent().await;
        server.waits(WaitsFor::Start);
        for (proxy, one) in [(&mut in_line_proxy, one), (&mut starting_proxy, other)] {
            let (two, three) = (proxy.send(repeats(Kind::Tasks)).await, proxy.send(repeats(Kind::Plain)).await);
            let all = [one, two.in_background(), three.in_background()];
            settle_down().await;
            let held = proxy.runner.held().all();
            assert_eq!(held.len(), 1);
            held[0].cancel();
            for reply in all {
                let Outcome::Failed(failure) = outcome(reply).await else { panic!("it goes on") };
                assert_eq!(failure.reason, Reason::NotStarted);
                assert!(failure.message.contains("operator has cancelled"), "{}", failure.message);
            }
            assert!(proxy.runner.held().is_empty() && proxy.runner.waiting() == 0);
        }
        assert!(!timeout(PATIENCE, server.begins()).await.unwrap(), "it was sent after that");
        running.done(done());
        settle_down().await;
        in_line_proxy.assert_sent_no_more();
        starting_proxy.assert_sent_no_more();
    }
}
