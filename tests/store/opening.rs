//! What does not open says why, with an exit code of its own, and is left as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use raincheck::clock::{ManualClock, SharedClock, Timestamp};
use raincheck::jobs::Jobs;
use raincheck::store::{Damage, Ending, NotAStore, OpenCause, OpenError, Shelf, Store};

use crate::signs;
use crate::support::{TestStore, config, expiry, json, open};

/// Opening must fail; with one line, and the exit code.
#[track_caller]
fn refused(path: &Path, code: u8, says: &str) -> OpenError {
    let error = open(path).err().unwrap();
    let line = error.to_string();
    assert!(!line.contains('\n') && line.contains(says), "{line}");
    assert!(line.contains(&path.display().to_string()), "{line}");
    assert_eq!(error.exit_code(), code, "{line}");
    error
}

/// A closed store with some tasks in it.
async fn closed_store() -> TestStore {
    let test = TestStore::new();
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..400 {
        let (store, task) = (test.store.clone(), test.running(expiry(60, 30)));
        runs.spawn(async move {
            let id = store.create(task).await.unwrap().id;
            store.settle(&id, Ending::Completed(json(&format!("[{:2000}]", 1)))).await.unwrap();
        });
    }
    runs.join_all().await;
    for _ in 0..3 {
        test.run(expiry(60, 30)).await;
    }
    test.jobs.stop();
    test.store.close().await;
    test
}

#[tokio::test]
async fn a_store_that_is_open_already_is_refused_with_the_holders_pid() {
    let test = TestStore::new();
    let path = test.directory.path().join("store");
    let error = refused(&path, 71, &format!("in use by process {}", std::process::id()));
    assert!(matches!(error.cause(), OpenCause::Held { pid: Some(pid) } if *pid == std::process::id()));
    test.run(expiry(60, 30)).await;
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused_untouched() {
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    fs::write(path.join("raincheck.store"), "raincheck-store 4 closed 9 9 and more\n").unwrap();
    let before = fs::read(path.join("db")).unwrap();
    let error = refused(&path, 72, "use that version");
    assert!(matches!(error.cause(), OpenCause::Newer { found: 4, known: 3 }));
    assert_eq!(fs::read(path.join("db")).unwrap(), before);
}

#[tokio::test]
async fn what_is_no_store_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "text").unwrap();
    let error = refused(&file, 73, "is not a directory");
    assert!(matches!(error.cause(), OpenCause::NotAStore(NotAStore::File)));
    refused(&file.join("below"), 73, "is not a directory");

    let home = directory.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("letter"), "dear").unwrap();
    let error = refused(&home, 73, "holds other things");
    assert!(matches!(error.cause(), OpenCause::NotAStore(NotAStore::Foreign)));
    let names: Vec<_> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["letter"]);

    let odd = directory.path().join("odd");
    fs::create_dir(&odd).unwrap();
    for marker in
        ["", "something else", "raincheck-store", "raincheck-store 1 sleeping 1 1", "raincheck-store 1 open x 1"]
    {
        fs::write(odd.join("raincheck.store"), marker).unwrap();
        refused(&odd, 73, "holds other things");
    }
}

#[tokio::test]
async fn a_store_whose_marker_is_gone_or_garbage_is_damaged_and_left_as_it_is() {
    let markers: [Option<&[u8]>; 6] =
        [None, Some(b""), Some(b"zzz"), Some(b"\xff\0"), Some(b"raincheck-store"), Some(b"raincheck-store 3 open x 1")];
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    for marker in markers {
        match marker {
            None => fs::remove_file(path.join("raincheck.store")).unwrap(),
            Some(bytes) => fs::write(path.join("raincheck.store"), bytes).unwrap(),
        }
        let before = contents(&path);
        let error = refused(&path, 70, "move the directory aside");
        assert!(matches!(error.cause(), OpenCause::Corrupt(Damage::Marker)), "{error}");
        assert_eq!(contents(&path), before);
    }
    // With things of others in it nobody can say whose it is.
    fs::write(path.join("letter"), "dear").unwrap();
    refused(&path, 73, "holds other things");
}

#[tokio::test]
async fn an_empty_directory_or_one_with_only_lost_and_found_becomes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("lost+found")).unwrap();
    open(directory.path()).unwrap().store.close().await;
    open(directory.path()).unwrap().store.close().await;
}

