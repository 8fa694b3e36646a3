//! A line in which nobody is overtaken by those who came with many: owners take turns, and so do the tools of an owner.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Things that wait, each under a number, in some order.
pub(crate) trait Line<T>: Default {
    /// Which part of the line a thing stands in.
    type Key: Clone;

    /// Puts one in; numbers are never used twice.
    fn push(&mut self, key: Self::Key, number: u64, thing: T);

    /// Takes the first out that `fits`. Of things with the same key either all fit or none.
    fn pop(&mut self, fits: &mut impl FnMut(&T) -> bool) -> Option<T>;

    /// Takes the one with this number out.
    fn remove(&mut self, key: &Self::Key, number: u64) -> Option<T>;

    /// How many come before the one with this number, if all fit.
    fn ahead(&self, key: &Self::Key, number: u64) -> Option<usize>;

    /// How many there are.
    fn len(&self) -> usize;
}

/// First come, first served.
#[derive(Debug)]
pub(crate) struct Fifo<T>(VecDeque<(u64, T)>);

/// Lines that take turns.
#[derive(Debug)]
pub(crate) struct Turns<K, L> {
    lines: HashMap<K, L>,
    /// Whose turn it is, from the front. Those that did not fit keep theirs.
    order: VecDeque<K>,
    len: usize,
}

/// Owners take turns, then the tools of each.
pub(crate) type FairLine<T> = Turns<u64, Turns<u64, Fifo<T>>>;

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K, L> Default for Turns<K, L> {
    fn default() -> Self {
        Self { lines: HashMap::new(), order: VecDeque::new(), len: 0 }
    }
}

impl<T> Line<T> for Fifo<T> {
    type Key = ();

    fn push(&mut self, (): (), number: u64, thing: T) {
        self.0.push_back((number, thing));
    }

    fn pop(&mut self, fits: &mut impl FnMut(&T) -> bool) -> Option<T> {
        let first = self.0.pop_front_if(|(_, thing)| fits(thing));
        first.map(|(_, thing)| thing)
    }

    fn remove(&mut self, (): &(), number: u64) -> Option<T> {
        let at = self.0.iter().position(|(known, _)| *known == number)?;
        self.0.remove(at).map(|(_, thing)| thing)
    }

