//! Slots for runs, and the line of those who wait for one.
//!
//! A call takes all its slots at once, or none and waits: whoever waits for a busy tool, or because its owner runs
//! enough, holds nothing that others could use. Whoever waits does not fit now, for each slot that is given back goes to
//! the first in the line whom it fits. So a call that fits need not look at the line.

mod anew;
mod past;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::Instant;

pub(super) use self::past::Counting;
use super::lingering::{self, Kept, Stopped};
use super::pace::Pace;
use super::refusal;
use super::slots::{Claim, Slots};
use super::told::{Asker, Told};
use crate::config::{OwnerLimits, ToolPolicy};
use crate::protocol::{Failure, Principal};
use crate::runner::Bounds;
use crate::share::line::{FairLine, Line};

/// All slots, and the line in front of them.
#[derive(Debug)]
pub(in crate::runner) struct Gate {
    state: Mutex<State>,
    /// Makes keys of owners and tools that nobody can foresee.
    keys: RandomState,
}

#[derive(Debug)]
struct State {
    slots: Slots,
    line: FairLine<Waiting>,
    /// Who was told to come when there is a place in the line.
    told: Told,
    most_waiting: usize,
    next_ticket: u64,
    pace: Pace,
    /// Of those who have slots: runs that were stopped.
    stopped: BTreeMap<u64, Stopped>,
}

/// Who comes to the gate.
#[derive(Clone, Copy, Debug)]
pub(in crate::runner) struct Guest<'a> {
    pub(in crate::runner) principal: &'a Principal,
    /// What is called, if limits of tools and owners hold for it.
    pub(in crate::runner) tool: Option<GuestTool<'a>>,
}

/// The tool that is called.
#[derive(Clone, Copy, Debug)]
pub(in crate::runner) struct GuestTool<'a> {
    pub(in crate::runner) server: &'a str,
    pub(in crate::runner) name: &'a str,
    pub(in crate::runner) policy: &'a ToolPolicy,
    pub(in crate::runner) limits: &'a OwnerLimits,
}

/// The slots of one run, taken until this is dropped.
#[derive(Debug)]
pub(in crate::runner) struct Permits(Option<(Arc<Gate>, Claim)>);

/// A place in the line: a future that ends with slots. Dropping it leaves the line.
#[derive(Debug)]
pub(in crate::runner) struct Ticket {
    gate: Arc<Gate>,
    number: u64,
    key: Key,
    claim: Claim,
    slots: oneshot::Receiver<Permits>,
}

/// What one finds at a gate.
#[derive(Debug)]
pub(in crate::runner) enum Entry {
    /// The slots were free.
    Free(Permits),
    /// They were not.
    Wait(Ticket),
}

/// Tells the place of a ticket.
#[derive(Clone, Debug)]
pub struct Place {
    gate: Weak<Gate>,
    number: u64,
    key: Key,
    claim: Claim,
}

#[derive(Debug)]
struct Waiting {
    claim: Claim,
    since: Instant,
    slots: oneshot::Sender<Permits>,
}

type Key = (u64, (u64, ()));

/// The key of all that is no tool.
const NO_TOOL: u64 = 0;

impl Gate {
    /// A gate with so many slots, for which so many may wait. None can take all of either, nor of those of a tool
    /// ([`Company`](crate::share::Company)).
    pub(in crate::runner) fn new(bounds: Bounds) -> Arc<Self> {
        let state = State {
            slots: Slots::new(bounds.running, bounds.rate),
            line: FairLine::default(),
            told: Told::default(),
            most_waiting: bounds.waiting,
            next_ticket: 0,
            pace: Pace::default(),
            stopped: BTreeMap::new(),
        };
        Arc::new(Self { state: Mutex::new(state), keys: RandomState::new() })
    }

    /// How many calls wait.
    pub(in crate::runner) fn waiting(&self) -> usize {
        self.state().line.len()
    }

    /// How many slots are taken.
    pub(in crate::runner) fn running(&self) -> usize {
        self.state().slots.taken()
    }

    /// How many of them are those of runs that were stopped.
    pub(in crate::runner) fn lingering(&self) -> usize {
        self.state().stopped.len()
    }

    /// A run was stopped, and keeps its slots; gives it a number.
    pub(super) fn stopped(&self, stopped: Stopped) -> u64 {
        let mut state = self.state();
        let number = state.next_ticket;
        state.next_ticket += 1;
        state.stopped.insert(number, stopped);
        number
    }

    /// That run gives its slots back.
    pub(super) fn stopped_no_more(&self, number: u64) {
        self.state().stopped.remove(&number);
    }

    /// Takes slots, or a place in the line. Refused, it has changed nothing.
    pub(in crate::runner) fn enter(self: &Arc<Self>, guest: &Guest<'_>) -> Result<Entry, Failure> {
        self.enter_rated(guest, guest.tool)
    }

    /// The same for a call whose start was counted before.
    pub(super) fn enter_again(self: &Arc<Self>, guest: &Guest<'_>) -> Result<Entry, Failure> {
        self.enter_rated(guest, None)
    }

