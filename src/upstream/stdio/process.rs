//! The life of one child process, from its start to its end.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::spawn::{GuardProgram, Plan, SpawnError, Spawned, spawn};
use super::stderr::{self, Tail};
use crate::upstream::Setup;
use crate::upstream::sessions::{Hearer, OverConnection, Session};
use crate::upstream::wire::ServerEra;

/// A running child process and the connection to it. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Process {
    connection: Connection,
    tail: Tail,
    exit: Arc<OnceLock<ExitStatus>>,
    /// To be ended.
    closing: CancellationToken,
    /// It was closed while it still worked, so its end is no fault of its own.
    told: Arc<AtomicBool>,
    /// Nothing is left of it.
    gone: CancellationToken,
}

/// How long a process may take to end after its input has ended.
const AFTER_EOF: Duration = Duration::from_secs(2);
/// How long its group may take to end after SIGTERM. The guard kills the group a little earlier.
const AFTER_TERM: Duration = Duration::from_millis(3500);
/// How long it may take to end after SIGKILL: one that hangs in the operating system is let go, to end when it can.
const AFTER_KILL: Duration = Duration::from_secs(1);
/// How long it may take until all that an ended process wrote is taken in.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a process whose output has ended may take to end itself, before its calls are ended without saying how
/// it did.
const REST: Duration = Duration::from_millis(300);

impl Process {
    /// Starts a process. It is ended when it is closed, or when its output ends.
    pub(super) fn start(
        setup: &Setup,
        hearer: Hearer,
        plan: Plan<'_>,
        guard: &GuardProgram,
    ) -> Result<Self, SpawnError> {
        let Spawned { child, group, lifeline, stdin, stdout, stderr } = spawn(plan, guard)?;
        tracing::debug!(server = %setup.config.name, process = group.as_raw(), "started");
        let tail = Tail::default();
        let gone = CancellationToken::new();
        let name: Arc<str> = setup.config.name.as_str().into();
        let drain = stderr::drain(stderr, Arc::clone(&name), tail.clone(), gone.clone().cancelled_owned());
        setup.jobs.spawn("stderr", drain);
        let process = Self {
            connection: Connection::open(setup, hearer, stdout, stdin),
            tail,
            exit: Arc::default(),
            closing: CancellationToken::new(),
            told: Arc::default(),
            gone,
        };
        let life = Life { process: process.clone(), child, group, lifeline, server: name };
        setup.jobs.spawn("child process", life.run());
        Ok(process)
    }

    /// The last lines of its error output: all of them if it has ended.
    pub(super) async fn tail(&self) -> Vec<String> {
        if self.exit().is_some() {
            self.tail.whole().await;
        }
        self.tail.lines()
    }

    /// Waits until it is known how it ended, if its output has ended: some time goes by between the two.
    pub(super) async fn ended(&self) {
        if self.is_over() && self.exit().is_none() {
            // Nothing of it is left a moment later.
            let _ = timeout(AFTER_EOF, self.gone.cancelled()).await;
        }
    }

    /// How it ended, once that is known.
    pub(super) fn exit(&self) -> Option<ExitStatus> {
        self.exit.get().copied()
    }

    /// Whether it was closed before it ended by itself.
    pub(super) fn was_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// To be cancelled when it is to be ended.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }
}

impl Session for Process {
    fn is_over(&self) -> bool {
        self.connection.is_over()
    }

    fn modern(&self) -> Option<&Connection> {
        (self.connection.era() == ServerEra::Modern).then_some(&self.connection)
    }

    async fn over(&self) {
        self.connection.over().await;
    }

    async fn close(&self) {
        // A process that ended by itself is closed too, behind its end.
        if !self.is_over() {
            self.told.store(true, Ordering::Release);
        }
        self.closing.cancel();
        self.gone.cancelled().await;
    }
}

impl OverConnection for Process {
    fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// What must be held on to while a process runs.
struct Life {
    process: Process,
    child: tokio::process::Child,
    group: nix::unistd::Pid,
    lifeline: Option<std::io::PipeWriter>,
    server: Arc<str>,
}

impl Life {
    async fn run(mut self) {
        // Whatever ends this job ends the calls too, and the guard ends the process when it loses its lifeline.
        let process = self.process.clone();
        let _gone = process.gone.clone().drop_guard();
        tokio::select! {
            ended = self.child.wait() => self.ended(ended),
            () = process.connection.over() => {}
            () = process.closing.cancelled() => {}
        }
        process.connection.hang_up();
        let patience = Instant::now() + AFTER_EOF;
        self.settle_calls(patience).await;
        self.tear_down(patience).await;
        tracing::debug!(server = %self.server, process = self.group.as_raw(), "{}", self.how());
    }

    /// Ends the calls: soon if nothing more can come, else when the process had its time to answer them.
    async fn settle_calls(&mut self, patience: Instant) {
        let process = self.process.clone();
        if process.exit().is_some() {
            // What it wrote last is still on its way.
            let _ = timeout(LAST_WORDS, process.connection.read_to_end()).await;
        } else if process.was_told() {
            tokio::select! {
                ended = timeout_at(patience, self.child.wait()) => if let Ok(ended) = ended {
                    self.ended(ended);
                    let _ = timeout(LAST_WORDS, process.connection.read_to_end()).await;
                },
                () = process.connection.read_to_end() => {}
            }
        } else if let Ok(ended) = timeout(REST, self.child.wait()).await {
            self.ended(ended);
            let _ = timeout(LAST_WORDS, process.connection.read_to_end()).await;
        }
        process.connection.end(&self.how());
    }

    /// Ends what still runs.
    async fn tear_down(&mut self, patience: Instant) {
        if self.process.exit().is_none()
            && let Ok(ended) = timeout_at(patience, self.child.wait()).await
        {
            self.ended(ended);
        }
        let guarded = self.lifeline.take().is_some();
        if self.process.exit().is_some() {
            // A guard that ended in good order has ended its group.
            if !guarded || self.process.exit().and_then(|exit| exit.signal()).is_some() {
                self.signal(Signal::SIGKILL);
            }
            return;
        }
        self.signal(Signal::SIGTERM);
        if timeout(AFTER_TERM, self.child.wait()).await.is_err() {
            self.signal(Signal::SIGKILL);
        }
        if let Ok(ended) = timeout(AFTER_KILL, self.child.wait()).await {
            self.ended(ended);
        }
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        // The group may have ended in this moment.
        let _ = killpg(self.group, signal);
    }

    fn ended(&self, ended: std::io::Result<ExitStatus>) {
        if let Ok(status) = ended {
            let _ = self.process.exit.set(status);
        }
    }

    fn how(&self) -> String {
        match self.process.exit() {
            None if self.process.was_told() => "the server process is being closed".to_owned(),
            None => "the server process closed its output".to_owned(),
            Some(exit) => match (exit.code(), exit.signal()) {
                (Some(code), _) => format!("the server process ended with exit code {code}"),
                (None, Some(signal)) => format!("the server process was ended by signal {signal}"),
                (None, None) => "the server process ended".to_owned(),
            },
        }
    }
}
