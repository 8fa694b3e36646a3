//! What can go wrong with an open store.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Committed;
use crate::clock::rough;
use crate::protocol::{Failure, Reason, Retry};
use crate::task::{Refusal, Task};

/// Why a write was not committed. Nothing of it is or becomes visible.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// Too many writes wait already.
    Busy,
    /// The disk has too little space for new tasks.
    LowSpace(LowSpace),
    /// The store holds as many tasks as it may.
    Full {
        /// `max_tasks` of the config.
        max: u64,
    },
    /// The owner has as many tasks as it may.
    OwnerFull {
        /// `max_tasks` of the owner.
        max: u64,
        /// When one of them goes away if it has ended by then; `None` if the oldest are kept for ever.
        next: Option<Duration>,
    },
    /// The store is nearly full, and the owner has its share.
    ShareFull {
        /// `max_tasks` of the store.
        max: u64,
    },
    /// The record would be larger than the store takes.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// There is a task with this id already.
    Exists,
    /// The store failed; it opens itself again when it can.
    Failed(StoreFailed),
    /// The store was closed.
    Closed,
}

/// The disk has too little space for new tasks. Ends and purges still go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowSpace {
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that must be.
    pub needed: u64,
}

/// The store failed and has not been opened again yet.
#[derive(Clone, Debug)]
pub struct StoreFailed(pub(super) Arc<str>);

/// Why a task was not changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ChangeError {
    /// Its state does not allow that; with the task as it is.
    Refused(Refusal, Committed<Task>),
    /// There is no such task.
    Unknown,
    /// The write was not committed; it may be tried again.
    Commit(CommitError),
}

/// Why something could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The task has no stored outcome, or no longer.
    NoOutcome,
    /// What is stored is not what was written.
    Damaged,
    /// The file of a large outcome cannot be read.
    Io(io::Error),
    /// Too many large outcomes are being read; there was no room for another one in time.
    Busy,
    /// The store failed; it opens itself again when it can.
    Failed(StoreFailed),
    /// The store was closed.
    Closed,
}

/// How the store is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Health {
    /// It takes new tasks.
    Ready,
    /// It takes no new tasks until there is space; the rest goes on.
    LowSpace(LowSpace),
    /// It takes no new tasks until some have expired; the rest goes on.
    Full {
        /// `max_tasks` of the config.
        max: u64,
    },
    /// It takes nothing until it could be opened again, which it tries by itself.
    Failed(StoreFailed),
    /// It was closed.
    Closed,
}

impl CommitError {
    pub(super) fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(StoreFailed::new(why))
    }

    /// The failure that the call is answered with. Nothing was sent to a server.
    pub fn to_failure(&self) -> Failure {
        self.failure("; nothing was sent")
    }

    fn failure(&self, addition: &str) -> Failure {
        let (reason, retry) = match self {
            Self::Busy => (Reason::Busy, Retry::After(Duration::from_secs(1))),
            Self::LowSpace(_) | Self::Full { .. } | Self::ShareFull { .. } => {
                (Reason::Store, Retry::After(Duration::from_mins(1)))
            }
            Self::OwnerFull { next, .. } => (Reason::Store, next.map_or(Retry::No, Retry::After)),
            Self::Failed(_) => (Reason::Store, Retry::SOON),
            Self::TooLarge { .. } | Self::Exists => (Reason::Store, Retry::No),
            Self::Closed => (Reason::Stopping, Retry::SOON),
        };
        Failure::new(reason, format!("{self}{addition}"), retry)
    }
}

impl ChangeError {
    /// Whether trying again cannot help.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Commit(
                CommitError::Busy
                | CommitError::LowSpace(_)
                | CommitError::Full { .. }
                | CommitError::OwnerFull { .. }
                | CommitError::ShareFull { .. }
                | CommitError::Failed(_),
            ) => false,
            Self::Refused(..)
            | Self::Unknown
            | Self::Commit(CommitError::TooLarge { .. } | CommitError::Exists | CommitError::Closed) => true,
        }
    }

    /// The failure that is reported when it is final.
    pub fn to_failure(&self) -> Failure {
        match self {
            Self::Refused(..) | Self::Unknown => Failure::new(Reason::Store, self.to_string(), Retry::No),
            // What was wanted was no call.
            Self::Commit(error) => error.failure(""),
        }
    }
}

impl StoreFailed {
    /// The directory was removed or replaced under the running store.
    pub(super) fn gone() -> Self {
        Self::new("its directory was removed or replaced while it was open; restart Raincheck, what was in it is lost")
    }

    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string().into())
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the task store is busy; try again in a moment"),
            Self::LowSpace(low) => low.fmt(f),
            Self::Full { max } => write!(
                f,
                "the task store holds its {max} tasks; wait until some expire, or raise store.max_tasks or lower keep"
            ),
            Self::OwnerFull { max, next } => {
                write!(f, "you have {max} tasks in the store, as many as you may (max_tasks of the owner); ")?;
                match next {
                    Some(next) => write!(f, "one of them may expire in {}", rough(*next)),
                    None => f.write_str("the oldest of them are kept for ever"),
                }
            }
            Self::ShareFull { max } => write!(
                f,
                "the task store is nearly full (store.max_tasks = {max}), and you have your share of it; try again when \
                 some of your tasks have expired"
            ),
            Self::TooLarge { bytes, limit } => write!(
                f,
                "the task's record has {bytes} bytes, but {limit} are the limit; use shorter server and tool names"
            ),
            Self::Exists => f.write_str("there is a task with this id already; make a new id"),
            Self::Failed(failed) => failed.fmt(f),
            Self::Closed => f.write_str("the task store is closed since the proxy is stopping; try again later"),
        }
    }
}

impl std::error::Error for CommitError {}

impl fmt::Display for LowSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "too little disk space for new tasks ({} MiB free, {} MiB needed); free some, or lower store.min_free \
             (RAINCHECK_STORE_MIN_FREE)",
            self.free >> 20,
            self.needed >> 20
        )
    }
}

impl fmt::Display for StoreFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task store failed ({}); it is opened again as soon as that works, try again later", self.0)
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal, _) => refusal.fmt(f),
            Self::Unknown => f.write_str("there is no such task"),
            Self::Commit(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ChangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal, _) => Some(refusal),
            Self::Commit(error) => Some(error),
            Self::Unknown => None,
        }
    }
}

impl From<CommitError> for ChangeError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<ReadError> for CommitError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Closed => Self::Closed,
            ReadError::Failed(failed) => Self::Failed(failed),
            other => Self::failed(other),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOutcome => f.write_str("the task has no stored outcome"),
            Self::Damaged => f.write_str("the stored text is damaged; check the disk"),
            Self::Io(error) => write!(f, "the file of a stored outcome cannot be read ({error})"),
            Self::Busy => f.write_str("too many large results are being read; try again later"),
            Self::Failed(failed) => failed.fmt(f),
            Self::Closed => f.write_str("the task store is closed"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            Self::NoOutcome | Self::Damaged | Self::Busy | Self::Failed(_) | Self::Closed => None,
        }
    }
}
