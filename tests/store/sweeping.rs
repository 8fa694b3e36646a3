//! Times to live.

use std::fs;
use std::time::Duration;

use raincheck::store::{Ending, Swept};
use raincheck::task::Expiry;

use crate::support::{TestStore, expiry, json};

#[tokio::test]
async fn a_run_that_goes_on_gets_a_longer_time_to_live_and_is_never_purged() {
    let test = TestStore::new();
    let id = test.run(expiry(60, 30)).await;
    let mut last = Duration::from_mins(1);
    for _ in 0..20 {
        test.clock.advance(Duration::from_secs(29));
        test.store.sweep().await.unwrap();
        let task = test.store.get(&test.owner(), &id).await.unwrap().unwrap();
        let ttl = task.ttl().unwrap();
        assert!(ttl >= last, "it never becomes shorter");
        last = ttl;
    }
    assert!(last >= Duration::from_secs(20 * 29));
    let settled = test.store.settle(&id, Ending::Cancelled).await.unwrap();
    let test = test.reopened().await;
    assert_eq!(*test.store.get(&test.owner(), &id).await.unwrap().unwrap(), *settled);
    test.clock.advance(Duration::from_secs(61));
    assert_eq!(test.store.sweep().await.unwrap(), Swept { purged: 1, extended: 0 });
}

#[tokio::test]
async fn an_extension_stands_after_a_restart() {
    let test = TestStore::new();
    let id = test.run(expiry(60, 30)).await;
    test.clock.advance(Duration::from_secs(50));
    assert_eq!(test.store.sweep().await.unwrap(), Swept { purged: 0, extended: 1 });
    let extended = test.store.get(&test.owner(), &id).await.unwrap().unwrap();
    assert!(extended.ttl() > Some(Duration::from_mins(1)));
    let test = test.reopened().await;
    assert_eq!(*test.left_open[0], *extended);
}

#[tokio::test]
async fn only_what_has_expired_is_purged() {
    let test = TestStore::new();
    let mut ids = Vec::new();
    for ttl in [10, 20, 30] {
        let id = test.run(expiry(ttl, 1)).await;
        test.store.settle(&id, Ending::Completed(json("1"))).await.unwrap();
        ids.push(id);
    }
    let forever = test.run(Expiry::Never).await;
    test.store.settle(&forever, Ending::Completed(json("2"))).await.unwrap();
    let running = test.run(expiry(1, 1)).await;
    test.clock.advance(Duration::from_secs(20));
    assert_eq!(test.store.sweep().await.unwrap(), Swept { purged: 2, extended: 1 });
    assert_eq!(test.store.sweep().await.unwrap(), Swept::default());
    let test = test.reopened().await;
    assert_eq!(test.status(&ids[2]).await, Some("completed"));
    assert_eq!(test.status(&forever).await, Some("completed"));
    assert_eq!(test.status(&running).await, Some("working"));
}

/// The sweep is a job of the store: nobody has to ask for it.
#[tokio::test]
async fn the_sweep_wakes_up_by_itself_when_a_task_expires() {
    let directory = tempfile::tempdir().unwrap();
    let config = crate::support::config(&directory.path().join("store"));
    let clock = std::sync::Arc::new(raincheck::clock::SystemClock);
    let jobs = raincheck::jobs::Jobs::new();
    let opened =
        raincheck::store::Store::open(&raincheck::config::StoreConfig { max_tasks: 1, ..config }, clock.clone(), &jobs)
            .unwrap();
    let store = opened.store;
    let owner = store.owner(&raincheck::protocol::Principal::Local);
    let new = || {
        let now = raincheck::clock::Clock::now(&*clock);
        let keep = Duration::from_millis(1);
        let expiry = Expiry::Limited { ttl: keep, keep };
        let id = raincheck::task::TaskId::generate(now);
        raincheck::task::Task::queued(id, owner, "s".to_owned(), "t".to_owned(), now, expiry)
    };
    let id = store.create(new()).await.unwrap().id;
    store.settle(&id, Ending::Cancelled).await.unwrap();
    // The store may hold one task: the next can be made when the sweep has run.
    let made = async {
        while store.create(new()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), made).await.unwrap();
}

#[tokio::test]
async fn the_sweep_wakes_up_by_itself_for_a_run_that_needs_a_longer_time_to_live() {
    let directory = tempfile::tempdir().unwrap();
    let config = crate::support::config(&directory.path().join("store"));
    let (clock, jobs) = (std::sync::Arc::new(raincheck::clock::SystemClock), raincheck::jobs::Jobs::new());
    let store = raincheck::store::Store::open(&config, clock.clone(), &jobs).unwrap().store;
    let owner = store.owner(&raincheck::protocol::Principal::Local);
    let hour = Duration::from_hours(1);
    // The first may be found by the sweep of the start; when that is over it rests for a minute.
    for _ in 0..3 {
        let now = raincheck::clock::Clock::now(&*clock);
        let (id, expiry) = (raincheck::task::TaskId::generate(now), Expiry::Limited { ttl: hour, keep: hour });
        let task = raincheck::task::Task::queued(id, owner, "s".to_owned(), "t".to_owned(), now, expiry);
        store.create(task).await.unwrap();
        let extended = async {
            while store.get(&owner, &id).await.unwrap().unwrap().ttl() == Some(hour) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), extended).await.unwrap();
    }
}

#[tokio::test]
async fn purged_space_is_used_again() {
    let test = TestStore::new();
    let mut sizes = Vec::new();
    for _ in 0..8 {
        let mut runs = tokio::task::JoinSet::new();
        for _ in 0..1500 {
            let (store, task) = (test.store.clone(), test.running(expiry(60, 30)));
            runs.spawn(async move {
                let id = loop {
                    match store.create(task.clone()).await {
                        Ok(task) => break task.id,
                        Err(raincheck::store::CommitError::Busy) => tokio::task::yield_now().await,
                        Err(error) => panic!("{error}"),
                    }
                };
                store.settle(&id, Ending::Completed(json(&format!("[{:2000}]", 1)))).await.unwrap();
            });
        }
        while let Some(done) = runs.join_next().await {
            done.unwrap();
        }
        test.clock.advance(Duration::from_secs(61));
        assert_eq!(test.store.sweep().await.unwrap().purged, 1500);
        sizes.push(fs::metadata(test.directory.path().join("store/db")).unwrap().len());
    }
    // 1,500 results of 2 KiB are 3 MiB in each round, and as much more would be there after each without reuse. How the writes
    // fell into commits makes one size differ from the next by about as much, so no single one says anything: the larger of
    // the first and the smaller of the last do, which would be three rounds apart.
    println!("bytes after each round: {sizes:?}");
    let (early, late) = (sizes[..4].iter().max().unwrap(), sizes[6..].iter().min().unwrap());
    assert!(*late <= early + 3 * (3 << 20) / 2, "the store grows although all of it is purged: {sizes:?}");
}
