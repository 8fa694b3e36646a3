//! The store's directory: permissions, the lock, and the marker that says whose directory it is.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::open_error::{Damage, NotAStore, OpenCause};
use super::page_cache;
use super::{files, original};

/// The version of the layout that this version of Raincheck writes.
///
/// 1 had no questions, 2 no keys and no lists of what each owner has; both are read, and become 3 when they are opened.
pub(super) const LAYOUT: u32 = 3;

/// Our directory, held by our lock until this is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

/// Who has a store open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It may be opened.
    Nobody,
    /// This process, where it is known.
    Somebody(Option<u32>),
}

/// What the marker says of the store: `raincheck-store LAYOUT STATE COMMITS BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    pub(super) state: MarkerState,
    /// Commits that were durable when the marker was written.
    pub(super) commits: u64,
    /// The database's bytes, if it was closed.
    pub(super) bytes: u64,
}

/// How far the store's life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkerState {
    /// It is made for the first time; nothing in it was ever acknowledged.
    Creating,
    /// It is open, or was not closed.
    Open,
    /// It was closed.
    Closed,
}

pub(super) const MARKER: &str = "raincheck.store";
const NEW_MARKER: &str = "raincheck.store.new";
const LOCK: &str = "lock";
pub(super) const DATABASE: &str = "db";
const BLOBS: &str = "blobs";
const LOST_AND_FOUND: &str = "lost+found";

/// How long a lock may outlive its process.
const INHERITED: Duration = Duration::from_millis(500);

impl Directory {
    /// Makes the directory if it is not there, refuses what is no store of ours, and takes the lock.
    pub(super) fn take(path: &Path) -> Result<(Self, Marker), OpenCause> {
        if let Ok(found) = fs::metadata(path)
            && !found.is_dir()
        {
            return Err(OpenCause::NotAStore(NotAStore::File));
        }
        let is_new = !path.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // Looked at before the lock is made, so that nothing is ever put into a foreign directory.
        read_marker(path)?;
        let lock = take_lock(&path.join(LOCK))?;
        restrict(path, 0o700);
        // Absolute, since the store may be opened again after the process went elsewhere.
        let directory = Self { path: std::path::absolute(path)?, _lock: lock };
        if is_new && let Some(parent) = path.parent() {
            sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
        }
        original::put_back_left_over(&directory.path)?;
        let marker = if let Some(marker) = read_marker(path)? {
            marker
        } else {
            let marker = Marker { state: MarkerState::Creating, commits: 0, bytes: 0 };
            directory.write_marker(marker)?;
            marker
        };
        directory.prepare(marker)?;
        Ok((directory, marker))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks what must be there, and what must not, when sled opens its files.
    fn prepare(&self, marker: Marker) -> Result<(), OpenCause> {
        match marker.state {
            // The process ended while it made the store; whatever is there was never acknowledged.
            MarkerState::Creating => self.remove_database()?,
            MarkerState::Open | MarkerState::Closed => {
                let found = self.database_bytes()?;
                let expected = if marker.state == MarkerState::Closed { marker.bytes } else { 1 };
                if found < expected {
                    return Err(OpenCause::Corrupt(Damage::Truncated { found, expected }));
                }
            }
        }
        if marker.state == MarkerState::Open {
            page_cache::forget(&self.path)?;
        }
        let blobs = self.path.join(BLOBS);
        if blobs.exists() && fs::read_dir(blobs)?.next().is_some() {
            return Err(OpenCause::Corrupt(Damage::Blobs));
        }
        Ok(())
    }

    /// Removes snapshots that were not written to their end: they make sled refuse to open. We hold the lock, so nobody is
    /// writing one.
    pub(super) fn remove_torn(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("snap.") && name.ends_with(".generating") {
                fs::remove_file(self.path.join(name.as_ref()))?;
            }
        }
        Ok(())
    }

    fn remove_database(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if is_of_database(&name) {
                fs::remove_file(self.path.join(name))?;
            }
        }
        Ok(())
    }

    /// The length of the database; zero if there is none.
    pub(super) fn database_bytes(&self) -> io::Result<u64> {
        match fs::metadata(self.path.join(DATABASE)) {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Makes what sled has created durable and readable for nobody else: sled itself syncs only its log.
    pub(super) fn settle_files(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let file = File::open(entry.path())?;
                restrict(&entry.path(), 0o600);
                file.sync_all()?;
            }
        }
        restrict(&self.path.join(BLOBS), 0o700);
        sync_directory(&self.path)
    }

    /// Replaces the marker.
    pub(super) fn write_marker(&self, marker: Marker) -> io::Result<()> {
        let state = match marker.state {
            MarkerState::Creating => "creating",
            MarkerState::Open => "open",
            MarkerState::Closed => "closed",
        };
        let text = format!("raincheck-store {LAYOUT} {state} {} {}\n", marker.commits, marker.bytes);
        let temporary = self.path.join(NEW_MARKER);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(temporary, self.path.join(MARKER))?;
        sync_directory(&self.path)
    }
}

