//! Operator commands: `serve`, `stdio`, `check`, `tools`, `call`, `task`, `admin`, `advise` and `demo-server`.

mod admin;
mod advice;
mod advise;
mod call;
mod check;
mod client;
mod demo;
mod look;
mod operator;
mod serve;
mod signals;
mod sources;
mod stdio;
mod task;
mod terminal;
mod tools;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

/// How the process ends. 70 to 78 belong to the store.
pub mod exit {
    /// All went well.
    pub const OK: u8 = 0;
    /// Something failed: the tool, the server, the network.
    pub const FAILURE: u8 = 1;
    /// The command line or the configuration is wrong.
    pub const USAGE: u8 = 64;
    /// Ctrl-C: 128 and the number of SIGINT.
    pub const INTERRUPTED: u8 = 130;
    /// 128 and the number of SIGTERM.
    pub const TERMINATED: u8 = 143;
}

const CODES: &str = "\
Exit codes:
  0        all went well
  1        something failed: the tool, the server, the network
  64       the command line or the configuration is wrong
  69       the listener: the address is taken
  70 - 77  the store: held by another process, of a newer version, corrupt, full
  78       the clock shows a time before 1970 or after 9999: no store opens with it
  130      interrupted by Ctrl-C
  143      ended by SIGTERM";

/// Gives existing MCP servers Tasks: call now, fetch later.
#[derive(Debug, Parser)]
#[command(name = "raincheck", version, after_help = CODES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the proxy
    Serve(serve::Serve),
    /// Run the proxy on stdin and stdout: put `raincheck stdio --` before the command in a host's configuration
    Stdio(stdio::Stdio),
    /// Check a configuration: report every fault, or show what it says
    Check(check::Check),
    /// List the tools of an MCP server with their arguments
    Tools(tools::Tools),
    /// Call a tool of an MCP server, wait for its task, print the result
    Call(call::Call),
    /// List, read, answer, cancel or forget tasks whose handles `call` has kept
    Task(task::Task),
    /// List, show or cancel any task of a running proxy, for operators
    Admin(admin::Admin),
    /// Propose mode, after and timeout for each tool, from how long it really took
    Advise(advise::Advise),
    /// A small synchronous MCP server on stdin and stdout, to try Raincheck with
    DemoServer,
}

/// Reads the command line of this process and does what it says.
pub fn main() -> ExitCode {
    ExitCode::from(execute(std::env::args_os()))
}

fn execute(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no faults. Nothing can be done if the terminal is gone.
            let _ = error.print();
            if let Some(right) = with_config(&arguments, &error) {
                terminal::say(&format!("\nA configuration is given with --config, as in: {right}"));
            } else if let Some(right) = with_dashes(&arguments, &error) {
                terminal::say(&format!("\nThe command of a server comes after --, as in: {right}"));
            }
            return if error.use_stderr() { exit::USAGE } else { exit::OK };
        }
    };
    match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Stdio(stdio) => stdio.run(),
        Command::Check(check) => alone(check.run()),
        Command::Tools(tools) => alone(tools.run()),
        Command::Call(call) => alone(call.run()),
        Command::Task(task) => alone(task.run()),
        Command::Admin(admin) => alone(admin.run()),
        Command::Advise(advise) => alone(advise.run()),
        Command::DemoServer => alone(demo::run()),
    }
}

/// The same words with the `--config` that is missing before a file: `raincheck check my.toml`.
fn with_config(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let takes_one = words.get(1).is_some_and(|command| matches!(command.as_ref(), "serve" | "stdio" | "check"));
    let Some(ContextValue::String(stranger)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_file = Path::new(stranger).extension().is_some_and(|kind| kind == "toml") && !stranger.starts_with('-');
    if error.kind() != ErrorKind::UnknownArgument || !takes_one || !is_file {
        return None;
    }
    let at = words.iter().position(|word| word == stranger)?;
    let (ours, rest) = words.split_at_checked(at)?;
    Some(format!("raincheck {} --config {}", ours.get(1..)?.join(" "), rest.join(" ")))
}

/// The same words with the `--` that is missing before a command: `raincheck serve npx -y server`.
fn with_dashes(arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let takes_one = words.get(1).is_some_and(|command| matches!(command.as_ref(), "serve" | "stdio"));
    if error.kind() != ErrorKind::UnknownArgument || !takes_one || words.iter().any(|word| word == "--") {
        return None;
    }
    let Some(ContextValue::String(stranger)) = error.get(ContextKind::InvalidArg) else { return None };
    let at = words.iter().position(|word| word == stranger).filter(|_| !stranger.starts_with('-'))?;
    let (ours, command) = words.split_at_checked(at)?;
    Some(format!("raincheck {} -- {}", ours.get(1..)?.join(" "), command.join(" ")))
}

/// Runs a small command on this thread.
fn alone(command: impl Future<Output = u8>) -> u8 {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(command);
            // A read of stdin cannot be stopped; nobody waits for it.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            terminal::complain(&format!("cannot start: {error}"));
            exit::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn code(line: &str) -> u8 {
        let arguments = line.split(' ').map(OsString::from);
        execute(arguments)
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn who_forgets_the_dashes_before_a_command_is_shown_where_they_belong() {
        let right = |line: &str| {
            let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
            with_dashes(&arguments, &Cli::try_parse_from(&arguments).unwrap_err())
        };
        assert_eq!(right("raincheck serve npx -y foo").as_deref(), Some("raincheck serve -- npx -y foo"));
        let found = right("raincheck stdio --after 1s node server.js");
        assert_eq!(found.as_deref(), Some("raincheck stdio --after 1s -- node server.js"));
        for line in ["raincheck serve --sotre x", "raincheck call", "raincheck check a", "raincheck serve"] {
            assert_eq!(right(line), None, "{line}");
        }
    }

    #[test]
    fn who_forgets_the_flag_before_a_configuration_is_shown_it() {
        let right = |line: &str| {
            let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
            with_config(&arguments, &Cli::try_parse_from(&arguments).unwrap_err())
        };
        for (line, shown) in [
            ("raincheck check my.toml", Some("raincheck check --config my.toml")),
            ("raincheck serve a/b.toml", Some("raincheck serve --config a/b.toml")),
            (
                "raincheck serve --listen 127.0.0.1:1 b.toml",
                Some("raincheck serve --listen 127.0.0.1:1 --config b.toml"),
            ),
            ("raincheck stdio b.toml --server a", Some("raincheck stdio --config b.toml --server a")),
            ("raincheck serve npx", None),
            ("raincheck check --my.toml", None),
            ("raincheck call --x b.toml", None),
        ] {
            assert_eq!(right(line).as_deref(), shown, "{line}");
        }
    }

    #[test]
    fn usage_ends_with_64_and_help_with_0() {
        for line in
            ["raincheck", "raincheck no-such", "raincheck serve", "raincheck serve --config a -- b", "raincheck call"]
        {
            assert_eq!(code(line), exit::USAGE, "{line}");
        }
        assert_eq!(code("raincheck serve --config /no/such/file"), exit::USAGE);
        assert_eq!(code("raincheck serve --url ftp://h/"), exit::USAGE);
        assert_eq!(code("raincheck check --config /no/such/file"), exit::USAGE);
        for line in ["raincheck --help", "raincheck --version", "raincheck help serve"] {
            assert_eq!(code(line), exit::OK, "{line}");
        }
    }
}
