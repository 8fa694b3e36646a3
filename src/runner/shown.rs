//! Held calls that are no tasks, as operators see them: there is no record by which they could be found or stopped.
//!
//! They are shown once they have run for a second, and at once where they wait for a slot or for an answer, so that a quick
//! call costs nothing.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Runner;
use super::admission::Place;
use super::run::Run;
use crate::clock::Timestamp;
use crate::protocol::WaitsFor;
use crate::shared_map::SharedMap;
use crate::task::Owner;

/// The held calls that are shown.
#[derive(Debug, Default)]
pub struct HeldCalls {
    calls: SharedMap<u64, Arc<HeldCall>>,
    last: AtomicU64,
}

/// A call whose caller is held, and of which there is no record.
#[derive(Debug)]
pub struct HeldCall {
    number: u64,
    owner: Owner,
    server: Arc<str>,
    name: String,
    since: Timestamp,
    arrived: Instant,
    stage: Mutex<Stage>,
    cancel: CancellationToken,
    gone: CancellationToken,
}

/// How far a held call is.
#[derive(Clone, Debug)]
pub enum Stage {
    /// It waits for a slot.
    Queued(Place),
    /// It waits for its server.
    Waits(WaitsFor),
    /// The server has it.
    Running,
    /// The server asks its caller.
    Asking,
    /// Its caller was sent away with questions, to come back with answers.
    Parked,
}

/// Shows a held call, until this is hidden or dropped.
#[derive(Debug)]
pub(super) struct Shown {
    call: Arc<HeldCall>,
    all: Arc<HeldCalls>,
}

/// One held call, if it is shown. None is shown twice.
#[derive(Debug, Default)]
pub(super) struct Showing(OnceLock<Shown>);

/// How long a call runs until it is shown.
pub(super) const SHOW_AFTER: Duration = Duration::from_secs(1);

impl HeldCalls {
    /// The held calls, those that came first in front.
    pub fn all(&self) -> Vec<Arc<HeldCall>> {
        let mut all = Vec::with_capacity(self.calls.len());
        self.calls.for_each(|_, call| all.push(Arc::clone(call)));
        all.sort_by_key(|call| call.number);
        all
    }

    /// The held call with this number.
    pub fn get(&self, number: u64) -> Option<Arc<HeldCall>> {
        self.calls.get(&number)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

impl HeldCall {
    /// Which one it is, in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whose it is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The name of the server in the config.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The tool, or the method where it is another.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it came, by the clock of the machine.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// How long ago that was.
    pub fn age(&self) -> Duration {
        self.arrived.elapsed()
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.lock().clone()
    }

    /// Stops it; its caller is told that an operator did so.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Resolves when it is held no longer.
    pub async fn gone(&self) {
        self.gone.cancelled().await;
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        // A stage is replaced whole, so a poisoned lock holds a good one.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Showing {
    /// Says how far it is, if it is shown.
    pub(super) fn set(&self, stage: Stage) {
        if let Some(shown) = self.0.get() {
            *shown.call.lock() = stage;
        }
    }

    /// Whether it is, or was.
    pub(super) fn has_begun(&self) -> bool {
        self.0.get().is_some()
    }

    /// It is shown no longer: it has a record.
    pub(super) fn hide(&self) {
        if let Some(shown) = self.0.get() {
            shown.hide();
        }
    }

    /// Resolves when an operator stops it.
    pub(super) async fn cancelled(&self) {
        match self.0.get() {
            Some(shown) => shown.call.cancel.cancelled().await,
            None => pending().await,
        }
    }
}

impl Run {
    /// Shows the call to operators.
    pub(super) fn show(&self, stage: Stage) {
        let mut stage = Some(stage);
        self.showing.0.get_or_init(|| self.shown(stage.take().unwrap_or(Stage::Running)));
        if let Some(stage) = stage {
            self.showing.set(stage);
        }
    }

    fn shown(&self, stage: Stage) -> Shown {
        let (store, all) = (&self.shared.store, Arc::clone(&self.shared.held));
        let number = all.last.fetch_add(1, Ordering::Relaxed) + 1;
        let age = u64::try_from(self.arrived.elapsed().as_millis()).unwrap_or(u64::MAX);
        let call = Arc::new(HeldCall {
            number,
            owner: store.owner(&self.principal),
            server: Arc::clone(&self.plan.server),
            name: self.plan.what.name().to_owned(),
            since: Timestamp::from_millis(store.clock().now().as_millis().saturating_sub(age)),
            arrived: self.arrived,
            stage: Mutex::new(stage),
            cancel: CancellationToken::new(),
            gone: CancellationToken::new(),
        });
        all.calls.insert(number, Arc::clone(&call));
        Shown { call, all }
    }
}

impl Runner {
    /// The held calls that are no tasks.
    pub fn held(&self) -> &HeldCalls {
        &self.0.held
    }
}

impl Shown {
    fn hide(&self) {
        self.all.calls.remove(&self.call.number);
        self.call.gone.cancel();
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.hide();
    }
}
