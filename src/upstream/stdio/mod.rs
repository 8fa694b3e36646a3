//! Servers as child processes over stdio: one for each principal, under a guard, calls multiplexed.

mod backoff;
pub(super) mod connection;
pub mod guard;
mod launch;
pub(crate) mod lines;
pub(super) mod notes;
pub(super) mod pipes;
mod process;
pub(crate) mod scan;
mod spawn;
mod stderr;
mod unsent;

use self::launch::Launcher;
use super::sessions::{SessionFigures, Sessions, Want};
use super::{Setup, attempts};
use crate::protocol::{Call, Caller, Reply};

pub(super) use self::launch::initialize;
pub use self::spawn::GuardProgram;

/// A client of one server over stdio.
#[derive(Debug)]
pub(super) struct StdioUpstream {
    setup: Setup,
    sessions: Sessions<Launcher>,
}

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
            let not_taken = "it ended again and again before it took the call";
            attempts::see_through(&sessions, &setup, call, sender, |_, _| {}, not_taken).await;
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
