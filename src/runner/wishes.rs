//! Cancels that were acknowledged, kept until their tasks have ended: a process that dies in between must not leave a run
//! that another takes up, or begins again, as if nobody had stopped it.

use std::collections::HashMap;

use super::Runner;
use crate::store::{ReadError, Shelf, Store};
use crate::task::{Canceller, TaskId};

/// Who wants what an earlier process left to be cancelled.
#[derive(Debug, Default)]
pub(super) struct Wishes(HashMap<TaskId, Canceller>);

const OWNER: u8 = b'u';
const OPERATOR: u8 = b'o';

impl Runner {
    /// Keeps a wish for a task that is live. If the store cannot take it, the cancel goes on all the same: it only may not
    /// survive this process.
    pub(super) async fn keep_wish(&self, id: TaskId, by: Canceller) {
        let who = match by {
            Canceller::Owner => OWNER,
            Canceller::Operator => OPERATOR,
        };
        if let Err(error) = self.store().shelve(Shelf::Cancel, id.as_str(), Some(vec![who])).await {
            tracing::warn!(task = ?id, %error, "a cancel could not be kept; it is lost if this process ends before the task");
        } else if self.live().get(&id).is_none() {
            // It ended meanwhile, perhaps without knowing of this.
            forget(self.store(), id).await;
        }
    }
}

impl Wishes {
    /// Reads those that an earlier process has left.
    pub(super) fn read(store: &Store) -> Self {
        match store.shelf(Shelf::Cancel) {
            Ok(kept) => Self(kept.iter().filter_map(|(name, value)| Some((name.parse().ok()?, who(value)))).collect()),
            Err(error) => {
                tracing::error!(%error, "the cancels of an earlier process cannot be read");
                Self::default()
            }
        }
    }

    /// Who wants this task to be cancelled, if somebody does.
    pub(super) fn of(&self, id: &TaskId) -> Option<Canceller> {
        self.0.get(id).copied()
    }

    /// Those whose tasks have ended: their process died before it forgot them.
    pub(super) fn fulfilled(self, store: &Store) -> Result<Vec<TaskId>, ReadError> {
        let mut ended = Vec::new();
        for id in self.0.into_keys() {
            if store.look(&id)?.is_none_or(|task| task.state.is_terminal()) {
                ended.push(id);
            }
        }
        Ok(ended)
    }
}

/// Forgets the wish for a task that has ended.
pub(super) async fn forget(store: &Store, id: TaskId) {
    if let Err(error) = store.shelve(Shelf::Cancel, id.as_str(), None).await {
        tracing::debug!(task = ?id, %error, "a cancel that had its effect is kept until the next start");
    }
}

fn who(value: &[u8]) -> Canceller {
    match value {
        [OPERATOR, ..] => Canceller::Operator,
        _ => Canceller::Owner,
    }
}
