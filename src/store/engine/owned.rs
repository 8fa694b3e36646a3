//! Lists of tasks: all of them, and what each owner has.

use super::{Engine, EngineError, Entry, Writes, caught, id_of};
use crate::store::codec;
use crate::task::{Owner, Task, TaskId};

impl Engine {
    /// Up to `limit` tasks made before `before`, the newest first, durable or not.
    pub(in crate::store) fn tasks_before(
        &self,
        before: Option<&TaskId>,
        limit: usize,
    ) -> Result<Vec<Task>, EngineError> {
        caught(|| {
            let entries = match before {
                Some(id) => self.tasks.range(..id.as_bytes()),
                None => self.tasks.iter(),
            };
            let read = |entry: Entry| {
                let (key, record) = entry?;
                Ok(codec::decode(id_of(&key)?, &record)?)
            };
            entries.rev().take(limit).map(read).collect()
        })
    }

    /// Up to `limit` ids of an owner's tasks made before `before`, the newest first, durable or not.
    pub(in crate::store) fn owned_before(
        &self,
        owner: &Owner,
        before: Option<&TaskId>,
        limit: usize,
    ) -> Result<Vec<TaskId>, EngineError> {
        let first = owner_bytes(owner);
        // Ids are text in ASCII, so every key of the owner stands before this one.
        let end = [first.as_slice(), before.map_or(&[0xff][..], TaskId::as_bytes)].concat();
        caught(|| {
            let keys = self.by_owner.range(first.clone()..end).keys().rev().take(limit);
            keys.map(|key| id_of(key?.get(first.len()..).ok_or(EngineError::Key)?)).collect()
        })
    }

    /// Up to `limit` ids of an owner's tasks, the oldest first, durable or not.
    pub(in crate::store) fn first_owned(&self, owner: &Owner, limit: usize) -> Result<Vec<TaskId>, EngineError> {
        let first = owner_bytes(owner);
        caught(|| {
            let keys = self.by_owner.scan_prefix(&first).keys().take(limit);
            keys.map(|key| id_of(key?.get(first.len()..).ok_or(EngineError::Key)?)).collect()
        })
    }

    /// How many tasks an owner has, durable or not. Looks at each of them.
    pub(in crate::store) fn owned(&self, owner: &Owner) -> Result<u64, EngineError> {
        caught(|| {
            let mut count = 0;
            for key in self.by_owner.scan_prefix(owner_bytes(owner)).keys() {
                key?;
                count += 1;
            }
            Ok(count)
        })
    }

    /// Up to `limit` ids of tasks that begin so, the oldest first, durable or not.
    pub(in crate::store) fn ids_like(&self, beginning: &str, limit: usize) -> Result<Vec<TaskId>, EngineError> {
        caught(|| self.tasks.scan_prefix(beginning).keys().take(limit).map(|key| id_of(&key?)).collect())
    }

    /// Up to two owners of tasks whose digests begin with `prefix`.
    pub(in crate::store) fn owners_like(&self, scheme: u8, prefix: &[u8]) -> Result<Vec<Owner>, EngineError> {
        let prefix = [&[scheme], prefix].concat();
        caught(|| {
            let mut found: Vec<Owner> = Vec::new();
            let mut from = prefix.clone();
            while let Some(key) = self.by_owner.range(from..).keys().next().transpose()? {
                let Some((digest, _)) = key.get(1..).and_then(<[u8]>::split_first_chunk) else {
                    return Err(EngineError::Key);
                };
                if found.len() == 2 || !key.starts_with(&prefix) {
                    break;
                }
                let owner = Owner::from_parts(scheme, *digest);
                from = [owner_bytes(&owner).as_slice(), &[0xff]].concat();
                found.push(owner);
            }
            Ok(found)
        })
    }
}

impl Writes {
    /// Puts a task into the list of its owner's.
    pub(in crate::store) fn put_owned(&mut self, task: &Task) {
        self.bytes += 1;
        self.by_owner.insert(key(task), &[]);
    }
}

/// The place of a task among its owner's.
pub(super) fn key(task: &Task) -> Vec<u8> {
    [owner_bytes(&task.owner).as_slice(), task.id.as_bytes()].concat()
}

fn owner_bytes(owner: &Owner) -> Vec<u8> {
    [&[owner.scheme()], owner.digest().as_slice()].concat()
}
