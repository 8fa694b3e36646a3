//! What one run costs an owner who has a budget.

use std::sync::Arc;
use std::time::Duration;

use super::ledger::minus;
use super::purse::{Purse, Purses};
use crate::config::{Budget, Cost};
use crate::protocol::{Failure, Principal};

/// What one run costs. Dropped before [`Fare::sent`], it costs nothing.
#[derive(Debug)]
pub(in crate::runner) struct Fare {
    purses: Arc<Purses>,
    purse: Arc<Purse>,
    budget: Budget,
    price: Cost,
    per_minute: Cost,
    stage: Stage,
    /// What an earlier process has spent for minutes of it, which nobody takes back.
    earlier: Cost,
    /// The time of run at which it is looked at again.
    look_at: Duration,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The price is kept. To `Paid` when it is the call's turn.
    Reserved,
    /// The price is spent, but nothing was sent. To `Sent`, or to `Reserved` again.
    Paid,
    /// The price is spent, and so much for minutes.
    Sent(Cost),
}

/// How long the minutes of a run are not counted at most.
const LOOK: Duration = Duration::from_secs(1);
/// And at least.
const LEAST: Duration = Duration::from_millis(10);

impl Fare {
    /// Lets a call in, if the budget covers its start.
    pub(super) fn reserve(
        purses: &Arc<Purses>,
        principal: &Principal,
        budget: Budget,
        price: Cost,
        per_minute: Cost,
    ) -> Result<Self, Failure> {
        let purse = purses.of(principal, budget);
        purses.reserve(&purse, budget, price)?;
        Ok(Self {
            purses: Arc::clone(purses),
            purse,
            budget,
            price,
            per_minute,
            stage: Stage::Reserved,
            earlier: Cost::ZERO,
            look_at: Duration::ZERO,
        })
    }

    /// Of a run that goes on: the time up to `counted` is spent, that up to `ran` is counted at once.
    pub(super) fn found(
        purses: &Arc<Purses>,
        principal: &Principal,
        budget: Budget,
        per_minute: Cost,
        counted: Duration,
        ran: Duration,
    ) -> Self {
        let earlier = per_minute.for_time(counted.min(ran));
        Self {
            purses: Arc::clone(purses),
            purse: purses.of(principal, budget),
            budget,
            price: Cost::ZERO,
            per_minute,
            stage: Stage::Sent(earlier),
            earlier,
            look_at: ran,
        }
    }

    /// Spends the price, before anything is sent. Fails if runs of the owner have used up the budget since it was let in.
    pub(in crate::runner) fn pay(&mut self) -> Result<(), Failure> {
        if self.stage == Stage::Reserved {
            let left = self.purses.pay(&self.purse, self.budget, self.price)?;
            self.stage = Stage::Paid;
            self.look_again(Duration::ZERO, left);
        }
        Ok(())
    }

    /// The call is sent: from now on nothing is given back. The second time, its time begins anew.
    pub(in crate::runner) fn sent(&mut self) {
        if let Stage::Sent(_) = self.stage {
            let left = self.purses.spend(&self.purse, self.budget, Cost::ZERO);
            self.look_again(Duration::ZERO, left);
        }
        self.stage = Stage::Sent(Cost::ZERO);
    }

    /// The call was not taken after all: its price is kept for it, until it is paid again, and its minutes were none.
    pub(in crate::runner) fn held_up(&mut self) {
        if let Stage::Sent(counted) = self.stage {
            self.purses.refund(&self.purse, minus(counted, self.earlier));
            self.purses.take_back(&self.purse, self.price);
            self.stage = Stage::Reserved;
        }
    }

    /// Makes what was spent so far durable.
    pub(in crate::runner) async fn written(&self) {
        if self.price != Cost::ZERO {
            self.purses.write(&self.purse).await;
        }
    }

    /// The time of run at which [`Fare::count`] is to be called.
    pub(in crate::runner) const fn look_at(&self) -> Duration {
        self.look_at
    }

    /// Spends what a run of that time costs; fails with the budget if that is used up and the run costs more by the minute.
    pub(in crate::runner) fn count(&mut self, ran: Duration) -> Result<(), Budget> {
        let Stage::Sent(counted) = self.stage else { return Ok(()) };
        let all = self.per_minute.for_time(ran).max(counted);
        let more = minus(all, counted);
        self.stage = Stage::Sent(all);
        let left = self.purses.spend(&self.purse, self.budget, more);
        self.look_again(ran, left);
        if left == Cost::ZERO && self.per_minute != Cost::ZERO {
            return Err(self.budget);
        }
        Ok(())
    }

    fn look_again(&mut self, ran: Duration, left: Cost) {
        let per_minute = self.per_minute.millionths();
        self.look_at = if per_minute == 0 {
            Duration::MAX
        } else {
            // When this run alone would have spent what is left.
            let millis = u128::from(left.millionths()) * 60_000 / u128::from(per_minute);
            let enough = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
            ran.saturating_add(enough.clamp(LEAST, LOOK))
        };
    }
}

impl Drop for Fare {
    fn drop(&mut self) {
        match self.stage {
            Stage::Reserved => Purses::give_back(&self.purse, self.price),
            Stage::Paid => self.purses.refund(&self.purse, self.price),
            Stage::Sent(_) => {}
        }
    }
}
