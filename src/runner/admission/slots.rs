//! Who has which slots.

use std::time::Duration;

use tokio::time::Instant;

use super::gate::GuestTool;
use super::pace::Pace;
use super::rate::Bucket;
use super::refusal;
use super::table::{Row, Table};
use crate::config::Rate;
use crate::protocol::Failure;
use crate::share::Company;

/// The slots of all runs together, and what owners and tools have of them.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    free: usize,
    /// Who must be left something.
    pub(super) company: Company,
    pub(super) owners: Table<OwnerRow>,
    pub(super) tools: Table<ToolRow>,
    /// Owners at tools that have limits.
    pub(super) parts: Table<PartRow>,
}

/// What one run takes, and what bounds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The place of its owner.
    pub(super) owner: usize,
    /// The place of its tool, if that has limits.
    pub(super) tool: Option<usize>,
    /// The place of its owner at that tool.
    pub(super) part: Option<usize>,
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

/// What an owner has of a tool.
#[derive(Debug, Default)]
pub(super) struct PartRow {
    running: usize,
    starts: Bucket,
}

/// Who must not start a tool for so long.
#[derive(Clone, Copy, Debug)]
enum ToolWait {
    /// Nobody.
    OfAll(Duration),
    /// This owner, who had more starts than are left.
    OfOwner(Duration),
}

impl Slots {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            most: slots,
            free: slots,
            company: Company::default(),
            owners: Table::default(),
            tools: Table::default(),
            parts: Table::default(),
        }
    }

    /// Whether none is free.
    pub(super) const fn are_taken(&self) -> bool {
        self.free == 0
    }

    /// Whether the run could have its slots now.
    pub(super) fn fit(&self, claim: &Claim) -> bool {
        let owner = self.owners.get(claim.owner);
        let (slots, running) = owner.map_or((0, 0), |owner| (owner.slots, owner.running));
        let tool_running = self.tool(claim).map_or(0, |tool| tool.running);
        let own = self.part(claim).map_or(0, |part| part.running);
        let fits_tool = |most: usize| self.company.may_take(most, most.saturating_sub(tool_running), own);
        self.company.may_take(self.most, self.free, slots)
            && claim.owner_runs.is_none_or(|most| running < most)
            && claim.tool_runs.is_none_or(fits_tool)
    }

    fn tool(&self, claim: &Claim) -> Option<&ToolRow> {
        self.tools.get(claim.tool?)
    }

    fn part(&self, claim: &Claim) -> Option<&PartRow> {
        self.parts.get(claim.part?)
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
        if let Some(part) = claim.part.and_then(|place| self.parts.get_mut(place)) {
            part.running += 1;
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
        if let Some(part) = claim.part.and_then(|place| self.parts.get_mut(place)) {
            part.running = part.running.saturating_sub(1);
        }
    }

    /// Whether a run may be started now.
    pub(super) fn check_rates(&self, claim: &Claim, guest: &GuestTool<'_>) -> Result<(), Failure> {
        let (by_tool, by_owner) = (guest.policy.rate, guest.limits.rate);
        if by_tool.is_none() && by_owner.is_none() {
            return Ok(());
        }
        let now = Instant::now();
        let owner = self.owners.get(claim.owner);
        let tool_wait = by_tool.and_then(|rate| Some((rate, self.tool_wait(claim, rate, now)?)));
        let owner_wait = by_owner.zip(owner).and_then(|(rate, owner)| Some((rate, owner.starts.wait(rate, now)?)));
        match (tool_wait, owner_wait) {
            (None, None) => Ok(()),
            // The longer one counts: before that it would be refused again.
            (Some((rate, wait)), Some((_, other))) if wait.time() >= other => Err(wait.refusal(guest.name, rate)),
            (Some((rate, wait)), None) => Err(wait.refusal(guest.name, rate)),
            (_, Some((rate, wait))) => Err(refusal::owner_rate(rate, wait)),
        }
    }

    /// How long the tool must not be started by this owner.
    fn tool_wait(&self, claim: &Claim, rate: Rate, now: Instant) -> Option<ToolWait> {
        let (tool, part) = (self.tool(claim)?, self.part(claim)?);
        let kept = u32::try_from(self.company.kept_of(rate.count as usize)).unwrap_or(u32::MAX);
        let wait = tool.starts.share_wait(&part.starts, kept, rate, now)?;
        let is_everybodys = tool.starts.wait(rate, now) >= Some(wait);
        Some(if is_everybodys { ToolWait::OfAll(wait) } else { ToolWait::OfOwner(wait) })
    }

    /// Counts a start.
    pub(super) fn count_start(&mut self, claim: &Claim, guest: &GuestTool<'_>) {
        if let Some(rate) = guest.policy.rate {
            let now = Instant::now();
            if let Some(tool) = claim.tool.and_then(|place| self.tools.get_mut(place)) {
                tool.starts.take(rate, now);
            }
            if let Some(part) = claim.part.and_then(|place| self.parts.get_mut(place)) {
                part.starts.take(rate, now);
            }
        }
        if let (Some(rate), Some(owner)) = (guest.limits.rate, self.owners.get_mut(claim.owner)) {
            owner.starts.take(rate, Instant::now());
        }
    }
}

impl ToolWait {
    const fn time(self) -> Duration {
        match self {
            Self::OfAll(wait) | Self::OfOwner(wait) => wait,
        }
    }

    fn refusal(self, tool: &str, rate: Rate) -> Failure {
        match self {
            Self::OfAll(wait) => refusal::tool_rate(tool, rate, wait),
            Self::OfOwner(wait) => refusal::tool_rate_share(tool, rate, wait),
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

impl Row for PartRow {
    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.starts.is_full(now)
    }
}
