//! One call that runs on a session, as far as questions are concerned.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::floor::Floor;
use crate::protocol::{Abilities, EventSender, Failure, Outcome, RpcError, StopCause};

/// The place of a call on its session, for as long as this is held.
#[derive(Debug)]
pub(in crate::upstream) struct Seat {
    pub(super) floor: Floor,
    pub(super) id: u64,
    pub(super) fate: Fate,
}

/// Whether a call still runs. Clones are of the same call.
#[derive(Clone, Debug, Default)]
pub(in crate::upstream) struct Fate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

/// From `Running` to one of the others, once.
#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Running,
    /// It has its answer, or was cancelled: nothing is asked on its behalf any more.
    Over,
    /// It must end with this.
    Must(Verdict),
}

/// Why a call must end before its server says so.
#[derive(Clone, Debug)]
pub(in crate::upstream) enum Verdict {
    /// The server needs to ask what the client cannot be asked.
    Unaskable(RpcError),
    /// The server cannot be told the answer.
    Untold(Failure),
}

/// Who can be asked, and how.
#[derive(Clone, Debug)]
pub(super) struct Addressee {
    pub(super) events: EventSender,
    pub(super) abilities: Abilities,
    pub(super) fate: Fate,
}

impl Seat {
    /// The call was cancelled. What it asks from now on is refused, what it has asked is withdrawn.
    pub(in crate::upstream) fn cancelled(&self) {
        self.fate.end();
    }

    /// Whether the call still runs.
    pub(in crate::upstream) fn fate(&self) -> Fate {
        self.fate.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.floor.leave(self.id);
        self.fate.end();
    }
}

impl Fate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, to: State) {
        let mut state = self.state();
        if matches!(*state, State::Running) {
            *state = to;
            drop(state);
            self.0.changed.notify_waiters();
        }
    }

    /// The call is over.
    pub(super) fn end(&self) {
        self.change(State::Over);
    }

    /// The call must end so.
    pub(super) fn must_end(&self, verdict: Verdict) {
        self.change(State::Must(verdict));
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(*self.state(), State::Running)
    }

    /// What the call must end with, if its client cannot be asked.
    pub(super) fn unaskable(&self) -> Option<RpcError> {
        match &*self.state() {
            State::Must(Verdict::Unaskable(error)) => Some(error.clone()),
            State::Running | State::Over | State::Must(Verdict::Untold(_)) => None,
        }
    }

    /// Resolves when the call does not run any more.
    pub(super) async fn over(&self) {
        self.until(|state| (!matches!(state, State::Running)).then_some(())).await;
    }

    /// Resolves when the call must end, with the reason. Cancel safe.
    pub(in crate::upstream) async fn verdict(&self) -> Verdict {
        self.until(|state| if let State::Must(verdict) = state { Some(verdict.clone()) } else { None }).await
    }

    async fn until<T>(&self, reached: impl Fn(&State) -> Option<T>) -> T {
        loop {
            // A change that comes between the look and the wait is not missed.
            let changed = self.0.changed.notified();
            let found = reached(&self.state());
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }
}

impl Verdict {
    /// What a server is told of it.
    pub(in crate::upstream) fn cause(&self) -> StopCause {
        match self {
            Self::Unaskable(_) => StopCause::Unaskable,
            Self::Untold(failure) => StopCause::GivenUp(failure.reason),
        }
    }

    /// The outcome of the call.
    pub(in crate::upstream) fn outcome(self) -> Outcome {
        match self {
            Self::Unaskable(error) => Outcome::Error(error),
            Self::Untold(failure) => Outcome::Failed(failure),
        }
    }
}

impl Addressee {
    /// Whether anybody can still be asked here.
    pub(super) fn is_there(&self) -> bool {
        self.fate.is_running() && !self.events.is_closed()
    }
}
