//! Whether sled's flush reaches the disk.
//!
//! sled 0.34 on Linux "syncs" with `sync_file_range`, which syncs nothing that survives a power cut.
//! The binary replaces that symbol (`src/durable_sync.rs` tells the story) and counts its calls
//! here, so that opening a store can tell whether the replacement is really there.

use std::sync::atomic::{AtomicU64, Ordering};

static FLUSHES: AtomicU64 = AtomicU64::new(0);

/// Counts one call of the replacement. Only `src/durable_sync.rs` calls this.
pub fn count_durable_flush() {
    FLUSHES.fetch_add(1, Ordering::SeqCst);
}

/// How many calls there were.
pub(super) fn durable_flushes() -> u64 {
    FLUSHES.load(Ordering::SeqCst)
}
