//! Whether there is a place for new tasks: free space, and the directory itself.

use std::os::unix::fs::MetadataExt;
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
    /// The device and number of the directory when the store was opened.
    home: Option<(u64, u64)>,
    last: Mutex<Option<(Instant, Room)>>,
}

/// What there is for new tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Enough.
    Enough,
    /// Too little free space.
    Low(LowSpace),
    /// The directory was removed or replaced: what is written now is gone with the process.
    Gone,
}

/// How old an answer may be.
const FRESH: Duration = Duration::from_millis(250);

/// Without a limit in the config: a tenth of the disk, but no less than this,
const LEAST: u64 = 256 << 20;
/// and no more than this: a large disk that is nine tenths full is not a full one.
const MOST: u64 = 4 << 30;

impl Space {
    pub(super) fn new(path: &Path, min_free: Option<u64>) -> Self {
        Self { path: path.to_owned(), min_free, home: identity(path), last: Mutex::new(None) }
    }

    /// What there is for new tasks.
    pub(super) fn room(&self) -> Room {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, room)) = *last
            && at.elapsed() < FRESH
        {
            return room;
        }
        let room = self.measure();
        *last = Some((Instant::now(), room));
        room
    }

    /// Whether there is as much as opening the database needs at the least.
    pub(super) fn allows_opening(&self) -> bool {
        self.free_and_total().is_none_or(|(free, _)| free >= 4 << 20)
    }

    fn measure(&self) -> Room {
        if identity(&self.path) != self.home {
            return Room::Gone;
        }
        let Some((free, total)) = self.free_and_total() else { return Room::Enough };
        let needed = self.min_free.unwrap_or_else(|| (total / 10).clamp(LEAST, MOST));
        if free < needed { Room::Low(LowSpace { free, needed }) } else { Room::Enough }
    }

    /// `None` where the system does not tell; a write will.
    fn free_and_total(&self) -> Option<(u64, u64)> {
        let found = statvfs(&self.path).ok()?;
        let unit = found.fragment_size();
        Some((found.blocks_available().saturating_mul(unit), found.blocks().saturating_mul(unit)))
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}
