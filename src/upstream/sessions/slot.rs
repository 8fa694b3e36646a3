//! The place of one session in the table, from its opening on.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::turns::{Place as TurnPlace, Turn, Turns};
use super::{Asker, Session, Want};
use crate::protocol::{Failure, Principal, WaitsFor};
use crate::share::Place;

#[derive(Debug)]
pub(super) struct Slot<S> {
    pub(super) state: watch::Sender<State<S>>,
    visits: Mutex<Visits>,
    /// The last call on it has ended.
    quiet: Notify,
    /// To be closed if it is not in use.
    pub(super) unwanted: Notify,
    /// Whether that is to make room for another of its owner.
    pub(super) is_for_owner: AtomicBool,
    /// Somebody waits for room: the first session that is used no more is to go.
    pressed: Arc<AtomicBool>,
    /// To be closed although it is in use.
    pub(super) dismissed: CancellationToken,
    /// The right to use it alone, where it takes one call at a time.
    pub(super) turns: Arc<Turns>,
    /// Whose place it takes.
    pub(super) owner: Principal,
    place: Mutex<Option<Place>>,
}

/// To `Open` or `Failed` from `Connecting`, once.
#[derive(Clone, Debug)]
pub(super) enum State<S> {
    Connecting,
    Open(S),
    Failed(Failure),
}

/// How many use a session.
#[derive(Clone, Copy, Debug)]
struct Visits {
    all: usize,
    /// Of them: calls in whose course the server may ask.
    calls: usize,
    /// When the last one left, or it was made.
    left: Instant,
}

/// One user of a slot.
#[derive(Debug)]
pub(super) struct Visit<S> {
    pub(super) slot: Arc<Slot<S>>,
    want: Want,
}

/// A session in use: while it is held, the session does not count as idle.
#[derive(Debug)]
pub(in crate::upstream) struct Lease<S> {
    session: S,
    visit: Visit<S>,
    turn: Held,
}

/// The right to use a session alone.
#[derive(Debug)]
enum Held {
    /// It is shared.
    Nothing,
    AtOnce(#[expect(dead_code, reason = "held until it is dropped")] Turn),
    AfterOthers(#[expect(dead_code, reason = "held until it is dropped")] Turn),
}

impl<S: Session> Slot<S> {
    pub(super) fn new(place: Place, owner: Principal, pressed: Arc<AtomicBool>) -> Self {
        Self {
            state: watch::Sender::new(State::Connecting),
            visits: Mutex::new(Visits { all: 0, calls: 0, left: Instant::now() }),
            quiet: Notify::new(),
            unwanted: Notify::new(),
            is_for_owner: AtomicBool::default(),
            pressed,
            dismissed: CancellationToken::new(),
            turns: Arc::default(),
            owner,
            place: Mutex::new(Some(place)),
        }
    }

    pub(super) fn enter(self: &Arc<Self>, want: Want) -> Visit<S> {
        let mut visits = self.visits();
        visits.all += 1;
        visits.calls += usize::from(want.is_call());
        drop(visits);
        Visit { slot: Arc::clone(self), want }
    }

    /// How many calls run on it in whose course the server may ask.
    pub(super) fn calls(&self) -> usize {
        self.visits().calls
    }

    /// The session, if it is open.
    pub(super) fn session(&self) -> Option<S> {
        match &*self.state.borrow() {
            State::Open(session) => Some(session.clone()),
            State::Connecting | State::Failed(_) => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match &*self.state.borrow() {
            State::Connecting => false,
            State::Open(session) => session.is_over(),
            State::Failed(_) => true,
        }
    }

    pub(super) fn is_resting(&self) -> bool {
        match &*self.state.borrow() {
            State::Open(session) => session.is_resting(),
            State::Connecting | State::Failed(_) => false,
        }
    }

    pub(super) fn replaced(&self) {
        if let State::Open(session) = &*self.state.borrow() {
            session.replaced();
        }
    }

    /// Makes room for another session.
    pub(super) fn retire(&self) {
        drop(self.place.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl<S> Slot<S> {
    /// Since when it has not been in use.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let visits = self.visits();
        (visits.all == 0).then_some(visits.left)
    }

    fn visits(&self) -> MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Visit<S> {
    /// Waits for the turn of this visit, where it needs one.
    pub(super) async fn take_turn(
        self,
        session: S,
        entry: Option<Result<Turn, TurnPlace>>,
        asker: Asker<'_>,
    ) -> Lease<S> {
        let turn = match entry {
            None => Held::Nothing,
            Some(Ok(turn)) => Held::AtOnce(turn),
            Some(Err(place)) => {
                asker.waits(WaitsFor::Turn);
                Held::AfterOthers(place.turn().await)
            }
        };
        Lease { session, visit: self, turn }
    }
}

impl<S> Drop for Visit<S> {
    fn drop(&mut self) {
        let slot = &self.slot;
        let (is_last, is_quiet) = {
            let mut visits = slot.visits();
            visits.all = visits.all.saturating_sub(1);
            visits.calls = visits.calls.saturating_sub(usize::from(self.want.is_call()));
            visits.left = Instant::now();
            (visits.all == 0, visits.calls == 0)
        };
        if is_quiet && self.want.is_call() {
            slot.quiet.notify_waiters();
        }
        if is_last && slot.pressed.swap(false, Ordering::SeqCst) {
            slot.unwanted.notify_one();
        }
    }
}

impl<S: Session> Lease<S> {
    /// Whether the session has ended while its turn was waited for.
    pub(super) fn came_too_late(&self) -> bool {
        matches!(self.turn, Held::AfterOthers(_)) && self.session.is_over()
    }
}

impl<S> Lease<S> {
    /// Resolves when no call runs on the session in whose course the server may ask.
    pub(in crate::upstream) async fn calls_over(&self) {
        let slot = &self.visit.slot;
        loop {
            let quiet = slot.quiet.notified();
            tokio::pin!(quiet);
            // Before the look, so that an end in between is not missed.
            quiet.as_mut().enable();
            if slot.visits().calls == 0 {
                return;
            }
            quiet.await;
        }
    }
}

impl<S> Deref for Lease<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}
