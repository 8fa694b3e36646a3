//! The guard of a child process: `raincheck guard --lifeline FD -- COMMAND ARGS`.
//!
//! A proxy that is killed cannot clean up behind itself, many servers ignore the end of their input, and
//! wrappers such as npx pass no signals on. So a small process stays between: it leads a process group of
//! its own, runs the command in it, and watches a pipe whose other end only the proxy has. When that pipe
//! ends, by whatever death, or when the command ends, the guard ends what is left of the group. It has no
//! part in the traffic: the command inherits the standard streams themselves.
//!
//! What a server starts in a process group or session of its own (a daemon) has left the group on purpose
//! and is let go.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, close, dup2_stdin, dup2_stdout, getpgrp, getpid, setpgid};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Exit code: the guard itself could not do its work.
const BROKEN: u8 = 125;
/// Exit code, as shells use it: the command was found but could not be run.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// Exit code, as shells use it: the command was not found.
pub(super) const NOT_FOUND: u8 = 127;

/// What every line that the guard itself writes to the error output begins with.
pub(super) const VOICE: &str = "raincheck guard: ";
/// How long a command may take to end by itself once its input has ended with the proxy.
const AFTER_EOF: Duration = Duration::from_secs(1);
/// How long the group may take to end after SIGTERM.
const AFTER_TERM: Duration = Duration::from_secs(2);
/// How long it takes at most to learn that the command left nobody behind.
const ALONE: Duration = Duration::from_millis(100);

/// Whether the running program has the `guard` command.
static HAS_GUARD: OnceLock<()> = OnceLock::new();

/// What happens to a guard.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The command ended; this is the exit code to pass on.
    Exited(u8),
    /// No process that the guard could wait for is left.
    Alone,
    /// The proxy is gone.
    Orphaned,
    /// Somebody sent a signal.
    Told,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    lifeline: Option<i32>,
    program: OsString,
    arguments: Vec<OsString>,
}

/// To be called first thing in `main`: runs the guard if that is what the program was started for, and
/// otherwise notes that this program can be started as one.
pub fn main_hook() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() == Some(OsStr::new("guard")) {
        return Some(run(arguments));
    }
    let _ = HAS_GUARD.set(());
    None
}

/// Whether [`main_hook`] was called, so that this program can be started as a guard.
pub(super) fn is_here() -> bool {
    HAS_GUARD.get().is_some()
}

/// Runs the guard to its end.
fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let request = match Request::read(arguments) {
        Ok(request) => request,
        Err(why) => return fail(BROKEN, &format!("{why}; usage: raincheck guard [--lifeline FD] -- COMMAND [ARGS]")),
    };
    match Guard::start(request) {
        Ok(events) => ExitCode::from(watch(&events)),
        Err((code, why)) => fail(code, &why),
    }
}

fn fail(code: u8, why: &str) -> ExitCode {
    say(why);
    ExitCode::from(code)
}

/// Says something on the error output, if anybody reads that: a proxy that was killed does not.
fn say(what: &str) {
    let _ = writeln!(io::stderr(), "{VOICE}{what}");
}

impl Request {
    fn read(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, &'static str> {
        let mut lifeline = None;
        loop {
            match arguments.next().as_deref().and_then(OsStr::to_str) {
                Some("--lifeline") => {
                    let fd = arguments.next().and_then(|fd| fd.to_str()?.parse().ok()).filter(|fd| *fd > 2);
                    lifeline = Some(fd.ok_or("--lifeline needs the number of an open file above 2")?);
                }
                Some("--") => break,
                _ => return Err("expected -- and a command"),
            }
        }
        let program = arguments.next().ok_or("expected a command after --")?;
        Ok(Self { lifeline, program, arguments: arguments.collect() })
    }
}

struct Guard;

/// Signals that ask the guard to end the group.
struct Signals {
    runtime: Runtime,
    caught: Vec<tokio::signal::unix::Signal>,
}

impl Guard {
    /// Starts the command and all who watch.
    fn start(request: Request) -> Result<Receiver<Event>, (u8, String)> {
        let broken = |what: &str, error: &dyn std::fmt::Display| (BROKEN, format!("{what}: {error}"));
        lead_group().map_err(|error| broken("cannot lead a process group", &error))?;
        let lifeline = request.lifeline.map(take_over).transpose();
        let lifeline = lifeline.map_err(|error| broken("cannot watch the proxy", &error))?;
        // Without this, what the command leaves behind goes to init, and the guard could not see whether
        // anything is left.
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_child_subreaper(true).map_err(|error| broken("cannot become a reaper", &error))?;

        // Caught, so that the guard outlives the signals it sends to its own group. Not blocked: the command would begin with
        // the same signals blocked, and all that it starts, and caught ones are as usual for it (POSIX, `exec`).
        let signals = Signals::catch().map_err(|error| broken("cannot catch signals", &error))?;
        let command = Command::new(&request.program).args(&request.arguments).arg0(&request.program).spawn();
        let command = command.map_err(|error| {
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            (code, format!("cannot start {}: {error}", request.program.display()))
        })?;
        // Else the proxy would not see the end of the command's output before the end of the guard.
        let detached = File::options().read(true).write(true).open("/dev/null").and_then(|null| {
            dup2_stdin(&null)?;
            dup2_stdout(&null)?;
            Ok(())
        });
        if let Err(error) = detached {
            say(&format!("cannot let go of the standard streams: {error}"));
        }

        let (events, received) = channel();
        let command = Pid::from_raw(command.id().try_into().unwrap_or(-1));
        let sender = events.clone();
        thread::spawn(move || reap(command, &sender));
        if let Some(lifeline) = lifeline {
            let sender = events.clone();
            thread::spawn(move || hold(lifeline, &sender));
        }
        thread::spawn(move || signals.tell(&events));
        Ok(received)
    }
}