/// Whether a file of this name in the directory is sled's.
pub(super) fn is_of_database(name: &OsStr) -> bool {
    name == DATABASE || name == "conf" || name.as_encoded_bytes().starts_with(b"snap.")
}

/// Who has the store in `path` open. Takes nothing and makes nothing.
pub fn holder(path: &Path) -> Holder {
    let Ok(lock) = File::open(path.join(LOCK)) else { return Holder::Nobody };
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return Holder::Nobody,
    }
    let mut pid = String::new();
    let _ = lock.take(32).read_to_string(&mut pid);
    Holder::Somebody(pid.trim().parse().ok())
}

/// Removes the store in `path` if nobody has opened or closed it for this long; whether it was removed.
pub fn remove_unused(path: &Path, age: Duration) -> io::Result<bool> {
    let lock = File::open(path.join(LOCK))?;
    if lock.try_lock().is_err() {
        return Ok(false);
    }
    let touched = fs::metadata(path.join(MARKER))?.modified()?;
    if touched.elapsed().is_ok_and(|unused| unused >= age) {
        fs::remove_dir_all(path)?;
        return Ok(true);
    }
    Ok(false)
}

/// The marker in `path`; `None` if the directory is empty.
fn read_marker(path: &Path) -> Result<Option<Marker>, OpenCause> {
    match find_marker(path) {
        // Whose it is can still be told: its owner must not think that there is nothing to save.
        Err(OpenCause::NotAStore(NotAStore::Foreign)) if is_ours_otherwise(path)? => {
            Err(OpenCause::Corrupt(Damage::Marker))
        }
        found => found,
    }
}

/// Whether there is a database, another file that only a store has beside it, and nothing that a store has not.
fn is_ours_otherwise(path: &Path) -> io::Result<bool> {
    let (mut has_database, mut has_ours) = (false, false);
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        has_database |= name == DATABASE;
        has_ours |= name == MARKER || name == LOCK;
        let others =
            [MARKER, NEW_MARKER, LOCK, BLOBS, LOST_AND_FOUND, files::FOLDER, original::KEPT, original::UNFINISHED];
        if !is_of_database(&name) && !others.iter().any(|other| name == *other) {
            return Ok(false);
        }
    }
    Ok(has_database && has_ours)
}

/// The marker in `path`; what has none, or another, is foreign.
fn find_marker(path: &Path) -> Result<Option<Marker>, OpenCause> {
    match File::open(path.join(MARKER)) {
        Ok(file) => {
            let mut text = String::new();
            let foreign = |_| OpenCause::NotAStore(NotAStore::Foreign);
            file.take(256).read_to_string(&mut text).map_err(foreign)?;
            parse_marker(&text).map(Some)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            for entry in fs::read_dir(path)? {
                // A lock without a marker was left by a process that ended at its very start; a mount
                // point of its own has `lost+found`.
                let name = entry?.file_name();
                if name != LOCK && name != NEW_MARKER && name != LOST_AND_FOUND {
                    return Err(OpenCause::NotAStore(NotAStore::Foreign));
                }
            }
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn parse_marker(text: &str) -> Result<Marker, OpenCause> {
    let foreign = || OpenCause::NotAStore(NotAStore::Foreign);
    let mut words = text.split_ascii_whitespace();
    if words.next() != Some("raincheck-store") {
        return Err(foreign());
    }
    let found: u32 = words.next().and_then(|word| word.parse().ok()).ok_or_else(foreign)?;
    if found > LAYOUT {
        return Err(OpenCause::Newer { found, known: LAYOUT });
    }
    let state = match words.next() {
        Some("creating") => MarkerState::Creating,
        Some("open") => MarkerState::Open,
        Some("closed") => MarkerState::Closed,
        _ => return Err(foreign()),
    };
    let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or_else(foreign);
    Ok(Marker { state, commits: number()?, bytes: number()? })
}

/// Tries for a while: a process that was killed while it started a child leaves its locks to that child until that
/// has become its own program.
pub(super) fn try_for_a_while(mut try_lock: impl FnMut() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let until = Instant::now() + INHERITED;
    loop {
        match try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(INHERITED / 20),
            tried => return tried,
        }
    }
}

fn take_lock(path: &Path) -> Result<File, OpenCause> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match try_for_a_while(|| file.try_lock()) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // The holder writes its pid right after it has the lock; until then there is none.
            let _ = file.take(32).read_to_string(&mut pid);
            return Err(OpenCause::Held { pid: pid.trim().parse().ok() });
        }
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
    Ok(file)
}

/// Takes permissions away that others have. Whoever mounted the directory for us may own it and not want that.
fn restrict(path: &Path, mode: u32) {
    let restricted = fs::metadata(path).and_then(|found| {
        if found.permissions().mode() & 0o777 & !mode == 0 {
            return Ok(());
        }
        fs::set_permissions(path, Permissions::from_mode(mode))
    });
    if let Err(error) = restricted {
        tracing::warn!(path = %path.display(), %error, "others may be able to read the store: its permissions could not be set");
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
