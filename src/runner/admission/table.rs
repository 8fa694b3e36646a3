//! What is known of owners or tools, for as long as there is something to know, and never of too many.

use std::collections::HashMap;

use slab::Slab;
use tokio::time::Instant;

/// What may be known of an owner or a tool.
pub(super) trait Row: Default {
    /// Whether there is nothing to know: a new one would be the same.
    fn is_idle(&self, now: Instant) -> bool;
}

/// Rows, each under a key and at a place that stays its own while it is not idle.
#[derive(Debug)]
pub(super) struct Table<R> {
    places: HashMap<u64, usize>,
    rows: Slab<(u64, R)>,
    /// Idle rows are forgotten when there are so many.
    clear_at: usize,
}

/// So few rows are not looked through.
const FEW: usize = 256;
/// Of more than these nothing is known of each: all others share one row.
const MOST: usize = 1 << 16;
/// The key of that row.
const CROWD: u64 = 0;

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self { places: HashMap::new(), rows: Slab::new(), clear_at: FEW }
    }
}

impl<R: Row> Table<R> {
    /// The place of the row under `key`, made if it is not there.
    pub(super) fn place(&mut self, key: u64) -> usize {
        match self.places.get(&key) {
            Some(place) => *place,
            None => self.make(key),
        }
    }

    fn make(&mut self, key: u64) -> usize {
        if self.rows.len() >= self.clear_at {
            let (now, places) = (Instant::now(), &mut self.places);
            self.rows.retain(|_, (key, row)| {
                let is_idle = row.is_idle(now);
                if is_idle {
                    places.remove(key);
                }
                !is_idle
            });
            self.clear_at = (2 * self.rows.len()).max(FEW);
        }
        let key = if self.rows.len() >= MOST { CROWD } else { key };
        *self.places.entry(key).or_insert_with(|| self.rows.insert((key, R::default())))
    }

    pub(super) fn get(&self, place: usize) -> Option<&R> {
        self.rows.get(place).map(|(_, row)| row)
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut R> {
        self.rows.get_mut(place).map(|(_, row)| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Busy(bool);

    impl Row for Busy {
        fn is_idle(&self, _: Instant) -> bool {
            !self.0
        }
    }

    #[test]
    fn idle_rows_are_forgotten_and_others_keep_their_place() {
        let mut table = Table::<Busy>::default();
        let place = table.place(7);
        table.get_mut(place).unwrap().0 = true;
        for key in 1000..100_000 {
            table.place(key);
        }
        assert!(table.rows.len() <= FEW + 1 && table.places.len() == table.rows.len());
        assert!(table.place(7) == place && table.get(place).unwrap().0);
    }

    #[test]
    fn too_many_share_a_row() {
        let mut table = Table::<Busy>::default();
        for key in 1..100_000 {
            let place = table.place(key);
            table.get_mut(place).unwrap().0 = true;
        }
        assert_eq!(table.rows.len(), MOST + 1);
        assert_eq!(table.place(200_000), table.place(200_001));
    }
}
