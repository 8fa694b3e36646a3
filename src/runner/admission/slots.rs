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
    /// How often runs of tools may be started, all together.
    rate: Option<Rate>,
    starts: Bucket,
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
    /// Starts among those of all together.
    starts_of_all: Bucket,
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

/// Who must not start anything for so long.
#[derive(Clone, Copy, Debug)]
enum SharedWait {
    /// Nobody.
    OfAll(Duration),
    /// This owner, who had more starts than are left.
    OfOwner(Duration),
}

impl Slots {
    pub(super) fn new(slots: usize, rate: Option<Rate>) -> Self {
        Self {
            most: slots,
            free: slots,
            rate,
            starts: Bucket::default(),
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

    /// How many are taken.
    pub(super) const fn taken(&self) -> usize {
        self.most.saturating_sub(self.free)
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
        if by_tool.is_none() && by_owner.is_none() && self.rate.is_none() {
            return Ok(());
        }
        let now = Instant::now();
        let of_owner = by_owner.zip(self.owners.get(claim.owner)).and_then(|(rate, owner)| {
            let wait = owner.starts.wait(rate, now)?;
            Some((wait, refusal::owner_rate(rate, wait)))
        });
        let of_all = self.rate.zip(self.owners.get(claim.owner)).and_then(|(rate, owner)| {
            let wait = self.shared_wait(&self.starts, &owner.starts_of_all, rate, now)?;
            Some((wait.time(), wait.refusal(None, rate)))
        });
        let of_tool = by_tool.and_then(|rate| {
            let (tool, part) = (self.tool(claim)?, self.part(claim)?);
            let wait = self.shared_wait(&tool.starts, &part.starts, rate, now)?;
            Some((wait.time(), wait.refusal(Some(guest.name), rate)))
        });
        // The longest counts: before that it would be refused again.
        let longest = [of_owner, of_all, of_tool].into_iter().flatten().max_by_key(|(wait, _)| *wait);
        longest.map_or(Ok(()), |(_, refused)| Err(refused))
    }

    /// How long nothing must be started by somebody who has taken these of all starts.
    fn shared_wait(&self, all: &Bucket, own: &Bucket, rate: Rate, now: Instant) -> Option<SharedWait> {
        let kept = u32::try_from(self.company.kept_of(rate.count as usize)).unwrap_or(u32::MAX);
        let wait = all.share_wait(own, kept, rate, now)?;
        let is_everybodys = all.wait(rate, now) >= Some(wait);
        Some(if is_everybodys { SharedWait::OfAll(wait) } else { SharedWait::OfOwner(wait) })
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
        if let Some(rate) = self.rate {
            let now = Instant::now();
            self.starts.take(rate, now);
            if let Some(owner) = self.owners.get_mut(claim.owner) {
                owner.starts_of_all.take(rate, now);
            }
        }
    }
}

impl SharedWait {
    const fn time(self) -> Duration {
        match self {
            Self::OfAll(wait) | Self::OfOwner(wait) => wait,
        }
    }

    /// Of the tool with this name, or of all.
    fn refusal(self, tool: Option<&str>, rate: Rate) -> Failure {
        match (self, tool) {
            (Self::OfAll(wait), Some(tool)) => refusal::tool_rate(tool, rate, wait),
            (Self::OfOwner(wait), Some(tool)) => refusal::tool_rate_share(tool, rate, wait),
            (Self::OfAll(wait), None) => refusal::rate(rate, wait),
            (Self::OfOwner(wait), None) => refusal::rate_share(rate, wait),
        }
    }
}

impl Row for OwnerRow {
    fn is_idle(&self, now: Instant) -> bool {
        self.slots == 0 && self.waiting == 0 && self.starts.is_full(now) && self.starts_of_all.is_full(now)
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
