//! Starts before this process, which count for rates too.

use tokio::time::Instant;

use super::{Gate, Guest};

/// Until when starts count: all of them, those of a tool, those of an owner.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::runner::admission) struct Counting {
    pub(in crate::runner::admission) all: Option<Instant>,
    pub(in crate::runner::admission) tool: Option<Instant>,
    pub(in crate::runner::admission) owner: Option<Instant>,
}

impl Gate {
    /// Until when starts count of those whose rates hold for this guest.
    pub(in crate::runner::admission) fn counting(&self, guest: &Guest<'_>) -> Counting {
        let mut state = self.state();
        let claim = self.claim(&mut state.slots, guest);
        state.slots.counting(&claim)
    }

    /// Starts were counted before that count until then.
    pub(in crate::runner::admission) fn recall(&self, guest: &Guest<'_>, before: Counting) {
        let mut state = self.state();
        let claim = self.claim(&mut state.slots, guest);
        state.slots.recall(&claim, before);
    }
}
