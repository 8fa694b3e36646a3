//! Waiting for the changes of a task.

use std::sync::Arc;

use tokio::sync::watch;

use super::Store;
use super::shared::Shared;
use crate::task::TaskId;

/// Tells when a task changes. What it became is read from the store: whoever is slow sees the latest state and
/// misses those before it.
#[derive(Debug)]
pub struct Watch {
    id: TaskId,
    /// Gone while this is dropped.
    changes: Option<watch::Receiver<()>>,
    shared: Arc<Shared>,
}

impl Store {
    /// Watches the task with this id, whoever owns it.
    pub fn watch(&self, id: &TaskId) -> Watch {
        let shared = Arc::clone(&self.inner.shared);
        let subscribe = |sender: &mut watch::Sender<()>| sender.subscribe();
        let changes = shared.watched.update_or_insert(*id, || watch::Sender::new(()), subscribe);
        Watch { id: *id, changes: Some(changes), shared }
    }
}

impl Watch {
    /// The task.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Resolves when the task has changed since this was made or last resolved. Cancel safe.
    pub async fn changed(&mut self) {
        if let Some(changes) = &mut self.changes
            && changes.changed().await.is_ok()
        {
            return;
        }
        // The sender stays in the map for as long as this is there.
        std::future::pending::<()>().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.changes = None;
        self.shared.watched.remove_if(&self.id, |watchers| watchers.receiver_count() == 0);
    }
}
