//! sled: the trees, one atomic durable commit, point reads. `sled` appears here and nowhere else.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `meta` | a name | magic, schema version, boot epoch, owner key, counts |
//! | `tasks` | id | record |
//! | `results` | id | a small outcome |
//! | `questions` | id, number of the question, number of the piece | a piece of its parameters |
//! | `dispatch` | id | the call of a task that is to be sent, or names its file |
//! | `anchors` | id | where the run of a task is at its server |
//! | `shelf` | a letter, a name | a small value that belongs to no task |
//! | `active` | id | nothing: the task has not ended |
//! | `by_key` | digest of a call's key | digest of its arguments, id |
//! | `by_expiry` | milliseconds, id | nothing: the task has ended and goes away then |
//! | `by_owner` | scheme and digest of the owner, id | nothing |

mod owned;
mod reads;

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use sled::transaction::{ConflictableTransactionError, TransactionError};
use sled::{Batch, Db, IVec, Transactional, Tree};

use super::codec::{BadRecord, MAX_RECORD};
use super::directory::DATABASE;
use super::durability::Watch;
use super::keys::Keyed;
use super::questions;
use super::quiet::quietly;
use super::shelf::Shelf;
use crate::clock::Timestamp;
use crate::task::{KeyDigest, Task, TaskId};

/// An open database.
pub(super) struct Engine {
    db: Db,
    meta: Tree,
    tasks: Tree,
    results: Tree,
    questions: Tree,
    active: Tree,
    shelf: Tree,
    by_key: Tree,
    pub(super) dispatch: Tree,
    pub(super) anchors: Tree,
    by_expiry: Tree,
    by_owner: Tree,
    /// Until the database is dropped.
    _watch: Watch,
}

/// Changes that are committed together.
#[derive(Default)]
pub(super) struct Writes {
    meta: Batch,
    tasks: Batch,
    results: Batch,
    questions: Batch,
    active: Batch,
    shelf: Batch,
    by_key: Batch,
    pub(super) dispatch: Batch,
    pub(super) anchors: Batch,
    by_expiry: Batch,
    by_owner: Batch,
    pub(super) bytes: usize,
}

/// Where a task that has ended stands in the order of expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpiryKey {
    /// When it goes away.
    pub(super) expires: Timestamp,
    /// Which it is.
    pub(super) id: TaskId,
}

/// What sled reports, or that it panicked.
#[derive(Debug)]
pub(super) enum EngineError {
    Sled(sled::Error),
    Record(BadRecord),
    /// A key is none that this version writes.
    Key,
    Panicked,
}

/// A value that is too large for sled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oversized {
    pub(super) bytes: usize,
}

/// A key and its value, as they are read.
type Entry = sled::Result<(IVec, IVec)>;

/// How often opening is tried when sled says that the file is locked: the threads of a database that
/// was dropped a moment ago may still hold it.
const LOCK_TRIES: u32 = 40;

impl Engine {
    /// Opens or creates the database in the directory `path`.
    pub(super) fn open(path: &Path, cache_bytes: u64) -> Result<Self, EngineError> {
        let mut tries = 0;
        loop {
            match caught(|| Self::open_once(path, cache_bytes)) {
                Err(error) if error.is_locked() && tries < LOCK_TRIES => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
                done => return done,
            }
        }
    }

