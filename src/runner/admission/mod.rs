//! Who may run what, when: slots and the line in front of them, rates, and budgets.
//!
//! A call is let in once, before anything else happens to it. What refuses it names the limit, and when it is worth
//! trying again (`refusal`). Then it has its slots (`gate`, `slots`) or a place in the line ([`line`](crate::share::line)), and what it will
//! cost is kept for it (`fare`, `purse`).

mod fare;
mod gate;
mod kept_starts;
mod ledger;
mod lingering;
mod pace;
mod purse;
mod rate;
mod refusal;
mod slots;
mod starts;
mod table;
#[cfg(test)]
mod tests;
mod told;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub(super) use fare::Fare;
pub use gate::Place;
pub(super) use gate::{Entry, Permits, Ticket};
pub use lingering::Kept;
pub(super) use lingering::Lingering;

use self::gate::{Gate, Guest, GuestTool};
use self::kept_starts::KeptStarts;
use self::purse::Purses;
use super::{Bounds, Plan, What};
use crate::config::{Cost, OwnerLimits, OwnerRules, Rate};
use crate::jobs::Jobs;
use crate::protocol::{Failure, Principal};
use crate::shared_map::SharedMap;
use crate::store::{Quotas, Store};
use crate::task::{Owner, Task};

/// Lets calls in.
#[derive(Debug)]
pub(super) struct Admission {
    gate: Arc<Gate>,
    rules: OwnerRules,
    /// Owners whose names the configuration tells, by their digests.
    known: HashMap<[u8; 32], Principal>,
    /// Owners of tasks that were left whose names are not known, until they come.
    strangers: Strangers,
    purses: Arc<Purses>,
    kept_starts: KeptStarts,
    /// How often calls of tools may be started, all together.
    rate: Option<Rate>,
}

/// Owners of whom only the digest is known.
#[derive(Debug)]
struct Strangers {
    store: Store,
    digests: SharedMap<[u8; 32], ()>,
    /// Whether there is any: most calls need not look.
    any: AtomicBool,
}

/// What a call was let in with.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) entry: Entry,
    /// What it costs, if its owner has a budget and it costs anything.
    pub(super) fare: Option<Box<Fare>>,
}

impl Admission {
    /// As `rules` say, within `bounds`. What was spent before is in the store; it is written by jobs that end soon when
    /// `ending` fires. Reads the disk if there are budgets.
    pub(super) fn new(
        store: &Store,
        jobs: &Jobs,
        ending: &CancellationToken,
        bounds: Bounds,
        rules: OwnerRules,
    ) -> Self {
        let purses = Purses::open(store, jobs, ending, &rules);
        let known = known(store, &rules);
        store.limit_owners(quotas(&rules, &known));
        let strangers = Strangers { store: store.clone(), digests: SharedMap::default(), any: AtomicBool::default() };
        let (kept_starts, rate) = (KeptStarts::open(store, jobs, ending), bounds.rate);
        Self { gate: Gate::new(bounds), rules, known, strangers, purses, kept_starts, rate }
    }

    /// Who an owner is that a record names: by name if that can be known, so that nobody has its limits twice.
    pub(super) fn who(&self, owner: &Owner) -> Principal {
        self.known.get(owner.digest()).cloned().unwrap_or_else(|| {
            self.strangers.digests.insert(*owner.digest(), ());
            self.strangers.any.store(true, Ordering::Release);
            owner.principal()
        })
    }

