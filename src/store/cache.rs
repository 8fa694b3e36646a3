//! Ended tasks and outcomes that were read, since clients often fetch one more than once, and their neighbours: sled reads and builds a
//! page of many of them for each, which costs more than the rest of a `tasks/get`.
//!
//! Only texts that were read from the disk come in here: one that a server has just sent may be a small part of a large
//! buffer, which the cache would keep alive without counting it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::protocol::Json;
use crate::task::{Stored, TaskId};

/// A cache bounded in bytes. What was not asked for since it was last looked over goes first.
#[derive(Debug)]
pub(super) struct OutcomeCache {
    limit: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    ended: HashMap<TaskId, Entry>,
    /// In the order in which they are looked over; some may be gone.
    order: VecDeque<TaskId>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    record: Option<Box<[u8]>>,
    text: Option<Json>,
    asked: Use,
}

/// Whether an entry was asked for since it was last looked over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Asked,
    Not,
}

/// What an entry costs beside its record and text.
const OVERHEAD: usize = 200;

impl OutcomeCache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, entries: Mutex::default() }
    }

    /// The record of `id`.
    pub(super) fn record<T>(&self, id: &TaskId, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let mut entries = self.lock();
        let entry = entries.ended.get_mut(id)?;
        entry.asked = Use::Asked;
        entry.record.as_deref().map(read)
    }

    /// The outcome of `id`, if it is the one that `stored` describes: a commit that failed may have left another.
    pub(super) fn get(&self, id: &TaskId, stored: Stored) -> Option<Json> {
        let mut entries = self.lock();
        let entry = entries.ended.get_mut(id)?;
        entry.asked = Use::Asked;
        let text = entry.text.clone();
        drop(entries);
        text.filter(|text| stored.describes(text.bytes()))
    }

    /// Whether there is room that nothing has to give up.
    pub(super) fn has_room(&self) -> bool {
        self.lock().bytes < self.limit
    }

    /// Puts the record of a task that has ended, which never changes.
    pub(super) fn put_record(&self, id: TaskId, record: Vec<u8>) {
        self.change(id, |entry| entry.record = Some(record.into()));
    }

    /// Puts an outcome, unless it would take more than a quarter of the cache.
    pub(super) fn put(&self, id: TaskId, outcome: &Json) {
        if outcome.len().saturating_add(OVERHEAD) <= self.limit / 4 {
            self.change(id, |entry| entry.text = Some(outcome.clone()));
        }
    }

    fn change(&self, id: TaskId, change: impl FnOnce(&mut Entry)) {
        let mut guard = self.lock();
        let entries = &mut *guard;
        let entry = entries.ended.entry(id).or_insert_with(|| {
            entries.order.push_back(id);
            entries.bytes += OVERHEAD;
            Entry { record: None, text: None, asked: Use::Not }
        });
        entries.bytes -= entry.cost();
        change(entry);
        entries.bytes += entry.cost();
        while entries.bytes > self.limit && entries.look_over_next() {}
    }

    pub(super) fn remove(&self, id: &TaskId) {
        let mut entries = self.lock();
        if let Some(old) = entries.ended.remove(id) {
            entries.bytes -= old.cost();
        }
        entries.forget_gone();
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Drops the next entry, or keeps it for another round if it was asked for. Whether there was one.
    fn look_over_next(&mut self) -> bool {
        let Some(id) = self.order.pop_front() else { return false };
        let Some(entry) = self.ended.get_mut(&id) else { return true };
        if entry.asked == Use::Asked {
            entry.asked = Use::Not;
            self.order.push_back(id);
        } else if let Some(old) = self.ended.remove(&id) {
            self.bytes -= old.cost();
        }
        true
    }

    /// Keeps the order from growing with entries that are gone.
    fn forget_gone(&mut self) {
        if self.order.len() > 2 * self.ended.len() + 1024 {
            self.order.retain(|id| self.ended.contains_key(id));
        }
    }
}

impl Entry {
    fn cost(&self) -> usize {
        let record = self.record.as_ref().map_or(0, |record| record.len());
        let text = self.text.as_ref().map_or(0, Json::len);
        OVERHEAD + record + text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    fn stored(text: &Json) -> Stored {
        Stored { len: text.len() as u64, checksum: crc32fast::hash(text.bytes()), file: None }
    }

    #[test]
    fn what_nobody_asked_for_makes_room() {
        let cache = OutcomeCache::new(4 * (OVERHEAD + 102));
        let outcome = Json::string(&"x".repeat(100));
        let stored = stored(&outcome);
        let ids: Vec<_> = (0..6).map(|at| TaskId::generate(Timestamp::from_millis(at))).collect();
        for id in &ids {
            cache.put(*id, &outcome);
            cache.get(&ids[1], stored);
        }
        let kept: Vec<_> = ids.iter().map(|id| cache.lock().ended.contains_key(id)).collect();
        assert_eq!(kept, [false, true, false, true, true, true]);
        assert!(!cache.has_room());
        cache.remove(&ids[3]);
        assert!(cache.has_room());
        cache.put(ids[0], &outcome);
        assert!(cache.get(&ids[4], stored).is_some(), "a removed outcome gives its room back");
    }

    #[test]
    fn an_outcome_that_is_not_the_stored_one_is_not_given_out_and_gives_way_to_it() {
        let cache = OutcomeCache::new(1 << 20);
        let id = TaskId::generate(Timestamp::from_millis(1));
        let (lost, kept) = (Json::string("lost"), Json::string("kept"));
        cache.put(id, &lost);
        assert!(cache.get(&id, stored(&kept)).is_none());
        cache.put(id, &kept);
        assert_eq!(cache.get(&id, stored(&kept)), Some(kept));
    }

    #[test]
    fn the_order_does_not_grow_with_what_is_gone() {
        let cache = OutcomeCache::new(1 << 20);
        for at in 0..10_000 {
            let id = TaskId::generate(Timestamp::from_millis(at));
            cache.put(id, &Json::string("x"));
            cache.remove(&id);
        }
        let entries = cache.lock();
        assert!(entries.order.len() <= 1025 && entries.bytes == 0);
    }
}
