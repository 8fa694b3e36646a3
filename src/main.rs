//! The binary: flags, config, run, exit codes.

mod durable_sync;

use std::process::ExitCode;

/// Calls allocate small things on one worker and free them on another, which this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The program is its own guard of child processes; that must not wait for anything else.
    if let Some(code) = raincheck::upstream::guard::main_hook() {
        return code;
    }
    raincheck::cli::main()
}
