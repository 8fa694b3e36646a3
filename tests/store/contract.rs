//! The contract that every engine has to keep.

use std::time::Duration;

use raincheck::protocol::{Failure, Principal, Reason, Retry, RpcError};
use raincheck::store::{ChangeError, CommitError, Ending, Health, Quotas};
use raincheck::task::{Cause, Expiry, Refusal, State, Task, TaskId};

use crate::support::{START, TestStore, expiry, json};

#[tokio::test]
async fn a_task_goes_from_queued_over_running_to_completed() {
    let test = TestStore::new();
    let created = test.store.create(test.queued(Expiry::Never)).await.unwrap();
    assert_eq!(created.state, State::Queued);
    let started = test.store.start(&created.id).await.unwrap();
    assert_eq!(started.state, State::Running { started: START });
    let settled = test.store.settle(&created.id, Ending::Completed(json(r#"{"n": 1E2}"#))).await.unwrap();
    assert_eq!(settled.state.status(), "completed");
    let read = test.store.get(&test.owner(), &created.id).await.unwrap().unwrap();
    assert_eq!(*read, *settled);
    assert_eq!(test.store.outcome(&read).await.unwrap().as_str(), r#"{"n": 1E2}"#);
}

#[tokio::test]
async fn every_ending_is_read_back_after_a_restart() {
    let test = TestStore::new();
    let error = RpcError::from_server(json(r#"{"code":-32002,"message":"no such row","data":{"row":7}}"#)).unwrap();
    let failure = Failure::outcome_unknown("the server ended");
    let endings = [
        Ending::Completed(json("[]")),
        Ending::ServerError(error.clone()),
        Ending::Failed(failure.clone()),
        Ending::Cancelled,
    ];
    let mut ids = Vec::new();
    for ending in endings {
        let id = test.run(expiry(60, 30)).await;
        test.store.settle(&id, ending).await.unwrap();
        ids.push(id);
    }
    let test = test.reopened().await;
    assert!(test.left_open.is_empty());
    let mut tasks = Vec::new();
    for id in &ids {
        tasks.push(test.store.get(&test.owner(), id).await.unwrap().unwrap());
    }
    let statuses: Vec<_> = tasks.iter().map(|task| task.state.status()).collect();
    assert_eq!(statuses, ["completed", "failed", "failed", "cancelled"]);
    assert_eq!(test.store.outcome(&tasks[0]).await.unwrap().as_str(), "[]");
    assert_eq!(test.store.outcome(&tasks[1]).await.unwrap(), *error.raw());
    assert_eq!(tasks[2].state, State::Failed { cause: Cause::Ours(failure) });
    assert!(test.store.outcome(&tasks[3]).await.is_err());
}

#[tokio::test]
async fn tasks_that_had_not_ended_are_left_open_at_the_next_start() {
    let test = TestStore::new();
    let queued = test.store.create(test.queued(expiry(60, 30))).await.unwrap();
    let running = test.run(expiry(60, 30)).await;
    let ended = test.run(expiry(60, 30)).await;
    test.store.settle(&ended, Ending::Cancelled).await.unwrap();
    let test = test.reopened().await;
    let mut left: Vec<_> = test.left_open.iter().map(|task| (task.id, task.state.clone())).collect();
    left.sort_by_key(|(id, _)| *id);
    let mut expected = vec![(queued.id, State::Queued), (running, State::Running { started: START })];
    expected.sort_by_key(|(id, _)| *id);
    assert_eq!(left, expected);
    test.store.settle(&running, Ending::Failed(Failure::outcome_unknown("restart"))).await.unwrap();
    assert_eq!(test.status(&running).await, Some("failed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_racing_endings_exactly_one_wins_and_the_others_are_told_which() {
    let test = TestStore::new();
    for _ in 0..20 {
        let id = test.run(Expiry::Never).await;
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..16 {
            let store = test.store.clone();
            racers.spawn(async move {
                let large = "x".repeat(if racer % 4 == 0 { 5000 } else { 5 });
                let ending = match racer % 2 {
                    0 => Ending::Completed(json(&format!(r#"["{racer} {large}"]"#))),
                    _ => Ending::Cancelled,
                };
                store.settle(&id, ending).await
            });
        }
        let mut winners = Vec::new();
        let mut losers = Vec::new();
        while let Some(done) = racers.join_next().await {
            match done.unwrap() {
                Ok(task) => winners.push(task),
                Err(ChangeError::Refused(Refusal::Ended, task)) => losers.push(task),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        assert!(losers.iter().all(|task| **task == *winners[0]));
        let read = test.store.get(&test.owner(), &id).await.unwrap().unwrap();
        assert_eq!(*read, *winners[0]);
        if read.state.status() == "completed" {
            test.store.outcome(&read).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_change_that_the_state_does_not_allow_is_refused_with_the_task_as_it_is() {
    let test = TestStore::new();
    let queued = test.store.create(test.queued(Expiry::Never)).await.unwrap().id;
    let error = test.store.settle(&queued, Ending::Completed(json("1"))).await.unwrap_err();
    assert!(matches!(error, ChangeError::Refused(Refusal::NotStarted, task) if task.state == State::Queued));
    test.store.start(&queued).await.unwrap();
    let error = test.store.start(&queued).await.unwrap_err();
    assert!(matches!(error, ChangeError::Refused(Refusal::Running, _)));
    let unknown = TaskId::generate(START);
    assert!(matches!(test.store.start(&unknown).await, Err(ChangeError::Unknown)));
    assert!(matches!(test.store.settle(&unknown, Ending::Cancelled).await, Err(ChangeError::Unknown)));
    let large = json(&format!("[{:5000}]", 1));
    assert!(matches!(test.store.settle(&unknown, Ending::Completed(large)).await, Err(ChangeError::Unknown)));
}

#[tokio::test]
async fn foreign_unknown_and_expired_read_alike() {
    let test = TestStore::new();
    let running = test.run(expiry(60, 30)).await;
    let ended = test.run(expiry(60, 30)).await;
    test.store.settle(&ended, Ending::Completed(json("1"))).await.unwrap();
    for id in [&running, &ended] {
        assert!(test.status(id).await.is_some());
        assert!(test.store.get(&test.other_owner(), id).await.unwrap().is_none());
    }
    assert!(test.store.get(&test.owner(), &TaskId::generate(START)).await.unwrap().is_none());
    test.clock.advance(Duration::from_millis(59_999));
    assert_eq!(test.status(&ended).await, Some("completed"));
    test.clock.advance(Duration::from_millis(1));
    assert_eq!(test.status(&ended).await, None, "expired, though not purged yet");
    assert_eq!(test.status(&running).await, Some("working"), "a running task never expires");
}

#[tokio::test]
async fn owners_are_the_same_after_a_restart_and_differ_between_stores() {
    let test = TestStore::new();
    let before = test.owner();
    let test = test.reopened().await;
    assert_eq!(before, test.owner());
    assert_ne!(before, TestStore::new().owner());
}

#[tokio::test]
async fn a_store_takes_no_more_tasks_than_it_may() {
    let test = TestStore::configured(|config| config.max_tasks = 2);
    // Of the one user of a machine all may be, as long as nobody else has any.
    test.store.limit_owners(Quotas { local: Some(*test.owner().digest()), ..Quotas::default() });
    let first = test.run(expiry(60, 30)).await;
    test.run(expiry(60, 30)).await;
    let error = test.store.create(test.running(Expiry::Never)).await.unwrap_err();
    assert!(matches!(error, CommitError::Full { max: 2 }), "{error}");
    assert_eq!(error.to_failure().reason, Reason::Store);
    test.store.settle(&first, Ending::Cancelled).await.unwrap();
    test.clock.advance(Duration::from_secs(61));
    assert_eq!(test.store.sweep().await.unwrap().purged, 1);
    test.run(Expiry::Never).await;
}

#[tokio::test]
async fn of_few_places_in_the_store_one_is_for_another_owner() {
    for (most, own) in [(1, 1), (2, 1), (3, 2), (7, 6), (8, 7)] {
        let test = TestStore::configured(|config| config.max_tasks = most);
        let of = |owner| Task { owner, ..test.running(Expiry::Never) };
        for _ in 0..own {
            test.store.create(of(test.owner())).await.unwrap();
        }
        let refused = test.store.create(of(test.owner())).await.unwrap_err();
        assert_eq!(matches!(refused, CommitError::ShareFull { .. }), most > 1, "{most}: {refused}");
        // Nor is the one user of the machine left alone then.
        test.store.limit_owners(Quotas { local: Some(*test.other_owner().digest()), ..Quotas::default() });
        assert_eq!(test.store.create(of(test.other_owner())).await.is_ok(), most > 1, "{most}");
    }
}

#[tokio::test]
async fn nobody_fills_the_store_for_all_others_also_after_a_restart() {
    let test = TestStore::configured(|config| config.max_tasks = 16);
    let of = |owner, test: &TestStore| Task { owner, ..test.running(Expiry::Never) };
    let (ann, bo) = (test.owner(), test.other_owner());
    let mut made = Vec::new();
    let refused = loop {
        match test.store.create(of(ann, &test)).await {
            Ok(task) => made.push(task.id),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CommitError::ShareFull { max: 16 }) && made.len() == 14, "{refused}, {}", made.len());
    let failure = refused.to_failure();
    assert_eq!((failure.reason, failure.retry), (Reason::Store, Retry::After(Duration::from_mins(1))));
    assert!(failure.message.contains("your share") && failure.message.contains("nothing was sent"), "{failure:?}");
    test.store.create(of(bo, &test)).await.unwrap();
    let test = test.reopened_with(|config| config.max_tasks = 16).await;
    assert!(matches!(test.store.create(of(ann, &test)).await, Err(CommitError::ShareFull { .. })));
    assert!(matches!(test.store.create(of(bo, &test)).await, Err(CommitError::ShareFull { .. })), "one is for a third");
    let third = test.store.owner(&Principal::Named("cy".into()));
    test.store.create(of(third, &test)).await.unwrap();
    assert!(matches!(test.store.create(of(third, &test)).await, Err(CommitError::Full { .. })));
}

#[tokio::test]
async fn an_owner_has_no_more_tasks_than_its_limit_and_as_many_again_when_they_are_gone() {
    let test = TestStore::new();
    let (ann, bo) = (test.owner(), test.other_owner());
    test.store.limit_owners(Quotas { all: Some(2), named: [(*bo.digest(), Some(3))].into(), local: None });
    let of = |owner| Task { owner, ..test.running(expiry(60, 30)) };
    let first = test.store.create(of(ann)).await.unwrap().id;
    test.store.create(of(ann)).await.unwrap();
    // All in one batch: what is decided in it counts.
    let (one, two, three, four) = tokio::join!(
        test.store.create(of(bo)),
        test.store.create(of(bo)),
        test.store.create(of(bo)),
        test.store.create(of(bo))
    );
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    assert!(matches!(four, Err(CommitError::OwnerFull { max: 3, .. })), "{four:?}");
    let refused = test.store.create(of(ann)).await.unwrap_err();
    assert!(matches!(refused, CommitError::OwnerFull { max: 2, .. }) && !refused.to_string().contains("store.max"));
    test.store.settle(&first, Ending::Cancelled).await.unwrap();
    test.clock.advance(Duration::from_secs(61));
    assert_eq!(test.store.sweep().await.unwrap().purged, 1);
    test.store.create(of(ann)).await.unwrap();
    assert!(test.store.create(of(ann)).await.is_err());
}

#[tokio::test]
async fn an_owner_over_its_limit_is_told_when_one_of_its_tasks_expires() {
    let test = TestStore::new();
    let ann = test.owner();
    test.store.limit_owners(Quotas { all: Some(3), ..Quotas::default() });
    let forever = test.store.create(test.running(Expiry::Never)).await.unwrap().id;
    let later = test.store.create(test.running(expiry(900, 30))).await.unwrap().id;
    let sooner = test.store.create(test.running(expiry(600, 30))).await.unwrap().id;
    let told = async || {
        let refused = test.store.create(Task { owner: ann, ..test.running(expiry(60, 30)) }).await.unwrap_err();
        let failure = refused.to_failure();
        (failure.retry, failure.message)
    };
    let (retry, says) = told().await;
    assert!(
        retry == Retry::After(Duration::from_mins(10)) && says.contains("one of them may expire in 10m"),
        "{retry:?} {says}"
    );
    for id in [forever, later] {
        test.store.settle(&id, Ending::Cancelled).await.unwrap();
    }
    test.clock.advance(Duration::from_mins(1));
    let (retry, says) = told().await;
    assert!(
        retry == Retry::After(Duration::from_mins(14)) && says.contains("one of them may expire in 14m"),
        "{retry:?} {says}"
    );
    test.store.settle(&sooner, Ending::Cancelled).await.unwrap();
    assert_eq!(told().await.0, Retry::After(Duration::from_mins(9)));
    test.clock.advance(Duration::from_secs(541));
    assert_eq!(test.store.sweep().await.unwrap().purged, 1);
    test.store.create(test.running(expiry(60, 30))).await.unwrap();
    // Of what is kept for ever nothing goes.
    let of = |owner| Task { owner, ..test.running(Expiry::Never) };
    let cy = test.store.owner(&Principal::Named("cy".into()));
    for _ in 0..3 {
        test.store.create(of(cy)).await.unwrap();
    }
    let failure = test.store.create(of(cy)).await.unwrap_err().to_failure();
    assert!(failure.retry == Retry::No && failure.message.contains("kept for ever"), "{failure:?}");
}

#[tokio::test]
async fn a_directory_that_was_removed_refuses_new_tasks() {
    let test = TestStore::new();
    std::fs::remove_dir_all(test.directory.path().join("store")).unwrap();
    let error = test.store.create(test.running(Expiry::Never)).await.unwrap_err();
    assert!(matches!(error, CommitError::Failed(_)) && error.to_string().contains("removed"), "{error}");
    assert!(matches!(test.store.health(), Health::Failed(_)));
}

#[tokio::test]
async fn low_space_refuses_new_tasks_but_still_lets_old_ones_end() {
    let test = TestStore::new();
    let id = test.run(Expiry::Never).await;
    test.jobs.stop();
    test.store.close().await;
    let mut config = crate::support::config(&test.directory.path().join("store"));
    config.min_free_bytes = Some(u64::MAX);
    let opened = raincheck::store::Store::open(&config, test.clock.clone(), &test.jobs).unwrap();
    assert!(matches!(opened.store.health(), Health::LowSpace(_)));
    let error = opened.store.create(test.running(Expiry::Never)).await.unwrap_err();
    assert!(matches!(error, CommitError::LowSpace(_)), "{error}");
    opened.store.settle(&id, Ending::Cancelled).await.unwrap();
}

#[tokio::test]
async fn a_record_that_is_too_large_is_refused_and_leaves_nothing() {
    let test = TestStore::new();
    let mut task = test.running(Expiry::Never);
    task.tool = "t".repeat(4000);
    let error = test.store.create(task.clone()).await.unwrap_err();
    assert!(matches!(error, CommitError::TooLarge { .. }), "{error}");
    assert_eq!(test.status(&task.id).await, None);
    let test = test.reopened().await;
    assert!(test.left_open.is_empty());
}

#[tokio::test]
async fn the_longest_message_of_an_ending_still_fits() {
    let test = TestStore::new();
    let mut task = test.running(Expiry::Never);
    task.tool = "t".repeat(2450);
    let id = test.store.create(task.clone()).await.unwrap().id;
    let long = "é".repeat(100_000);
    test.store.settle(&id, Ending::Failed(Failure::outcome_unknown(&long))).await.unwrap();
    let other = Task { id: TaskId::generate(START), ..task };
    let id = test.store.create(other).await.unwrap().id;
    let ended = test.store.settle(&id, Ending::ServerError(RpcError::new(-1, "€".repeat(100_000)))).await.unwrap();
    assert_eq!(test.store.outcome(&ended).await.unwrap(), *RpcError::new(-1, "€".repeat(100_000)).raw());
}

#[tokio::test]
async fn a_task_is_never_made_twice() {
    let test = TestStore::new();
    let task = test.running(Expiry::Never);
    test.store.create(task.clone()).await.unwrap();
    assert!(matches!(test.store.create(task).await, Err(CommitError::Exists)));
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let test = TestStore::new();
    let id = test.run(Expiry::Never).await;
    test.store.close().await;
    assert!(matches!(test.store.health(), Health::Closed));
    assert!(matches!(test.store.create(test.running(Expiry::Never)).await, Err(CommitError::Closed)));
    let settled = test.store.settle(&id, Ending::Cancelled).await;
    assert!(matches!(settled, Err(ChangeError::Commit(CommitError::Closed))));
    test.store.close().await;
}