    fn open_once(path: &Path, cache_bytes: u64) -> Result<Self, EngineError> {
        let watch = Watch::new(&path.join(DATABASE))?;
        // No thread of sled's own that flushes: each commit does. Its `sync_all` would take an error of the disk away from
        // the commit whose write it is, and while a store is looked at it would move pages.
        let db = sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None).open()?;
        Ok(Self {
            meta: db.open_tree("meta")?,
            tasks: db.open_tree("tasks")?,
            results: db.open_tree("results")?,
            questions: db.open_tree("questions")?,
            active: db.open_tree("active")?,
            shelf: db.open_tree("shelf")?,
            by_key: db.open_tree("by_key")?,
            dispatch: db.open_tree("dispatch")?,
            anchors: db.open_tree("anchors")?,
            by_expiry: db.open_tree("by_expiry")?,
            by_owner: db.open_tree("by_owner")?,
            db,
            _watch: watch,
        })
    }

    /// Applies `writes`, all or none, and returns when they are durable.
    pub(super) fn commit(&self, writes: &Writes) -> Result<(), EngineError> {
        caught(|| {
            let (meta, tasks, results) = (&self.meta, &self.tasks, &self.results);
            let trees = (
                meta,
                tasks,
                results,
                &self.questions,
                &self.active,
                &self.shelf,
                &self.by_key,
                &self.dispatch,
                &self.anchors,
                &self.by_expiry,
                &self.by_owner,
            );
            trees
                .transaction(
                    |(
                        meta,
                        tasks,
                        results,
                        questions,
                        active,
                        shelf,
                        by_key,
                        dispatch,
                        anchors,
                        by_expiry,
                        by_owner,
                    )| {
                        meta.apply_batch(&writes.meta)?;
                        tasks.apply_batch(&writes.tasks)?;
                        results.apply_batch(&writes.results)?;
                        questions.apply_batch(&writes.questions)?;
                        active.apply_batch(&writes.active)?;
                        shelf.apply_batch(&writes.shelf)?;
                        by_key.apply_batch(&writes.by_key)?;
                        dispatch.apply_batch(&writes.dispatch)?;
                        anchors.apply_batch(&writes.anchors)?;
                        by_expiry.apply_batch(&writes.by_expiry)?;
                        by_owner.apply_batch(&writes.by_owner)?;
                        Ok::<(), ConflictableTransactionError<BadRecord>>(())
                    },
                )
                .map_err(|error| match error {
                    TransactionError::Abort(record) => EngineError::Record(record),
                    TransactionError::Storage(error) => EngineError::Sled(error),
                })?;
            self.db.flush()?;
            Ok(())
        })
    }

    /// Takes the texts of all questions of a task out.
    pub(super) fn remove_questions(&self, id: &TaskId, writes: &mut Writes) -> Result<(), EngineError> {
        caught(|| {
            for key in self.questions.scan_prefix(id.as_bytes()).keys() {
                writes.questions.remove(key?);
            }
            Ok(())
        })
    }
}

impl Writes {
    /// How many bytes of values there are.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is changed.
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Sets a value of `meta`.
    pub(super) fn put_meta(&mut self, name: &str, value: &[u8]) -> Result<(), Oversized> {
        let value = self.checked(value)?;
        self.meta.insert(name, value);
        Ok(())
    }

    /// Puts a task and its places in the indexes.
    pub(super) fn put_task(&mut self, task: &Task, record: &[u8]) -> Result<(), Oversized> {
        let record = self.checked(record)?;
        self.tasks.insert(task.id.as_bytes(), record);
        if !task.state.is_terminal() {
            self.active.insert(task.id.as_bytes(), &[]);
            return Ok(());
        }
        self.active.remove(task.id.as_bytes());
        if let Some(expires) = task.expires() {
            self.by_expiry.insert(ExpiryKey { expires, id: task.id }.bytes(), &[]);
        }
        Ok(())
    }

    /// Puts something on a shelf, or takes it away.
    pub(super) fn shelve(&mut self, on: Shelf, name: &str, value: Option<&[u8]>) -> Result<(), Oversized> {
        let key = [&[on.tag()], name.as_bytes()].concat();
        self.bytes += 1;
        match value {
            Some(value) => {
                let value = self.checked(value)?;
                self.shelf.insert(key, value);
            }
            None => self.shelf.remove(key),
        }
        Ok(())
    }

    /// Gives a key to a task.
    pub(super) fn put_key(&mut self, key: &KeyDigest, keyed: &Keyed) -> Result<(), Oversized> {
        let value = keyed.bytes();
        let value = self.checked(&value)?;
        self.by_key.insert(key.as_bytes().as_slice(), value);
        Ok(())
    }

    /// Frees a key.
    pub(super) fn remove_key(&mut self, key: &KeyDigest) {
        self.bytes += 1;
        self.by_key.remove(key.as_bytes().as_slice());
    }

    /// Puts a small outcome.
    pub(super) fn put_result(&mut self, id: &TaskId, text: &[u8]) -> Result<(), Oversized> {
        let text = self.checked(text)?;
        self.results.insert(id.as_bytes(), text);
        Ok(())
    }

    /// Makes the texts of the questions those of `after`, where they are those of `before`.
    pub(super) fn put_questions(&mut self, before: Option<&Task>, after: &Task) -> Result<(), Oversized> {
        let before = before.map_or(&[][..], |before| before.state.questions());
        let after_all = after.state.questions();
        for gone in before.iter().filter(|old| after_all.iter().all(|new| new.number != old.number)) {
            for key in questions::keys(&after.id, gone) {
                self.bytes += 1;
                self.questions.remove(key);
            }
        }
        for new in after_all.iter().filter(|new| before.iter().all(|old| old.number != new.number)) {
            for (key, piece) in questions::pieces(&after.id, new) {
                let piece = self.checked(piece)?;
                self.questions.insert(key, piece);
            }
        }
        Ok(())
    }

