//! The turns at a session that takes one call at a time: whoever comes with many calls delays the next caller by one.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::protocol::Principal;
use crate::share::line::{Fifo, Line, Turns as LinesInTurn};

/// Who has the session, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// Makes keys of owners that nobody can foresee.
    keys: RandomState,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    line: LinesInTurn<u64, Fifo<oneshot::Sender<Turn>>>,
    next_place: u64,
}

/// The right to use the session alone, until this is dropped. `None` for one that was handed on.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<Turns>>);

/// A place in the line. Dropping it leaves the line.
#[derive(Debug)]
pub(super) struct Place {
    turns: Arc<Turns>,
    key: (u64, ()),
    number: u64,
    turn: oneshot::Receiver<Turn>,
}

impl Turns {
    /// The session, or a place in the line of those who wait for it.
    pub(super) fn enter(self: &Arc<Self>, principal: &Principal) -> Result<Turn, Place> {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_taken, true) {
            return Ok(Turn(Some(Arc::clone(self))));
        }
        let (key, number) = ((self.keys.hash_one(&*principal.sharer()), ()), state.next_place);
        let (sender, turn) = oneshot::channel();
        state.next_place += 1;
        state.line.push(key, number, sender);
        Err(Place { turns: Arc::clone(self), key, number, turn })
    }

    /// Hands the session to the next in the line.
    fn hand_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.line.pop(&mut |_| true);
                state.is_taken = next.is_some();
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // It has left meanwhile.
                Err(mut turn) => turn.0 = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held, so a poisoned state is still in order.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits for the session.
    pub(super) async fn turn(mut self) -> Turn {
        // The line lives as long as what this holds: the sender is never lost.
        (&mut self.turn).await.unwrap_or(Turn(None))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.hand_on();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.turns.state().line.remove(&self.key, self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn named(name: &str) -> Principal {
        Principal::Named(name.into())
    }

    #[tokio::test]
    async fn owners_take_turns_whoever_came_with_many_calls() {
        let turns = Arc::new(Turns::default());
        let mut turn = turns.enter(&named("ann")).unwrap();
        let mut waiting: Vec<_> =
            ["ann", "ann", "ann", "bo"].map(|who| Some((who, turns.enter(&named(who)).unwrap_err()))).into();
        let mut order = Vec::new();
        while waiting.iter().any(Option::is_some) {
            drop(turn);
            let next = waiting.iter_mut().find(|place| place.as_ref().is_some_and(|(_, place)| !place.turn.is_empty()));
            let (who, place) = next.unwrap().take().unwrap();
            order.push(who);
            turn = place.turn().await;
        }
        assert_eq!(order, ["ann", "bo", "ann", "ann"]);
        drop(turn);
        assert!(turns.enter(&named("bo")).is_ok());
    }

    #[tokio::test]
    async fn whoever_leaves_the_line_hands_the_turn_on() {
        let turns = Arc::new(Turns::default());
        let turn = turns.enter(&named("ann")).unwrap();
        let [first, second, third] = ["ann", "bo", "cy"].map(|who| turns.enter(&named(who)).unwrap_err());
        drop(first);
        drop(turn);
        // It is the turn of the second, which leaves with it.
        drop(second);
        let turn = third.turn().now_or_never().unwrap();
        assert!(turns.enter(&named("ann")).is_err());
        drop(turn);
        assert!(turns.enter(&named("ann")).is_ok());
    }
}
