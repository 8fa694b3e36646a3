//! The helper of `.ci/faults`: writes to a store until it is killed, checks what is left, fills a disk.
//!
//! `store_crash write DIRECTORY [TASKS]` prints what it does; `store_crash check DIRECTORY LOG` compares the store with
//! what `write` printed; `store_crash fill DIRECTORY BALLAST` writes until the disk is full, removes the file BALLAST and
//! expects the store to mend itself; `store_crash flush DIRECTORY` writes 20 tasks one after the other.
#![expect(clippy::unwrap_used, reason = "a helper of tests ends where it fails")]

#[path = "../tests/store/crash.rs"]
mod crash;
#[path = "../src/durable_sync.rs"]
mod durable_sync;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use raincheck::clock::{Clock, SystemClock};
use raincheck::protocol::{Json, Principal};
use raincheck::store::{CommitError, Ending, Health, OpenError, Store};
use raincheck::task::{Expiry, State, Task, TaskId};

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["write", path] => crash::write(Path::new(path), u64::MAX).await.map(|()| true),
        ["write", path, most] => crash::write(Path::new(path), most.parse().unwrap()).await.map(|()| true),
        ["check", path, log] => check(Path::new(path), Path::new(log)).await,
        ["fill", path, ballast] => fill(Path::new(path), Path::new(ballast)).await,
        ["flush", path] => flush(Path::new(path)).await,
        _ => {
            eprintln!("usage: store_crash write|check|fill|flush DIRECTORY ...");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

async fn check(path: &Path, log: &Path) -> Result<bool, OpenError> {
    let mut known = BTreeMap::new();
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // The last line may be cut off.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        crash::learn(&mut known, line);
    }
    let found = crash::check(path, &known).await?;
    for problem in found.problems.iter().take(5) {
        println!("{problem}");
    }
    println!("checked {}, open {}, problems {}", found.checked, found.open, found.problems.len());
    Ok(found.problems.is_empty())
}

async fn flush(path: &Path) -> Result<bool, OpenError> {
    let store = crash::open(path)?.store;
    for _ in 0..20 {
        store.create(running(&store)).await.unwrap();
    }
    store.close().await;
    Ok(true)
}

fn running(store: &Store) -> Task {
    let now = SystemClock.now();
    let owner = store.owner(&Principal::Local);
    let task = Task::queued(TaskId::generate(now), owner, "s".to_owned(), "t".to_owned(), now, Expiry::Never);
    Task { state: State::Running { started: now }, ..task }
}

/// Until the disk is full; what was acknowledged must be there then, after the store has mended itself, and after
/// it was opened again.
async fn fill(path: &Path, ballast: &Path) -> Result<bool, OpenError> {
    let store = crash::open(path)?.store;
    let outcome = Json::parse(Bytes::from(format!("\"{}\"", "x".repeat(2500)))).unwrap();
    let mut acknowledged = Vec::new();
    let error = loop {
        let task = match store.create(running(&store)).await {
            Ok(task) => task,
            Err(error) => break error,
        };
        acknowledged.push((task.id, "working"));
        match store.settle(&task.id, Ending::Completed(outcome.clone())).await {
            Ok(_) => acknowledged.last_mut().unwrap().1 = "completed",
            Err(raincheck::store::ChangeError::Commit(error)) => break error,
            Err(error) => panic!("{error}"),
        }
    };
    println!("full after {} tasks: {error}", acknowledged.len());
    let mut good = matches!(error, CommitError::Failed(_)) && !acknowledged.is_empty();
    println!("health: {:?}", store.health());
    std::fs::remove_file(ballast).unwrap();
    for _ in 0..3000 {
        if matches!(store.health(), Health::Ready) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    good &= matches!(store.health(), Health::Ready);
    println!("health with free space: {:?}", store.health());
    good &= all_there(&store, &acknowledged).await;
    let more = store.create(running(&store)).await;
    println!("one more task: {}", more.as_ref().map_or_else(ToString::to_string, |_| "created".to_owned()));
    good &= more.is_ok();
    store.close().await;
    let store = crash::open(path)?.store;
    good &= all_there(&store, &acknowledged).await;
    store.close().await;
    Ok(good)
}

/// An end that was refused may or may not stand.
async fn all_there(store: &Store, acknowledged: &[(TaskId, &str)]) -> bool {
    let owner = store.owner(&Principal::Local);
    let mut missing = 0;
    for (at, (id, status)) in acknowledged.iter().enumerate() {
        let is_last = at + 1 == acknowledged.len();
        match store.get(&owner, id).await {
            Ok(Some(task)) if task.state.status() == *status || is_last => {}
            _ => missing += 1,
        }
    }
    println!("of {} acknowledged tasks {missing} are missing", acknowledged.len());
    missing == 0
}
