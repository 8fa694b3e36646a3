//! The keys of calls that run here.

use std::sync::Arc;

use tokio::sync::watch;

use super::Repeat;
use crate::shared_map::SharedMap;
use crate::task::{KeyDigest, TaskId};

/// The keys of calls that run here, and of those that are about to.
#[derive(Debug, Default)]
pub(in crate::runner) struct Joining(SharedMap<KeyDigest, Place>);

/// A call that has a key.
#[derive(Debug)]
struct Place {
    arguments: [u8; 32],
    stage: watch::Receiver<Option<TaskId>>,
}

/// The right to run the call with a key. While this lives, repeats join it; it ends when the outcome is in the store.
#[derive(Debug)]
pub(in crate::runner) struct Reservation {
    repeat: Repeat,
    stage: watch::Sender<Option<TaskId>>,
    joining: Arc<Joining>,
}

/// How far the first call is.
#[derive(Debug)]
pub(super) struct Stage(watch::Receiver<Option<TaskId>>);

/// What one finds under a key.
#[derive(Debug)]
pub(super) enum Entry {
    /// Nobody has it here.
    First(Reservation),
    /// The same call runs.
    Joins(Stage),
    /// Another call has it.
    Differs,
}

impl Joining {
    /// Takes the key, or finds who has it.
    pub(super) fn enter(self: &Arc<Self>, repeat: &Repeat) -> Entry {
        let (sender, receiver) = watch::channel(None);
        let mut is_new = false;
        let make = || {
            is_new = true;
            Place { arguments: repeat.claim.arguments, stage: receiver }
        };
        let look = |place: &mut Place| (place.arguments, place.stage.clone());
        let (arguments, stage) = self.0.update_or_insert(repeat.key, make, look);
        if is_new {
            return Entry::First(Reservation { repeat: *repeat, stage: sender, joining: Arc::clone(self) });
        }
        if arguments == repeat.claim.arguments { Entry::Joins(Stage(stage)) } else { Entry::Differs }
    }
}

impl Reservation {
    /// What it is for.
    pub(in crate::runner) fn repeat(&self) -> &Repeat {
        &self.repeat
    }

    /// The record of the call is in the store.
    pub(super) fn recorded(&self, id: TaskId) {
        self.stage.send_replace(Some(id));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.joining.0.remove(&self.repeat.key);
    }
}

impl Stage {
    /// The task of the first call, once it is in the store; `None` if the call came to nothing before that.
    pub(super) async fn recorded(&mut self) -> Option<TaskId> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|id| *id)
    }

    /// Resolves when the key is free here.
    pub(super) async fn gone(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
