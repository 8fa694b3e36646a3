//! How tasks end: what is kept of it, where, and how it is read again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::codec::shortened;
use super::files::FileName;
use super::large::LARGE;
use super::op::Outcome;
use super::shared::{NEIGHBOURS, Shared};
use super::{ChangeError, CommitError, ReadError, Store};
use crate::protocol::{Failure, Json, RpcError};
use crate::task::{Canceller, Cause, Change, Refusal, State, Stored, Task, TaskId};

/// How a task ends.
#[derive(Clone, Debug)]
pub enum Ending {
    /// With the server's result.
    Completed(Json),
    /// With the server's JSON-RPC error, kept word for word.
    ServerError(RpcError),
    /// With a failure of ours.
    Failed(Failure),
    /// Its owner stopped it.
    Cancelled,
    /// An operator stopped it.
    CancelledByOperator,
}

/// The end of a task, with what its record needs besides. An [`Ending`] alone is that of a run whose length was not
/// measured, of a task with a handle.
#[derive(Clone, Debug)]
pub struct End {
    /// How it ends.
    pub ending: Ending,
    /// How long the run took by a clock that does not jump: what it costs follows from that. `None`: its start and end
    /// say it.
    pub ran: Option<Duration>,
    /// How long its outcome is kept.
    pub keep: Keep,
}

/// How long the outcome of a task is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// As it was announced with the handle, and for `keep` from the end.
    AsAnnounced,
    /// Nobody was told anything: for `keep` from the end.
    FromItsEnd,
}

/// An ending whose text is in its place, except for the record.
pub(super) struct Prepared {
    pub(super) change: Change,
    pub(super) outcome: Outcome,
}

/// Outcomes up to this size, in bytes, go into the database. Larger ones are in memory once for all who read them: what is made
/// of one must share its bytes.
pub const INLINE: usize = 3 << 10;

/// Bytes of a server's message that are kept in the record, for `statusMessage`; all of it is in the error object.
const SUMMARY: usize = 512;

impl Ending {
    /// Stopped by this one.
    pub const fn cancelled(by: Canceller) -> Self {
        match by {
            Canceller::Owner => Self::Cancelled,
            Canceller::Operator => Self::CancelledByOperator,
        }
    }
}

impl From<Ending> for End {
    fn from(ending: Ending) -> Self {
        Self { ending, ran: None, keep: Keep::AsAnnounced }
    }
}

impl Prepared {
    /// The file that holds the text.
    pub(super) fn file(&self) -> Option<FileName> {
        match &self.outcome {
            Outcome::File(file) => Some(file.name()),
            Outcome::None | Outcome::Inline(_) => None,
        }
    }
}

impl Store {
    /// Puts the text of an ending in its place. A file is durable before its record names it.
    pub(super) async fn prepare(&self, id: TaskId, ending: Ending) -> Result<Prepared, ChangeError> {
        match ending {
            Ending::Completed(result) => {
                let (result, outcome) = self.put(id, result).await?;
                Ok(Prepared { change: Change::Complete(result), outcome })
            }
            Ending::ServerError(error) => {
                let message: String = error.message().chars().take(SUMMARY / 4).collect();
                let code = error.code();
                let (error, outcome) = self.put(id, error.raw().clone()).await?;
                Ok(Prepared { change: Change::Fail(Cause::Server { code, message, error }), outcome })
            }
            Ending::Failed(mut failure) => {
                failure.message = shortened(failure.message);
                Ok(Prepared { change: Change::Fail(Cause::Ours(failure)), outcome: Outcome::None })
            }
            Ending::Cancelled => Ok(Prepared { change: Change::Cancel(Canceller::Owner), outcome: Outcome::None }),
            Ending::CancelledByOperator => {
                Ok(Prepared { change: Change::Cancel(Canceller::Operator), outcome: Outcome::None })
            }
        }
    }

