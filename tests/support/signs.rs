//! Signs of what happens outside of the test's own process, in place of looking again and again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// What somebody has said so far, and a sign whenever it is more.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    text: Arc<Mutex<String>>,
    /// Whether no more will be said; a sign whenever there was more.
    more: watch::Sender<bool>,
}

impl Said {
    pub(crate) fn new() -> Self {
        Self { text: Arc::default(), more: watch::Sender::new(false) }
    }

    pub(crate) fn push(&self, words: &str) {
        self.text.lock().unwrap().push_str(words);
        self.more.send_modify(|_| {});
    }

    /// No more will be said.
    #[allow(dead_code, reason = "not every test that has this needs it")]
    pub(crate) fn close(&self) {
        self.more.send_replace(true);
    }

    /// All that was said, once it is at its end.
    #[allow(dead_code, reason = "not every test that has this needs it")]
    pub(crate) async fn whole(&self, patience: Duration) -> String {
        let mut more = self.more.subscribe();
        let ended = tokio::time::timeout(patience, more.wait_for(|is_over| *is_over)).await;
        assert!(matches!(ended, Ok(Ok(_))), "it goes on: {}", self.text());
        self.text()
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Resolves when this holds of all that was said.
    pub(crate) async fn until(&self, patience: Duration, mut is_so: impl FnMut(&str) -> bool) {
        let mut more = self.more.subscribe();
        let said = async {
            while !is_so(&self.text.lock().unwrap()) {
                more.changed().await.unwrap();
            }
        };
        tokio::time::timeout(patience, said).await.unwrap_or_else(|_| panic!("it was never said: {}", self.text()));
    }
}

/// For a log of this process.
impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Resolves when something is so of the files below a folder, which is there; looks whenever one of them changes.
pub(crate) async fn files(what: &str, folder: &Path, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let looked = async {
        let changes = watched(init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap());
        loop {
            // First the watch, then the look: no change is missed in between.
            for folder in folders(folder) {
                // One that is gone by now has changed the folder above.
                let _ = add_watch(
                    changes.get_ref(),
                    &folder,
                    WatchFlags::CREATE
                        | WatchFlags::DELETE
                        | WatchFlags::MODIFY
                        | WatchFlags::MOVE
                        | WatchFlags::CLOSE_WRITE,
                );
            }
            if is_so() {
                return;
            }
            let mut ready = changes.readable().await.unwrap();
            let mut events = [0; 4096];
            while rustix::io::read(changes.get_ref(), &mut events).is_ok() {}
            ready.clear_ready();
        }
    };
    tokio::time::timeout(patience, looked).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A folder and all below it.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(folder) = found.get(at) {
        let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let below: Vec<_> = below.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        found.extend(below);
        at += 1;
    }
    found
}

/// Resolves when the process has ended, whoever waits for it.
pub(crate) async fn ended(pid: i32, patience: Duration) {
    let Some(process) = handle(pid) else { return };
    let process = watched(process);
    let ended = tokio::time::timeout(patience, process.readable()).await;
    drop(ended.unwrap_or_else(|_| panic!("process {pid} does not end")).unwrap());
}

/// `None` if it is gone.
fn handle(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::NONBLOCK).ok()
}

#[expect(deprecated, reason = "it is unsound for descriptors that others may close; this one is owned")]
fn watched(descriptor: OwnedFd) -> AsyncFd<OwnedFd> {
    AsyncFd::new(descriptor).unwrap()
}
