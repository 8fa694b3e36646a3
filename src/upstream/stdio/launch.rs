//! Starting a server when it is needed: not too often, and with a handshake before the first call.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::backoff::Backoff;
use super::connection::Connection;
use super::guard;
use super::process::Process;
use super::spawn::{GuardProgram, Plan};
use super::stderr::telling;
use crate::config::{ServerConfig, StderrFor, Transport, UpstreamEra};
use crate::protocol::{Failure, Outcome, Principal};
use crate::shared_map::SharedMap;
use crate::upstream::handshake::{self, HandshakeError, ServerInfo};
use crate::upstream::sessions::{Connect, Hearer, Opening, OverConnection, Session as _};
use crate::upstream::{Setup, outcome};

/// Starts child processes.
#[derive(Debug)]
pub(super) struct Launcher {
    setup: Setup,
    guard: GuardProgram,
    /// Starts that failed: the server's fault, so they count for everybody.
    starts: Mutex<Backoff>,
    /// Processes that ended right after their start: perhaps the fault of what a principal sent.
    crashes: std::sync::Arc<SharedMap<Principal, Backoff>>,
}

/// A call waits this long for a server that is left alone; else it is told when to come again.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a server may be silent to `server/discover` before it counts as a legacy one.
const SILENCE: Duration = Duration::from_secs(2);
/// A process that ended sooner, without an answer to any call, counts as failed.
const HEALTHY: Duration = Duration::from_secs(10);
/// Characters of its error output that a caller is shown.
const SHOWN: usize = 200;
/// Principals whose crashes are remembered.
const REMEMBERED: usize = 1024;

impl Launcher {
    pub(super) fn new(setup: Setup, guard: GuardProgram) -> Self {
        Self { setup, guard, starts: Mutex::default(), crashes: std::sync::Arc::default() }
    }

    fn name(&self) -> &str {
        &self.setup.config.name
    }

    fn program(&self) -> &str {
        match &self.setup.config.transport {
            Transport::Stdio { command, .. } => command.first().map_or("", String::as_str),
            Transport::Http { .. } | Transport::Sse { .. } => "",
        }
    }

    fn starts(&self) -> MutexGuard<'_, Backoff> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the server is left alone, if that is short.
    async fn wait_for_turn(&self, principal: &Principal) -> Result<(), Failure> {
        let starts = self.starts().clone();
        let crashes = self.crashes.get(principal).unwrap_or_default();
        let longer = if crashes.remaining() > starts.remaining() { crashes } else { starts };
        let wait = longer.remaining();
        if wait > PATIENCE.min(self.setup.config.connect_timeout) {
            return Err(outcome::not_yet(self.name(), longer.why(), wait));
        }
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(())
    }

    fn start(&self, hearer: Hearer) -> Result<Process, String> {
        let Transport::Stdio { command, env, cwd, hide } = &self.setup.config.transport else {
            return Err("it is no stdio server".to_owned());
        };
        let plan = Plan { command, env, cwd: cwd.as_deref(), hide };
        Process::start(&self.setup, hearer, plan, &self.guard).map_err(|error| error.to_string())
    }

    /// Says why a start failed, to the log with what the server said last, and to the callers.
    async fn failed(&self, why: &str, process: Option<&Process>, principal: &Principal) -> Failure {
        let stderr = match process {
            Some(process) => process.tail().await,
            None => Vec::new(),
        };
        tracing::warn!(server = %self.name(), ?stderr, "the server could not be started: {why}");
        // Others are told this too, and what the server said may be for nobody else.
        self.starts().failed(why);
        let may_see = *principal == Principal::Local && self.setup.config.stderr == StderrFor::Local;
        // Our own guard has the last word, and nothing to add.
        let said: Vec<_> = stderr.into_iter().filter(|line| !line.starts_with(guard::VOICE)).collect();
        match telling(&said) {
            Some(said) if may_see => {
                let said: String = said.chars().take(SHOWN).collect();
                outcome::not_started(self.name(), &format!("{why}; it said on stderr: {said}"))
            }
            Some(_) => outcome::not_started(self.name(), &format!("{why}; the log has what it said")),
            None => outcome::not_started(self.name(), why),
        }
    }

    /// Remembers whether the process worked, once it has ended by itself.
    fn watch(&self, process: &Process, principal: Principal) {
        let (process, crashes) = (process.clone(), std::sync::Arc::clone(&self.crashes));
        let (started, answers) = (Instant::now(), process.connection().answers());
        let server = self.name().to_owned();
        self.setup.jobs.spawn("crash watch", async move {
            process.connection().over().await;
            if !process.was_told() {
                let stderr = process.tail().await;
                tracing::warn!(server, ?stderr, "the server has ended by itself");
            }
            let worked = process.connection().answers() > answers || started.elapsed() >= HEALTHY;
            if worked || process.was_told() {
                crashes.remove(&principal);
            } else {
                if crashes.len() >= REMEMBERED {
                    forget(&crashes);
                }
                let why = "it ended right after its start";
                crashes.update_or_insert(principal, Backoff::default, |backoff| backoff.failed(why));
            }
        });
    }

