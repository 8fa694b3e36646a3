//! Starting a child process under its guard.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, PipeWriter};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::guard;

/// The program that guards child processes, so that none outlives the proxy.
#[derive(Clone, Debug)]
pub struct GuardProgram(Option<PathBuf>);

/// What is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'a> {
    /// The program and its arguments.
    pub(super) command: &'a [String],
    /// Variables beside our own.
    pub(super) env: &'a BTreeMap<String, String>,
    /// Where it runs.
    pub(super) cwd: Option<&'a Path>,
    /// Our own variables that it does not get.
    pub(super) hide: &'a [String],
}

/// A child process that has just been started.
#[derive(Debug)]
pub(super) struct Spawned {
    /// The guard, or the command itself without one; the leader of its process group.
    pub(super) child: Child,
    /// The group.
    pub(super) group: Pid,
    /// The guard ends the group when this is dropped.
    pub(super) lifeline: Option<PipeWriter>,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Why nothing was started.
#[derive(Debug)]
#[non_exhaustive]
pub(super) enum SpawnError {
    /// The config names no program.
    Empty,
    /// The directory it should run in is not there.
    NoDirectory(PathBuf),
    /// The operating system refused.
    Start {
        /// What was to be started.
        program: String,
        /// Why not.
        source: io::Error,
    },
}

impl GuardProgram {
    /// This very program, if its `main` has the guard (see [`guard::main_hook`]); otherwise none.
    pub fn current() -> Self {
        // On Linux the link leads to this very program even after the file was replaced by an update.
        let this = if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() };
        Self(this.ok().filter(|_| guard::is_here()))
    }

    /// The `raincheck` program at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(Some(path.into()))
    }

    /// None: children are ended when the upstream is closed, but outlive a proxy that is killed.
    pub fn none() -> Self {
        Self(None)
    }
}

/// Starts `plan` as the leader of a process group of its own.
pub(super) fn spawn(plan: Plan<'_>, guard: &GuardProgram) -> Result<Spawned, SpawnError> {
    let Some((program, arguments)) = plan.command.split_first() else { return Err(SpawnError::Empty) };
    if let Some(cwd) = plan.cwd.filter(|cwd| !cwd.is_dir()) {
        return Err(SpawnError::NoDirectory(cwd.to_owned()));
    }
    let refused = |source| SpawnError::Start { program: program.clone(), source };
    let (mut command, lifeline) = match &guard.0 {
        None => (Command::new(program), None),
        Some(path) => {
            let (watched, lifeline) = io::pipe().map_err(refused)?;
            // Only the end that is read is inherited. Should another child get it too, that does no harm: its
            // guard closes it, and the pipe ends when the end that is ours does.
            fcntl(&watched, FcntlArg::F_SETFD(FdFlag::empty())).map_err(io::Error::from).map_err(refused)?;
            let mut command = Command::new(path);
            command.arg0("raincheck").args(["guard", "--lifeline"]).arg(watched.as_raw_fd().to_string());
            command.arg("--").arg(program);
            (command, Some((watched, lifeline)))
        }
    };
    plan.hide.iter().for_each(|secret| _ = command.env_remove(secret));
    command.args(arguments).envs(plan.env).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = plan.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn().map_err(refused)?;
    let lifeline = lifeline.map(|(_watched, lifeline)| lifeline);
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(group), (Some(stdin), Some(stdout), Some(stderr))) = (group, streams) else {
        return Err(refused(io::Error::other("the process has no streams")));
    };
    Ok(Spawned { child, group, lifeline, stdin, stdout, stderr })
}

/// Whether another command would help.
fn is_about_the_command(source: &io::Error) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    matches!(
        source.kind(),
        ExecutableFileBusy | InvalidInput | IsADirectory | NotADirectory | NotFound | PermissionDenied
    ) || source.raw_os_error() == Some(nix::errno::Errno::ENOEXEC as i32)
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("its command is empty"),
            Self::NoDirectory(cwd) => {
                write!(f, "the directory `{}` is not there; check `cwd` in the config", cwd.display())
            }
            Self::Start { program, source } if is_about_the_command(source) => {
                let what = source.kind();
                write!(f, "its command `{program}` cannot be started ({what}); check the command and PATH")
            }
            // Such as "too many open files": the command may well be right.
            Self::Start { program, source } => write!(f, "its command `{program}` cannot be started: {source}"),
        }
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start { source, .. } => Some(source),
            Self::Empty | Self::NoDirectory(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn environment(hide: &[String]) -> String {
        let command = ["/usr/bin/env".to_owned()];
        let plan = Plan { command: &command, env: &BTreeMap::new(), cwd: None, hide };
        let mut spawned = spawn(plan, &GuardProgram::none()).unwrap();
        let mut text = String::new();
        spawned.stdout.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn a_child_gets_our_variables_but_for_those_that_hold_our_secrets() {
        // Set by cargo for every test.
        let name = "CARGO_PKG_NAME";
        let holds = |text: &str| text.lines().any(|line| line.starts_with("CARGO_PKG_NAME="));
        assert!(holds(&environment(&[]).await));
        assert!(!holds(&environment(&[name.to_owned()]).await));
    }

    #[test]
    fn what_no_other_command_would_help_against_is_not_blamed_on_the_command() {
        use nix::errno::Errno::{EACCES, EAGAIN, EMFILE, ENOENT, ENOEXEC, ENOMEM};
        let shown = |errno: nix::errno::Errno| {
            let source = io::Error::from_raw_os_error(errno as i32);
            SpawnError::Start { program: "node".to_owned(), source }.to_string()
        };
        for errno in [ENOENT, EACCES, ENOEXEC] {
            assert!(shown(errno).contains("check the command"), "{}", shown(errno));
        }
        for errno in [EMFILE, EAGAIN, ENOMEM] {
            assert!(!shown(errno).contains("check the command"), "{}", shown(errno));
        }
        assert!(shown(EMFILE).contains("Too many open files"), "{}", shown(EMFILE));
    }
}
