//! Where a process over stdio keeps its tasks when nobody has chosen a place.
//!
//! Hosts start a process for each window, and only one process can hold a store. So there is a folder for each server
//! (its command and the folder it runs in, or its URL), and in it a row of stores: 0, 1, 2, … A process takes the
//! first that is free, so that a host that starts again finds the handles of before.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::kill;
use nix::unistd::{Pid, getuid};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::stack::{self, Fresh};
use crate::clock::millis;
use crate::config::{ServerConfig, StoreConfig, Transport};
use crate::store::{Holder, OpenCause, OpenError, holder, remove_unused};

/// Where the store of a process is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Here and nowhere else.
    Chosen,
    /// The first that is free of a row in this folder; if nothing can be written there, in the other.
    FirstFree([PathBuf; 2]),
}

/// What was found in a place.
pub(super) enum Found {
    /// A store, which is open now.
    Open(Box<Fresh>, PathBuf),
    /// A store that its process is about to give back, by then at the latest.
    Leaving(PathBuf, Instant),
}

/// A note beside a store that its process is about to give it back, and until when.
#[derive(Debug)]
pub(super) struct Leaving(PathBuf);

/// Stores in a row: more windows on one server than anybody has.
const ROW: u32 = 256;
/// How long a chosen store is waited for whose process does not say that it ends. Hosts end a process within four seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a store is waited for at most, whatever its process says: hosts give a call up after a minute.
const MOST: Duration = Duration::from_mins(1);
/// How long a store is kept that nobody opens: the tasks in it have long expired.
const UNUSED: Duration = Duration::from_hours(24 * 90);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(50);

impl Place {
    /// The place for this server's tasks below the folder for the data of this user (XDG base directories:
    /// `XDG_DATA_HOME`, else `~/.local/share`).
    pub(super) fn of_user(server: &ServerConfig) -> Self {
        let spare = std::env::temp_dir().join(format!("raincheck-{}", getuid()));
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let data = data.or_else(|| Some(std::env::home_dir()?.join(".local/share"))).filter(|path| path.is_absolute());
        let data = data.map_or_else(|| spare.clone(), |data| data.join("raincheck"));
        Self::FirstFree([data, spare].map(|base| base.join("stdio").join(lineage(server))))
    }

    /// Opens the store: `config`, or the same in the place of its path. One that is about to be given back comes before
    /// those behind it, unless it is among `passed`. Blocks for a second at worst.
    pub(super) fn open(&self, config: &StoreConfig, passed: &[PathBuf]) -> Result<Found, OpenError> {
        match self {
            Self::Chosen => {
                let path = &config.path;
                if holder(path) != Holder::Nobody && !passed.contains(path) {
                    return Ok(Found::Leaving(path.clone(), Leaving::noted(path).unwrap_or(Instant::now() + PATIENCE)));
                }
                Ok(Found::Open(Box::new(stack::open(config)?), path.clone()))
            }
            Self::FirstFree([folder, spare]) => {
                first_free(folder, config, passed).inspect(|_| clear(folder)).or_else(|error| {
                    if folder == spare || !matches!(error.cause(), OpenCause::Denied(_)) {
                        return Err(error);
                    }
                    tracing::warn!(%error, "tasks are kept in {} until the system clears that", spare.display());
                    first_free(spare, config, passed)
                })
            }
        }
    }
}

fn first_free(folder: &Path, config: &StoreConfig, passed: &[PathBuf]) -> Result<Found, OpenError> {
    let mut last = None;
    for number in 0..ROW {
        let path = folder.join(number.to_string());
        if let Holder::Somebody(pid) = holder(&path) {
            if let Some(until) = Leaving::noted(&path).filter(|_| !passed.contains(&path)) {
                return Ok(Found::Leaving(path, until));
            }
            // The lock of a process that was killed goes within a moment; opening waits for that.
            if pid.is_some_and(is_alive) {
                continue;
            }
        }
        match stack::open(&StoreConfig { path: path.clone(), ..config.clone() }) {
            Ok(fresh) => {
                Leaving::forget(&path);
                return Ok(Found::Open(Box::new(fresh), path));
            }
            Err(error) => match error.cause() {
                OpenCause::Held { .. } => last = Some(error),
                // One broken store does not keep a host from its server.
                OpenCause::Corrupt(_) | OpenCause::Newer { .. } | OpenCause::NotAStore(_) => {
                    tracing::warn!(%error, "another store is taken");
                    last = Some(error);
                }
                _ => return Err(error),
            },
        }
    }
    match last {
        Some(error) => Err(error),
        // Every store of the row is held: this one says by whom.
        None => stack::open(&StoreConfig { path: folder.join("0"), ..config.clone() })
            .map(|fresh| Found::Open(Box::new(fresh), folder.join("0"))),
    }
}

