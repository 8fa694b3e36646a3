//! The binary: flags, config, run, exit codes.

mod durable_sync;

use std::process::ExitCode;

fn main() -> ExitCode {
    raincheck::cli::main()
}