    /// The same for a call that is a start of that.
    fn enter_rated(self: &Arc<Self>, guest: &Guest<'_>, started: Option<GuestTool<'_>>) -> Result<Entry, Failure> {
        let mut state = self.state();
        state.slots.company.meet(guest.principal);
        let claim = self.claim(&mut state.slots, guest);
        if let Some(tool) = &started {
            state.slots.check_rates(&claim, tool)?;
        }
        let fits = state.slots.fit(&claim);
        let limited = guest.tool.filter(|tool| has_limits(tool.policy));
        let nobody_may_wait = |tool: GuestTool<'_>| tool.policy.max_queued == Some(0);
        if !fits || state.most_waiting == 0 || limited.is_some_and(nobody_may_wait) {
            state.check_line(&claim, guest, fits)?;
        }
        state.served(&claim);
        if let Some(tool) = &started {
            state.slots.count_start(&claim, tool);
        }
        Ok(self.take_or_wait(state, claim))
    }

    /// What a guest takes.
    fn claim(&self, slots: &mut Slots, guest: &Guest<'_>) -> Claim {
        let owner = self.keys.hash_one(guest.principal);
        let what = guest.tool.map_or(NO_TOOL, |tool| self.keys.hash_one((tool.server, tool.name)));
        let limited = guest.tool.filter(|tool| has_limits(tool.policy));
        Claim {
            who: owner,
            owner: slots.owners.place(owner),
            tool: limited.map(|_| slots.tools.place(what)),
            part: limited.map(|_| slots.parts.place(self.keys.hash_one((owner, what)))),
            owner_runs: guest.tool.and_then(|tool| tool.limits.max_running),
            tool_runs: limited.and_then(|tool| tool.policy.max_running),
            is_tool: guest.tool.is_some(),
            of_newcomers: matches!(guest.principal, Principal::Newcomers(_)),
            what,
        }
    }

    /// Takes the slots if they are free, else a place in the line.
    fn take_or_wait(self: &Arc<Self>, mut state: MutexGuard<'_, State>, claim: Claim) -> Entry {
        if state.slots.fit(&claim) {
            state.slots.take(&claim);
            return Entry::Free(Permits(Some((Arc::clone(self), claim))));
        }
        let (sender, slots) = oneshot::channel();
        let (number, key) = (state.push(claim, sender), key_of(&claim));
        Entry::Wait(Ticket { gate: Arc::clone(self), number, key, claim, slots })
    }

    /// Gives slots back, and hands on what is free.
    fn release(self: &Arc<Self>, claim: &Claim) {
        let mut state = self.state();
        state.slots.release(claim);
        self.hand_on(state);
    }

