//! Servers as child processes over stdio.

pub mod guard;

use super::{Setup, outcome};
use crate::protocol::{Call, Caller, Outcome, Reply};

/// The program that guards child processes.
#[derive(Clone, Debug)]
pub struct GuardProgram(Option<std::path::PathBuf>);

impl GuardProgram {
    /// This very program.
    pub fn current() -> Self {
        Self(std::env::current_exe().ok())
    }
}

/// A client of one server over stdio.
#[derive(Debug)]
pub(super) struct StdioUpstream {
    name: String,
}

impl StdioUpstream {
    pub(super) fn new(setup: &Setup, _guard: GuardProgram) -> Self {
        Self { name: setup.config.name.clone() }
    }

    pub(super) fn call(&self, _call: Call) -> Reply {
        Reply::ready(Outcome::Failed(outcome::not_started(&self.name, "stdio is not built yet")))
    }

    pub(super) async fn prepare(&self, _caller: &Caller) {}

    pub(super) async fn close(&self) {}
}
