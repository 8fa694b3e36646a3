//! Panics of sled that are caught and reported as errors print nothing of their own.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `work`; a panic on this thread meanwhile is not printed. `work` must catch it.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                tracing::debug!(panic = %info, "the database panicked");
            } else {
                loud(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let done = work();
    QUIET.set(before);
    done
}

/// Drops a database, which writes and may panic.
pub(super) fn drop_quietly<T>(database: T) {
    let dropped = quietly(|| catch_unwind(AssertUnwindSafe(|| drop(database))));
    if dropped.is_err() {
        tracing::warn!("the database panicked while it was closed");
    }
}
