//! Servers as child processes over stdio: one for each principal, under a guard, calls multiplexed.

mod backoff;
pub(super) mod connection;
pub mod guard;
mod launch;
pub(crate) mod lines;
pub(super) mod pipes;
mod process;
pub(crate) mod scan;
mod spawn;
mod stderr;

use self::connection::Handed;
use self::launch::Launcher;
use super::beside::{self, Seen};
use super::sessions::{OverConnection, SessionFigures, Sessions, Want};
use super::{Setup, drive, log_level, outcome};
use crate::protocol::{Call, Caller, Outcome, Reply, ReplySender};

pub(super) use self::launch::initialize;
pub use self::spawn::GuardProgram;

/// A client of one server over stdio.
#[derive(Debug)]
pub(super) struct StdioUpstream {
    setup: Setup,
    sessions: Sessions<Launcher>,
}

/// How often a call is handed to a new process when it was not taken by the last one.
const ATTEMPTS: u32 = 3;

impl StdioUpstream {
    /// A client without a process yet.
    pub(super) fn new(setup: &Setup, guard: GuardProgram) -> Self {
        let launcher = Launcher::new(setup.clone(), guard);
        let sessions = Sessions::new(setup.config.clone(), launcher, setup.jobs.clone());
        Self { setup: setup.clone(), sessions }
    }

    /// Sends a call. Returns at once.
    pub(super) fn call(&self, call: Call) -> Reply {
        let (sessions, setup) = (self.sessions.clone(), self.setup.clone());
        Reply::driven_gated(&self.setup.jobs, "stdio call", |sender| async move {
            match beside::see_to(&sessions, &setup, call, sender).await {
                Seen::Through => {}
                Seen::Plain(call, sender) => see_through(&sessions, &setup.config.name, &call, sender).await,
                Seen::NotOpened(_, sender, failure) => sender.done(Outcome::Failed(failure)),
            }
        })
    }

    /// Starts a process for `caller`, if there is none.
    pub(super) async fn prepare(&self, caller: &Caller) {
        // Why it failed is in the log; calls are told on their own.
        let _ = self.sessions.get(caller, Want::Presence).await;
    }

    /// How many processes there are and were.
    pub(super) fn figures(&self) -> SessionFigures {
        self.sessions.figures()
    }

    /// Ends all processes.
    pub(super) async fn close(&self) {
        self.sessions.close().await;
    }
}

/// Sees a call through, on a new process if the one that was there ended before it took the call.
async fn see_through(sessions: &Sessions<Launcher>, server: &str, call: &Call, mut sender: ReplySender) {
    for _ in 0..ATTEMPTS {
        let lease = tokio::select! {
            lease = sessions.get_for(call, &sender) => lease,
            () = sender.cancelled() => Err(outcome::never_sent()),
        };
        let process = match lease {
            Ok(process) => process,
            Err(failure) => return sender.done(Outcome::Failed(failure)),
        };
        log_level::ask(&*process, call).await;
        if !sender.begins().await {
            return sender.done(Outcome::Failed(outcome::never_sent()));
        }
        match drive::on_connection(process.connection(), call, sender).await {
            Handed::Over => return,
            Handed::NotTaken(back) => sender = back,
        }
    }
    let why = "it ended again and again before it took the call";
    sender.done(Outcome::Failed(outcome::not_started(server, why)));
}
