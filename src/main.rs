//! The binary: flags, config, run, exit codes.

mod durable_sync;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A call makes some hundred small allocations on one thread and frees them on another, which is what this one is made for.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // The program is its own guard of child processes; that must not wait for anything else.
    if let Some(code) = raincheck::upstream::guard::main_hook() {
        return code;
    }
    raincheck::cli::main()
}
