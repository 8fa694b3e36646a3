//! Room in memory that owners share: whoever leaves large outcomes unread waits behind its own only.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::share::Company;
use crate::shared_map::SharedMap;
use crate::task::Owner;

/// So many kibibytes. Clones are the same.
#[derive(Clone)]
pub(super) struct Room(Arc<Inner>);

struct Inner {
    most: usize,
    /// The one user of this machine, who has nobody to leave any to while nobody else comes.
    local: Owner,
    taken: Mutex<Taken>,
    /// Some was given back.
    freed: Notify,
    /// Where owners wait for their own turn.
    lines: SharedMap<[u8; 32], Weak<tokio::sync::Mutex<()>>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// How much each owner has who has any.
    by_each: HashMap<[u8; 32], usize>,
    company: Company,
}

/// Some of it, until this is dropped.
pub(super) struct Space {
    of: Room,
    owner: [u8; 32],
    kibibytes: usize,
}

/// So many lines in which nobody waits may be remembered.
const IDLE: usize = 256;

impl Room {
    pub(super) fn new(most: usize, local: Owner) -> Self {
        let (taken, freed, lines) = (Mutex::default(), Notify::new(), SharedMap::default());
        Self(Arc::new(Inner { most, local, taken, freed, lines }))
    }

    /// So much for this owner, in the order in which it asked, as soon as it may have that. What others of its own wait
    /// for keeps nobody else waiting.
    pub(super) async fn wait(&self, owner: &Owner, kibibytes: usize) -> Space {
        let line = self.line(owner);
        let _turn = line.lock().await;
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that what is given back in between is not missed.
            freed.as_mut().enable();
            if let Some(space) = self.take(owner, kibibytes) {
                return space;
            }
            freed.await;
        }
    }

    fn take(&self, owner: &Owner, kibibytes: usize) -> Option<Space> {
        let mut taken = self.taken();
        if *owner != self.0.local {
            taken.company.meet(&owner.principal());
        }
        let left = self.0.most.saturating_sub(taken.all);
        let own = taken.by_each.get(owner.digest()).copied().unwrap_or(0);
        let may_take = if own == 0 {
            // The first of an owner waits for nobody else's as long as anything is left, however large it is: others
            // may never read theirs. So by one outcome more than there is room for may be in memory.
            left > 0
        } else {
            // As many places one after the other: if the last of them may be taken, the others may.
            let before_last = kibibytes.saturating_sub(1);
            kibibytes <= left && taken.company.may_take(self.0.most, left - before_last, own + before_last)
        };
        may_take.then(|| {
            taken.all = taken.all.saturating_add(kibibytes);
            taken.by_each.insert(*owner.digest(), own + kibibytes);
            Space { of: self.clone(), owner: *owner.digest(), kibibytes }
        })
    }

    fn line(&self, owner: &Owner) -> Arc<tokio::sync::Mutex<()>> {
        if self.0.lines.len() > IDLE {
            self.0.lines.retain(|_, line| line.strong_count() > 0);
        }
        self.0.lines.update_or_insert(*owner.digest(), Weak::new, |known| {
            known.upgrade().unwrap_or_else(|| {
                let line = Arc::default();
                *known = Arc::downgrade(&line);
                line
            })
        })
    }

    /// What is taken is whole after every change, so a poisoned lock holds a good one.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.all = taken.all.saturating_sub(self.kibibytes);
        match taken.by_each.get_mut(&self.owner) {
            Some(own) if *own > self.kibibytes => *own -= self.kibibytes,
            _ => drop(taken.by_each.remove(&self.owner)),
        }
        drop(taken);
        self.of.0.freed.notify_waiters();
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("most", &self.0.most).field("taken", &self.taken().all).finish_non_exhaustive()
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("kibibytes", &self.kibibytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn owner(number: u8) -> Owner {
        Owner::from_parts(1, [number; 32])
    }

    const LOCAL: u8 = 0;

    fn taken(room: &Room, number: u8, kibibytes: usize) -> Option<Space> {
        room.wait(&owner(number), kibibytes).now_or_never()
    }

    #[test]
    fn no_owner_takes_the_last_eighth_and_whoever_has_none_waits_for_nobody_however_much_it_is() {
        let room = Room::new(256, owner(LOCAL));
        let greedy: Vec<_> = (0..30).map_while(|_| taken(&room, 1, 12)).collect();
        assert_eq!(greedy.len(), 18);
        let ann = [taken(&room, 2, 4).unwrap(), taken(&room, 2, 4).unwrap()];
        assert!(taken(&room, 1, 1).is_none());
        assert!(taken(&room, 2, 30).is_none(), "not its first");
        let bo = taken(&room, 3, 100).unwrap();
        assert!(taken(&room, 4, 1).is_none(), "nothing is left");
        drop(bo);
        let cy = taken(&room, 4, 1).unwrap();
        drop((greedy, ann, cy));
        assert!(room.taken().by_each.is_empty() && room.taken().all == 0);
    }

    #[test]
    fn the_one_user_of_a_machine_has_all_of_it() {
        let room = Room::new(8, owner(LOCAL));
        let all = [taken(&room, LOCAL, 4).unwrap(), taken(&room, LOCAL, 4).unwrap()];
        assert!(taken(&room, LOCAL, 1).is_none());
        drop(all);
        let _other = taken(&room, 1, 1).unwrap();
        let _most = taken(&room, LOCAL, 5).unwrap();
        assert!(taken(&room, LOCAL, 2).is_none(), "there are others");
    }

    #[test]
    fn of_one_owner_who_waits_first_is_first_and_keeps_no_other_waiting() {
        let room = Room::new(16, owner(LOCAL));
        let first = taken(&room, 1, 10).unwrap();
        let (ann, bo) = (owner(1), owner(2));
        let mut large = Box::pin(room.wait(&ann, 8));
        let mut small = Box::pin(room.wait(&ann, 1));
        assert!(large.as_mut().now_or_never().is_none() && small.as_mut().now_or_never().is_none());
        let others = [taken(&room, 2, 1).unwrap(), taken(&room, 2, 1).unwrap()];
        drop(first);
        assert!(small.as_mut().now_or_never().is_none(), "not before the large one");
        let _large = large.as_mut().now_or_never().unwrap();
        drop(large);
        let _small = small.as_mut().now_or_never().unwrap();
        let _more = room.wait(&bo, 1).now_or_never().unwrap();
        drop(others);
        for number in 10..=255 {
            drop(taken(&room, number, 1));
        }
        for number in 0..=200 {
            drop(room.wait(&Owner::from_parts(1, [number, 1].repeat(16).try_into().unwrap()), 1).now_or_never());
        }
        assert!(room.0.lines.len() <= IDLE + 1);
    }
}