    /// Whose share a run takes: what an owner left and what it calls anew count together, and so do all newcomers at an
    /// address.
    pub(super) fn sharer<'a>(&self, principal: &'a Principal) -> Cow<'a, Principal> {
        match principal.sharer() {
            Cow::Borrowed(known) => self.strangers.find(known).map_or(Cow::Borrowed(known), Cow::Owned),
            newcomers @ Cow::Owned(_) => newcomers,
        }
    }

    /// The owner of a run is no newcomer any more: what it takes is its own from now on.
    pub(super) fn is_known(&self, principal: &Principal, permits: &mut Permits) {
        permits.count_for(&self.sharer(principal));
    }

    /// Lets a call in, or says why not. Then nothing was counted.
    pub(super) fn admit(&self, principal: &Principal, plan: &Plan) -> Result<Admitted, Failure> {
        let fare = self.fare(principal, plan, plan.policy.price)?;
        Ok(Admitted { entry: self.enter(principal, plan)?, fare })
    }

    /// Lets a call in that an earlier process let in, and did not send.
    pub(super) fn admit_left(&self, principal: &Principal, plan: &Plan) -> Result<Admitted, Failure> {
        let fare = self.fare(principal, plan, plan.policy.price)?;
        Ok(Admitted { entry: self.enter_again(principal, plan)?, fare })
    }

    /// Lets a call in whose run was lost and is begun again: its price is paid.
    pub(super) fn admit_again(&self, principal: &Principal, plan: &Plan) -> Result<Admitted, Failure> {
        let fare = self.fare(principal, plan, Cost::ZERO)?;
        Ok(Admitted { entry: self.enter_again(principal, plan)?, fare })
    }

    /// Takes slots, or a place in the line.
    fn enter(&self, principal: &Principal, plan: &Plan) -> Result<Entry, Failure> {
        let guest = Guest { principal: &self.sharer(principal), tool: self.guest_tool(principal, plan) };
        let Some(rates) = self.kept_starts.rates(&guest, self.rate) else { return self.gate.enter(&guest) };
        self.kept_starts.recall(&rates, &self.gate, &guest);
        let entry = self.gate.enter(&guest)?;
        self.kept_starts.keep(&rates, self.gate.counting(&guest));
        Ok(entry)
    }

    /// The same for a call that was let in before, by an earlier process perhaps: its start is counted.
    pub(super) fn enter_again(&self, principal: &Principal, plan: &Plan) -> Result<Entry, Failure> {
        let guest = Guest { principal: &self.sharer(principal), tool: self.guest_tool(principal, plan) };
        self.gate.enter_again(&guest)
    }

    /// What is called, if it is a tool.
    fn guest_tool<'a>(&'a self, principal: &Principal, plan: &'a Plan) -> Option<GuestTool<'a>> {
        let What::Tool(name) = &plan.what else { return None };
        Some(GuestTool { server: &plan.server, name, policy: &plan.policy, limits: self.limits(principal) })
    }

    /// What a run goes on to cost that an earlier process began, and has paid the price of.
    pub(super) fn fare_of_left(&self, principal: &Principal, task: &Task) -> Option<Box<Fare>> {
        let (budget, per_minute) = (self.limits(principal).budget?, task.charge.per_minute);
        let ran = task.ran(self.purses.now()).unwrap_or_default();
        let counted = self.ran_as_written(principal, task);
        (per_minute != Cost::ZERO)
            .then(|| Box::new(Fare::found(&self.purses, principal, budget, per_minute, counted, ran)))
    }

    /// How long a run had gone on when an earlier process last wrote what its owner has spent: the time that is paid.
    pub(super) fn ran_as_written(&self, principal: &Principal, task: &Task) -> Duration {
        let budget = self.limits(principal).budget;
        let written = budget.and_then(|budget| self.purses.of(principal, budget).left());
        // Without a budget nothing is counted of a run in its course.
        task.ran(written.unwrap_or(task.updated)).unwrap_or_default()
    }

    /// What a run costs, if its owner has a budget. `price` is what its start costs.
    fn fare(&self, principal: &Principal, plan: &Plan, price: Cost) -> Result<Option<Box<Fare>>, Failure> {
        let per_minute = plan.policy.price_per_minute;
        let is_free = matches!(plan.what, What::Other(_)) || (price == Cost::ZERO && per_minute == Cost::ZERO);
        match self.limits(principal).budget.filter(|_| !is_free) {
            Some(budget) => Ok(Some(Box::new(Fare::reserve(&self.purses, principal, budget, price, per_minute)?))),
            None => Ok(None),
        }
    }

    /// The plan, where it takes no more than a run of this caller may.
    pub(super) fn bounded(&self, principal: &Principal, plan: Plan) -> Plan {
        match plan.what {
            What::Tool(_) => Plan { policy: self.limits(principal).run.bound(&plan.policy), ..plan },
            What::Other(_) => plan,
        }
    }

    /// How many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.gate.waiting()
    }

    /// How many slots are taken.
    pub(super) fn running(&self) -> usize {
        self.gate.running()
    }

    /// How many of them are those of runs that were stopped.
    pub(super) fn lingering(&self) -> usize {
        self.gate.lingering()
    }

    fn limits(&self, principal: &Principal) -> &OwnerLimits {
        self.rules.of(name_of(principal))
    }
}

impl Strangers {
    /// The owner of tasks that were left, if `principal` is one.
    fn find(&self, principal: &Principal) -> Option<Principal> {
        if !self.any.load(Ordering::Acquire) || matches!(principal, Principal::Local | Principal::Anonymous) {
            return None;
        }
        let owner = self.store.owner(principal);
        self.digests.with(owner.digest(), |()| owner.principal())
    }
}

/// The name that limits may be given to.
fn name_of(principal: &Principal) -> Option<&str> {
    match principal {
        Principal::Named(name) => Some(name),
        Principal::Subject { subject, .. } => Some(subject),
        // A recorded one whose name is known was made that one again.
        Principal::Local
        | Principal::Anonymous
        | Principal::Credential(_)
        | Principal::Newcomers(_)
        | Principal::Recorded { .. } => None,
    }
}

/// All whose digests can be computed: those without a name, and those whom the configuration names.
fn known(store: &Store, rules: &OwnerRules) -> HashMap<[u8; 32], Principal> {
    let names = rules.named.keys().chain(&rules.tokens);
    let by_name = names.map(|name| Principal::Named(name.as_str().into()));
    let subjects = rules.issuer.iter().flat_map(|issuer| {
        let subject = |name: &String| (issuer.as_str().into(), name.as_str().into());
        rules.named.keys().map(subject).map(|(issuer, subject)| Principal::Subject { issuer, subject })
    });
    let all = [Principal::Local, Principal::Anonymous].into_iter().chain(by_name).chain(subjects);
    all.map(|principal| (*store.owner(&principal).digest(), principal)).collect()
}

/// How many tasks each owner may have.
fn quotas(rules: &OwnerRules, known: &HashMap<[u8; 32], Principal>) -> Quotas {
    let most = |limits: &OwnerLimits| limits.max_tasks.map(|most| most as u64);
    let local = known.iter().find(|(_, principal)| **principal == Principal::Local).map(|(digest, _)| *digest);
    let named = known.iter().filter(|(_, principal)| name_of(principal).is_some());
    let named = named.map(|(digest, principal)| (*digest, most(rules.of(name_of(principal))))).collect();
    Quotas { all: most(&rules.all), named, local }
}
