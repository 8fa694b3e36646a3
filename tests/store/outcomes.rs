//! Outcomes that are too large for sled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use raincheck::store::{Ending, ReadError};
use raincheck::task::Expiry;

use crate::signs;
use crate::support::{TestStore, expiry, json};

/// The files below `results` of a store.
pub(crate) fn files(test: &TestStore) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in fs::read_dir(test.directory.path().join("store/results")).into_iter().flatten() {
        files.extend(fs::read_dir(folder.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
    }
    files
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn outcomes_of_any_size_come_back_byte_for_byte_after_a_restart() {
    let test = TestStore::new();
    let mut written = Vec::new();
    for size in [0, 1, 3000, 3069, 3070, 3071, 3072, 4096, 4097, 100_000, 5_000_000] {
        let id = test.run(Expiry::Never).await;
        let outcome = json(&format!("\"{}\"", "x".repeat(size)));
        let settled = test.store.settle(&id, Ending::Completed(outcome.clone())).await.unwrap();
        assert_eq!(test.store.outcome(&settled).await.unwrap(), outcome);
        written.push((id, outcome));
    }
    let test = test.reopened().await;
    for (id, outcome) in written {
        let task = test.store.get(&test.owner(), &id).await.unwrap().unwrap();
        assert_eq!(test.store.outcome(&task).await.unwrap(), outcome);
    }
    assert_eq!(files(&test).len(), 6);
    let blobs = fs::read_dir(test.directory.path().join("store/blobs")).unwrap().count();
    assert_eq!(blobs, 0, "nothing may ever be so large that sled moves it out of its log");
}

#[tokio::test]
async fn an_outcome_that_is_still_being_sent_is_in_memory_once_whatever_the_cache_has_kept() {
    let test = TestStore::new();
    let mut tasks = Vec::new();
    for at in 0..12 {
        let id = test.run(Expiry::Never).await;
        let outcome = json(&format!("\"{}{}\"", "x".repeat(900 << 10), at));
        tasks.push(test.store.settle(&id, Ending::Completed(outcome)).await.unwrap());
    }
    let sent = test.store.outcome(&tasks[0]).await.unwrap();
    for other in &tasks[1..] {
        test.store.outcome(other).await.unwrap();
    }
    let again = test.store.outcome(&tasks[0]).await.unwrap();
    assert_eq!(again, sent);
    assert_eq!(again.bytes().as_ptr(), sent.bytes().as_ptr(), "there are two of it");
}

#[tokio::test]
async fn what_is_in_the_directory_is_for_nobody_else() {
    let test = TestStore::new();
    let id = test.run(Expiry::Never).await;
    test.store.settle(&id, Ending::Completed(json(&format!("[{:9000}]", 1)))).await.unwrap();
    let test = test.reopened().await;
    let store = test.directory.path().join("store");
    assert_eq!(mode(&store), 0o700);
    assert_eq!(mode(&store.join("blobs")), 0o700);
    for name in ["db", "conf", "lock", "raincheck.store"] {
        assert_eq!(mode(&store.join(name)), 0o600, "{name}");
    }
    for file in files(&test) {
        assert_eq!(mode(&file), 0o600);
    }
}

#[tokio::test]
async fn a_damaged_file_is_told_from_a_good_one() {
    let test = TestStore::new();
    let mut large = Vec::new();
    for _ in 0..3 {
        let id = test.run(Expiry::Never).await;
        // Large enough not to be kept in the cache of outcomes.
        let outcome = json(&format!("[\"{}\"]", "x".repeat(2_000_000)));
        large.push(test.store.settle(&id, Ending::Completed(outcome)).await.unwrap());
    }
    let file_of = |at: usize| {
        files(&test).into_iter().find(|path| path.to_str().unwrap().contains(large[at].id.as_str())).unwrap()
    };
    let mut bytes = fs::read(file_of(0)).unwrap();
    bytes[1_000_000] = b'7';
    fs::write(file_of(0), &bytes).unwrap();
    fs::write(file_of(1), &bytes[..100]).unwrap();
    fs::remove_file(file_of(2)).unwrap();
    assert!(matches!(test.store.outcome(&large[0]).await, Err(ReadError::Damaged)));
    assert!(matches!(test.store.outcome(&large[1]).await, Err(ReadError::Damaged)));
    assert!(matches!(test.store.outcome(&large[2]).await, Err(ReadError::NoOutcome)));
}

#[tokio::test]
async fn a_purge_takes_the_file_with_it() {
    let test = TestStore::new();
    let id = test.run(expiry(60, 30)).await;
    test.store.settle(&id, Ending::Completed(json(&format!("[{:9000}]", 1)))).await.unwrap();
    assert_eq!(files(&test).len(), 1);
    test.clock.advance(Duration::from_secs(61));
    test.store.sweep().await.unwrap();
    assert_eq!(files(&test), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_refused_ending_leaves_no_file() {
    let test = TestStore::new();
    let queued = test.store.create(test.queued(Expiry::Never)).await.unwrap().id;
    test.store.settle(&queued, Ending::Completed(json(&format!("[{:9000}]", 1)))).await.unwrap_err();
    assert_eq!(files(&test), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn files_that_no_record_names_are_swept_at_the_start() {
    let test = TestStore::new();
    let id = test.run(Expiry::Never).await;
    let settled = test.store.settle(&id, Ending::Completed(json(&format!("[{:9000}]", 1)))).await.unwrap();
    let named = files(&test).pop().unwrap();
    let folder = named.parent().unwrap();
    let orphans = [folder.join(format!("{id}.77")), folder.join(format!("{id}.78.new"))];
    let foreign = folder.join("notes.txt");
    for path in orphans.iter().chain([&foreign]) {
        fs::write(path, "left over").unwrap();
    }
    let test = test.reopened().await;
    signs::files("the sweep", folder, Duration::from_secs(20), || !orphans.iter().any(|path| path.exists())).await;
    assert!(foreign.exists(), "what is not ours is left alone");
    assert!(test.store.outcome(&settled).await.is_ok());
}
