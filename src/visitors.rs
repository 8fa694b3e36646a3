//! Open connections, so many at most. Where there is no room for one more, the one that has asked nothing for longest
//! leaves: whoever connects, or has its answers, and is silent keeps nobody out. Who has only just come may have asked
//! already, unheard.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

/// All of them. Clones are the same.
#[derive(Clone)]
pub struct Visitors(Arc<Inner>);

struct Inner {
    most: usize,
    begun: Instant,
    state: Mutex<State>,
    /// One has gone.
    freed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Those that count.
    inside: HashMap<u64, Arc<Seat>>,
    /// How many were told to leave and are still there.
    leaving: usize,
}

/// What is known of one. Each question is noted here alone, without a look at the others.
struct Seat {
    begun: Instant,
    /// Its questions without an answer.
    asking: AtomicUsize,
    /// When it was silent last, in nanoseconds from `begun`.
    silent_since: AtomicU64,
    leaves: CancellationToken,
}

/// One of them, until this is dropped. Silent at first.
pub struct Visitor {
    of: Visitors,
    number: u64,
    seat: Arc<Seat>,
}

/// A question of one of them, until it has its answer.
pub struct Asking(Arc<Seat>);

/// How long one must have been silent to make room: what has come is heard by then, also on a busy machine.
const SILENCE: Duration = Duration::from_secs(1);
/// How often one who waits looks for room at most.
const LOOK: Duration = Duration::from_millis(100);
/// So many at least may be leaving at the same time, and as many as this part of all.
const LEAVING: (usize, usize) = (32, 8);

impl Visitors {
    /// So many at most.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { most, begun: Instant::now(), state: Mutex::default(), freed: Notify::new() }))
    }

    /// Lets one more in; `None` if there is no room, and nobody who has been silent for a second, or if too many who were
    /// told to leave are still there.
    pub fn enter(&self) -> Option<Visitor> {
        let mut state = self.state();
        if state.inside.len() >= self.0.most {
            if state.leaving >= LEAVING.0.max(self.0.most / LEAVING.1) {
                return None;
            }
            let (number, _) = state.longest().filter(|(_, since)| since.elapsed() >= SILENCE)?;
            let leaves = state.inside.remove(&number)?;
            state.leaving += 1;
            leaves.leaves.cancel();
        }
        state.next += 1;
        let number = state.next;
        let seat = Arc::new(Seat::new(self.0.begun));
        state.inside.insert(number, Arc::clone(&seat));
        Some(Visitor { of: self.clone(), number, seat })
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
            // Whoever is silent only later does not make room before that either.
            let since = self.state().longest().map_or_else(Instant::now, |(_, since)| since);
            drop(timeout_at((since + SILENCE).max(Instant::now() + LOOK), freed).await);
        }
    }

    /// What is locked is whole after every change, so a poisoned lock holds a good value.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The one that has been silent for longest, and since when.
    fn longest(&self) -> Option<(u64, Instant)> {
        let silent = self.inside.iter().filter_map(|(number, seat)| Some((*number, seat.silent_since()?)));
        silent.min_by_key(|(number, since)| (*since, *number))
    }
}

impl Seat {
    fn new(begun: Instant) -> Self {
        let seat = Self {
            begun,
            asking: AtomicUsize::new(0),
            silent_since: AtomicU64::new(0),
            leaves: CancellationToken::new(),
        };
        seat.is_silent();
        seat
    }

    /// Since when it asks nothing.
    fn silent_since(&self) -> Option<Instant> {
        let is_silent = self.asking.load(Ordering::Acquire) == 0;
        is_silent.then(|| self.begun + Duration::from_nanos(self.silent_since.load(Ordering::Acquire)))
    }

    fn is_silent(&self) {
        let since = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.silent_since.store(since, Ordering::Release);
    }
}

impl Visitor {
    /// It asks something: it is not told to leave before that, and all else that it asked, has its answer.
    pub fn asks(&self) -> Asking {
        self.seat.asking.fetch_add(1, Ordering::AcqRel);
        Asking(Arc::clone(&self.seat))
    }

