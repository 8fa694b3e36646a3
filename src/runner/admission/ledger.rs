//! What was spent, and for how long that still counts.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::{Timestamp, millis};
use crate::config::Cost;

/// What one owner has spent lately. Spending is counted in slices of a 48th of the budget's period, and a slice counts
/// until a whole period after its end: the budget holds for any period, wherever it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// The ends of slices, rising, and what was spent in each.
    slices: VecDeque<(Timestamp, Cost)>,
    /// When something was spent last.
    last: Option<Timestamp>,
}

/// Slices of a period.
const SLICES: u64 = 48;
/// Bytes of one slice when it is stored.
const STORED: usize = 16;

impl Ledger {
    /// Reads what [`Ledger::to_bytes`] wrote; `None` if it is something else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (parts, rest) = bytes.as_chunks::<STORED>();
        if !rest.is_empty() {
            return None;
        }
        let slice = |part: &[u8; STORED]| {
            let (end, cost) = part.split_first_chunk::<8>()?;
            let cost = u64::from_be_bytes(cost.try_into().ok()?);
            Some((Timestamp::from_millis(u64::from_be_bytes(*end)), Cost::from_millionths(cost)))
        };
        let mut slices = parts.iter().map(slice).collect::<Option<VecDeque<_>>>()?;
        // A slice of nothing is none; before it was written, the last slice was all that was known.
        let last = slices.pop_back_if(|(_, cost)| *cost == Cost::ZERO).or_else(|| slices.back().copied());
        Some(Self { slices, last: last.map(|(at, _)| at) })
    }

    /// The ledger, to be stored: 1 KiB at most.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let slice = |(end, cost): &(Timestamp, Cost)| [end.as_millis().to_be_bytes(), cost.millionths().to_be_bytes()];
        let last = self.last.map(|last| (last, Cost::ZERO));
        self.slices.iter().chain(&last).flat_map(slice).flatten().collect()
    }

    /// Counts what is spent now.
    pub(super) fn spend(&mut self, cost: Cost, per: Duration, now: Timestamp) {
        self.forget(per, now);
        self.add(end_of_slice(per, now), cost);
        if cost != Cost::ZERO {
            self.last = Some(now);
        }
    }

    /// Takes back what was spent last.
    pub(super) fn refund(&mut self, cost: Cost) {
        let mut left = cost;
        while let Some((end, spent)) = self.slices.pop_back() {
            if spent > left {
                self.slices.push_back((end, minus(spent, left)));
                return;
            }
            left = minus(left, spent);
        }
    }

    /// Forgets what does not count any more.
    pub(super) fn forget(&mut self, per: Duration, now: Timestamp) {
        let (end, mut late) = (end_of_slice(per, now), Cost::ZERO);
        // The clock was put back: what seems to come from the future was spent by now.
        while let Some((_, cost)) = self.slices.pop_back_if(|(last, _)| *last > end) {
            late = late.plus(cost);
        }
        self.add(end, late);
        while self.slices.pop_front_if(|(end, _)| end.after(per) <= now).is_some() {}
    }

    fn add(&mut self, end: Timestamp, cost: Cost) {
        match self.slices.back_mut() {
            _ if cost == Cost::ZERO => {}
            Some((last, spent)) if *last >= end => *spent = spent.plus(cost),
            _ => self.slices.push_back((end, cost)),
        }
    }

    /// What counts.
    pub(super) fn spent(&self) -> Cost {
        self.slices.iter().fold(Cost::ZERO, |sum, (_, cost)| sum.plus(*cost))
    }

    /// How long it takes until so much of what was spent does not count any more; `None` if that is more than all.
    pub(super) fn frees(&self, wanted: Cost, per: Duration, now: Timestamp) -> Option<Duration> {
        let mut freed = Cost::ZERO;
        for (end, cost) in &self.slices {
            freed = freed.plus(*cost);
            if freed >= wanted {
                return Some(end.after(per).since(now));
            }
        }
        None
    }

    /// When something was spent last.
    pub(super) const fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// Whether nothing counts.
    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }
}

/// What is left of `all` without `some`.
pub(super) const fn minus(all: Cost, some: Cost) -> Cost {
    Cost::from_millionths(all.millionths().saturating_sub(some.millionths()))
}

