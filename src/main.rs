//! The binary: flags, config, run, exit codes.

use std::process::ExitCode;

use raincheck::{app, cli};

fn main() -> ExitCode {
    cli::main(|config, shutdown| async {
        let ended = app::run(config, shutdown).await;
        ended.map_err(|error| cli::RunError { code: error.exit_code(), message: cli::describe(&error) })
    })
}
