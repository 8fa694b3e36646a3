//! Owners beside each other: shares, turns in the line, limits by name.

use super::*;

#[tokio::test]
async fn an_owner_with_long_runs_of_a_tool_leaves_a_slot_and_a_start_of_it_to_others() {
    let runs_two = ToolPolicy { max_running: Some(2), ..policy(Mode::Task) };
    let starts_two = ToolPolicy { rate: Some(Rate { count: 2, per: HOUR }), ..policy(Mode::Task) };
    let mut proxy = Proxy::new(runs_two);
    let status = |task: Value| task["statusMessage"].as_str().unwrap().to_owned();
    proxy.value(of("greedy")).await;
    let (_, running) = proxy.next_sent().await;
    assert!(
        status(proxy.value(of("greedy")).await).starts_with("queued: next in line"),
        "it waits, and is not refused"
    );
    assert!(status(proxy.value(of("ann")).await).starts_with("running"), "ann waits for a greedy one");
    assert_eq!(proxy.next_sent().await.0.caller.principal, Principal::Named("ann".into()));
    running.done(Outcome::Result(text("{}")));
    assert_eq!(proxy.next_sent().await.0.caller.principal, Principal::Named("greedy".into()));

    let proxy = Proxy::new(starts_two);
    proxy.value(of("greedy")).await;
    let failure = refused(&proxy, of("greedy")).await;
    assert_eq!(failure.reason, Reason::RateLimited);
    assert!(failure.message.contains("your share"), "{}", failure.message);
    proxy.value(of("ann")).await;
}

#[tokio::test]
async fn a_greedy_owner_with_a_thousand_queued_tasks_delays_another_by_one_turn() {
    let mut proxy = Proxy::bounded(policy(Mode::Task), Bounds { running: 1, waiting: 2000, rate: None });
    proxy.value(of("greedy")).await;
    let (_, mut running) = proxy.next_sent().await;
    for _ in 0..1000 {
        proxy.value(of("greedy")).await;
    }
    let other = proxy.value(of("other")).await;
    assert_eq!(other["statusMessage"], "queued: number 2 in line for a free slot");
    for _ in 0..2 {
        running.done(Outcome::Result(text("{}")));
        running = proxy.next_sent().await.1;
    }
    let params = json!({ "taskId": id_of(&other) });
    let task = proxy.value(call_of("other", true, "tasks/get", params)).await;
    assert!(task["statusMessage"].as_str().unwrap().starts_with("running"), "{task}");
    proxy.runner.drain();
    running.done(Outcome::Result(text("{}")));
    timeout(PATIENCE, proxy.runner.idle()).await.unwrap();
}

#[tokio::test]
async fn the_last_places_of_the_line_are_for_owners_who_have_fewer_than_are_left() {
    let proxy = Proxy::bounded(policy(Mode::Task), Bounds { running: 1, waiting: 16, rate: None });
    for _ in 0..15 {
        assert_eq!(proxy.value(of("greedy")).await["resultType"], "task");
    }
    let failure = refused(&proxy, of("greedy")).await;
    assert!(failure.reason == Reason::QueueFull && failure.message.contains("your share"), "{failure:?}");
    for other in ["ann", "bo"] {
        assert_eq!(proxy.value(of(other)).await["resultType"], "task");
    }
    let failure = refused(&proxy, of("cy")).await;
    assert!(failure.reason == Reason::QueueFull && failure.message.contains("limits.queue"), "{failure:?}");
    assert!(!failure.message.contains("your share"), "{failure:?}");
}

/// Waits until so many wait.
async fn wait_in_line(proxy: &Proxy, count: usize) {
    let so_many = async {
        while proxy.runner.waiting() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, so_many).await.unwrap_or_else(|_| panic!("it is not so that {count} wait"));
}

#[tokio::test]
async fn who_leaves_the_line_leaves_a_place_in_it() {
    let rules =
        OwnerRules { all: OwnerLimits { max_queued: Some(1), ..OwnerLimits::default() }, ..OwnerRules::default() };
    let limits = ToolPolicy { max_running: Some(1), max_queued: Some(1), ..policy(Mode::Sync) };
    let mut proxy = Proxy::ruled(limits, BOUNDS, rules);
    let _held = proxy.send(of("ann")).await.in_background();
    let _running = proxy.next_sent().await;
    for _ in 0..3 {
        let waiting = proxy.send(of("ann")).await.in_background();
        wait_in_line(&proxy, 1).await;
        assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::QueueFull);
        drop(waiting);
        wait_in_line(&proxy, 0).await;
    }
}

#[tokio::test]
async fn what_is_no_call_of_a_tool_counts_for_no_limit_of_its_owner() {
    let limits = OwnerLimits { max_queued: Some(1), ..OwnerLimits::default() };
    let rules = OwnerRules { all: limits, ..OwnerRules::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), Bounds { running: 1, waiting: 100, rate: None }, rules);
    proxy.value(of("ann")).await;
    let _running = proxy.next_sent().await;
    let _waiting = proxy.send(call("prompts/get", json!({ "name": "p" }))).await.in_background();
    assert_eq!(proxy.value(of("ann")).await["resultType"], "task");
    assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::QueueFull);
}

