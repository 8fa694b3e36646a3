//! A flush that tests hold back or refuse. It takes the place of `src/durable_sync.rs` in this binary.

use std::ffi::{c_int, c_uint};
use std::sync::{Condvar, Mutex, PoisonError};

use nix::errno::Errno;
use tokio::sync::Notify;

/// A fault that lasts until it is released.
pub(crate) struct Fault(());

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Good,
    Held,
    Refused,
    Uncounted,
}

static MODE: Mutex<Mode> = Mutex::new(Mode::Good);
static CHANGED: Condvar = Condvar::new();
static REACHED: Notify = Notify::const_new();

impl Fault {
    /// Every flush waits.
    pub(crate) fn hold() -> Self {
        Self::set(Mode::Held)
    }

    /// Every flush fails as on a full disk.
    pub(crate) fn refuse() -> Self {
        Self::set(Mode::Refused)
    }

    /// Flushes are not counted, as if sled called something else.
    pub(crate) fn uncounted() -> Self {
        Self::set(Mode::Uncounted)
    }

    /// Resolves when a flush waits.
    pub(crate) async fn reached() {
        REACHED.notified().await;
    }

    /// Flushes are good again.
    pub(crate) fn release(self) {
        drop(self);
    }

    fn set(mode: Mode) -> Self {
        switch(mode);
        Self(())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        switch(Mode::Good);
    }
}

fn switch(mode: Mode) {
    *MODE.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    CHANGED.notify_all();
}

/// Nothing here crashes the machine, so nothing needs to be synced.
#[expect(unsafe_code, reason = "the symbol must have its C name; the body is safe")]
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(_fd: c_int, _offset: i64, _bytes: i64, _flags: c_uint) -> c_int {
    let mode = MODE.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = *mode;
    if seen == Mode::Held {
        REACHED.notify_one();
    }
    let mode = CHANGED.wait_while(mode, |mode| *mode == Mode::Held).unwrap_or_else(PoisonError::into_inner);
    match *mode {
        Mode::Refused => {
            Errno::ENOSPC.set();
            -1
        }
        Mode::Uncounted => 0,
        Mode::Good | Mode::Held => {
            raincheck::store::count_durable_flush();
            0
        }
    }
}
