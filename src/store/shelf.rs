//! Small durable values that belong to no task.

use tokio::sync::oneshot;

use super::op::Op;
use super::{CommitError, ReadError, Store, sweep};

/// What kind of values stands together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shelf {
    /// How long tools took.
    History,
    /// What owners have spent.
    Budget,
    /// Which tasks are to be cancelled, until they have ended.
    Cancel,
    /// Until when starts count for rates.
    Rate,
}

/// Bytes of the longest name.
const LONGEST_NAME: usize = 256;

impl Shelf {
    /// The first byte of its keys, never given to another.
    pub(super) const fn tag(self) -> u8 {
        match self {
            Self::History => b'h',
            Self::Budget => b'b',
            Self::Cancel => b'c',
            Self::Rate => b'r',
        }
    }
}

impl Store {
    /// Puts `value` (4 KiB at most) under `name` (256 bytes at most) on a shelf, or takes away what is there. Answered
    /// when it is durable. Waits while too many writes wait. If the returned future is dropped, it may be put all the
    /// same. How much stands on a shelf is for the caller to bound.
    pub async fn shelve(&self, on: Shelf, name: &str, value: Option<Vec<u8>>) -> Result<(), CommitError> {
        if name.len() > LONGEST_NAME {
            return Err(CommitError::TooLarge { bytes: name.len(), limit: LONGEST_NAME });
        }
        let (answer, answered) = oneshot::channel();
        let op = Op::Shelve { shelf: on, name: name.to_owned(), value, answer };
        self.inner.ops.send(op).await.map_err(|_| CommitError::Closed)?;
        answered.await.unwrap_or_else(|_| Err(sweep::lost_answer()))
    }

    /// What stands on a shelf, in the order of its names. May show what is not durable yet. Reads the disk.
    pub fn shelf(&self, on: Shelf) -> Result<Vec<(String, Vec<u8>)>, ReadError> {
        self.inner.shared.read(|engine| engine.shelf(on))
    }
}
