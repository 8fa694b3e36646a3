//! How many tasks an owner may have, so that nobody fills the store for all others.

use std::collections::HashMap;

use crate::task::Owner;

/// How many tasks owners may have, ended ones too. Whatever this says, the last eighth of the store is for owners who
/// have fewer than are left ([`Company`](crate::share::Company)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Each owner whom nothing else is said of; `None` for no limit of its own.
    pub all: Option<u64>,
    /// Owners of whom something else is said, by their digests.
    pub named: HashMap<[u8; 32], Option<u64>>,
    /// The digest of the one user of this machine, who has all while nobody else has any.
    pub local: Option<[u8; 32]>,
}

/// How many tasks there are of each owner who was counted.
#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<[u8; 32], u64>);

/// So many owners are counted at the same time; then all are forgotten and counted anew when they come.
const MOST: usize = 1 << 16;

impl Quotas {
    /// How many tasks the owner may have.
    pub(super) fn of(&self, owner: &Owner) -> Option<u64> {
        self.named.get(owner.digest()).copied().unwrap_or(self.all)
    }
}

impl Tally {
    /// How many tasks the owner has, if they were counted.
    pub(super) fn get(&self, owner: &Owner) -> Option<u64> {
        self.0.get(owner.digest()).copied()
    }

    /// They were counted.
    pub(super) fn put(&mut self, owner: &Owner, count: u64) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(*owner.digest(), count);
    }

    /// The owner has one more.
    pub(super) fn made(&mut self, owner: &Owner) {
        if let Some(count) = self.0.get_mut(owner.digest()) {
            *count += 1;
        }
    }

    /// The owner has one less.
    pub(super) fn purged(&mut self, owner: &Owner) {
        if let Some(count) = self.0.get_mut(owner.digest()) {
            *count = count.saturating_sub(1);
        }
    }

    /// Nobody was counted: what was counted may not be what is on the disk.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
