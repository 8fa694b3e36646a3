//! What does not open says why, with an exit code of its own, and is left as it is.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use raincheck::store::{Damage, Ending, NotAStore, OpenCause, OpenError};

use crate::support::{TestStore, expiry, json, open};

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
        match open(broken.path()) {
            Ok(opened) => {
                // The open tasks were all read; whatever else the page held answers for itself.
                assert_eq!(opened.left_open.len(), 3);
                opened.store.close().await;
            }
            Err(error) => {
                assert!(matches!(error.exit_code(), 70), "{error}");
                assert!(!error.to_string().contains('\n'));
                refusals += 1;
            }
        }
    }
    assert!(refusals > 0);
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
    let error = refused(&path, 70, "values outside of its log");
    assert!(matches!(error.cause(), OpenCause::Corrupt(Damage::Blobs)), "{error}");
    // The length of the database at its closing is forgotten as soon as sled may have changed it.
    assert!(fs::read_to_string(path.join("raincheck.store")).unwrap().starts_with("raincheck-store 3 open "));
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