/// Time that a call has spent before it comes here, in reading its body for one, is time that its caller waits.
#[tokio::test]
async fn the_times_of_a_call_count_from_its_arrival() {
    let early = || Call { arrived: tokio::time::Instant::now() - HOUR, ..of("ann") };
    let proxy = Proxy::new(policy(Mode::Auto));
    assert_eq!(proxy.value(early()).await["resultType"], "task", "its time to be held is over");
    let proxy = Proxy::new(ToolPolicy { max_running: Some(1), queue_timeout: HOUR / 2, ..policy(Mode::Sync) });
    let _running = proxy.send(early()).await.in_background();
    assert_eq!(proxy.value(early()).await["failed"], "queue_timeout");
}

#[tokio::test]
async fn limits_of_an_owner_hold_for_that_owner_alone_and_a_name_may_have_others() {
    let limits = OwnerLimits { max_running: Some(1), max_queued: Some(1), ..OwnerLimits::default() };
    let named = [("ann".to_owned(), OwnerLimits::default())].into();
    let proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, OwnerRules { all: limits, named, ..OwnerRules::default() });
    for who in ["bo", "cy"] {
        assert!(proxy.value(of(who)).await["statusMessage"].as_str().unwrap().starts_with("running"));
        assert!(proxy.value(of(who)).await["statusMessage"].as_str().unwrap().starts_with("queued"));
        assert_eq!(refused(&proxy, of(who)).await.reason, Reason::QueueFull);
    }
    for _ in 0..5 {
        assert!(proxy.value(of("ann")).await["statusMessage"].as_str().unwrap().starts_with("running"));
    }
}

#[tokio::test]
async fn what_a_named_owner_left_has_the_limits_of_that_name_after_a_restart() {
    let one = OwnerLimits { max_running: Some(1), ..OwnerLimits::default() };
    let issuer = "https://login.example";
    let named = [("ann".to_owned(), one)].into();
    let rules = OwnerRules { named, issuer: Some(issuer.to_owned()), ..OwnerRules::default() };
    let subject = Principal::Subject { issuer: issuer.into(), subject: "ann".into() };
    for principal in [Principal::Named("ann".into()), subject] {
        let call = || {
            let mut call = of("ann");
            call.caller.principal = principal.clone();
            call
        };
        let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, rules.clone());
        for _ in 0..4 {
            proxy.value(call()).await;
        }
        let _running = proxy.next_sent().await;
        let mut proxy = proxy.restarted(policy(Mode::Task), BOUNDS, rules.clone()).await;
        let (sent, _running) = proxy.next_sent().await;
        assert_eq!(sent.caller.principal, principal);
        // A new one comes behind those that were left.
        let new = proxy.value(call()).await;
        assert_eq!(new["statusMessage"], "queued: number 3 in line for a free slot");
        assert!(proxy.sent.try_recv().is_err(), "two run");
    }
}

#[tokio::test]
async fn what_an_owner_left_whose_name_is_not_in_the_config_counts_with_what_it_calls_after_a_restart() {
    let all = OwnerLimits { max_running: Some(1), ..OwnerLimits::default() };
    let rules = OwnerRules { all, ..OwnerRules::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, rules.clone());
    for _ in 0..4 {
        proxy.value(of("of a gateway")).await;
    }
    let _running = proxy.next_sent().await;
    let mut proxy = proxy.restarted(policy(Mode::Task), BOUNDS, rules).await;
    let (_, running) = proxy.next_sent().await;
    let new = proxy.value(of("of a gateway")).await;
    assert_eq!(new["statusMessage"], "queued: number 3 in line for a free slot");
    assert!(proxy.sent.try_recv().is_err(), "two run");
    // Others are others.
    proxy.value(of("another")).await;
    assert_eq!(proxy.next_sent().await.0.caller.principal, Principal::Named("another".into()));
    running.done(Outcome::Result(text("{}")));
    proxy.next_sent().await;
    assert!(proxy.sent.try_recv().is_err(), "two run");
}

#[tokio::test]
async fn an_owner_who_has_all_its_tasks_is_refused_before_anything_is_sent_and_delays_nobody() {
    let limits = OwnerLimits { max_tasks: Some(2), ..OwnerLimits::default() };
    let named = [("bo".to_owned(), OwnerLimits { max_tasks: None, ..limits.clone() })].into();
    let rules = OwnerRules { all: limits, named, ..OwnerRules::default() };
    let mut proxy = Proxy::ruled(policy(Mode::Task), BOUNDS, rules.clone());
    for _ in 0..2 {
        proxy.value(of("ann")).await;
        proxy.next_sent().await;
    }
    let failure = refused(&proxy, of("ann")).await;
    // When the first of its tasks may expire: `timeout` and `keep` after it was made.
    let Retry::After(wait) = failure.retry else { panic!("{failure:?}") };
    assert!(failure.reason == Reason::Store && wait <= HOUR * 49 / 2 && wait > HOUR * 24, "{failure:?}");
    assert!(failure.message.contains("max_tasks of the owner"), "{}", failure.message);
    assert!(proxy.sent.try_recv().is_err());
    for _ in 0..3 {
        proxy.value(of("bo")).await;
    }
    let proxy = proxy.restarted(policy(Mode::Task), BOUNDS, rules).await;
    assert_eq!(refused(&proxy, of("ann")).await.reason, Reason::Store);
}
