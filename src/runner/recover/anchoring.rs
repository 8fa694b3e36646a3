//! Where a run is, on its way into the store.

use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until, timeout};

use crate::protocol::{Abilities, Anchor};
use crate::store::{Anchored, Store};
use crate::task::TaskId;

/// Where a run is, as far as the server has told.
#[derive(Default)]
pub(in crate::runner) struct Anchoring {
    /// The newest that is not in the store, nor on its way.
    fresh: Option<Anchored>,
    /// Tells whether it was kept.
    writing: Option<BoxFuture<'static, bool>>,
    /// When the next may be written.
    next_at: Option<Instant>,
    /// Whether another process could find the run.
    durable: bool,
}

/// The least time between two writes for one task.
const EVERY: Duration = Duration::from_secs(1);

impl Anchoring {
    /// One that is in the store already.
    pub(in crate::runner) fn stored() -> Self {
        Self { durable: true, ..Self::default() }
    }

    /// The server told where the run is. What is too large to be kept is passed over.
    pub(in crate::runner) fn take(&mut self, anchor: Anchor, abilities: &Abilities) {
        let anchored = Anchored { anchor, abilities: abilities.clone() };
        if anchored.fits() {
            self.fresh = Some(anchored);
        }
    }

    /// The newest, to be written with the record of a task.
    pub(in crate::runner) fn fresh(&self) -> Option<Anchored> {
        self.fresh.clone()
    }

    /// The newest was written with the record.
    pub(in crate::runner) fn is_written(&mut self) {
        if self.fresh.take().is_some() {
            self.durable = true;
            self.next_at = Some(Instant::now() + EVERY);
        }
    }

    /// Whether another process could find the run.
    pub(in crate::runner) fn is_durable(&self) -> bool {
        self.durable
    }

    /// Waits a little for what is on its way into the store.
    pub(in crate::runner) async fn arrived(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.durable |= timeout(EVERY, writing).await.unwrap_or(false);
        }
    }

    /// Writes what is fresh, when it is time. Resolves after each write. Cancel safe.
    pub(in crate::runner) async fn write(&mut self, store: &Store, id: TaskId) {
        if self.writing.is_none() {
            if self.fresh.is_none() {
                return pending().await;
            }
            if let Some(at) = self.next_at {
                sleep_until(at).await;
            }
            let Some(anchored) = self.fresh.take() else { return };
            self.next_at = Some(Instant::now() + EVERY);
            let store = store.clone();
            self.writing = Some(async move { kept(&store, id, &anchored).await }.boxed());
        }
        if let Some(writing) = &mut self.writing {
            self.durable |= writing.await;
            self.writing = None;
        }
    }
}

async fn kept(store: &Store, id: TaskId, anchored: &Anchored) -> bool {
    match store.anchor(&id, anchored).await {
        Ok(()) => true,
        Err(error) => {
            // The next one may be kept.
            tracing::debug!(task = ?id, %error, "where a run is could not be kept");
            false
        }
    }
}
