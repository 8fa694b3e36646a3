//! Outcomes that were read a moment ago, since clients often fetch one more than once.
//!
//! Only texts that were read from the disk come in here: one that a server has just sent may be a small part of a large
//! buffer, which the cache would keep alive without counting it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::protocol::Json;
use crate::task::TaskId;

/// A cache bounded in bytes; the oldest goes first.
#[derive(Debug)]
pub(super) struct OutcomeCache {
    limit: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    outcomes: HashMap<TaskId, Json>,
    order: VecDeque<TaskId>,
    bytes: usize,
}

/// What an entry costs beside its text.
const OVERHEAD: usize = 200;

impl OutcomeCache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, entries: Mutex::default() }
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<Json> {
        self.lock().outcomes.get(id).cloned()
    }

    /// Puts an outcome, unless it would take more than a quarter of the cache.
    pub(super) fn put(&self, id: TaskId, outcome: &Json) {
        let size = outcome.len().saturating_add(OVERHEAD);
        if size > self.limit / 4 {
            return;
        }
        let mut entries = self.lock();
        if entries.outcomes.insert(id, outcome.clone()).is_some() {
            // An outcome never changes, so neither does its size.
            return;
        }
        entries.order.push_back(id);
        entries.bytes += size;
        while entries.bytes > self.limit {
            let Some(oldest) = entries.order.pop_front() else { break };
            entries.take(&oldest);
        }
    }

    pub(super) fn remove(&self, id: &TaskId) {
        let mut entries = self.lock();
        if entries.take(id) {
            entries.order.retain(|other| other != id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn take(&mut self, id: &TaskId) -> bool {
        let Some(outcome) = self.outcomes.remove(id) else { return false };
        self.bytes = self.bytes.saturating_sub(outcome.len().saturating_add(OVERHEAD));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn the_oldest_outcome_makes_room() {
        let cache = OutcomeCache::new(4 * (OVERHEAD + 102));
        let outcome = Json::string(&"x".repeat(100));
        let ids: Vec<_> = (0..6).map(|at| TaskId::generate(Timestamp::from_millis(at))).collect();
        for id in &ids {
            cache.put(*id, &outcome);
        }
        let kept: Vec<_> = ids.iter().map(|id| cache.get(id).is_some()).collect();
        assert_eq!(kept, [false, false, true, true, true, true]);
        cache.remove(&ids[3]);
        cache.put(ids[0], &outcome);
        assert!(cache.get(&ids[2]).is_some(), "a removed outcome gives its room back");
    }
}
