//! How many tasks an owner may have, so that nobody fills the store for all others.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::protocol::Newcomer;
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
pub(super) struct Tally {
    counts: HashMap<[u8; 32], u64>,
    /// Owners who have made tasks as newcomers.
    newcomers: HashMap<[u8; 32], Guest>,
    /// How many tasks all of them have made together at each address.
    at: HashMap<IpAddr, u64>,
}

/// An owner who has made tasks as a newcomer.
#[derive(Debug)]
struct Guest {
    who: Newcomer,
    tasks: u64,
}

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
        self.counts.get(owner.digest()).copied()
    }

    /// How many tasks newcomers have made at an address, of those who were not known when their tasks ended.
    pub(super) fn of_newcomers(&self, address: IpAddr) -> u64 {
        self.at.get(&address).copied().unwrap_or_default()
    }

    /// They were counted.
    pub(super) fn put(&mut self, owner: &Owner, count: u64) {
        if self.counts.len() >= MOST {
            self.counts.clear();
        }
        self.counts.insert(*owner.digest(), count);
    }

    /// The owner has one more, which it made as a newcomer perhaps.
    pub(super) fn made(&mut self, owner: &Owner, newcomer: Option<&Newcomer>) {
        if let Some(count) = self.counts.get_mut(owner.digest()) {
            *count += 1;
        }
        if let Some(who) = newcomer {
            let guest = self.newcomers.entry(*owner.digest()).or_insert_with(|| Guest { who: who.clone(), tasks: 0 });
            guest.tasks += 1;
            *self.at.entry(guest.who.address()).or_default() += 1;
        }
    }

    /// A task of the owner has ended. If a server has taken its credentials in the course of that, it has its own share.
    pub(super) fn ended(&mut self, owner: &Owner) {
        if self.newcomers.get(owner.digest()).is_some_and(|guest| !guest.who.is_one())
            && let Some(guest) = self.newcomers.remove(owner.digest())
        {
            self.less_at(guest.who.address(), guest.tasks);
        }
    }

    /// The owner has one less.
    pub(super) fn purged(&mut self, owner: &Owner) {
        if let Some(count) = self.counts.get_mut(owner.digest()) {
            *count = count.saturating_sub(1);
        }
        let Some(guest) = self.newcomers.get_mut(owner.digest()) else { return };
        guest.tasks -= 1;
        let (is_last, address) = (guest.tasks == 0, guest.who.address());
        if is_last {
            self.newcomers.remove(owner.digest());
        }
        self.less_at(address, 1);
    }

    fn less_at(&mut self, address: IpAddr, tasks: u64) {
        if let Some(count) = self.at.get_mut(&address) {
            *count = count.saturating_sub(tasks);
            if *count == 0 {
                self.at.remove(&address);
            }
        }
    }

    /// Nobody was counted: what was counted may not be what is on the disk.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Principal, Proofs};
    use crate::task::OwnerKey;

    #[test]
    fn what_newcomers_have_made_counts_at_their_address_until_it_goes_or_they_are_known() {
        let (key, proofs, mut tally) = (OwnerKey::from_bytes([7; 32]), Proofs::default(), Tally::default());
        let here = IpAddr::from([10, 0, 0, 1]);
        let callers = ["ann", "bo"].map(|name| Principal::Credential(proofs.shown(name, here)));
        let [ann, bo] = callers.each_ref().map(|caller| key.owner(caller));
        for caller in &callers {
            for _ in 0..2 {
                tally.made(&key.owner(caller), caller.newcomer());
            }
        }
        assert_eq!(tally.of_newcomers(here), 4);
        tally.ended(&ann);
        tally.purged(&ann);
        assert_eq!(tally.of_newcomers(here), 3);
        callers[1].taken();
        tally.made(&bo, callers[1].newcomer());
        assert_eq!(tally.of_newcomers(here), 3, "until one of its tasks has ended");
        tally.ended(&bo);
        tally.purged(&bo);
        assert_eq!(tally.of_newcomers(here), 1);
        tally.purged(&ann);
        assert!(tally.newcomers.is_empty() && tally.at.is_empty());
    }
}
