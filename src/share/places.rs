//! Places for things that are there at the same time.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Company;
use crate::protocol::{Newcomer, Principal};

/// So many places, of which no owner can take all. Clones are the same.
#[derive(Clone)]
pub struct Places(Arc<Inner>);

struct Inner {
    most: usize,
    taken: Mutex<Taken>,
    /// Makes keys of owners that nobody can foresee.
    keys: RandomState,
    /// A place was given back.
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// How many each owner has who has any.
    by_each: HashMap<u64, usize>,
    /// Of those the ones that were taken by newcomers, by where these are.
    by_newcomers: HashMap<IpAddr, HashMap<u64, Guest>>,
    company: Company,
}

/// An owner who was a newcomer when it took places.
struct Guest {
    who: Newcomer,
    places: usize,
}

/// A place that is taken until this is dropped.
pub struct Place {
    of: Places,
    owner: u64,
    /// Where its owner was, if that was a newcomer.
    newcomer_at: Option<IpAddr>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// All are taken; the next that is given back would do.
    Full,
    /// Those that are left, or are given back next, are for owners who have fewer.
    Share,
}

impl Places {
    /// So many.
    pub fn new(most: usize) -> Self {
        let (taken, keys, freed) = (Mutex::default(), RandomState::new(), Notify::new());
        Self(Arc::new(Inner { most, taken, keys, freed }))
    }

    /// How many there are.
    pub fn most(&self) -> usize {
        self.0.most
    }

    /// A place for this owner, if it may have one now.
    pub fn take(&self, principal: &Principal) -> Result<Place, NoPlace> {
        self.take_if(principal, |company, left, own| {
            let may_take = |left| company.may_take(self.0.most, left, own);
            match left {
                0 if may_take(1) => Err(NoPlace::Full),
                _ if may_take(left) => Ok(()),
                _ => Err(NoPlace::Share),
            }
        })
    }

    /// A place for this owner as soon as it may have one. Whoever waits is not served in order.
    pub async fn wait(&self, principal: &Principal) -> Place {
        self.retry(|| self.take(principal)).await
    }

    /// A place for this owner in exchange for one that it gives back: as soon as any is there.
    pub async fn exchange(&self, principal: &Principal) -> Place {
        self.retry(|| self.take_if(principal, |_, left, _| if left > 0 { Ok(()) } else { Err(NoPlace::Full) })).await
    }

