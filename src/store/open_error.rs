//! Why a store does not open: one line each that says what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::engine::EngineError;

/// Why the store in `path` was not opened. Nothing in it was replaced by something new.
#[derive(Debug)]
pub struct OpenError {
    pub(super) path: PathBuf,
    pub(super) cause: OpenCause,
}

/// The cause of an [`OpenError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenCause {
    /// Another process has it open.
    Held {
        /// That process, where it is known.
        pid: Option<u32>,
    },
    /// A newer version of Raincheck wrote it.
    Newer {
        /// The version of its layout.
        found: u32,
        /// The newest that this version reads.
        known: u32,
    },
    /// There is something else in the directory, or it is none.
    NotAStore(NotAStore),
    /// It is damaged.
    Corrupt(Damage),
    /// The disk is full.
    Full(io::Error),
    /// It may not be read or written.
    Denied(io::Error),
    /// Another error of the operating system.
    Io(io::Error),
    /// sled's flush does not reach the disk in this program.
    NotDurable,
    /// The clock of this machine shows a time before 1970 or after 9999. Nothing in the directory was looked at.
    Clock,
}

/// Why a path is no store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAStore {
    /// It is a file.
    File,
    /// Other things are in it.
    Foreign,
}

/// What is damaged.
#[derive(Debug)]
#[non_exhaustive]
pub enum Damage {
    /// The file that says whose directory it is.
    Marker,
    /// The database of a finished store is not there, or shorter than it was.
    Truncated {
        /// Its bytes.
        found: u64,
        /// Its bytes when it was closed.
        expected: u64,
    },
    /// Acknowledged writes are missing.
    Lost {
        /// Commits that are there.
        found: u64,
        /// Commits that were durable at one time.
        expected: u64,
    },
    /// The database has values outside of its log, which no version of Raincheck writes.
    Blobs,
    /// An entry of `meta` is missing.
    Meta,
    /// The database says so.
    Database(Box<dyn std::error::Error + Send + Sync>),
}

impl OpenError {
    /// The cause.
    pub fn cause(&self) -> &OpenCause {
        &self.cause
    }

    /// The exit code of a program that cannot do without the store.
    pub fn exit_code(&self) -> u8 {
        match &self.cause {
            OpenCause::Corrupt(_) => 70,
            OpenCause::Held { .. } => 71,
            OpenCause::Newer { .. } => 72,
            OpenCause::NotAStore(_) => 73,
            OpenCause::Io(_) => 74,
            OpenCause::Full(_) => 75,
            OpenCause::Denied(_) => 76,
            OpenCause::NotDurable => 77,
            OpenCause::Clock => 78,
        }
    }
}

impl From<io::Error> for OpenCause {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied(error),
            io::ErrorKind::NotADirectory => Self::NotAStore(NotAStore::File),
            _ => Self::Io(error),
        }
    }
}

impl From<EngineError> for OpenCause {
    fn from(error: EngineError) -> Self {
        if error.is_locked() {
            return Self::Held { pid: None };
        }
        match error.into_io() {
            Ok(error) => error.into(),
            Err(error) => Self::Corrupt(Damage::Database(Box::new(error))),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            OpenCause::Held { pid: Some(pid) } => write!(
                f,
                "the store {path} is in use by process {pid}; stop that process, or give this one another store.path (--store)"
            ),
            OpenCause::Held { pid: None } => write!(
                f,
                "the store {path} is in use by another process; stop that process, or give this one another store.path (--store)"
            ),
            OpenCause::Newer { found, known } => write!(
                f,
                "the store {path} was written by a newer raincheck (layout {found}, this one knows {known}); \
                 use that version, or set another store.path"
            ),
            OpenCause::NotAStore(NotAStore::File) => {
                write!(f, "{path} is not a directory; set store.path to a directory that is empty or does not exist")
            }
            OpenCause::NotAStore(NotAStore::Foreign) => write!(
                f,
                "{path} holds other things than a raincheck store; set store.path to a directory that is empty or does not exist"
            ),
            OpenCause::Corrupt(damage) => write!(
                f,
                "the store {path} is damaged ({damage}); move the directory aside and start again, \
                 or put back a backup of it; the tasks in it are lost otherwise"
            ),
            OpenCause::Full(error) => {
                write!(f, "no space left for the store {path} ({error}); free some space on that disk and start again")
            }
            OpenCause::Denied(error) => write!(
                f,
                "the store {path} cannot be written ({error}); make the directory writable for this user, or set another store.path"
            ),
            OpenCause::Io(error) => {
                write!(f, "the store {path} cannot be opened ({error}); check the disk and store.path")
            }
            OpenCause::NotDurable => write!(
                f,
                "writes to the store {path} would not survive a power cut, since this program does not replace sync_file_range; \
                 use the raincheck binary, or set store.durability = \"process\""
            ),
            OpenCause::Clock => write!(
                f,
                "the store {path} was not opened: the clock of this machine shows a time before 1970 or after 9999; \
                 set it and start again"
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            OpenCause::Full(error) | OpenCause::Denied(error) | OpenCause::Io(error) => Some(error),
            OpenCause::Corrupt(Damage::Database(error)) => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marker => f.write_str("its file raincheck.store is missing, or is not what a store has there"),
            Self::Truncated { found, expected } => write!(f, "its database has {found} of {expected} bytes"),
            Self::Lost { found, expected } => write!(f, "it holds {found} of at least {expected} acknowledged commits"),
            Self::Blobs => f.write_str("it has values outside of its log"),
            Self::Meta => f.write_str("its description of itself is missing"),
            Self::Database(error) => error.fmt(f),
        }
    }
}
