//! What is read by an id, by a name or in an order.

use super::{Engine, EngineError, ExpiryKey, caught, id_of};
use crate::store::codec;
use crate::store::keys::Keyed;
use crate::store::questions;
use crate::store::shelf::Shelf;
use crate::task::{KeyDigest, State, Task, TaskId};

impl Engine {
    /// The task with this id, durable or not: see the readers for how they tell. Its questions have no texts: what is
    /// open is read from memory.
    pub(in crate::store) fn task(&self, id: &TaskId) -> Result<Option<Task>, EngineError> {
        let Some(record) = caught(|| Ok(self.tasks.get(id.as_bytes())?))? else { return Ok(None) };
        Ok(Some(codec::decode(*id, &record)?))
    }

    /// Up to `limit` tasks behind that one, durable or not.
    pub(in crate::store) fn tasks_behind(&self, id: &TaskId, limit: usize) -> Result<Vec<Task>, EngineError> {
        caught(|| {
            let mut found = Vec::with_capacity(limit);
            for entry in self.tasks.range(id.as_bytes()..).skip(1).take(limit) {
                let (key, record) = entry?;
                found.push(codec::decode(id_of(&key)?, &record)?);
            }
            Ok(found)
        })
    }

    /// A small outcome.
    pub(in crate::store) fn result(&self, id: &TaskId) -> Result<Option<Vec<u8>>, EngineError> {
        caught(|| Ok(self.results.get(id.as_bytes())?.map(|value| value.to_vec())))
    }

    /// Up to `limit` small outcomes behind that one, durable or not.
    pub(in crate::store) fn results_behind(
        &self,
        id: &TaskId,
        limit: usize,
    ) -> Result<Vec<(TaskId, Vec<u8>)>, EngineError> {
        caught(|| {
            let mut found = Vec::with_capacity(limit);
            for entry in self.results.range(id.as_bytes()..).skip(1).take(limit) {
                let (key, text) = entry?;
                found.push((id_of(&key)?, text.to_vec()));
            }
            Ok(found)
        })
    }

    /// Who has a key, durable or not.
    pub(in crate::store) fn keyed(&self, key: &KeyDigest) -> Result<Option<Keyed>, EngineError> {
        match caught(|| Ok(self.by_key.get(key.as_bytes())?))? {
            None => Ok(None),
            Some(value) => Keyed::read(&value).map(Some).ok_or(EngineError::Key),
        }
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(in crate::store) fn keys(&self) -> usize {
        self.by_key.len()
    }

    /// A value of `meta`.
    pub(in crate::store) fn meta<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>, EngineError> {
        match caught(|| Ok(self.meta.get(name)?))? {
            None => Ok(None),
            Some(value) => value.as_ref().try_into().map(Some).map_err(|_| EngineError::Key),
        }
    }

    /// All tasks that have not ended, with the texts of their questions.
    pub(in crate::store) fn active(&self) -> Result<Vec<Task>, EngineError> {
        caught(|| {
            let mut tasks = Vec::new();
            for key in self.active.iter().keys() {
                let id = id_of(&key?)?;
                let mut task = self.task(&id)?.ok_or(EngineError::Key)?;
                if let State::InputRequired { questions, .. } = &mut task.state {
                    for question in questions {
                        let pieces = self.questions.scan_prefix(questions::prefix(&id, question.number));
                        let pieces = pieces.values().collect::<Result<Vec<_>, _>>()?;
                        question.params = questions::joined(&pieces).ok_or(EngineError::Key)?;
                    }
                }
                tasks.push(task);
            }
            Ok(tasks)
        })
    }

    /// What stands on a shelf, in the order of its names.
    pub(in crate::store) fn shelf(&self, on: Shelf) -> Result<Vec<(String, Vec<u8>)>, EngineError> {
        caught(|| {
            let mut found = Vec::new();
            for entry in self.shelf.scan_prefix([on.tag()]) {
                let (key, value) = entry?;
                let name = key.get(1..).and_then(|name| std::str::from_utf8(name).ok()).ok_or(EngineError::Key)?;
                found.push((name.to_owned(), value.to_vec()));
            }
            Ok(found)
        })
    }

    /// How many pieces of questions there are.
    #[cfg(test)]
    pub(in crate::store) fn question_pieces(&self) -> usize {
        self.questions.len()
    }

    /// Up to `limit` tasks that have ended, those that go away first first.
    pub(in crate::store) fn first_to_expire(&self, limit: usize) -> Result<Vec<ExpiryKey>, EngineError> {
        caught(|| self.by_expiry.iter().keys().take(limit).map(|key| ExpiryKey::read(&key?)).collect())
    }
}
