//! The binary: flags, config, run, exit codes.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The program is its own guard of child processes; that must not wait for anything else.
    if let Some(code) = raincheck::upstream::guard::main_hook() {
        return code;
    }
    ExitCode::SUCCESS
}