    async fn retry(&self, take: impl Fn() -> Result<Place, NoPlace>) -> Place {
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that a place that is given back in between is not missed.
            freed.as_mut().enable();
            if let Ok(place) = take() {
                return place;
            }
            freed.await;
        }
    }

    fn take_if(
        &self,
        principal: &Principal,
        may_take: impl FnOnce(Company, usize, usize) -> Result<(), NoPlace>,
    ) -> Result<Place, NoPlace> {
        let owner = self.0.keys.hash_one(principal);
        let newcomer = principal.newcomer();
        let mut taken = self.taken();
        taken.company.meet(principal);
        let left = self.0.most.saturating_sub(taken.all);
        // Of places that are plenty it does not matter how many one has.
        let is_scarce = left <= taken.company.kept_of(self.0.most);
        let own = match newcomer {
            Some(newcomer) if is_scarce => taken.newcomers_at(newcomer.address()),
            _ => taken.by_each.get(&owner).copied().unwrap_or(0),
        };
        may_take(taken.company, left, own)?;
        taken.all += 1;
        *taken.by_each.entry(owner).or_default() += 1;
        if let Some(who) = newcomer {
            let guests = taken.by_newcomers.entry(who.address()).or_default();
            guests.entry(owner).or_insert_with(|| Guest { who: who.clone(), places: 0 }).places += 1;
        }
        Ok(Place { of: self.clone(), owner, newcomer_at: newcomer.map(Newcomer::address) })
    }

    /// What is taken is whole after every change, so a poisoned lock holds a good one.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// How many all have together who are still newcomers at an address.
    fn newcomers_at(&self, address: IpAddr) -> usize {
        let guests = self.by_newcomers.get(&address).into_iter().flat_map(HashMap::values);
        guests.filter(|guest| guest.who.is_one()).map(|guest| guest.places).sum()
    }

    fn give_back(&mut self, owner: u64, newcomer_at: Option<IpAddr>) {
        self.all = self.all.saturating_sub(1);
        match self.by_each.get_mut(&owner) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(self.by_each.remove(&owner)),
        }
        let Some(address) = newcomer_at else { return };
        let Some(guests) = self.by_newcomers.get_mut(&address) else { return };
        match guests.get_mut(&owner) {
            Some(guest) if guest.places > 1 => guest.places -= 1,
            _ => drop(guests.remove(&owner)),
        }
        if guests.is_empty() {
            self.by_newcomers.remove(&address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.taken().give_back(self.owner, self.newcomer_at);
        self.of.0.freed.notify_waiters();
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("most", &self.0.most).field("taken", &self.taken().all).finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::protocol::Proofs;

    fn named(name: &str) -> Principal {
        Principal::Named(name.into())
    }

    #[test]
    fn no_owner_takes_the_last_places_and_who_has_none_is_forgotten() {
        let places = Places::new(3);
        let greedy: Vec<_> = (0..2).map(|_| places.take(&named("greedy")).unwrap()).collect();
        assert_eq!(places.take(&named("greedy")).unwrap_err(), NoPlace::Share);
        let ann = places.take(&named("ann")).unwrap();
        assert_eq!(places.take(&named("bo")).unwrap_err(), NoPlace::Full);
        assert_eq!(places.take(&named("greedy")).unwrap_err(), NoPlace::Share);
        drop((greedy, ann));
        assert!(places.taken().by_each.is_empty() && places.taken().all == 0);
    }

    #[test]
    fn those_at_one_address_whom_no_server_has_answered_have_one_share_and_each_its_own_once_it_has() {
        let (places, proofs) = (Places::new(8), Proofs::default());
        let caller = |name: &str, at: [u8; 4]| Principal::Credential(proofs.shown(name, at.into()));
        let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let invented: Vec<_> = (0..7).map(|number| places.take(&caller(&number.to_string(), here)).unwrap()).collect();
        assert_eq!(places.take(&caller("one more", here)).unwrap_err(), NoPlace::Share);
        drop(places.take(&caller("bo", there)).unwrap());
        let ann = caller("ann", here);
        assert_eq!(places.take(&ann).unwrap_err(), NoPlace::Share);
        caller("ann", here).taken();
        drop(places.take(&ann).unwrap());
        // Those of who is proved meanwhile are not counted for others.
        for number in 0..7 {
            caller(&number.to_string(), here).taken();
        }
        let new = places.take(&caller("new", here)).unwrap();
        assert_eq!(places.take(&ann).unwrap_err(), NoPlace::Full);
        caller("3", here).refused();
        drop((invented, new));
        let taken = places.taken();
        assert!(taken.all == 0 && taken.by_each.is_empty() && taken.by_newcomers.is_empty());
    }

    #[test]
    fn the_one_user_of_a_machine_has_every_place() {
        let places = Places::new(2);
        let _all = [places.take(&Principal::Local).unwrap(), places.take(&Principal::Local).unwrap()];
        assert_eq!(places.take(&Principal::Local).unwrap_err(), NoPlace::Full);
    }

    #[test]
    fn who_waits_gets_a_place_of_its_share_only() {
        let places = Places::new(2);
        let greedy = places.take(&named("greedy")).unwrap();
        let ann = places.take(&named("ann")).unwrap();
        let who = named("greedy");
        let mut more = Box::pin(places.wait(&who));
        assert!(more.as_mut().now_or_never().is_none());
        drop(ann);
        assert!(more.as_mut().now_or_never().is_none(), "the last place is for others");
        drop(greedy);
        let greedy = more.as_mut().now_or_never().unwrap();
        let _ann = places.take(&named("ann")).unwrap();
        let mut other = Box::pin(places.exchange(&who));
        assert!(other.as_mut().now_or_never().is_none());
        drop(greedy);
        assert!(other.as_mut().now_or_never().is_some(), "one for one");
    }

    #[test]
    fn who_gives_one_back_may_have_one_that_is_for_others() {
        let places = Places::new(4);
        let who = named("greedy");
        let _greedy: Vec<_> = (0..3).map(|_| places.take(&who).unwrap()).collect();
        assert_eq!(places.take(&who).unwrap_err(), NoPlace::Share);
        assert!(places.wait(&who).now_or_never().is_none());
        let _last = places.exchange(&who).now_or_never().unwrap();
        assert!(places.exchange(&who).now_or_never().is_none());
    }
}
