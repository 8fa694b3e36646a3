//! Turns of answers to a server: those that one call causes wait for each other, and for those of no other.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// The turns of a session.
#[derive(Debug, Default)]
pub(super) struct Turns(HashMap<Option<u64>, Arc<Semaphore>>);

/// Answers that one call causes, or what a server asks by itself, and that may be on their way at a time.
const ANSWERS: usize = 8;

impl Turns {
    /// The turns of what comes on the stream of this call; `None` is the server's own stream.
    pub(super) fn of(&mut self, call: Option<u64>) -> Arc<Semaphore> {
        if !self.0.contains_key(&call) {
            // One that somebody else holds too has an answer on its way.
            self.0.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        Arc::clone(self.0.entry(call).or_insert_with(|| Arc::new(Semaphore::new(ANSWERS))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_do_not_share_turns_and_those_of_ended_ones_are_not_kept() {
        let mut turns = Turns::default();
        let mut held = Vec::new();
        for call in [Some(1), None] {
            for _ in 0..ANSWERS {
                held.push(turns.of(call).try_acquire_owned().unwrap());
            }
            assert!(turns.of(call).try_acquire_owned().is_err(), "{call:?}");
        }
        for call in 2..100 {
            assert!(turns.of(Some(call)).try_acquire_owned().is_ok());
        }
        assert_eq!(turns.0.len(), 3);
        drop(held);
        turns.of(Some(100));
        assert_eq!(turns.0.len(), 1);
    }
}