    fn why(&self, process: &Process, error: &HandshakeError) -> String {
        let program = self.program();
        let exit = process.exit();
        if let Some(signal) = exit.and_then(|exit| exit.signal()) {
            return format!("its command `{program}` was ended by signal {signal} before it was ready");
        }
        match exit.and_then(|exit| exit.code()).and_then(|code| u8::try_from(code).ok()) {
            Some(guard::NOT_FOUND) => {
                format!("its command `{program}` was not found; check the command and PATH")
            }
            Some(guard::NOT_EXECUTABLE) => {
                format!("its command `{program}` may not be run; check the command and the file's rights")
            }
            Some(code) => {
                format!("its command `{program}` ended with exit code {code} before it was ready")
            }
            // Nothing of that was a call, so none is lost.
            None if process.is_over() => format!("its command `{program}` closed its output before it was ready"),
            None => error.to_string(),
        }
    }
}

impl Connect for Launcher {
    type Session = Process;

    async fn connect(&self, opening: &Opening) -> Result<Process, Failure> {
        let within = self.setup.config.connect_timeout;
        let deadline = Instant::now() + within;
        let principal = &opening.caller.principal;
        self.wait_for_turn(principal).await?;
        let process = match self.start(opening.hearer.clone()) {
            Ok(process) => process,
            Err(why) => return Err(self.failed(&why, None, principal).await),
        };
        // A process whose start fails, or is broken off, must not be left behind.
        let closing = process.closing().clone().drop_guard();
        match timeout_at(deadline, shake_hands(process.connection(), &self.setup.config, opening)).await {
            Ok(Ok(info)) => {
                process.connection().set_era(info.era);
                self.setup.last_seen.set(info);
                self.starts().worked();
                self.watch(&process, principal.clone());
                closing.disarm();
                Ok(process)
            }
            Ok(Err(error)) => {
                process.ended().await;
                Err(self.failed(&self.why(&process, &error), Some(&process), principal).await)
            }
            Err(_) => {
                let why = not_ready(within, process.connection().noise(), self.program());
                Err(self.failed(&why, Some(&process), principal).await)
            }
        }
    }
}

/// What is said of a server that has not shaken hands in time and has written so many lines that are no messages.
fn not_ready(within: Duration, noise: u64, program: &str) -> String {
    let within = humantime::format_duration(within);
    let said = match noise {
        0 => "it has not answered the handshake".to_owned(),
        1 => "it has written a line to its stdout that is no MCP".to_owned(),
        lines => format!("it has written {lines} lines to its stdout that are no MCP"),
    };
    let loads = match program.rsplit('/').next() {
        Some(name @ ("npx" | "bunx" | "pnpx" | "pnpm" | "yarn" | "uvx" | "uv" | "pipx" | "docker" | "podman")) => {
            format!(". {name} may still be downloading: run the command once by hand, or raise connect_timeout")
        }
        _ => String::new(),
    };
    format!(
        "it was not ready within {within} (connect_timeout): {said}; does it speak MCP over stdio? Some programs want an \
         argument for that, or serve HTTP (then name their url){loads}"
    )
}

/// Forgets crashes whose wait is over; all of them if it is none of those that make them many.
fn forget(crashes: &SharedMap<Principal, Backoff>) {
    let mut principals = Vec::new();
    crashes.for_each(|principal, backoff| {
        if backoff.remaining().is_zero() || principals.len() < REMEMBERED / 2 {
            principals.push(principal.clone());
        }
    });
    for principal in principals {
        crashes.remove(&principal);
    }
}

async fn shake_hands(
    connection: &Connection,
    config: &ServerConfig,
    opening: &Opening,
) -> Result<ServerInfo, HandshakeError> {
    let initialize = || initialize(connection, config, opening);
    match config.era {
        UpstreamEra::Legacy => match initialize().await {
            Err(HandshakeError::Refused(refused)) if matches!(*refused, Outcome::Error(_)) => {
                // It may know 2026-07-28 only; if not, its first word stands.
                discover(connection).await.map_err(|_| HandshakeError::Refused(refused))
            }
            done => done,
        },
        UpstreamEra::Modern => discover(connection).await,
        UpstreamEra::Auto => match timeout(SILENCE, discover(connection)).await {
            Ok(Ok(info)) => Ok(info),
            Ok(Err(_)) | Err(_) => initialize().await,
        },
    }
}

/// The handshake of the legacy revisions.
pub(in crate::upstream) async fn initialize(
    connection: &Connection,
    config: &ServerConfig,
    opening: &Opening,
) -> Result<ServerInfo, HandshakeError> {
    let asked = connection.ask(|id| handshake::initialize(id, opening, &config.offer));
    let info = ServerInfo::of_initialize(asked.await)?;
    connection.floor().opened(&info);
    connection.notify(handshake::initialized()).await;
    Ok(info)
}

async fn discover(connection: &Connection) -> Result<ServerInfo, HandshakeError> {
    ServerInfo::of_discover(connection.ask(handshake::discover).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_ready_in_time_is_described_by_what_it_wrote() {
        let table = [
            (0, "sh", "within 3s (connect_timeout): it has not answered the handshake; does it speak MCP over stdio?"),
            (1, "sh", "it has written a line to its stdout that is no MCP;"),
            (7, "sh", "it has written 7 lines to its stdout that are no MCP;"),
            (
                0,
                "/usr/bin/npx",
                ". npx may still be downloading: run the command once by hand, or raise connect_timeout",
            ),
            (0, "uvx", ". uvx may still be downloading: "),
        ];
        for (noise, program, says) in table {
            let found = not_ready(Duration::from_secs(3), noise, program);
            assert!(found.contains(says) && found.contains("downloading") == (program != "sh"), "{found}");
        }
    }
}