/// Removes the stores of all servers that have not been used for long.
fn clear(folder: &Path) {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for lineage in folder.parent().into_iter().flat_map(entries) {
        for store in entries(&lineage).filter(|path| path.is_dir()) {
            if remove_unused(&store, UNUSED).is_ok_and(|removed| removed) {
                tracing::info!(store = %store.display(), "a store was removed that nobody has used for 90 days");
                // It stays if there are others in it.
                let _ = std::fs::remove_dir(&lineage);
            }
        }
    }
}

/// Whether another process holds a store beside the one in `path`, so that it may keep what is not found in this.
pub(super) fn others_are_held(path: &Path) -> bool {
    let stores = path.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    stores.map(|entry| entry.path()).any(|other| other != path && holder(&other) != Holder::Nobody)
}

/// Waits until nobody holds the store, but not longer; whether it is free.
pub(super) async fn is_free_by(path: &Path, until: Instant) -> bool {
    loop {
        if holder(path) == Holder::Nobody {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn is_alive(pid: u32) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH))
}

impl Leaving {
    /// Notes that the store in `path` is about to be given back, in so long at most. Without the note a successor takes
    /// another.
    pub(super) fn note(path: &Path, within: Duration) -> Self {
        let by = millis(since_epoch() + within);
        let _ = std::fs::write(Self::beside(path), format!("{} {by}\n", std::process::id()));
        Self(path.to_owned())
    }

    /// When the store is given back, if that is noted.
    fn noted(path: &Path) -> Option<Instant> {
        let note = std::fs::read_to_string(Self::beside(path)).ok()?;
        let by = note.split_ascii_whitespace().nth(1).and_then(|by| by.parse().ok()).map(Duration::from_millis);
        // Of an older version, or just being written.
        let left = by.map_or(MOST, |by| by.saturating_sub(since_epoch()));
        Some(Instant::now() + left.min(MOST))
    }

    fn forget(path: &Path) {
        let _ = std::fs::remove_file(Self::beside(path));
    }

    fn beside(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".leaving");
        name.into()
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        Self::forget(&self.0);
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A name for everything that runs the same server in the same folder.
fn lineage(server: &ServerConfig) -> String {
    let mut hash = Sha256::new();
    let mut add = |kind: &str, text: &[u8]| {
        hash.update(kind);
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    };
    match &server.transport {
        Transport::Stdio { command, cwd, .. } => {
            for part in command {
                add("part", part.as_bytes());
            }
            let here = cwd.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
            add("folder", here.as_os_str().as_encoded_bytes());
        }
        Transport::Http { url, .. } | Transport::Sse { url, .. } => add("url", url.as_str().as_bytes()),
    }
    let digest = hash.finalize();
    data_encoding::HEXLOWER.encode(digest.get(..8).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_waited_for_as_long_as_its_process_says_but_no_longer_than_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0");
        let left = || Leaving::noted(&path).map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64());
        assert_eq!(left(), None);
        for (within, expected) in [(30, 30.0), (600, 60.0), (0, 0.0)] {
            let _note = Leaving::note(&path, Duration::from_secs(within));
            assert!((expected - 5.0..=expected).contains(&left().unwrap()), "{within}");
        }
        assert_eq!(left(), None);
        std::fs::write(folder.path().join("0.leaving"), "17\n").unwrap();
        assert!(left().unwrap() > 50.0, "of an older version");
    }

    #[test]
    fn stores_that_nobody_uses_are_removed_and_others_stay() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str, unused: Duration| {
            let path = base.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("lock"), "1\n").unwrap();
            let marker = std::fs::File::create(path.join("raincheck.store")).unwrap();
            marker.set_modified(SystemTime::now() - unused).unwrap();
            path
        };
        let day = Duration::from_hours(24);
        let [old, held, used, alone] =
            [("a/0", 100), ("a/1", 100), ("a/2", 80), ("b/0", 100)].map(|(name, days)| make(name, day * days));
        let lock = std::fs::File::open(held.join("lock")).unwrap();
        lock.try_lock().unwrap();
        std::fs::create_dir_all(base.path().join("c/no-store")).unwrap();
        clear(&base.path().join("a"));
        assert!(!old.exists() && held.exists() && used.exists());
        assert!(!alone.parent().unwrap().exists() && base.path().join("c/no-store").exists());
    }

    #[test]
    fn a_lineage_is_its_command_and_its_folder_or_its_url() {
        let name = |text: &str| {
            let text = format!("[[server]]\nname = \"s\"\n{text}\n");
            lineage(&crate::config::parse(&text, &crate::config::Environment::default()).unwrap().servers[0])
        };
        let one = name("command = [\"a\", \"b c\"]");
        assert_eq!(one, name("command = [\"a\", \"b c\"]\nenv = { X = \"1\" }"));
        for other in [
            "command = [\"a\", \"b\", \"c\"]",
            "command = [\"a\", \"b c\"]\ncwd = \"/\"",
            "url = \"http://h/a\"",
            "url = \"http://h/b\"",
        ] {
            assert_ne!(one, name(other), "{other}");
        }
    }
}
