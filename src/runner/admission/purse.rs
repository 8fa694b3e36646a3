//! What owners with a budget have spent, also before a restart.
//!
//! What a start costs is on the disk before the first byte goes to the server. What the minutes of a run cost is written
//! at most once a second for each owner: a crash loses the last second of it, and a proxy that stops in order nothing.

#[cfg(test)]
mod model;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::HEXLOWER;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::ledger::{Ledger, minus};
use super::refusal;
use crate::clock::Timestamp;
use crate::config::{Budget, Cost, OwnerRules};
use crate::jobs::Jobs;
use crate::protocol::{Failure, Principal};
use crate::shared_map::SharedMap;
use crate::store::{Shelf, Store};
use crate::task::Owner;

/// The purses of all owners who spend.
#[derive(Debug)]
pub(super) struct Purses {
    store: Store,
    jobs: Jobs,
    /// Fires when runs are to end: then all is written at once.
    ending: CancellationToken,
    known: SharedMap<[u8; 32], Arc<Purse>>,
    /// The longest time that any budget is for.
    longest: Duration,
}

/// What one owner has spent.
#[derive(Debug)]
pub(super) struct Purse {
    /// Its name on the shelf.
    name: String,
    /// When the process before this one last wrote what was spent.
    left: Option<Timestamp>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    /// For how long spending counts: the time of its owner's budget, and the longest of all until its owner comes.
    per: Duration,
    /// Prices of calls that were let in and not sent yet.
    reserved: Cost,
    /// Whether a job is about to write it.
    is_due: bool,
}

/// How often one purse is written at most.
const PAUSE: Duration = Duration::from_secs(1);
/// So few purses are not looked through.
const FEW: usize = 1024;
/// Of more owners than these it is not known what each has spent: all others share one purse.
const MOST: usize = 1 << 16;
/// The key of that purse.
const CROWD: [u8; 32] = [0; 32];

impl Purses {
    /// With what is in the store, if anybody has a budget. Reads the disk.
    pub(super) fn open(store: &Store, jobs: &Jobs, ending: &CancellationToken, rules: &OwnerRules) -> Arc<Self> {
        let known = SharedMap::default();
        let longest = rules.longest_budget();
        let shelf = if longest.is_some() { store.shelf(Shelf::Budget) } else { Ok(Vec::new()) };
        let longest = longest.unwrap_or_default();
        let written = shelf.unwrap_or_else(|error| {
            tracing::error!(%error, "what owners have spent cannot be read; their budgets begin anew");
            Vec::new()
        });
        for (name, bytes) in written {
            let digest = HEXLOWER.decode(name.as_bytes()).ok().and_then(|digest| digest.try_into().ok());
            let (Some(digest), Some(ledger)) = (digest, Ledger::from_bytes(&bytes)) else {
                tracing::warn!("what an owner has spent cannot be read");
                continue;
            };
            known.insert(digest, Arc::new(Purse::new(&digest, ledger, longest)));
        }
        Arc::new(Self { store: store.clone(), jobs: jobs.clone(), ending: ending.clone(), known, longest })
    }

    /// The time by which spending is counted.
    pub(super) fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// The purse of `principal`.
    pub(super) fn of(self: &Arc<Self>, principal: &Principal, budget: Budget) -> Arc<Purse> {
        let owner: Owner = self.store.owner(principal);
        if let Some(known) = self.known.get(owner.digest()) {
            known.state().per = budget.per;
            return known;
        }
        if self.known.len() >= FEW {
            self.forget_unused();
        }
        // Spending of the crowd counts for as long as that of any of them could.
        let (key, per) = if self.known.len() >= MOST { (CROWD, self.longest) } else { (*owner.digest(), budget.per) };
        let make = || Arc::new(Purse::new(&key, Ledger::default(), per));
        self.known.update_or_insert(key, make, |purse| Arc::clone(purse))
    }

    /// Forgets purses of which nothing counts any more, each by the time of its own budget.
    fn forget_unused(self: &Arc<Self>) {
        let (now, mut unused) = (self.store.clock().now(), Vec::new());
        self.known.retain(|digest, purse| {
            let mut state = purse.state();
            let per = state.per;
            state.ledger.forget(per, now);
            // Whoever has the purse may be about to spend.
            let is_used = !state.ledger.is_empty() || state.is_due || Arc::strong_count(purse) > 1;
            drop(state);
            if !is_used {
                unused.push(*digest);
            }
            is_used
        });
        if unused.is_empty() {
            return;
        }
        let purses = Arc::clone(self);
        self.jobs.spawn("forget purses", async move {
            for digest in unused {
                purses.unshelve(&digest).await;
            }
        });
    }

    /// Takes what an owner had spent from the shelf, unless the owner is back.
    async fn unshelve(self: &Arc<Self>, digest: &[u8; 32]) {
        if self.known.with(digest, |_| ()).is_some() {
            return;
        }
        if let Err(error) = self.store.shelve(Shelf::Budget, &HEXLOWER.encode(digest), None).await {
            tracing::debug!(%error, "an old purse stays in the store");
        }
        // One who came back in this moment may have written it before it was taken away.
        if let Some(purse) = self.known.get(digest) {
            self.write(&purse).await;
        }
    }

