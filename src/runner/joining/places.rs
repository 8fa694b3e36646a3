//! The keys of calls that run here.

use std::sync::Arc;

use tokio::sync::watch;

use super::Repeat;
use crate::protocol::Failure;
use crate::shared_map::SharedMap;
use crate::task::{KeyDigest, TaskId};

/// The keys of calls that run here, and of those that are about to.
#[derive(Debug, Default)]
pub(in crate::runner) struct Joining(SharedMap<KeyDigest, Place>);

/// A call that has a key.
#[derive(Debug)]
struct Place {
    arguments: [u8; 32],
    stage: watch::Receiver<Progress>,
}

/// What has become of the call that has a key.
#[derive(Clone, Debug, Default)]
enum Progress {
    /// It has no record yet. To `Recorded`, or to `Ended`, or the right to run it goes, and another may be the first.
    #[default]
    Begins,
    /// Its record is in the store.
    Recorded(TaskId),
    /// It has ended without one, for all who wait for it.
    Ended(Box<Failure>),
}

/// The right to run the call with a key. While this lives, repeats join it; it ends when the outcome is in the store.
#[derive(Debug)]
pub(in crate::runner) struct Reservation {
    repeat: Repeat,
    stage: watch::Sender<Progress>,
    joining: Arc<Joining>,
}

/// How far the first call is.
#[derive(Debug)]
pub(super) struct Stage(watch::Receiver<Progress>);

/// What a repeat finds that has waited for the first call.
#[derive(Debug)]
pub(super) enum Outlook {
    /// The task of the first call is in the store.
    Recorded(TaskId),
    /// The first call has ended so, for all.
    Ended(Failure),
    /// The first call came to nothing: the key is free again.
    Free,
}

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
        let (sender, receiver) = watch::channel(Progress::default());
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
        self.stage.send_replace(Progress::Recorded(id));
    }

    /// The call ends so, for all who have joined it, before it has a record.
    pub(in crate::runner) fn ended(&self, failure: &Failure) {
        self.stage.send_replace(Progress::Ended(Box::new(failure.clone())));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.joining.0.remove(&self.repeat.key);
    }
}

impl Stage {
    /// What has become of the first call, once it has a record or came to nothing before that.
    pub(super) async fn settled(&mut self) -> Outlook {
        match self.0.wait_for(|progress| !matches!(progress, Progress::Begins)).await.as_deref() {
            Ok(Progress::Recorded(id)) => Outlook::Recorded(*id),
            Ok(Progress::Ended(failure)) => Outlook::Ended(Failure::clone(failure)),
            Ok(Progress::Begins) | Err(_) => Outlook::Free,
        }
    }

    /// Resolves when the key is free here.
    pub(super) async fn gone(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
