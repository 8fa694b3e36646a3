//! Who may run what, when: slots and the line in front of them, rates, and budgets.
//!
//! A call is let in once, before anything else happens to it. What refuses it names the limit, and when it is worth
//! trying again (`refusal`). Then it has its slots (`gate`, `slots`) or a place in the line (`line`), and what it will
//! cost is kept for it (`fare`, `purse`).

mod fare;
mod gate;
mod ledger;
mod line;
mod pace;
mod purse;
mod rate;
mod refusal;
mod slots;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub(super) use fare::Fare;
pub use gate::Place;
pub(super) use gate::{Entry, Permits, Ticket};

use self::gate::{Gate, Guest, GuestTool};
use self::purse::Purses;
use super::{Bounds, Plan, What};
use crate::config::{Cost, OwnerLimits, OwnerRules};
use crate::jobs::Jobs;
use crate::protocol::{Failure, Principal};
use crate::store::Store;

/// Lets calls in.
#[derive(Debug)]
pub(super) struct Admission {
    gate: Arc<Gate>,
    rules: OwnerRules,
    purses: Arc<Purses>,
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
        Self { gate: Gate::new(bounds.running, bounds.waiting), rules, purses }
    }

    /// Lets a call in, or says why not. Then nothing was counted.
    pub(super) fn admit(&self, principal: &Principal, plan: &Plan) -> Result<Admitted, Failure> {
        let What::Tool(name) = &plan.what else {
            let entry = self.gate.enter(&Guest { principal, tool: None })?;
            return Ok(Admitted { entry, fare: None });
        };
        let (limits, policy) = (self.limits(principal), &*plan.policy);
        let is_priced = policy.price != Cost::ZERO || policy.price_per_minute != Cost::ZERO;
        let fare = match limits.budget.filter(|_| is_priced) {
            Some(budget) => Some(Box::new(Fare::reserve(&self.purses, principal, budget, policy)?)),
            None => None,
        };
        let tool = GuestTool { server: &plan.server, name, policy, limits };
        let entry = self.gate.enter(&Guest { principal, tool: Some(tool) })?;
        Ok(Admitted { entry, fare })
    }

    /// How many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.gate.waiting()
    }

    fn limits(&self, principal: &Principal) -> &OwnerLimits {
        self.rules.of(match principal {
            Principal::Named(name) => Some(name),
            Principal::Subject { subject, .. } => Some(subject),
            // Of an owner that only a record names no name is known.
            Principal::Local | Principal::Anonymous | Principal::Credential(_) | Principal::Recorded { .. } => None,
        })
    }
}
