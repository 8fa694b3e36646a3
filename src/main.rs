//! The binary: flags, config, run, exit codes.

mod durable_sync;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The program is its own guard of child processes; that must not wait for anything else.
    if let Some(code) = raincheck::upstream::guard::main_hook() {
        return code;
    }
    raincheck::cli::main()
}