#[tokio::test]
async fn a_store_whose_making_was_cut_short_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("raincheck.store"), "raincheck-store 1 creating 0 0\n").unwrap();
    fs::write(directory.path().join("db"), "garbage").unwrap();
    fs::write(directory.path().join("conf"), "").unwrap();
    open(directory.path()).unwrap().store.close().await;
}

#[tokio::test]
async fn a_database_that_is_missing_or_too_short_is_never_replaced_by_an_empty_one() {
    for keep in [None, Some(0), Some(100), Some(600_000)] {
        let test = closed_store().await;
        let path = test.directory.path().join("store");
        match keep {
            None => fs::remove_file(path.join("db")).unwrap(),
            Some(bytes) => OpenOptions::new().write(true).open(path.join("db")).unwrap().set_len(bytes).unwrap(),
        }
        let error = refused(&path, 70, "move the directory aside");
        assert!(matches!(error.cause(), OpenCause::Corrupt(Damage::Truncated { .. })), "{error}");
        refused(&path, 70, "move the directory aside");
    }
}

/// The length is only known of a store that was closed; for one that was killed the count of commits tells.
#[tokio::test]
async fn a_database_that_went_back_in_time_is_refused() {
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    let marker = fs::read_to_string(path.join("raincheck.store")).unwrap();
    let commits: u64 = marker.split(' ').nth(3).unwrap().parse().unwrap();
    fs::write(path.join("raincheck.store"), format!("raincheck-store 1 open {} 0\n", commits + 1)).unwrap();
    let error = refused(&path, 70, "acknowledged commits");
    assert!(matches!(error.cause(), OpenCause::Corrupt(Damage::Lost { .. })), "{error}");
    fs::write(path.join("raincheck.store"), format!("raincheck-store 1 open {commits} 0\n")).unwrap();
    open(&path).unwrap().store.close().await;
}

#[tokio::test]
async fn the_marker_of_a_store_at_rest_counts_all_of_its_commits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let opened = open(&path).unwrap();
    let count = || {
        let marker = fs::read_to_string(path.join("raincheck.store")).unwrap();
        marker.split(' ').nth(3).unwrap().parse::<u64>().unwrap()
    };
    let before = count();
    // As a rule all within the second in which the marker is not written again.
    for number in 0..5u8 {
        opened.store.shelve(Shelf::History, "name", Some(vec![number])).await.unwrap();
    }
    signs::files("the last commit is counted", &path, Duration::from_secs(30), || count() == before + 5).await;
    opened.store.close().await;
    assert_eq!(count(), before + 5);
}

#[tokio::test]
async fn a_database_without_our_description_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    fs::create_dir(&path).unwrap();
    drop(sled_with_one_value(&path));
    fs::write(path.join("raincheck.store"), "raincheck-store 1 open 1 0\n").unwrap();
    let error = refused(&path, 70, "its description of itself is missing");
    assert!(matches!(error.cause(), OpenCause::Corrupt(Damage::Meta)), "{error}");
}

fn sled_with_one_value(path: &Path) -> sled::Db {
    let db = sled::open(path).unwrap();
    db.insert("key", "value").unwrap();
    db.flush().unwrap();
    db
}

#[tokio::test]
async fn zeroed_pages_are_refused_or_survived_but_never_a_panic() {
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    let good = tempfile::tempdir().unwrap();
    copy(&path, good.path());
    let length = fs::metadata(path.join("db")).unwrap().len();
    let mut refusals = 0;
    for page in (0..length / 4096).step_by(17) {
        let broken = tempfile::tempdir().unwrap();
        copy(good.path(), broken.path());
        let db = OpenOptions::new().write(true).open(broken.path().join("db")).unwrap();
        db.write_all_at(&[0; 4096], page * 4096).unwrap();
        let before = contents(broken.path());
        match open(broken.path()) {
            Ok(opened) => {
                // The open tasks were all read; whatever else the page held answers for itself.
                assert_eq!(opened.left_open.len(), 3);
                opened.store.close().await;
            }
            Err(error) => {
                assert!(matches!(error.exit_code(), 70), "{error}");
                assert!(!error.to_string().contains('\n'));
                assert_eq!(differences(&before, &contents(broken.path())), [""; 0], "page {page}");
                refusals += 1;
            }
        }
    }
    assert!(refusals > 0);
}

