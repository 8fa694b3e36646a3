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
use super::sessions::{Session, Sessions, Want};
use super::{Setup, attach, drive, outcome, wire};
use crate::protocol::{Call, Caller, Json, Method, Outcome, Reply, ReplySender};

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
        let (sender, reply) = Reply::channel();
        let (sessions, setup) = (self.sessions.clone(), self.setup.clone());
        self.setup.jobs.spawn("stdio call", async move {
            match &call.method {
                Method::Attach => {
                    if let Err(not_opened) = attach::keep(&sessions, &setup, call, sender).await {
                        not_opened.tell();
                    }
                }
                Method::Notify(_) => notify(&sessions, &call, sender).await,
                _ => see_through(&sessions, &setup.config.name, &call, sender).await,
            }
        });
        reply
    }

    /// Starts a process for `caller`, if there is none.
    pub(super) async fn prepare(&self, caller: &Caller) {
        // Why it failed is in the log; calls are told on their own.
        let _ = self.sessions.get(caller, Want::Presence).await;
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
            lease = sessions.get_for(call) => lease,
            () = sender.cancelled() => Err(outcome::never_sent()),
        };
        let process = match lease {
            Ok(process) => process,
            Err(failure) => return sender.done(Outcome::Failed(failure)),
        };
        match drive::on_connection(process.connection(), call, sender).await {
            Handed::Over => return,
            Handed::NotTaken(back) => sender = back,
        }
    }
    let why = "it ended again and again before it took the call";
    sender.done(Outcome::Failed(outcome::not_started(server, why)));
}

/// Passes a notification of a legacy client on.
async fn notify(sessions: &Sessions<Launcher>, call: &Call, sender: ReplySender) {
    match sessions.get_for(call).await {
        Ok(process) => {
            if let Some(note) = wire::notification(call).filter(|_| process.modern().is_none()) {
                process.connection().notify(note).await;
            }
            sender.done(Outcome::Result(Json::empty_object()));
        }
        Err(failure) => sender.done(Outcome::Failed(failure)),
    }
}