fn end_of_slice(per: Duration, now: Timestamp) -> Timestamp {
    let slice = (millis(per) / SLICES).max(1);
    let begun = now.as_millis() - now.as_millis() % slice;
    Timestamp::from_millis(begun.saturating_add(slice))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    const fn cost(millionths: u64) -> Cost {
        Cost::from_millionths(millionths)
    }

    #[test]
    fn what_was_spent_counts_for_a_period_and_the_wait_says_until_when() {
        let mut ledger = Ledger::default();
        ledger.spend(cost(3), HOUR, START);
        ledger.spend(cost(5), HOUR, START.after(HOUR / 2));
        assert_eq!(ledger.spent(), cost(8));
        let wait = |wanted| ledger.frees(cost(wanted), HOUR, START.after(HOUR / 2));
        // The first slice ends 75 s after its begin.
        assert_eq!(wait(1), Some(HOUR / 2 + Duration::from_secs(75)));
        assert_eq!(wait(4), Some(HOUR + Duration::from_secs(75)));
        assert_eq!(wait(9), None);
        ledger.forget(HOUR, START.after(HOUR));
        assert_eq!(ledger.spent(), cost(8));
        ledger.forget(HOUR, START.after(HOUR + Duration::from_secs(75)));
        assert_eq!(ledger.spent(), cost(5));
        ledger.forget(HOUR, START.after(HOUR * 2));
        assert!(ledger.is_empty());
    }

    #[test]
    fn a_clock_that_was_put_back_neither_frees_nor_locks_for_longer_than_a_period() {
        let mut ledger = Ledger::default();
        ledger.spend(cost(2), HOUR, START.after(HOUR * 9000));
        ledger.spend(cost(3), HOUR, START.after(HOUR * 9000 + HOUR / 2));
        ledger.spend(cost(1), HOUR, START);
        assert_eq!((ledger.spent(), ledger.slices.len()), (cost(6), 1));
        assert!(ledger.frees(cost(6), HOUR, START).unwrap() <= HOUR + Duration::from_secs(75));
    }

    #[test]
    fn a_refund_takes_back_the_last_spending() {
        let mut ledger = Ledger::default();
        for hour in 0..3 {
            ledger.spend(cost(5), HOUR * 24, START.after(HOUR * hour));
        }
        ledger.refund(cost(7));
        assert_eq!((ledger.spent(), ledger.slices.len()), (cost(8), 2));
        ledger.refund(cost(100));
        assert!(ledger.is_empty());
    }

    #[test]
    fn strange_bytes_are_no_ledger() {
        assert_eq!(Ledger::from_bytes(&[0; 15]), None);
        assert_eq!(Ledger::from_bytes(&[]), Some(Ledger::default()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_period_holds_more_than_is_counted_and_a_ledger_stays_small(
            steps in proptest::collection::vec((0..200_000_u64, 0..1000_u64), 1..150),
        ) {
            let (mut ledger, mut now, mut all) = (Ledger::default(), START, Vec::new());
            for (wait, spent) in steps {
                now = now.after(Duration::from_millis(wait));
                ledger.spend(cost(spent), HOUR, now);
                all.push((now, spent));
                let lately: u64 = all.iter().filter(|(at, _)| now.since(*at) < HOUR).map(|(_, spent)| spent).sum();
                let a_slice_more: u64 = all.iter().filter(|(at, _)| now.since(*at) < HOUR + HOUR / 48).map(|(_, spent)| spent).sum();
                prop_assert!((lately..=a_slice_more).contains(&ledger.spent().millionths()));
                prop_assert!(ledger.to_bytes().len() <= 51 * STORED);
                prop_assert_eq!(Ledger::from_bytes(&ledger.to_bytes()), Some(ledger.clone()));
                if let Some(wait) = ledger.frees(ledger.spent(), HOUR, now) {
                    let mut later = ledger.clone();
                    later.forget(HOUR, now.after(wait));
                    prop_assert!(later.is_empty());
                    let mut before = ledger.clone();
                    before.forget(HOUR, now.after(wait.saturating_sub(Duration::from_millis(1))));
                    prop_assert!(ledger.is_empty() || !before.is_empty());
                }
            }
        }
    }
}
