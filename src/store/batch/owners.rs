//! What owners may have.

use std::sync::PoisonError;
use std::time::Duration;

use super::Batch;
use crate::clock::Timestamp;
use crate::protocol::Newcomer;
use crate::share::Company;
use crate::store::error::CommitError;
use crate::task::{Owner, TaskId};

/// So many of an owner's tasks are looked at for the one that goes away first. They are made in the order in which most
/// of them go.
const LOOKED_AT: usize = 16;

impl Batch<'_> {
    /// Whether an owner may have one task more. All newcomers at an address count as one owner.
    pub(super) fn check_owner(&mut self, owner: &Owner, newcomer: Option<&Newcomer>) -> Result<(), CommitError> {
        let max = self.shared.max_tasks;
        let (most, is_local) = {
            let quotas = self.shared.quotas.read().unwrap_or_else(PoisonError::into_inner);
            (quotas.of(owner), quotas.local.as_ref() == Some(owner.digest()))
        };
        let left = max.saturating_sub(self.counts.tasks);
        let is_scarce = left <= Company::Others.kept_of(places(max)) as u64;
        if most.is_none() && !is_scarce {
            return Ok(());
        }
        let all_there = newcomer.map_or(0, |newcomer| self.tally.of_newcomers(newcomer.address()));
        let has = self.owned(owner)?.max(all_there);
        match most {
            Some(most) if has >= most => {
                // One that has expired already goes with the next sweep.
                let next = self.next_to_go(owner)?.map(|expires| expires.since(self.now).max(Duration::from_secs(1)));
                Err(CommitError::OwnerFull { max: most, next })
            }
            // Where all are its own there is nobody to leave any to.
            _ if is_local && has == self.counts.tasks => Ok(()),
            _ if !Company::Others.may_take(places(max), places(left), places(has)) => {
                Err(CommitError::ShareFull { max })
            }
            _ => Ok(()),
        }
    }

    /// How many tasks an owner has after what was decided in this batch so far.
    fn owned(&mut self, owner: &Owner) -> Result<u64, CommitError> {
        if let Some(count) = self.tally.get(owner) {
            return Ok(count);
        }
        let stored = self.engine.owned(owner).map_err(CommitError::failed)?;
        let is_theirs = |id: &&TaskId| self.next.get(*id).is_some_and(|task| task.owner == *owner);
        let made = self.created.iter().filter(is_theirs).count();
        let gone = self.purged.iter().filter(|(_, other)| other == owner).count();
        let count = (stored + made as u64).saturating_sub(gone as u64);
        self.tally.put(owner, count);
        Ok(count)
    }

    /// When one of the owner's tasks goes away, as far as that is known of the oldest of them: of one that has ended if there
    /// is any, else the earliest that may be.
    fn next_to_go(&self, owner: &Owner) -> Result<Option<Timestamp>, CommitError> {
        let oldest = self.engine.first_owned(owner, LOOKED_AT).map_err(CommitError::failed)?;
        let (mut ended, mut open): (Option<Timestamp>, Option<Timestamp>) = (None, None);
        for id in oldest {
            let Some(task) = self.current(&id)? else { continue };
            let soonest = if task.state.is_terminal() { &mut ended } else { &mut open };
            *soonest = task.expiry.announced(task.created).into_iter().chain(*soonest).min();
        }
        Ok(ended.or(open))
    }
}

fn places(tasks: u64) -> usize {
    usize::try_from(tasks).unwrap_or(usize::MAX)
}