/// As a process leaves it that was killed: nothing was cut off or put in order.
async fn killed_store(to: &Path) -> usize {
    let test = TestStore::new();
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..300 {
        let (store, task) = (test.store.clone(), test.running(expiry(60, 30)));
        runs.spawn(async move {
            let id = store.create(task).await.unwrap().id;
            if number % 2 == 0 {
                store.settle(&id, Ending::Completed(json(&format!("[{:3000}]", 1)))).await.unwrap();
            }
        });
    }
    runs.join_all().await;
    copy(&test.directory.path().join("store"), to);
    let marker = fs::read_to_string(to.join("raincheck.store")).unwrap();
    let length = fs::metadata(to.join("db")).unwrap().len();
    // As the marker is a second later.
    test.jobs.stop();
    test.store.close().await;
    let closed = fs::read_to_string(test.directory.path().join("store/raincheck.store")).unwrap();
    assert!(marker.starts_with("raincheck-store 3 open ") && closed.starts_with("raincheck-store 3 closed "));
    let commits = closed.split(' ').nth(3).unwrap();
    fs::write(to.join("raincheck.store"), format!("raincheck-store 3 open {commits} 0\n")).unwrap();
    usize::try_from(length).unwrap()
}

#[tokio::test]
async fn a_store_that_is_refused_is_byte_for_byte_what_it_was_and_opens_when_it_is_repaired() {
    let good = tempfile::tempdir().unwrap();
    let length = killed_store(good.path()).await;
    let mut refusals = 0;
    for at in (3000..length).step_by(length / 24) {
        let broken = tempfile::tempdir().unwrap();
        copy(good.path(), broken.path());
        let db = OpenOptions::new().read(true).write(true).open(broken.path().join("db")).unwrap();
        let (at, mut byte) = (u64::try_from(at).unwrap(), [0]);
        db.read_exact_at(&mut byte, at).unwrap();
        db.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let before = contents(broken.path());
        let Err(error) = open(broken.path()) else { continue };
        assert_eq!(error.exit_code(), 70, "{error}");
        assert_eq!(differences(&before, &contents(broken.path())), [""; 0], "byte {at}: {error}");
        refusals += 1;
        db.write_all_at(&byte, at).unwrap();
        let opened = open(broken.path()).unwrap();
        assert_eq!(opened.left_open.len(), 150);
        assert!(!broken.path().join("before-opening").exists());
        opened.store.close().await;
    }
    assert!(refusals > 3, "{refusals}");
}

#[tokio::test]
async fn a_torn_snapshot_does_not_keep_the_store_from_opening() {
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    fs::write(path.join("snap.00000000000FFFFF.generating"), "torn").unwrap();
    let opened = open(&path).unwrap();
    assert_eq!(opened.left_open.len(), 3);
    assert!(!path.join("snap.00000000000FFFFF.generating").exists());
    opened.store.close().await;
}

#[tokio::test]
async fn a_store_that_wrote_blobs_is_refused() {
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    File::create(path.join("blobs/17")).unwrap();
    let before = contents(&path);
    let error = refused(&path, 70, "values outside of its log");
    assert!(matches!(error.cause(), OpenCause::Corrupt(Damage::Blobs)), "{error}");
    assert_eq!(differences(&before, &contents(&path)), [""; 0]);
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_refused() {
    // Permissions do not hold root back, but nobody can make a directory in /proc.
    refused(Path::new("/proc/raincheck"), 74, "cannot be opened");
    if nix::unistd::geteuid().is_root() {
        return;
    }
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o500)).unwrap();
    fs::set_permissions(path.join("lock"), std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    refused(&path, 76, "cannot be written");
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// All that is in a directory, but for our lock.
fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let below = contents(&entry.path()).into_iter();
            found.extend(below.map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else if name != "lock" {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// The names of what is not the same.
fn differences<'a>(before: &'a BTreeMap<String, Vec<u8>>, after: &'a BTreeMap<String, Vec<u8>>) -> Vec<&'a str> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).map(String::as_str).collect()
}

#[tokio::test]
async fn a_clock_before_1970_or_after_9999_is_refused_and_nothing_is_touched() {
    let test = closed_store().await;
    let path = test.directory.path().join("store");
    let before = contents(&path);
    let fresh = test.directory.path().join("fresh");
    for (millis, path) in [(0, &path), (253_402_300_800_000, &path), (0, &fresh)] {
        let clock: SharedClock = Arc::new(ManualClock::new(Timestamp::from_millis(millis)));
        let error = Store::open(&config(path), clock, &Jobs::new()).err().unwrap();
        assert!(matches!(error.cause(), OpenCause::Clock) && error.exit_code() == 78, "{error}");
        assert!(error.to_string().contains("the clock of this machine"), "{error}");
    }
    assert!(contents(&path) == before && !fresh.exists());
    open(&path).unwrap();
}