    async fn put(&self, id: TaskId, text: Json) -> Result<(Stored, Outcome), ChangeError> {
        if text.len() <= INLINE {
            let stored = Stored { len: text.len() as u64, checksum: crc32fast::hash(text.bytes()), file: None };
            return Ok((stored, Outcome::Inline(text)));
        }
        // A store that has failed takes no end: with each try there would be another file for the sweep.
        self.inner.shared.read(|_| Ok(())).map_err(CommitError::from)?;
        // A task that has ended keeps its outcome; no need to write the large text first.
        match self.inner.shared.find(&id).map_err(CommitError::failed)? {
            None => return Err(ChangeError::Unknown),
            Some(task) if task.state.is_terminal() => return Err(ChangeError::Refused(Refusal::Ended, task)),
            Some(_) => {}
        }
        let shared = Arc::clone(&self.inner.shared);
        let write = move || {
            let file = shared.files.reserve(id);
            let checksum = crc32fast::hash(text.bytes());
            shared.files.write(file.name(), text.bytes())?;
            let stored = Stored { len: text.len() as u64, checksum, file: Some(file.name().revision) };
            Ok::<_, io::Error>((stored, Outcome::File(file)))
        };
        let written = tokio::task::spawn_blocking(write).await;
        Ok(written.map_err(CommitError::failed)?.map_err(CommitError::failed)?)
    }
}

/// Reads the outcome of a task and checks that it is what was written.
pub(super) async fn read(shared: &Arc<Shared>, task: &Task) -> Result<Json, ReadError> {
    let stored = stored_outcome(task).ok_or(ReadError::NoOutcome)?;
    let id = task.id;
    let Some(name) = outcome_file(task) else {
        return match shared.cache.get(&id, stored) {
            Some(outcome) => Ok(outcome),
            None => read_small(shared, id, stored),
        };
    };
    if stored.len >= LARGE {
        return shared.large.get(&task.owner, id, stored.len, read_file(shared, name, stored)).await;
    }
    // The cache does not count what it gave out and has forgotten since.
    let load = async {
        if let Some(outcome) = shared.cache.get(&id, stored) {
            return Ok(outcome);
        }
        let outcome = read_file(shared, name, stored).await?;
        shared.cache.put(id, &outcome);
        Ok(outcome)
    };
    shared.middling.get(&task.owner, id, stored.len, load).await
}

/// Reads an outcome from the database, and its neighbours while the cache has room for them.
fn read_small(shared: &Shared, id: TaskId, stored: Stored) -> Result<Json, ReadError> {
    let outcome = checked(shared.read(|engine| engine.result(&id))?.ok_or(ReadError::NoOutcome)?, stored)?;
    shared.cache.put(id, &outcome);
    if shared.cache.has_room() {
        // Nobody has asked for these, so nobody is told what is wrong with them.
        let neighbours = shared.read(|engine| engine.results_behind(&id, NEIGHBOURS)).unwrap_or_default();
        for (id, text) in neighbours {
            if let Ok(text) = Json::parse(Bytes::from(text)) {
                shared.cache.put(id, &text);
            }
        }
    }
    Ok(outcome)
}

async fn read_file(shared: &Arc<Shared>, name: FileName, stored: Stored) -> Result<Json, ReadError> {
    let shared = Arc::clone(shared);
    let read = move || {
        let text = shared.files.read(name, stored).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::NoOutcome,
            io::ErrorKind::InvalidData => ReadError::Damaged,
            _ => ReadError::Io(error),
        })?;
        checked(text, stored)
    };
    tokio::task::spawn_blocking(read).await.map_err(|error| ReadError::Io(io::Error::other(error)))?
}

fn checked(text: Vec<u8>, stored: Stored) -> Result<Json, ReadError> {
    if !stored.describes(&text) {
        return Err(ReadError::Damaged);
    }
    Json::parse(Bytes::from(text)).map_err(|_| ReadError::Damaged)
}

/// Where the text of a task's outcome is.
fn stored_outcome(task: &Task) -> Option<Stored> {
    match &task.state {
        State::Completed { result: stored } | State::Failed { cause: Cause::Server { error: stored, .. } } => {
            Some(*stored)
        }
        State::Queued
        | State::Running { .. }
        | State::InputRequired { .. }
        | State::Failed { cause: Cause::Ours(_) }
        | State::Cancelled { .. } => None,
    }
}

/// The file of a task's outcome, if it has one.
pub(super) fn outcome_file(task: &Task) -> Option<FileName> {
    let revision = stored_outcome(task)?.file?;
    Some(FileName { id: task.id, revision })
}