    /// Takes a task and its outcome out. The texts of open questions go before that.
    pub(super) fn remove_task(&mut self, task: &Task) {
        self.bytes += 1;
        self.tasks.remove(task.id.as_bytes());
        self.results.remove(task.id.as_bytes());
        self.active.remove(task.id.as_bytes());
        self.by_owner.remove(owned::key(task));
    }

    /// Takes a place in the order of expiry out.
    pub(super) fn remove_expiry(&mut self, key: &ExpiryKey) {
        self.bytes += 1;
        self.by_expiry.remove(key.bytes());
    }

    pub(super) fn checked<'a>(&mut self, value: &'a [u8]) -> Result<&'a [u8], Oversized> {
        if value.len() > MAX_RECORD {
            return Err(Oversized { bytes: value.len() });
        }
        self.bytes += value.len();
        Ok(value)
    }
}

impl ExpiryKey {
    fn bytes(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(8 + self.id.as_bytes().len());
        key.extend_from_slice(&self.expires.as_millis().to_be_bytes());
        key.extend_from_slice(self.id.as_bytes());
        key
    }

    fn read(key: &[u8]) -> Result<Self, EngineError> {
        let (millis, id) = key.split_first_chunk().ok_or(EngineError::Key)?;
        Ok(Self { expires: Timestamp::from_millis(u64::from_be_bytes(*millis)), id: id_of(id)? })
    }
}

pub(super) fn id_of(key: &[u8]) -> Result<TaskId, EngineError> {
    std::str::from_utf8(key).ok().and_then(|text| text.parse().ok()).ok_or(EngineError::Key)
}

/// sled panics on some kinds of damage; that must not end the process.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    quietly(|| catch_unwind(AssertUnwindSafe(work))).unwrap_or(Err(EngineError::Panicked))
}

impl EngineError {
    /// Whether another database holds sled's own lock.
    pub(super) fn is_locked(&self) -> bool {
        matches!(self, Self::Sled(sled::Error::Io(error)) if error.to_string().starts_with("could not acquire lock"))
    }

    /// Whether what was read is not what was written, and will not be the next time.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sled(error) => matches!(error, sled::Error::Corruption { .. }),
            Self::Record(_) | Self::Key | Self::Panicked => true,
        }
    }

    /// The error of the operating system, if it is one.
    pub(super) fn into_io(self) -> Result<io::Error, Self> {
        use io::ErrorKind::{InvalidData, Other, UnexpectedEof};
        match self {
            // sled reports a log that ends too early as one of these.
            Self::Sled(sled::Error::Io(error)) if !matches!(error.kind(), UnexpectedEof | InvalidData | Other) => {
                Ok(error)
            }
            other => Err(other),
        }
    }
}

/// The number of an error of the operating system that sled hands out again as debug text.
fn number_in(error: &io::Error) -> Option<i32> {
    error.to_string().split_once("code: ")?.1.split_once(',')?.0.parse().ok()
}

impl From<sled::Error> for EngineError {
    fn from(error: sled::Error) -> Self {
        Self::Sled(error)
    }
}

impl From<io::Error> for EngineError {
    fn from(error: io::Error) -> Self {
        Self::Sled(sled::Error::Io(error))
    }
}

impl From<BadRecord> for EngineError {
    fn from(error: BadRecord) -> Self {
        Self::Record(error)
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sled(sled::Error::Corruption { .. }) => f.write_str("a part of the database is not what was written"),
            Self::Sled(sled::Error::Io(error)) if error.raw_os_error().is_none() => match number_in(error) {
                Some(number) => io::Error::from_raw_os_error(number).fmt(f),
                None => error.kind().fmt(f),
            },
            Self::Sled(sled::Error::Io(error)) => error.fmt(f),
            // sled's own text has no line breaks and names no content.
            Self::Sled(error) => error.fmt(f),
            Self::Record(error) => error.fmt(f),
            Self::Key => f.write_str("a key or value is of no known form"),
            Self::Panicked => f.write_str("the database's own checks failed"),
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sled(error) => Some(error),
            Self::Record(error) => Some(error),
            Self::Key | Self::Panicked => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_disk_is_named_also_when_sled_hands_it_out_again() {
        let disk = sled::Error::Io(io::Error::from_raw_os_error(5));
        assert_eq!(EngineError::from(disk.clone()).to_string(), EngineError::from(disk).to_string());
    }
}
