//! Whether there is space for new tasks.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;

use super::LowSpace;

/// The free space of the store's disk, looked at now and then.
#[derive(Debug)]
pub(super) struct Space {
    path: PathBuf,
    min_free: Option<u64>,
    last: Mutex<Option<(Instant, Option<LowSpace>)>>,
}

/// How old an answer may be.
const FRESH: Duration = Duration::from_millis(250);

/// Without a limit in the config: the larger of this and a tenth of the disk.
const LEAST: u64 = 256 << 20;

impl Space {
    pub(super) fn new(path: &Path, min_free: Option<u64>) -> Self {
        Self { path: path.to_owned(), min_free, last: Mutex::new(None) }
    }

    /// `None` while there is enough.
    pub(super) fn low(&self) -> Option<LowSpace> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, low)) = *last
            && at.elapsed() < FRESH
        {
            return low;
        }
        let low = self.measure();
        *last = Some((Instant::now(), low));
        low
    }

    /// Whether there is as much as opening the database needs at the least.
    pub(super) fn allows_opening(&self) -> bool {
        self.free_and_total().is_none_or(|(free, _)| free >= 4 << 20)
    }

    fn measure(&self) -> Option<LowSpace> {
        let (free, total) = self.free_and_total()?;
        let needed = self.min_free.unwrap_or_else(|| LEAST.max(total / 10));
        (free < needed).then_some(LowSpace { free, needed })
    }

    /// `None` where the system does not tell; a write will.
    fn free_and_total(&self) -> Option<(u64, u64)> {
        let found = statvfs(&self.path).ok()?;
        let unit = found.fragment_size();
        Some((found.blocks_available().saturating_mul(unit), found.blocks().saturating_mul(unit)))
    }
}
