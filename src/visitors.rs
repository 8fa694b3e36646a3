//! Open connections, so many at most. Where there is no room for one more, the one that has asked nothing for longest
//! leaves: whoever connects and is silent keeps nobody out. Who has only just come may have asked already, unheard.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// All of them. Clones are the same.
#[derive(Clone)]
pub struct Visitors(Arc<Inner>);

struct Inner {
    most: usize,
    state: Mutex<State>,
    /// There may be room.
    freed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Those that count: the turn at which each was silent last, or none while it asks.
    inside: HashMap<u64, Option<u64>>,
    /// Those that ask nothing, by turn: the visitor, and how to tell it to leave.
    silent: BTreeMap<u64, Silent>,
}

/// One that asks nothing.
struct Silent {
    number: u64,
    since: Instant,
    leaves: CancellationToken,
}

/// One of them, until this is dropped. Silent at first.
pub struct Visitor {
    of: Visitors,
    number: u64,
    leaves: CancellationToken,
}

/// How long one must have been silent to make room: what has come is heard by then, also on a busy machine.
const SILENCE: Duration = Duration::from_secs(1);

impl Visitors {
    /// So many at most.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { most, state: Mutex::default(), freed: Notify::new() }))
    }

    /// Lets one more in; `None` if there is no room, and nobody who has been silent for a second.
    pub fn enter(&self) -> Option<Visitor> {
        let mut state = self.state();
        if state.inside.len() >= self.0.most {
            let longest = state.silent.first_entry().filter(|longest| longest.get().since.elapsed() >= SILENCE)?;
            let Silent { number, leaves, .. } = longest.remove();
            state.inside.remove(&number);
            leaves.cancel();
        }
        let (number, leaves) = (state.turn(), CancellationToken::new());
        state.inside.insert(number, Some(number));
        state.silent.insert(number, Silent { number, since: Instant::now(), leaves: leaves.clone() });
        Some(Visitor { of: self.clone(), number, leaves })
    }

    /// Lets one more in, once there is room.
    pub async fn enter_soon(&self) -> Visitor {
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that room that is made in between is not missed.
            freed.as_mut().enable();
            if let Some(visitor) = self.enter() {
                return visitor;
            }
            let silent_enough = self.state().silent.first_key_value().map(|(_, longest)| longest.since + SILENCE);
            match silent_enough {
                // Either way it looks again.
                Some(then) => drop(timeout_at(then, freed).await),
                None => freed.await,
            }
        }
    }

    /// What is locked is whole after every change, so a poisoned lock holds a good value.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn turn(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Visitor {
    /// It asks: it is not told to leave before it is silent again.
    pub fn asks(&self) {
        let mut state = self.of.state();
        if let Some(turn) = state.inside.get_mut(&self.number).and_then(Option::take) {
            state.silent.remove(&turn);
        }
    }

    /// It has its answer.
    pub fn is_silent(&self) {
        let mut state = self.of.state();
        let turn = state.turn();
        if let Some(silent @ None) = state.inside.get_mut(&self.number) {
            *silent = Some(turn);
            let silent = Silent { number: self.number, since: Instant::now(), leaves: self.leaves.clone() };
            state.silent.insert(turn, silent);
            drop(state);
            self.of.0.freed.notify_waiters();
        }
    }

    /// Resolves when it is to make room for another.
    pub async fn leaves(&self) {
        self.leaves.cancelled().await;
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if let Some(turn) = state.inside.remove(&self.number).flatten() {
            state.silent.remove(&turn);
        }
        drop(state);
        self.of.0.freed.notify_waiters();
    }
}

impl fmt::Debug for Visitors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitors").field("most", &self.0.most).finish_non_exhaustive()
    }
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    fn is_to_leave(visitor: &Visitor) -> bool {
        visitor.leaves().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_been_silent_longest_makes_room_and_who_asks_does_not() {
        let visitors = Visitors::new(3);
        let [asking, first, second] = std::array::from_fn(|_| visitors.enter().unwrap());
        asking.asks();
        assert!(visitors.enter().is_none(), "what it asks may not have been heard yet");
        advance(SILENCE).await;
        let third = visitors.enter().unwrap();
        assert_eq!([&asking, &first, &second, &third].map(is_to_leave), [false, true, false, false]);
        // It counts no more, so its end makes no room.
        first.asks();
        first.is_silent();
        drop(first);
        for visitor in [&second, &third] {
            visitor.asks();
        }
        assert!(visitors.enter().is_none());
        drop(second);
        let fourth = visitors.enter().unwrap();
        fourth.asks();
        assert!(visitors.enter().is_none());
        asking.is_silent();
        advance(SILENCE).await;
        assert!(visitors.enter().is_some() && is_to_leave(&asking) && !is_to_leave(&third));
        drop((asking, third, fourth));
        let state = visitors.state();
        assert!(state.inside.is_empty() && state.silent.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_comes_in_when_somebody_is_silent_or_gone() {
        let visitors = Visitors::new(1);
        let first = visitors.enter().unwrap();
        first.asks();
        let mut waiting = Box::pin(visitors.enter_soon());
        assert!(waiting.as_mut().now_or_never().is_none());
        first.is_silent();
        assert!(waiting.as_mut().now_or_never().is_none());
        let second = waiting.await;
        second.asks();
        let mut waiting = Box::pin(visitors.enter_soon());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(second);
        assert!(waiting.as_mut().now_or_never().is_some() && is_to_leave(&first));
    }
}
