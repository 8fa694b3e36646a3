//! The open questions of one run, for those who ask them and those who answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::shares::Part;
use crate::protocol::Ask;
use crate::task::{MOST_QUESTION_BYTES, MOST_QUESTIONS, OpenQuestion};

/// The open questions of one run.
#[derive(Debug, Default)]
pub(super) struct Board {
    open: Mutex<BTreeMap<u32, Posted>>,
    /// Something was taken off.
    taken: Notify,
}

#[derive(Debug)]
struct Posted {
    ask: Ask,
    question: OpenQuestion,
    since: Instant,
    _room: Part,
}

impl Board {
    /// Puts a question up; the ask comes back if one run may not have that much open.
    pub(super) fn post(&self, question: OpenQuestion, ask: Ask, room: Part) -> Result<(), Ask> {
        let mut open = self.lock();
        let bytes: usize = open.values().map(|posted| posted.question.params.len()).sum();
        if open.len() >= MOST_QUESTIONS || bytes + question.params.len() > MOST_QUESTION_BYTES {
            return Err(ask);
        }
        open.insert(question.number, Posted { ask, question, since: Instant::now(), _room: room });
        Ok(())
    }

    /// Takes the question with this key off.
    pub(super) fn take(&self, key: &str) -> Option<Ask> {
        let mut open = self.lock();
        let number = open.iter().find(|(_, posted)| posted.question.key == key).map(|(number, _)| *number)?;
        let posted = open.remove(&number)?;
        drop(open);
        self.taken.notify_one();
        Some(posted.ask)
    }

    /// Takes the question with this number off, and gives its key back.
    pub(super) fn take_number(&self, number: u32) -> Option<(String, Ask)> {
        let posted = self.lock().remove(&number)?;
        self.taken.notify_one();
        Some((posted.question.key, posted.ask))
    }

    /// Takes all off: whoever asked is refused.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
        self.taken.notify_one();
    }

    /// The questions, in the order in which they were asked.
    pub(super) fn questions(&self) -> Vec<OpenQuestion> {
        self.lock().values().map(|posted| posted.question.clone()).collect()
    }

    /// Whether the question with this key is open.
    pub(super) fn has(&self, key: &str) -> bool {
        self.lock().values().any(|posted| posted.question.key == key)
    }

    /// Since when the oldest has been open.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lock().values().map(|posted| posted.since).min()
    }

    /// Whether nothing is open.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Resolves when something was taken off since this last resolved. Cancel safe; for one waiter.
    pub(super) async fn taken(&self) {
        self.taken.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Posted>> {
        // Nothing in here panics with the lock held, so a poisoned map is still in order.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