    /// Resolves when it is to make room for another.
    pub async fn leaves(&self) {
        self.seat.leaves.cancelled().await;
    }

    /// Resolves when it asks nothing for so long from now on.
    pub async fn stays_silent(&self, patience: Duration) {
        let from = Instant::now();
        loop {
            let since = self.seat.silent_since().map_or_else(Instant::now, |since| since.max(from));
            if since.elapsed() >= patience {
                return;
            }
            sleep_until(since + patience).await;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // The time first: whoever sees that nothing is asked sees since when.
        self.0.is_silent();
        self.0.asking.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if state.inside.remove(&self.number).is_none() {
            state.leaving = state.leaving.saturating_sub(1);
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

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
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
        let question = asking.asks();
        assert!(visitors.enter().is_none(), "what it asks may not have been heard yet");
        advance(SILENCE).await;
        let third = visitors.enter().unwrap();
        assert_eq!([&asking, &first, &second, &third].map(is_to_leave), [false, true, false, false]);
        // It counts no more, so its end makes no room.
        drop(first.asks());
        drop(first);
        let _questions = (second.asks(), third.asks());
        advance(SILENCE).await;
        assert!(visitors.enter().is_none());
        drop(second);
        let fourth = visitors.enter().unwrap();
        let _fourths = fourth.asks();
        assert!(visitors.enter().is_none());
        // One of two answers is not enough.
        let another = asking.asks();
        drop(question);
        advance(SILENCE).await;
        assert!(visitors.enter().is_none());
        drop(another);
        assert!(visitors.enter().is_none(), "silent for a second at least");
        advance(SILENCE).await;
        assert!(visitors.enter().is_some() && is_to_leave(&asking) && !is_to_leave(&third));
        drop((asking, third, fourth));
        let state = visitors.state();
        assert!(state.inside.is_empty() && state.leaving == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_those_who_have_their_answers_the_one_that_has_been_idle_for_longest_leaves() {
        let visitors = Visitors::new(2);
        let [first, second] = std::array::from_fn(|_| visitors.enter().unwrap());
        drop(second.asks());
        advance(SILENCE).await;
        drop(first.asks());
        advance(SILENCE).await;
        let _third = visitors.enter().unwrap();
        assert_eq!([&first, &second].map(is_to_leave), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_put_out_while_too_many_are_leaving() {
        let visitors = Visitors::new(1);
        let mut all = vec![visitors.enter().unwrap()];
        for _ in 0..LEAVING.0 {
            advance(SILENCE).await;
            all.push(visitors.enter().unwrap());
        }
        advance(SILENCE).await;
        assert!(visitors.enter().is_none());
        drop(all.remove(0));
        assert!(visitors.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_is_waited_for_until_it_has_been_silent() {
        let visitors = Visitors::new(1);
        let visitor = visitors.enter().unwrap();
        advance(SILENCE * 5).await;
        let question = visitor.asks();
        let mut silent = Box::pin(visitor.stays_silent(SILENCE));
        assert!(silent.as_mut().now_or_never().is_none());
        advance(SILENCE * 5).await;
        assert!(silent.as_mut().now_or_never().is_none());
        drop(question);
        let answered = Instant::now();
        silent.await;
        assert!(answered.elapsed() >= SILENCE);
        // The time before does not count.
        advance(SILENCE * 5).await;
        assert!(visitor.stays_silent(SILENCE).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_comes_in_when_somebody_is_silent_or_gone() {
        let visitors = Visitors::new(1);
        let first = visitors.enter().unwrap();
        let question = first.asks();
        let mut waiting = Box::pin(visitors.enter_soon());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(question);
        assert!(waiting.as_mut().now_or_never().is_none());
        let second = waiting.await;
        let _question = second.asks();
        let mut waiting = Box::pin(visitors.enter_soon());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(second);
        assert!(waiting.as_mut().now_or_never().is_some() && is_to_leave(&first));
    }
}
