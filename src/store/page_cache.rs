//! The kernel's cache of the database's files against what the disk has of them.
//!
//! When the disk does not take a page, the kernel tells one `fdatasync`, and takes the page for clean from then on: it is
//! read as it was written, and is never written again. A database that is opened again from such pages puts its next,
//! durable writes behind a hole, and after a power cut it is lost with all of them (4 of 4 simulated cuts). So the cache is
//! dropped before: what was acknowledged is on the disk, and the rest is torn as behind a power cut.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::directory::{DATABASE, is_of_database, try_for_a_while};

/// As [`forget`], for a database that this process has just given up.
pub(super) fn forget_closed(directory: &Path) -> io::Result<()> {
    let database = File::open(directory.join(DATABASE))?;
    // Its threads may still write.
    try_for_a_while(|| database.try_lock())?;
    forget(directory)
}

/// Drops what the cache has of the database's files, so that they are read from the disk.
pub(super) fn forget(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !is_of_database(&entry.file_name()) {
            continue;
        }
        let file = File::open(entry.path())?;
        // Only clean pages can be dropped. A first error may be of what was written long ago.
        file.sync_data().or_else(|_| file.sync_data())?;
        #[cfg(target_os = "linux")]
        nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}
