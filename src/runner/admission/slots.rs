//! Who has which slots.

use tokio::time::Instant;

use super::gate::GuestTool;
use super::pace::Pace;
use super::rate::Bucket;
use super::refusal;
use super::table::{Row, Table};
use crate::protocol::Failure;

/// The slots of all runs together, and what owners and tools have of them.
#[derive(Debug)]
pub(super) struct Slots {
    free: usize,
    /// So many are kept for owners who have fewer than are free.
    kept: usize,
    pub(super) owners: Table<OwnerRow>,
    pub(super) tools: Table<ToolRow>,
}

/// What one run takes, and what bounds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The place of its owner.
    pub(super) owner: usize,
    /// The place of its tool, if that has limits.
    pub(super) tool: Option<usize>,
    /// How many runs of tools the owner may have.
    pub(super) owner_runs: Option<usize>,
    /// How many runs the tool may have.
    pub(super) tool_runs: Option<usize>,
    /// Whether it counts for limits of owners.
    pub(super) is_tool: bool,
}

/// What an owner has.
#[derive(Debug, Default)]
pub(super) struct OwnerRow {
    /// Slots of runs of any kind.
    slots: usize,
    /// Runs of tools.
    running: usize,
    /// Calls of any kind in the line.
    pub(super) waiting: usize,
    /// Calls of tools in the line.
    pub(super) tools_waiting: usize,
    starts: Bucket,
}

/// What a tool has.
#[derive(Debug, Default)]
pub(super) struct ToolRow {
    running: usize,
    /// Calls in the line.
    pub(super) waiting: usize,
    starts: Bucket,
    /// How fast its calls get on.
    pub(super) pace: Pace,
}

impl Slots {
    pub(super) fn new(slots: usize) -> Self {
        Self { free: slots, kept: slots / 8, owners: Table::default(), tools: Table::default() }
    }

    /// Whether none is free.
    pub(super) const fn are_taken(&self) -> bool {
        self.free == 0
    }

    /// Whether the run could have its slots now.
    pub(super) fn fit(&self, claim: &Claim) -> bool {
        let owner = self.owners.get(claim.owner);
        let (slots, running) = owner.map_or((0, 0), |owner| (owner.slots, owner.running));
        let tool_running = claim.tool.and_then(|place| self.tools.get(place)).map_or(0, |tool| tool.running);
        self.free > 0
            && (self.free > self.kept || slots < self.free)
            && claim.owner_runs.is_none_or(|most| running < most)
            && claim.tool_runs.is_none_or(|most| tool_running < most)
    }

    /// Takes the slots.
    pub(super) fn take(&mut self, claim: &Claim) {
        self.free = self.free.saturating_sub(1);
        if let Some(owner) = self.owners.get_mut(claim.owner) {
            owner.slots += 1;
            owner.running += usize::from(claim.is_tool);
        }
        if let Some(tool) = claim.tool.and_then(|place| self.tools.get_mut(place)) {
            tool.running += 1;
        }
    }

    /// Gives them back.
    pub(super) fn release(&mut self, claim: &Claim) {
        self.free += 1;
        if let Some(owner) = self.owners.get_mut(claim.owner) {
            owner.slots = owner.slots.saturating_sub(1);
            owner.running = owner.running.saturating_sub(usize::from(claim.is_tool));
        }
        if let Some(tool) = claim.tool.and_then(|place| self.tools.get_mut(place)) {
            tool.running = tool.running.saturating_sub(1);
        }
    }

    /// Whether a run may be started now.
    pub(super) fn check_rates(&self, claim: &Claim, guest: &GuestTool<'_>) -> Result<(), Failure> {
        let (by_tool, by_owner) = (guest.policy.rate, guest.limits.rate);
        if by_tool.is_none() && by_owner.is_none() {
            return Ok(());
        }
        let now = Instant::now();
        let tool = claim.tool.and_then(|place| self.tools.get(place));
        let owner = self.owners.get(claim.owner);
        let tool_wait = by_tool.zip(tool).and_then(|(rate, tool)| Some((rate, tool.starts.wait(rate, now)?)));
        let owner_wait = by_owner.zip(owner).and_then(|(rate, owner)| Some((rate, owner.starts.wait(rate, now)?)));
        match (tool_wait, owner_wait) {
            (None, None) => Ok(()),
            // The longer one counts: before that it would be refused again.
            (Some((rate, wait)), Some((_, other))) if wait >= other => Err(refusal::tool_rate(guest.name, rate, wait)),
            (Some((rate, wait)), None) => Err(refusal::tool_rate(guest.name, rate, wait)),
            (_, Some((rate, wait))) => Err(refusal::owner_rate(rate, wait)),
        }
    }

    /// Counts a start.
    pub(super) fn count_start(&mut self, claim: &Claim, guest: &GuestTool<'_>) {
        if let (Some(rate), Some(tool)) = (guest.policy.rate, claim.tool.and_then(|place| self.tools.get_mut(place))) {
            tool.starts.take(rate, Instant::now());
        }
        if let (Some(rate), Some(owner)) = (guest.limits.rate, self.owners.get_mut(claim.owner)) {
            owner.starts.take(rate, Instant::now());
        }
    }
}

impl Row for OwnerRow {
    fn is_idle(&self, now: Instant) -> bool {
        self.slots == 0 && self.waiting == 0 && self.starts.is_full(now)
    }
}

impl Row for ToolRow {
    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.waiting == 0 && self.starts.is_full(now)
    }
}
