//! The store while the disk is slow or fails: its flush is held back or refused here, in place of the real one.
#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod faulty_sync;
#[path = "../support/signs.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod signs;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::clock::{Clock, SystemClock};
use raincheck::config::{Durability, Mode, StoreConfig, ToolPolicy};
use raincheck::jobs::Jobs;
use raincheck::policy::Policies;
use raincheck::protocol::{Json, Outcome, Principal, Reason};
use raincheck::runner::{Bounds, Runner};
use raincheck::store::{ChangeError, CommitError, Ending, Health, Opened, Quotas, ReadError, Store};
use raincheck::task::{Expiry, State, Task, TaskId};
use raincheck::tasks::TasksLayer;
use tempfile::TempDir;
use tower::{Layer, Service};

use faulty_sync::Fault;
use signs::Said;
use support::calls::{call, shown};
use support::layer::Scripted;

fn open(directory: &TempDir) -> Opened {
    open_for(directory, 1000)
}

fn open_for(directory: &TempDir, max_tasks: u64) -> Opened {
    let config = StoreConfig {
        path: directory.path().join("store"),
        durability: Durability::Power,
        cache_bytes: 8 << 20,
        min_free_bytes: Some(0),
        max_tasks,
    };
    Store::open(&config, Arc::new(SystemClock), &Jobs::new()).unwrap()
}

fn running(store: &Store) -> Task {
    let now = SystemClock.now();
    let owner = store.owner(&Principal::Local);
    let task = Task::queued(TaskId::generate(now), owner, "s".to_owned(), "t".to_owned(), now, Expiry::Never);
    Task { state: State::Running { started: now }, ..task }
}

fn json(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

async fn status(store: &Store, id: &TaskId) -> Option<&'static str> {
    let owner = store.owner(&Principal::Local);
    store.get(&owner, id).await.unwrap().map(|task| task.state.status())
}

/// All faults are of one process, so one test after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_on_a_bad_disk_shows_nothing_that_is_not_durable() {
    let log = Said::new();
    let kept = log.clone();
    let shown = tracing_subscriber::EnvFilter::new("info,raincheck::runner=debug");
    tracing_subscriber::fmt().with_env_filter(shown).with_ansi(false).with_writer(move || kept.clone()).init();
    nothing_is_visible_before_it_is_durable().await;
    behind_a_slow_flush_writes_are_bounded_and_reads_go_on().await;
    a_failed_commit_leaves_nothing_and_the_store_mends_itself(&log).await;
    the_outcome_of_a_run_waits_until_the_store_can_take_it(&log).await;
    a_flush_that_reaches_nothing_is_noticed_at_the_start();
}

async fn nothing_is_visible_before_it_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let Opened { store, .. } = open(&directory);
    let old = store.create(running(&store)).await.unwrap().id;

    let fault = Fault::hold();
    let task = running(&store);
    let new = task.id;
    let creating = tokio::spawn({
        let store = store.clone();
        async move { store.create(task).await }
    });
    Fault::reached().await;
    // sled itself shows the write by now.
    assert_eq!(status(&store, &new).await, None, "a task was visible before it was durable");
    assert!(!creating.is_finished(), "a creation was answered before it was durable");
    fault.release();
    creating.await.unwrap().unwrap();
    assert_eq!(status(&store, &new).await, Some("working"));

    let fault = Fault::hold();
    let settling = tokio::spawn({
        let store = store.clone();
        async move { store.settle(&old, Ending::Completed(json("1"))).await }
    });
    Fault::reached().await;
    assert_eq!(status(&store, &old).await, Some("working"), "an end was visible before it was durable");
    assert!(!settling.is_finished(), "an end was answered before it was durable");
    fault.release();
    settling.await.unwrap().unwrap();
    assert_eq!(status(&store, &old).await, Some("completed"));
    store.close().await;
}

