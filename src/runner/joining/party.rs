//! Who waits for a run beside its own caller.

use std::sync::Arc;

use tokio::sync::watch;

use crate::protocol::{Abilities, Rope};
use crate::runner::{Live, twin};
use crate::task::OpenQuestion;

/// Those who have joined a run.
#[derive(Debug)]
pub(in crate::runner) struct Party(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    /// Those who wait on the line.
    guests: usize,
    /// Whether any of them was given a handle.
    has_handle: bool,
    /// What the caller was sent away with, to come back with answers.
    round: Option<Arc<Round>>,
    /// Whether nothing runs here any more.
    is_over: bool,
}

/// A round of questions that is open.
#[derive(Debug)]
pub(in crate::runner) struct Round {
    /// The `InputRequiredResult`.
    pub(in crate::runner) result: Rope,
    /// What it asks.
    pub(in crate::runner) questions: Vec<OpenQuestion>,
}

/// One who has joined. Dropping this leaves.
#[derive(Debug)]
pub(in crate::runner) struct Guest(Arc<Live>);

impl Default for Party {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl Party {
    /// Whether somebody still wants the outcome.
    pub(in crate::runner) fn is_awaited(&self) -> bool {
        self.0.borrow().is_awaited()
    }

    /// Whether one of those who have joined has a handle.
    pub(in crate::runner) fn has_handle(&self) -> bool {
        self.0.borrow().has_handle
    }

    /// Resolves when nobody wants the outcome any more. Cancel safe.
    pub(in crate::runner) async fn deserted(&self) {
        // The sender is here, so the wait never fails.
        let _ = self.0.subscribe().wait_for(|state| !state.is_awaited()).await;
    }

    /// The caller was sent away with these questions, or came back.
    pub(in crate::runner) fn set_round(&self, round: Option<Round>) {
        self.0.send_modify(|state| state.round = round.map(Arc::new));
    }

    /// The open round, for a caller who can be asked all of it.
    pub(in crate::runner) fn round(&self, abilities: &Abilities) -> Option<Rope> {
        let state = self.0.borrow();
        let round = state.round.as_ref()?;
        twin::covers_all(abilities, &round.questions).then(|| round.result.clone())
    }

    /// Nothing runs here any more: what has ended is in the store, all else is left to the next process.
    pub(in crate::runner) fn is_left_alone(&self) {
        self.0.send_modify(|state| state.is_over = true);
    }

    /// Whether nothing runs here any more.
    pub(super) fn is_over(&self) -> bool {
        self.0.borrow().is_over
    }

    /// Resolves when something changes from now on.
    pub(super) fn changes(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut changes = self.0.subscribe();
        async move {
            // Once the run is gone, the store says how it ended.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl State {
    fn is_awaited(&self) -> bool {
        self.guests > 0 || self.has_handle
    }
}

impl Guest {
    /// Joins a run.
    pub(super) fn of(live: Arc<Live>) -> Self {
        live.party().0.send_modify(|state| state.guests += 1);
        Self(live)
    }

    /// The run.
    pub(super) fn live(&self) -> &Arc<Live> {
        &self.0
    }

    /// Leaves with a handle.
    pub(super) fn leaves_with_handle(self) {
        self.0.party().0.send_modify(|state| state.has_handle = true);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.party().0.send_modify(|state| state.guests = state.guests.saturating_sub(1));
    }
}
