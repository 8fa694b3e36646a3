//! Who has which slots.

use tokio::time::Instant;

use super::gate::{Counting, GuestTool};
use super::pace::Pace;
use super::rate::Bucket;
use super::refusal;
use super::starts::{Owner, Starts};
use super::table::{Row, Table};
use super::told::Told;
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
    starts: Starts,
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
    /// The key of its owner.
    pub(super) who: u64,
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
    /// Whether its owner is all newcomers at an address.
    pub(super) of_newcomers: bool,
    /// The key of what is called.
    pub(super) what: u64,
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
    /// Who was told to come when there is a place in its line.
    pub(super) told: Told,
    starts: Starts,
    /// How fast its calls get on.
    pub(super) pace: Pace,
}

/// What an owner has of a tool.
#[derive(Debug, Default)]
pub(super) struct PartRow {
    running: usize,
    /// Calls in the line.
    pub(super) waiting: usize,
    starts: Bucket,
}

impl Slots {
    pub(super) fn new(slots: usize, rate: Option<Rate>) -> Self {
        Self {
            most: slots,
            free: slots,
            rate,
            starts: Starts::default(),
            company: Company::default(),
            owners: Table::default(),
            tools: Table::default(),
            parts: Table::default(),
        }
    }

    /// How many are free.
    pub(super) const fn free(&self) -> usize {
        self.free
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

    /// Whether a run may be started now. Who may not is told when it may, and comes then before others who ask.
    pub(super) fn check_rates(&mut self, claim: &Claim, guest: &GuestTool<'_>) -> Result<(), Failure> {
        let (by_tool, by_owner) = (guest.policy.rate, guest.limits.rate);
        if by_tool.is_none() && by_owner.is_none() && self.rate.is_none() {
            return Ok(());
        }
        let (now, company) = (Instant::now(), self.company);
        let Some(owner) = self.owners.get(claim.owner) else { return Ok(()) };
        let of_owner = by_owner.and_then(|rate| owner.starts.wait(rate, now).map(|wait| (rate, wait)));
        let own_of_all = owner.starts_of_all;
        let mut longest = of_owner.map(|(rate, wait)| (wait, refusal::owner_rate(rate, wait)));
        let all = self.rate.map(|rate| (&mut self.starts, own_of_all, rate, None));
        let tool = by_tool.and_then(|rate| {
            let own = self.parts.get(claim.part?)?.starts;
            Some((&mut self.tools.get_mut(claim.tool?)?.starts, own, rate, Some(guest.name)))
        });
        for (starts, own, rate, name) in all.into_iter().chain(tool) {
            let asks = Owner { key: claim.who, own: &own };
            let Err(wait) = starts.check(asks, company, rate, now) else { continue };
            // Who could not come then for another reason has nothing kept for it.
            if of_owner.is_none() {
                starts.tell(asks, wait.time, rate, now);
            }
            // The longest counts: before that it would be refused again.
            if longest.as_ref().is_none_or(|(longest, _)| *longest < wait.time) {
                longest = Some((wait.time, wait.refusal(name, rate)));
            }
        }
        longest.map_or(Ok(()), |(_, refused)| Err(refused))
    }

    /// Until when starts count.
    pub(super) fn counting(&self, claim: &Claim) -> Counting {
        Counting {
            all: self.starts.full_at(),
            tool: self.tool(claim).and_then(|tool| tool.starts.full_at()),
            owner: self.owners.get(claim.owner).and_then(|owner| owner.starts.full_at()),
        }
    }

    /// Starts count until then, at least.
    pub(super) fn recall(&mut self, claim: &Claim, before: Counting) {
        self.starts.recall(before.all);
        if let Some(tool) = claim.tool.and_then(|place| self.tools.get_mut(place)) {
            tool.starts.recall(before.tool);
        }
        if let Some(owner) = self.owners.get_mut(claim.owner) {
            owner.starts.recall(before.owner);
        }
    }

    /// Counts a start.
    pub(super) fn count_start(&mut self, claim: &Claim, guest: &GuestTool<'_>) {
        if let Some(rate) = guest.policy.rate {
            let now = Instant::now();
            if let Some(tool) = claim.tool.and_then(|place| self.tools.get_mut(place)) {
                tool.starts.take(claim.who, rate, now);
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
            self.starts.take(claim.who, rate, now);
            if let Some(owner) = self.owners.get_mut(claim.owner) {
                owner.starts_of_all.take(rate, now);
            }
        }
    }
}

impl ToolRow {
    /// How many of `most` slots are free.
    pub(super) const fn free(&self, most: usize) -> usize {
        most.saturating_sub(self.running)
    }
}

impl Row for OwnerRow {
    fn is_idle(&self, now: Instant) -> bool {
        self.slots == 0 && self.waiting == 0 && self.starts.is_full(now) && self.starts_of_all.is_full(now)
    }
}

impl Row for ToolRow {
    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.waiting == 0 && self.told.is_empty(now) && self.starts.is_idle(now)
    }
}

impl Row for PartRow {
    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.waiting == 0 && self.starts.is_full(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::super::Bounds;
    use super::super::gate::{Entry, Gate, Guest};
    use super::super::tests::{Of, gate, runs};
    use super::*;
    use crate::config::{OwnerLimits, ToolPolicy};
    use crate::protocol::{Principal, Retry};

    #[test]
    fn what_an_owner_has_had_of_the_rate_of_all_is_remembered_however_many_others_come() {
        let rate = Rate { count: 8, per: Duration::from_hours(8) };
        let gate = Gate::new(Bounds { running: 100, waiting: 100, rate: Some(rate) });
        let of = Of::default();
        for _ in 0..7 {
            drop(of.free(&gate, "ann", "t"));
        }
        for n in 0..2000 {
            let who = Principal::Named(format!("owner {n}").into());
            let Ok(Entry::Free(permits)) = gate.enter(&Guest { principal: &who, tool: None }) else {
                panic!("no slot")
            };
            drop(permits);
        }
        assert!(of.refused(&gate, "ann", "t").message.contains("your share"));
    }

    #[test]
    fn what_an_owner_has_of_a_tool_counts_also_if_it_waited_for_it_while_many_others_came() {
        let (gate, of) = (gate(1000, 1000), runs(8));
        let mut anns: Vec<_> = (0..7).map(|_| of.free(&gate, "ann", "t")).collect();
        let bos = of.free(&gate, "bo", "t");
        let mut first = of.wait(&gate, "cy", "t");
        for n in 0..2000 {
            drop(of.free(&gate, &format!("owner {n}"), "another"));
        }
        drop(bos);
        let first = (&mut first).now_or_never().unwrap();
        anns.pop();
        // The last one is for who has none.
        drop(of.wait(&gate, "cy", "t"));
        drop((of.free(&gate, "di", "t"), first));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_who_could_not_come_for_a_limit_of_its_own() {
        let gate = gate(100, 100);
        let rate = Some(Rate { count: 2, per: Duration::from_mins(1) });
        let of = Of::tool(ToolPolicy { rate, ..ToolPolicy::default() });
        let own = OwnerLimits { rate: Some(Rate { count: 1, per: Duration::from_hours(1) }), ..OwnerLimits::default() };
        let anns = Of { policy: ToolPolicy { rate, ..ToolPolicy::default() }, limits: own };
        drop((anns.free(&gate, "ann", "t"), of.free(&gate, "bo", "t")));
        let refused = anns.refused(&gate, "ann", "t").retry;
        assert!(matches!(refused, Retry::After(wait) if wait > Duration::from_mins(2)), "{refused:?}");
        tokio::time::advance(Duration::from_secs(30)).await;
        of.free(&gate, "cy", "t");
    }
}