    /// Lets a start that costs `price` in, and keeps that much for it.
    pub(super) fn reserve(&self, purse: &Purse, budget: Budget, price: Cost) -> Result<(), Failure> {
        let mut state = purse.state();
        self.cover(&mut state, budget, price)?;
        state.reserved = state.reserved.plus(price);
        Ok(())
    }

    /// Gives back what was kept for a call that was not sent.
    pub(super) fn give_back(purse: &Purse, price: Cost) {
        let mut state = purse.state();
        state.reserved = minus(state.reserved, price);
    }

    /// Spends what was kept for a call, and gives what is left. Fails if runs of the owner have used up the budget since.
    pub(super) fn pay(self: &Arc<Self>, purse: &Arc<Purse>, budget: Budget, price: Cost) -> Result<Cost, Failure> {
        let mut state = purse.state();
        let reserved = minus(state.reserved, price);
        // What others have reserved is for those who come later.
        let waiting = std::mem::take(&mut state.reserved);
        let covered = self.cover(&mut state, budget, price);
        state.reserved = waiting;
        covered?;
        state.reserved = reserved;
        drop(state);
        Ok(self.spend(purse, budget, price))
    }

    /// Takes back what was spent for a call that could not be sent.
    pub(super) fn refund(self: &Arc<Self>, purse: &Arc<Purse>, cost: Cost) {
        let mut state = purse.state();
        state.ledger.refund(cost);
        if cost != Cost::ZERO {
            self.write_soon(purse, &mut state);
        }
    }

    /// The same, for a call that is still to be sent: its price is kept for it.
    pub(super) fn take_back(self: &Arc<Self>, purse: &Arc<Purse>, price: Cost) {
        self.refund(purse, price);
        let mut state = purse.state();
        state.reserved = state.reserved.plus(price);
    }

    /// Whether the budget covers a start.
    fn cover(&self, state: &mut State, budget: Budget, price: Cost) -> Result<(), Failure> {
        let now = self.store.clock().now();
        let per = state.per;
        state.ledger.forget(per, now);
        let left = minus(budget.amount, state.ledger.spent().plus(state.reserved));
        // A run that is paid by the minute needs a little.
        let wanted = price.max(Cost::from_millionths(1));
        if wanted <= left {
            return Ok(());
        }
        // What is reserved is as good as spent now, if that is what has to be waited for.
        let frees = || state.ledger.frees(minus(wanted, left), per, now).unwrap_or(per);
        let wait = (wanted <= budget.amount).then(frees);
        Err(refusal::over_budget(price, left, budget, wait))
    }

    /// Spends, and gives what is left after it. It is written soon.
    pub(super) fn spend(self: &Arc<Self>, purse: &Arc<Purse>, budget: Budget, cost: Cost) -> Cost {
        let now = self.store.clock().now();
        let mut state = purse.state();
        let per = state.per;
        state.ledger.spend(cost, per, now);
        let left = minus(budget.amount, state.ledger.spent());
        if cost != Cost::ZERO {
            self.write_soon(purse, &mut state);
        }
        left
    }

    /// Sees to it that the purse is written.
    fn write_soon(self: &Arc<Self>, purse: &Arc<Purse>, state: &mut State) {
        if std::mem::replace(&mut state.is_due, true) {
            return;
        }
        let (purses, purse) = (Arc::clone(self), Arc::clone(purse));
        self.jobs.spawn("write what was spent", async move {
            loop {
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    () = purses.ending.cancelled() => {}
                    () = purses.jobs.stopping() => {}
                }
                let bytes = purses.shelve(&purse).await;
                let mut state = purse.state();
                if state.ledger.to_bytes() == bytes {
                    state.is_due = false;
                    return;
                }
            }
        });
    }

    /// Writes the purse now.
    pub(super) async fn write(self: &Arc<Self>, purse: &Arc<Purse>) {
        let bytes = self.shelve(purse).await;
        let mut state = purse.state();
        // Of two writes at the same time the older one may have come last.
        if state.ledger.to_bytes() != bytes {
            self.write_soon(purse, &mut state);
        }
    }

    /// Writes the purse and gives what was written. A store that cannot take it does not stop the run: the budget holds
    /// for as long as this process lives.
    async fn shelve(&self, purse: &Purse) -> Vec<u8> {
        let bytes = purse.state().ledger.to_bytes();
        if let Err(error) = self.store.shelve(Shelf::Budget, &purse.name, Some(bytes.clone())).await {
            tracing::warn!(%error, "what an owner has spent could not be written; a restart would forget it");
        }
        bytes
    }
}

impl Purse {
    fn new(digest: &[u8; 32], ledger: Ledger, per: Duration) -> Self {
        let (name, left) = (HEXLOWER.encode(digest), ledger.last());
        Self { name, left, state: Mutex::new(State { ledger, per, reserved: Cost::ZERO, is_due: false }) }
    }

    /// Until when an earlier process has counted what runs cost that it left; `None` if it has counted nothing.
    pub(super) const fn left(&self) -> Option<Timestamp> {
        self.left
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held, so a poisoned state is still in order.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "purse_tests.rs"]
mod tests;