impl Signals {
    /// From now on none of these ends the process.
    fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let caught = kinds.map(signal).into_iter().collect::<io::Result<Vec<_>>>()?;
        drop(entered);
        Ok(Self { runtime, caught })
    }

    /// Tells of each that comes.
    fn tell(mut self, events: &Sender<Event>) {
        loop {
            let any = self.caught.iter_mut().map(|signal| Box::pin(signal.recv()));
            self.runtime.block_on(select_all(any));
            if events.send(Event::Told).is_err() {
                return;
            }
        }
    }
}

/// Makes this process the leader of a group, so that ending the group ends nobody else.
fn lead_group() -> nix::Result<()> {
    if getpgrp() == getpid() { Ok(()) } else { setpgid(Pid::from_raw(0), Pid::from_raw(0)) }
}

/// Opens the inherited file `fd` anew, so that the command does not inherit it, and closes every other
/// file that came along by accident.
fn take_over(fd: i32) -> io::Result<File> {
    let lifeline = File::open(format!("/dev/fd/{fd}"))?;
    let strays: Vec<i32> = std::fs::read_dir("/dev/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|stray| *stray > 2 && *stray != std::os::fd::AsRawFd::as_raw_fd(&lifeline))
        .collect();
    for stray in strays {
        // One of them was the listing itself, which is closed already.
        let _ = close(stray);
    }
    Ok(lifeline)
}

/// Waits for every child, inherited ones too.
fn reap(command: Pid, events: &Sender<Event>) {
    loop {
        let ended = match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) => Some((pid, u8::try_from(code & 0xff).unwrap_or(BROKEN))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                Some((pid, 128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0))))
            }
            Ok(_) | Err(Errno::EINTR) => None,
            Err(_) => break,
        };
        if let Some((pid, code)) = ended
            && pid == command
        {
            let _ = events.send(Event::Exited(code));
        }
    }
    let _ = events.send(Event::Alone);
}

/// Waits for the end of the pipe. Nothing is ever written to it.
fn hold(mut lifeline: File, events: &Sender<Event>) {
    let mut byte = [0];
    loop {
        match lifeline.read(&mut byte) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
    }
    let _ = events.send(Event::Orphaned);
}

/// Waits until there is a reason to end the group, ends it, and returns the exit code.
fn watch(events: &Receiver<Event>) -> u8 {
    let mut code = None;
    match events.recv() {
        Ok(Event::Exited(of_command)) => {
            code = Some(of_command);
            if of_command != 0 {
                say(&format!("the command ended with exit code {of_command}"));
            }
            if wait_alone(events, ALONE, &mut code) {
                return of_command;
            }
        }
        Ok(Event::Orphaned) => {
            if wait_alone(events, AFTER_EOF, &mut code) {
                return code.unwrap_or(BROKEN);
            }
        }
        Ok(Event::Told) => {}
        Ok(Event::Alone) | Err(_) => return BROKEN,
    }
    let _ = killpg(getpgrp(), Signal::SIGTERM);
    if wait_alone(events, AFTER_TERM, &mut code) {
        return code.unwrap_or(BROKEN);
    }
    // This ends the guard too.
    let _ = killpg(getpgrp(), Signal::SIGKILL);
    BROKEN
}

/// Waits for the end of all children, at most for `patience`; whether it came.
fn wait_alone(events: &Receiver<Event>, patience: Duration, code: &mut Option<u8>) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            // Elsewhere only direct children can be waited for, so others may be left.
            Ok(Event::Alone) => return cfg!(target_os = "linux"),
            Ok(Event::Exited(of_command)) => *code = Some(of_command),
            Ok(Event::Orphaned | Event::Told) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Request, &'static str> {
        Request::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_command_line_is_read_up_to_the_command_whose_own_flags_are_left_alone() {
        let request = read("--lifeline 5 -- npx -y -- server --lifeline x").unwrap();
        assert_eq!(request.lifeline, Some(5));
        assert_eq!(request.program, "npx");
        assert_eq!(request.arguments, ["-y", "--", "server", "--lifeline", "x"]);
        assert_eq!(read("-- true").unwrap().lifeline, None);
    }

    #[test]
    fn a_command_line_without_a_command_or_with_a_wrong_file_is_refused() {
        for line in ["", "--", "npx", "--lifeline", "--lifeline 2 -- x", "--lifeline x -- y", "--other -- x"] {
            assert!(read(line).is_err(), "{line:?}");
        }
    }
}
