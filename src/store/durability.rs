//! Whether sled's flush reaches the disk.
//!
//! sled 0.34 on Linux "syncs" with `sync_file_range`, which syncs nothing that survives a power cut.
//! The binary replaces that symbol (`src/durable_sync.rs` tells the story) by [`flush`], which counts its calls, so
//! that opening a store can tell whether the replacement is really there.
//!
//! A write that fails is told once for each opening of a file, to whoever syncs it next. sled syncs from several threads at
//! a time, and elsewhere ignores what it is told. So the flush goes through an opening of our own, and of flushes that
//! overlap all fail if one does, as do those that follow: what failed is never made good.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Our own opening of a database's file, for as long as this is held.
#[derive(Debug)]
pub(super) struct Watch(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    file: File,
    /// Device and number of the file.
    id: (u64, u64),
    calls: Mutex<Calls>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    running: BTreeSet<u64>,
    /// The error of the first that failed.
    failed: Option<i32>,
}

static FLUSHES: AtomicU64 = AtomicU64::new(0);

static WATCHED: Mutex<Vec<Arc<Watched>>> = Mutex::new(Vec::new());

/// Counts one call of the replacement. Only a test's own replacement calls this.
pub fn count_durable_flush() {
    FLUSHES.fetch_add(1, Ordering::SeqCst);
}

/// How many calls there were.
pub(super) fn durable_flushes() -> u64 {
    FLUSHES.load(Ordering::SeqCst)
}

/// Makes all that was written to a database's file durable, and counts that. Only `src/durable_sync.rs` calls this.
pub fn flush(file: BorrowedFd<'_>) -> io::Result<()> {
    count_durable_flush();
    let id = nix::sys::stat::fstat(file).map(|found| (found.st_dev, found.st_ino))?;
    let watched = lock(&WATCHED).iter().find(|watched| watched.id == id).cloned();
    match watched {
        Some(watched) => watched.flush(|| watched.file.sync_data()),
        None => Ok(nix::unistd::fdatasync(file)?),
    }
}

impl Watch {
    /// From now on flushes of this file, which is made if it is not there, are told of every write that fails.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let found = file.metadata()?;
        let id = (found.dev(), found.ino());
        let watched = Arc::new(Watched { file, id, calls: Mutex::default(), ended: Condvar::new() });
        lock(&WATCHED).push(Arc::clone(&watched));
        Ok(Self(watched))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&WATCHED).retain(|watched| !Arc::ptr_eq(watched, &self.0));
    }
}

impl Watched {
    fn flush(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let ticket = {
            let mut calls = lock(&self.calls);
            let ticket = calls.next;
            calls.next += 1;
            calls.running.insert(ticket);
            ticket
        };
        let synced = sync();
        let mut calls = lock(&self.calls);
        calls.running.remove(&ticket);
        if let Err(error) = synced {
            calls.failed.get_or_insert(error.raw_os_error().unwrap_or(nix::errno::Errno::EIO as i32));
        }
        self.ended.notify_all();
        // One of those that run may be told of the failure of what this one was to sync.
        let later = calls.next;
        let is_open = |calls: &mut Calls| calls.failed.is_none() && calls.running.first().is_some_and(|at| *at < later);
        let calls = self.ended.wait_while(calls, is_open).unwrap_or_else(PoisonError::into_inner);
        calls.failed.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn of_flushes_that_overlap_all_fail_if_one_does_and_so_do_those_that_follow() {
        let directory = tempfile::tempdir().unwrap();
        let watch = Watch::new(&directory.path().join("db")).unwrap();
        watch.0.flush(|| Ok(())).unwrap();
        let ((begun, begins), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
        let watched = Arc::clone(&watch.0);
        let told = std::thread::spawn(move || {
            watched.flush(|| {
                begun.send(()).unwrap();
                ends.recv().unwrap();
                Err(io::Error::from_raw_os_error(28))
            })
        });
        begins.recv().unwrap();
        let not_told = watch.0.flush(|| {
            // It ends first, or has to wait for the other.
            end.send(()).unwrap();
            Ok(())
        });
        assert_eq!(not_told.unwrap_err().raw_os_error(), Some(28));
        assert_eq!(told.join().unwrap().unwrap_err().raw_os_error(), Some(28));
        assert_eq!(watch.0.flush(|| Ok(())).unwrap_err().raw_os_error(), Some(28));
        // Whoever opens the file again begins anew.
        drop(watch);
        let again = Watch::new(&directory.path().join("db")).unwrap();
        again.0.flush(|| Ok(())).unwrap();
    }

    #[test]
    fn a_file_is_flushed_through_our_own_opening_of_it_while_it_is_watched() {
        use std::os::fd::AsFd;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let watch = Watch::new(&path).unwrap();
        let theirs = File::open(&path).unwrap();
        let other = File::create(directory.path().join("other")).unwrap();
        lock(&watch.0.calls).failed = Some(5);
        assert_eq!(flush(theirs.as_fd()).unwrap_err().raw_os_error(), Some(5));
        flush(other.as_fd()).unwrap();
        drop(watch);
        flush(theirs.as_fd()).unwrap();
    }
}
