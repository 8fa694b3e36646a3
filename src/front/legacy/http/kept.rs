//! Bytes of ended streams that are kept for clients that come back, of all sessions: no owner takes all of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::protocol::Principal;
use crate::share::Company;

/// So many bytes. Clones are the same.
#[derive(Clone)]
pub(super) struct KeptBytes {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// How many each owner has who has any.
    by_each: HashMap<Principal, usize>,
    company: Company,
}

/// Some of them, until this is dropped.
pub(super) struct Kept {
    of: KeptBytes,
    owner: Principal,
    bytes: usize,
}

impl KeptBytes {
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// So many for this owner, if it may have them now.
    pub(super) fn take(&self, owner: &Principal, bytes: usize) -> Option<Kept> {
        let owner = owner.sharer().into_owned();
        let mut taken = self.taken();
        taken.company.meet(&owner);
        let (left, own) = (self.most.saturating_sub(taken.all), taken.by_each.get(&owner).copied().unwrap_or(0));
        // As many places one after the other: if the last of them may be taken, the others may.
        let before_last = bytes.saturating_sub(1);
        if bytes > left || !taken.company.may_take(self.most, left - before_last, own + before_last) {
            return None;
        }
        taken.all += bytes;
        taken.by_each.insert(owner.clone(), own + bytes);
        Some(Kept { of: self.clone(), owner, bytes })
    }

    /// Every change leaves it whole, so a poisoned lock holds a good one.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.all = taken.all.saturating_sub(self.bytes);
        match taken.by_each.get_mut(&self.owner) {
            Some(own) if *own > self.bytes => *own -= self.bytes,
            _ => drop(taken.by_each.remove(&self.owner)),
        }
    }
}

impl fmt::Debug for KeptBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptBytes").field("most", &self.most).field("taken", &self.taken().all).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Principal {
        Principal::Named(name.into())
    }

    #[test]
    fn no_owner_takes_the_last_eighth_and_what_is_let_go_can_be_taken_again() {
        let kept = KeptBytes::new(64);
        let greedy: Vec<_> = (0..100).map_while(|_| kept.take(&owner("ann"), 8)).collect();
        assert_eq!(greedy.len(), 7);
        let other = kept.take(&owner("bo"), 4).expect("nothing is left for others");
        assert!(kept.take(&owner("cy"), 5).is_none(), "there are not so many");
        assert_eq!(other.bytes(), 4);
        drop((greedy, other));
        assert!(kept.taken().by_each.is_empty() && kept.taken().all == 0);
        assert!(kept.take(&owner("bo"), 56).is_some());
    }

    #[test]
    fn the_one_user_of_a_machine_takes_all() {
        let kept = KeptBytes::new(64);
        let all: Vec<_> = (0..100).map_while(|_| kept.take(&Principal::Local, 8)).collect();
        assert_eq!(all.len(), 8);
        assert!(kept.take(&Principal::Local, 0).is_none());
    }
}