    /// Gives what is free to those who wait.
    fn hand_on<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        let mut undelivered = None;
        loop {
            if let Some(claim) = undelivered.take() {
                state.slots.release(&claim);
            }
            let Some(next) = state.pop() else { return };
            drop(state);
            let permits = Permits(Some((Arc::clone(self), next.claim)));
            // Whoever has left meanwhile sends them back; they must not come back through here.
            undelivered =
                next.slots.send(permits).err().and_then(|mut permits| permits.0.take()).map(|(_, claim)| claim);
            state = self.state();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held, so a poisoned state is still in order.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether one more may wait, or where nobody may, run. Who may not is told when to come, and comes then before others
    /// who have as little in the line.
    fn check_line(&mut self, claim: &Claim, guest: &Guest<'_>, fits: bool) -> Result<(), Failure> {
        let (now, company, asker) = (Instant::now(), self.slots.company, Asker { owner: claim.who, rested_at: None });
        let (of_tool, of_all) = (self.waiting_at(claim), self.line.len());
        let owner = self.slots.owners.get(claim.owner);
        let (waiting, tools_waiting) = owner.map_or((0, 0), |owner| (owner.waiting, owner.tools_waiting));
        let free = self.slots.free();
        if let (Some(guest), Some(tool)) = (&guest.tool, claim.tool.and_then(|place| self.slots.tools.get_mut(place)))
            && let Some(most) = guest.policy.max_queued
        {
            let ahead = tool.told.ahead(&asker, now, |_| 0) as usize;
            let left = match (fits, most) {
                (true, 0) => guest.policy.max_running.map_or(usize::MAX, |most| tool.free(most)),
                (true, _) => usize::MAX,
                (false, _) => most.saturating_sub(tool.waiting),
            };
            let wait = tool.pace.estimate();
            let refused = if left <= ahead {
                Some(refusal::tool_queue_full(guest.name, wait))
            } else if !fits && !company.may_take(most, left, of_tool) {
                Some(refusal::tool_queue_share_full(guest.name, wait))
            } else {
                None
            };
            if let Some(refused) = refused {
                if of_tool == 0 {
                    tool.told.tell(asker, now + wait + wait, now, |_| 0);
                }
                return Err(refused);
            }
        }
        if !fits && guest.tool.and_then(|tool| tool.limits.max_queued).is_some_and(|most| tools_waiting >= most) {
            return Err(refusal::owner_queue_full(self.pace.estimate()));
        }
        let ahead = self.told.ahead(&asker, now, |_| 0) as usize;
        let left = match (fits, self.most_waiting) {
            (true, 0) => free,
            (true, _) => usize::MAX,
            (false, most) => most.saturating_sub(of_all),
        };
        let wait = self.pace.estimate();
        let refused = if left <= ahead {
            refusal::queue_full(wait)
        } else if !fits && !company.may_take(self.most_waiting, left, waiting) {
            refusal::queue_share_full(wait)
        } else {
            return Ok(());
        };
        if waiting == 0 {
            self.told.tell(asker, now + wait + wait, now, |_| 0);
        }
        Err(refused)
    }

    /// How many calls of this owner wait that call the same tool, if that has limits.
    fn waiting_at(&self, claim: &Claim) -> usize {
        claim.part.and_then(|place| self.slots.parts.get(place)).map_or(0, |part| part.waiting)
    }

    /// It has what it may have been told to come for.
    fn served(&mut self, claim: &Claim) {
        self.told.served(claim.who);
        if let Some(tool) = claim.tool.and_then(|place| self.slots.tools.get_mut(place)) {
            tool.told.served(claim.who);
        }
    }

    fn push(&mut self, claim: Claim, slots: oneshot::Sender<Permits>) -> u64 {
        let (number, since) = (self.next_ticket, Instant::now());
        self.next_ticket += 1;
        self.count(&claim, 1);
        if self.line.len() == 0 {
            self.pace.begin(since);
        }
        self.line.push(key_of(&claim), number, Waiting { claim, since, slots });
        number
    }

    /// Takes the first out whom the free slots fit, and its slots for it.
    fn pop(&mut self) -> Option<Waiting> {
        let slots = &self.slots;
        if self.line.len() == 0 || slots.free() == 0 {
            return None;
        }
        let next = self.line.pop(&mut |waiting: &Waiting| slots.fit(&waiting.claim))?;
        let now = Instant::now();
        self.pace.step(now);
        if let Some(tool) = next.claim.tool.and_then(|place| self.slots.tools.get_mut(place)) {
            tool.pace.since(next.since, now);
        }
        self.count(&next.claim, -1);
        self.slots.take(&next.claim);
        Some(next)
    }

    /// Counts one more who waits, or one less.
    fn count(&mut self, claim: &Claim, change: isize) {
        if let Some(owner) = self.slots.owners.get_mut(claim.owner) {
            owner.waiting = owner.waiting.saturating_add_signed(change);
            if claim.is_tool {
                owner.tools_waiting = owner.tools_waiting.saturating_add_signed(change);
            }
        }
        if let Some(tool) = claim.tool.and_then(|place| self.slots.tools.get_mut(place)) {
            tool.waiting = tool.waiting.saturating_add_signed(change);
        }
        if let Some(part) = claim.part.and_then(|place| self.slots.parts.get_mut(place)) {
            part.waiting = part.waiting.saturating_add_signed(change);
        }
    }
}

/// Where a call stands in the line.
const fn key_of(claim: &Claim) -> Key {
    (claim.who, (claim.what, ()))
}

fn has_limits(policy: &ToolPolicy) -> bool {
    policy.max_running.is_some() || policy.max_queued.is_some() || policy.rate.is_some()
}

impl Permits {
    /// Where they are from, and what was taken.
    pub(super) fn gate(&self) -> Option<&(Arc<Gate>, Claim)> {
        self.0.as_ref()
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if let Some((gate, claim)) = self.0.take() {
            gate.release(&claim);
        }
    }
}

impl Ticket {
    /// Something that can tell the place later without holding it.
    pub(in crate::runner) fn watcher(&self) -> Place {
        Place { gate: Arc::downgrade(&self.gate), number: self.number, key: self.key, claim: self.claim }
    }
}

impl Future for Ticket {
    type Output = Permits;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permits> {
        // The line lives as long as its gate, which this ticket holds: the sender is never lost.
        Pin::new(&mut self.slots).poll(context).map(|slots| slots.unwrap_or(Permits(None)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        if let Some(left) = state.line.remove(&self.key, self.number) {
            state.count(&left.claim, -1);
        }
    }
}

impl Place {
    /// The place in the line, from 1; `None` once the wait is over. Those who do not fit may be overtaken.
    pub fn now(&self) -> Option<usize> {
        let gate = self.gate.upgrade()?;
        let state = gate.state();
        state.line.ahead(&self.key, self.number).map(|ahead| ahead + 1)
    }

    /// Until when it may have to wait for runs that were stopped and keep their slots; `None` if it waits for others.
    pub fn kept(&self) -> Option<Kept> {
        let gate = self.gate.upgrade()?;
        let State { slots, line, stopped, .. } = &mut *gate.state();
        // Once the wait is over its claim means nothing any more.
        line.ahead(&self.key, self.number)?;
        lingering::kept(slots, &self.claim, stopped.values())
    }
}
