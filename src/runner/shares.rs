//! What runs that wait for input take of what all runs share: slots and memory. Questions may stay unanswered for a day, so
//! no principal may take more than a part of either, and all together not everything.
//!
//! The slot of such a run stays taken: its server goes on the moment it is answered, and would then be one more than the
//! slots allow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::protocol::Principal;

/// What is shared. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Shares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// What all may take.
    most: Amount,
    /// What one principal may take.
    share: Amount,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    by_all: Amount,
    by_each: HashMap<Principal, Amount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// Runs that wait.
    runs: usize,
    /// Bytes of what is kept for answers that are still to come.
    bytes: usize,
}

/// A part that was taken, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Part {
    of: Shares,
    who: Principal,
    amount: Amount,
}

/// Bytes of what all runs keep.
const MEMORY: usize = 64 << 20;
/// The part of everything that one principal may have.
const SHARE: usize = 4;

impl Shares {
    /// Of so many slots half may be those of runs that wait, and a quarter those of one principal.
    pub(super) fn of_slots(slots: usize) -> Self {
        let most = Amount { runs: (slots / 2).max(1), bytes: MEMORY };
        let share = Amount { runs: (slots / SHARE).max(1), bytes: MEMORY / SHARE };
        Self(Arc::new(Inner { most, share, taken: Mutex::default() }))
    }

    /// The place of a run that waits; `None` if too many of this principal do, or too many of all.
    pub(super) fn place(&self, who: &Principal) -> Option<Part> {
        self.take(who, Amount { runs: 1, bytes: 0 })
    }

    /// Room for `bytes`; `None` if there is not that much for this principal.
    pub(super) fn room(&self, who: &Principal, bytes: usize) -> Option<Part> {
        self.take(who, Amount { runs: 0, bytes })
    }

    fn take(&self, who: &Principal, amount: Amount) -> Option<Part> {
        let mut taken = self.lock();
        let by_all = taken.by_all.and(amount);
        let own = taken.by_each.get(who).copied().unwrap_or_default().and(amount);
        if !by_all.is_within(self.0.most) || !own.is_within(self.0.share) {
            return None;
        }
        taken.by_all = by_all;
        taken.by_each.insert(who.clone(), own);
        Some(Part { of: self.clone(), who: who.clone(), amount })
    }

    fn give_back(&self, who: &Principal, amount: Amount) {
        let mut taken = self.lock();
        taken.by_all = taken.by_all.without(amount);
        if let Some(own) = taken.by_each.get_mut(who) {
            *own = own.without(amount);
            if *own == Amount::default() {
                taken.by_each.remove(who);
            }
        }
    }

    /// What is taken is whole after every change, so a poisoned lock holds a good one.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Amount {
    fn and(self, more: Self) -> Self {
        Self { runs: self.runs.saturating_add(more.runs), bytes: self.bytes.saturating_add(more.bytes) }
    }

    fn without(self, less: Self) -> Self {
        Self { runs: self.runs.saturating_sub(less.runs), bytes: self.bytes.saturating_sub(less.bytes) }
    }

    fn is_within(self, bound: Self) -> bool {
        self.runs <= bound.runs && self.bytes <= bound.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.give_back(&self.who, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_has_a_quarter_and_all_have_half_until_it_is_given_back() {
        let shares = Shares::of_slots(8);
        let who = |name: &str| Principal::Named(name.into());
        let ann: Vec<_> = (0..2).map(|_| shares.place(&who("ann")).unwrap()).collect();
        assert!(shares.place(&who("ann")).is_none());
        let bo: Vec<_> = (0..2).map(|_| shares.place(&who("bo")).unwrap()).collect();
        assert!(shares.place(&who("cy")).is_none(), "half of all slots");
        drop(ann);
        let _cy = shares.place(&who("cy")).unwrap();
        drop(bo);
        let room = shares.room(&who("ann"), MEMORY / 4).unwrap();
        assert!(shares.room(&who("ann"), 1).is_none());
        assert!(shares.room(&who("bo"), MEMORY / 4).is_some());
        drop(room);
        assert_eq!(shares.lock().by_each.len(), 1, "who has nothing is forgotten");
        assert!(shares.room(&who("ann"), 1).is_some());
        assert!(Shares::of_slots(1).place(&who("ann")).is_some());
    }
}