    fn ahead(&self, (): &(), number: u64) -> Option<usize> {
        self.0.iter().position(|(known, _)| *known == number)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T, K: Clone + Eq + Hash, L: Line<T>> Line<T> for Turns<K, L> {
    type Key = (K, L::Key);

    fn push(&mut self, (key, within): Self::Key, number: u64, thing: T) {
        let line = self.lines.entry(key.clone()).or_insert_with(|| {
            self.order.push_back(key);
            L::default()
        });
        line.push(within, number, thing);
        self.len += 1;
    }

    fn pop(&mut self, fits: &mut impl FnMut(&T) -> bool) -> Option<T> {
        for at in 0..self.order.len() {
            let line = self.order.get(at).and_then(|key| self.lines.get_mut(key));
            let Some((thing, left)) = line.and_then(|line| Some((line.pop(fits)?, line.len()))) else { continue };
            if let Some(key) = self.order.remove(at) {
                if left == 0 {
                    self.lines.remove(&key);
                } else {
                    self.order.push_back(key);
                }
            }
            self.len -= 1;
            return Some(thing);
        }
        None
    }

    fn remove(&mut self, (key, within): &Self::Key, number: u64) -> Option<T> {
        let line = self.lines.get_mut(key)?;
        let thing = line.remove(within, number)?;
        if line.len() == 0 {
            self.lines.remove(key);
            self.order.retain(|other| other != key);
        }
        self.len -= 1;
        Some(thing)
    }

    fn ahead(&self, (key, within): &Self::Key, number: u64) -> Option<usize> {
        let own = self.lines.get(key)?.ahead(within, number)?;
        let at = self.order.iter().position(|other| other == key)?;
        let others = self.order.iter().enumerate().filter(|(_, other)| *other != key);
        let before = others.map(|(turn, other)| {
            // Each has had as many turns as this one, and those whose turn comes first one more.
            let turns = own + usize::from(turn < at);
            self.lines.get(other).map_or(0, |line| line.len().min(turns))
        });
        Some(own + before.sum::<usize>())
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drained(line: &mut FairLine<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| line.pop(&mut |_| true)).collect()
    }

    #[test]
    fn owners_take_turns_and_so_do_the_tools_of_each() {
        let mut line = FairLine::default();
        for (number, (owner, tool, name)) in
            [(1, 1, "a1"), (1, 1, "a2"), (1, 1, "a3"), (1, 2, "aa"), (2, 1, "b1"), (2, 1, "b2"), (3, 1, "c")]
                .into_iter()
                .enumerate()
        {
            line.push((owner, (tool, ())), number as u64, name);
        }
        assert_eq!(drained(&mut line), ["a1", "b1", "c", "aa", "b2", "a2", "a3"]);
        assert_eq!((line.len(), line.lines.len(), line.order.len()), (0, 0, 0));
    }

    #[test]
    fn who_does_not_fit_keeps_the_turn() {
        let mut line = FairLine::default();
        for (number, (owner, name)) in [(1, "a"), (2, "b"), (3, "c"), (2, "b"), (1, "a")].into_iter().enumerate() {
            line.push((owner, (0, ())), number as u64, name);
        }
        assert_eq!(line.pop(&mut |name| *name != "a"), Some("b"));
        assert_eq!(line.pop(&mut |name| *name != "a"), Some("c"));
        assert_eq!(drained(&mut line), ["a", "b", "a"]);
        assert_eq!(line.pop(&mut |_| true), None);
    }

    #[test]
    fn whoever_comes_next_waits_for_one_turn_of_a_greedy_owner_at_most() {
        let mut line = FairLine::default();
        for number in 0..1000 {
            line.push((1, (number % 7, ())), number, "greedy");
        }
        line.push((2, (0, ())), 1000, "other");
        assert_eq!(line.ahead(&(2, (0, ())), 1000), Some(1));
        assert_eq!((line.pop(&mut |_| true), line.pop(&mut |_| true)), (Some("greedy"), Some("other")));
    }

    type Key = (u64, (u64, ()));

    proptest! {
        #[test]
        fn as_many_come_before_as_is_said_and_none_is_lost(
            pushes in proptest::collection::vec((0..4_u64, 0..3_u64), 1..40),
            pops in 0..20_usize,
            leaves in proptest::collection::vec(0..40_usize, 0..10),
        ) {
            let mut line: FairLine<u64> = FairLine::default();
            let mut waiting: Vec<(u64, Key)> = Vec::new();
            for (number, (owner, tool)) in (0..).zip(&pushes) {
                line.push((*owner, (*tool, ())), number, number);
                waiting.push((number, (*owner, (*tool, ()))));
            }
            for _ in 0..pops {
                let Some(gone) = line.pop(&mut |_| true) else { break };
                waiting.retain(|(number, _)| *number != gone);
            }
            for at in leaves {
                if at < waiting.len() {
                    let (number, key) = waiting.remove(at);
                    prop_assert_eq!(line.remove(&key, number), Some(number));
                    prop_assert_eq!(line.remove(&key, number), None);
                }
            }
            prop_assert_eq!(line.len(), waiting.len());
            let said: Vec<_> = waiting.iter().map(|(number, key)| (line.ahead(key, *number), *number)).collect();
            for turn in 0..waiting.len() {
                let next = line.pop(&mut |_| true).unwrap();
                prop_assert!(said.contains(&(Some(turn), next)), "{} at {}: {:?}", next, turn, said);
            }
            prop_assert!(line.pop(&mut |_| true).is_none());
        }
    }
}
