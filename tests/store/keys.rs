//! A key leads to one task, whoever comes first.

use std::collections::HashSet;
use std::time::Duration;

use raincheck::protocol::{Failure, Reason, Retry};
use raincheck::store::{Claim, Claimed, Ending};
use raincheck::task::{Expiry, KeyDigest, Task, TaskId};

use crate::support::{TestStore, expiry, json};

const KEY: KeyDigest = KeyDigest::from_bytes([7; 32]);
const CLAIM: Claim = Claim { arguments: [1; 32], within: None };
const OTHER: Claim = Claim { arguments: [2; 32], within: None };

/// What came of a claim: the task, and whether it was made for it.
async fn claimed(test: &TestStore, expiry: Expiry, claim: Claim) -> (TaskId, bool) {
    match test.store.claim(test.running(expiry), KEY, claim).await.unwrap() {
        Claimed::Made(task) => (task.id, true),
        Claimed::Earlier(task) => (task.id, false),
        Claimed::Differs => panic!("another call has the key"),
    }
}

/// The task that a repeat finds.
async fn found(test: &TestStore, claim: Claim) -> Option<TaskId> {
    match test.store.earlier(&test.owner(), &KEY, &claim).await.unwrap()? {
        Claimed::Earlier(task) => Some(task.id),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_who_claims_a_key_has_it() {
    let test = TestStore::new();
    assert_eq!(found(&test, CLAIM).await, None);
    let (id, is_new) = claimed(&test, Expiry::Never, CLAIM).await;
    assert!(is_new);
    assert_eq!(claimed(&test, Expiry::Never, CLAIM).await, (id, false));
    assert_eq!(found(&test, CLAIM).await, Some(id));
    let differs = test.store.claim(test.running(Expiry::Never), KEY, OTHER).await.unwrap();
    assert!(matches!(differs, Claimed::Differs));
    assert!(matches!(test.store.earlier(&test.owner(), &KEY, &OTHER).await.unwrap(), Some(Claimed::Differs)));
    assert!(test.store.earlier(&test.other_owner(), &KEY, &CLAIM).await.unwrap().is_none());
    let ended = test.store.settle(&id, Ending::Completed(json("{}"))).await.unwrap();
    assert_eq!(ended.key, Some(KEY));
    assert_eq!(claimed(&test, Expiry::Never, CLAIM).await, (id, false));
    let test = test.reopened().await;
    assert_eq!(claimed(&test, Expiry::Never, CLAIM).await, (id, false));
    assert!(matches!(test.store.claim(test.running(Expiry::Never), KEY, OTHER).await.unwrap(), Claimed::Differs));
}

#[tokio::test]
async fn of_many_who_claim_a_key_at_once_one_has_it() {
    let test = TestStore::new();
    for round in 0..20_u8 {
        let key = KeyDigest::from_bytes([round; 32]);
        let claims = (0..50).map(|_| test.store.claim(test.running(Expiry::Never), key, CLAIM));
        let (mut made, mut ids) = (0, HashSet::new());
        for claimed in futures_util::future::join_all(claims).await {
            match claimed.unwrap() {
                Claimed::Made(task) => {
                    made += 1;
                    ids.insert(task.id);
                }
                Claimed::Earlier(task) => drop(ids.insert(task.id)),
                Claimed::Differs => panic!(),
            }
        }
        assert_eq!((made, ids.len()), (1, 1));
    }
    assert_eq!(test.reopened().await.left_open.len(), 20);
}

#[tokio::test]
async fn a_key_is_free_again_when_nothing_was_run_for_it() {
    let table = [
        (Failure::new(Reason::NotStarted, "no", Retry::Yes), false),
        (Failure::new(Reason::Busy, "no", Retry::After(Duration::from_secs(1))), false),
        (Failure::new(Reason::TooLarge, "no", Retry::No), true),
        (Failure::outcome_unknown("gone"), true),
    ];
    for (failure, stays) in table {
        let test = TestStore::new();
        let (id, _) = claimed(&test, Expiry::Never, CLAIM).await;
        test.store.settle(&id, Ending::Failed(failure.clone())).await.unwrap();
        assert_eq!(found(&test, CLAIM).await, stays.then_some(id), "{failure:?}");
        assert_eq!(claimed(&test, Expiry::Never, CLAIM).await.0 == id, stays, "{failure:?}");
    }
}

#[tokio::test]
async fn a_window_counts_from_the_start_and_not_while_the_task_runs() {
    let test = TestStore::new();
    let claim = Claim { within: Some(Duration::from_secs(10)), ..CLAIM };
    let (id, _) = claimed(&test, Expiry::Never, claim).await;
    test.clock.advance(Duration::from_mins(1));
    assert_eq!(claimed(&test, Expiry::Never, claim).await, (id, false));
    test.store.settle(&id, Ending::Completed(json("{}"))).await.unwrap();
    assert_eq!(found(&test, claim).await, None);
    let (second, is_new) = claimed(&test, Expiry::Never, claim).await;
    assert!(is_new);
    test.store.settle(&second, Ending::Completed(json("{}"))).await.unwrap();
    test.clock.advance(Duration::from_secs(9));
    assert_eq!(claimed(&test, Expiry::Never, claim).await, (second, false));
    test.clock.advance(Duration::from_secs(1));
    assert!(claimed(&test, Expiry::Never, claim).await.1);
}

#[tokio::test]
async fn a_key_goes_with_its_task_and_not_with_another_that_had_it() {
    let test = TestStore::new();
    let claim = Claim { within: Some(Duration::ZERO), ..CLAIM };
    let (first, _) = claimed(&test, expiry(10, 10), claim).await;
    test.store.settle(&first, Ending::Completed(json("{}"))).await.unwrap();
    let (second, is_new) = claimed(&test, expiry(100, 100), claim).await;
    assert!(is_new);
    test.clock.advance(Duration::from_secs(11));
    assert_eq!(test.store.sweep().await.unwrap().purged, 1);
    assert_eq!(claimed(&test, expiry(100, 100), claim).await, (second, false));
    test.store.settle(&second, Ending::Completed(json("{}"))).await.unwrap();
    test.clock.advance(Duration::from_secs(1000));
    // Expired reads as absent, whether or not it is still on the disk.
    assert_eq!(found(&test, CLAIM).await, None);
    assert!(claimed(&test, expiry(10, 10), OTHER).await.1);
    assert_eq!(test.store.sweep().await.unwrap().purged, 1);
    assert!(!claimed(&test, expiry(10, 10), OTHER).await.1);
}

#[tokio::test]
async fn what_is_refused_takes_no_key() {
    let test = TestStore::configured(|config| config.max_tasks = 1);
    let (id, _) = claimed(&test, expiry(1, 1), Claim { within: Some(Duration::ZERO), ..CLAIM }).await;
    let other = KeyDigest::from_bytes([8; 32]);
    assert!(test.store.claim(test.running(Expiry::Never), other, CLAIM).await.is_err());
    let too_long = Task { tool: "t".repeat(4000), ..test.running(Expiry::Never) };
    assert!(test.store.claim(too_long, other, CLAIM).await.is_err());
    test.store.settle(&id, Ending::Cancelled).await.unwrap();
    test.clock.advance(Duration::from_secs(5));
    test.store.sweep().await.unwrap();
    assert!(matches!(test.store.claim(test.running(Expiry::Never), other, OTHER).await.unwrap(), Claimed::Made(_)));
}
