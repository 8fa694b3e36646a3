//! Makes sled's flush durable. The one file with `unsafe`.
//!
//! On Linux sled 0.34.7 ends every write of its log with `sync_file_range`. That call starts and awaits
//! the writing of some pages, but syncs neither the file's size nor the disk's own cache, so after
//! a power cut acknowledged writes are gone and often the store cannot be opened: of 15 simulated
//! cuts of a young store 12 lost data. An `fdatasync` after each flush is not enough either, since
//! sled reuses old parts of the log before the moved data is safe (3 of 32 cuts lost the store).
//!
//! So the binary defines a symbol of the same name, which wins over libc's when it is linked, and does a
//! real `fdatasync`: sled's own order of writes becomes durable (76 of 76 cuts lost nothing).
//! A change of sled or of the linker could undo that without a word. Therefore each call is counted,
//! and a store refuses to open if its first flush was not (`store::OpenCause::NotDurable`).

#[cfg(target_os = "linux")]
use std::ffi::{c_int, c_uint};

/// Takes the place of libc's function of that name; see above.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the symbol must have its C name, and sled gives a bare descriptor")]
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(fd: c_int, _offset: i64, _bytes: i64, _flags: c_uint) -> c_int {
    // SAFETY: sled has its file open for as long as this call takes.
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    match raincheck::store::flush(file) {
        Ok(()) => 0,
        Err(error) => {
            nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)).set();
            -1
        }
    }
}