async fn behind_a_slow_flush_writes_are_bounded_and_reads_go_on() {
    const CALLERS: usize = 4000;
    let directory = tempfile::tempdir().unwrap();
    let Opened { store, .. } = open_for(&directory, 8000);
    let old = store.create(running(&store)).await.unwrap().id;

    let fault = Fault::hold();
    let mut creating = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, task) = (store.clone(), running(&store));
        creating.spawn(async move { store.create(task).await });
    }
    Fault::reached().await;
    // Those that find no place are told so while the flush is still held.
    let mut refused = 0;
    while refused < CALLERS / 4 {
        let answered = tokio::time::timeout(Duration::from_secs(30), creating.join_next()).await;
        let answered = answered.unwrap().unwrap().unwrap();
        assert!(matches!(answered, Err(CommitError::Busy)), "answered before it was durable: {answered:?}");
        refused += 1;
    }
    assert_eq!(status(&store, &old).await, Some("working"), "a read waits for the flush");
    assert!(matches!(store.health(), Health::Ready));
    fault.release();
    let mut created = 0;
    while let Some(answered) = creating.join_next().await {
        match answered.unwrap() {
            Ok(task) => {
                assert_eq!(status(&store, &task.id).await, Some("working"));
                created += 1;
            }
            Err(CommitError::Busy) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(created > 500 && created + refused == CALLERS, "{created} and {refused}");
    store.settle(&old, Ending::Completed(json("1"))).await.unwrap();
    store.close().await;
}

async fn a_failed_commit_leaves_nothing_and_the_store_mends_itself(log: &Said) {
    let directory = tempfile::tempdir().unwrap();
    let Opened { store, .. } = open(&directory);
    let kept = store.create(running(&store)).await.unwrap().id;
    let ended = store.create(running(&store)).await.unwrap().id;
    let ended_task = store.settle(&ended, Ending::Completed(json("1"))).await.unwrap();

    // What is refused does not count for what an owner may have either.
    store.limit_owners(Quotas { all: Some(3), ..Quotas::default() });

    let fault = Fault::refuse();
    let refused = running(&store);
    let error = store.create(refused.clone()).await.unwrap_err();
    assert!(matches!(error, CommitError::Failed(_)), "{error}");
    assert_eq!(error.to_failure().reason, Reason::Store);
    assert!(!error.to_string().contains('\n'));
    assert!(matches!(store.health(), Health::Failed(_)), "whoever is told of the failure sees it in the health");
    // Open tasks are still known, ended ones cannot be read, and nothing can be written.
    assert_eq!(status(&store, &kept).await, Some("working"));
    assert!(!matches!(store.get(&store.owner(&Principal::Local), &refused.id).await, Ok(Some(_))));
    let owner = store.owner(&Principal::Local);
    assert!(matches!(store.get(&owner, &ended).await, Err(ReadError::Failed(_))));
    let settled = store.settle(&kept, Ending::Cancelled).await;
    assert!(matches!(settled, Err(ChangeError::Commit(CommitError::Failed(_)))));
    fault.release();

    log.until(Duration::from_secs(30), |log| log.contains(": the store is open again")).await;
    assert!(matches!(store.health(), Health::Ready));
    assert_eq!(status(&store, &refused.id).await, None, "what was refused must not be there");
    assert_eq!(store.figures().tasks, 2, "what was refused counts");
    assert_eq!(status(&store, &kept).await, Some("working"));
    assert_eq!(store.outcome(&ended_task).await.unwrap().as_str(), "1");
    store.settle(&kept, Ending::Completed(json("2"))).await.unwrap();
    let more = store.create(running(&store)).await.unwrap().id;
    assert!(store.create(running(&store)).await.is_err(), "an owner has more than it may");
    store.close().await;

    let Opened { store, left_open } = open(&directory);
    let left: Vec<_> = left_open.iter().map(|task| task.id).collect();
    assert_eq!(left, [more]);
    assert_eq!(status(&store, &kept).await, Some("completed"));
    assert_eq!(status(&store, &refused.id).await, None);
    store.close().await;
}

async fn the_outcome_of_a_run_waits_until_the_store_can_take_it(log: &Said) {
    let directory = tempfile::tempdir().unwrap();
    let Opened { store, .. } = open(&directory);
    let runner = Runner::new(store.clone(), Jobs::new(), Bounds { running: 4, waiting: 4, rate: None });
    let policies = Policies::uniform(ToolPolicy { mode: Mode::Task, ..ToolPolicy::default() });
    let (scripted, mut sent) = Scripted::new();
    let mut service = TasksLayer::new(runner, "reports", policies).layer(scripted);
    let reply = service.call(call("tools/call", serde_json::json!({ "name": "export" }))).await.unwrap();
    let created = shown(reply.outcome().await);
    let id = created.get("taskId").and_then(serde_json::Value::as_str).unwrap().parse().unwrap();
    let (_, server) = sent.recv().await.unwrap();

    // It goes into a file, of which each try would leave one.
    let result = format!(r#"{{"content":[],"more":"{:9000}"}}"#, 1);
    let fault = Fault::refuse();
    server.done(Outcome::Result(json(&result)));
    log.until(Duration::from_secs(30), |log| log.contains("an outcome still waits for the store")).await;
    let results = directory.path().join("store/results");
    let files = || {
        let folders = std::fs::read_dir(&results).unwrap();
        folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap()).count()
    };
    assert_eq!(files(), 1, "each try leaves a file");
    fault.release();
    let ended = async {
        loop {
            let task = store.look(&id).unwrap().unwrap();
            if task.state.is_terminal() {
                return task;
            }
            tokio::task::yield_now().await;
        }
    };
    let task = tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    assert_eq!(store.outcome(&task).await.unwrap().as_str(), result);
    log.until(Duration::from_secs(30), |log| log.contains("an outcome that waited for the store waits no longer"))
        .await;
    // That of the first try goes with the sweep behind the reopening.
    let swept = async {
        while files() != 1 {
            tokio::task::yield_now().await;
        }
    };
    let swept = tokio::time::timeout(Duration::from_secs(30), swept).await;
    assert!(swept.is_ok(), "{} files are left", files());
    // Said aloud once, however often it was tried.
    assert_eq!(log.text().matches(": an outcome waits for the store").count(), 1, "{}", log.text());
    store.close().await;
}

fn a_flush_that_reaches_nothing_is_noticed_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        path: directory.path().join("store"),
        durability: Durability::Power,
        cache_bytes: 8 << 20,
        min_free_bytes: Some(0),
        max_tasks: 1000,
    };
    let fault = Fault::uncounted();
    let error = Store::open(&config, Arc::new(SystemClock), &Jobs::new()).unwrap_err();
    assert_eq!(error.exit_code(), 77);
    assert!(error.to_string().contains("durability = \"process\""), "{error}");
    let config = StoreConfig { durability: Durability::Process, ..config };
    Store::open(&config, Arc::new(SystemClock), &Jobs::new()).unwrap();
    fault.release();
}
