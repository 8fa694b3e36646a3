//! How long the runs of one tool took, in little space: buckets that grow with what they hold, in two generations, so
//! that what was long ago fades.

use std::time::Duration;

use super::Expected;
use crate::clock::{Timestamp, millis};

/// How long runs took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// What is counted now. Becomes the last one when it has enough.
    pub(super) now: Generation,
    /// What was counted before.
    pub(super) last: Generation,
}

/// Runs of a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// When the first was counted.
    pub(super) since: Timestamp,
    /// Runs by bucket.
    pub(super) counts: Box<[u16; BUCKETS]>,
    /// The longest, in milliseconds.
    pub(super) longest: u64,
    pub(super) total: u32,
}

/// Below this many milliseconds each has a bucket of its own; above, each doubling has this many buckets, so that none
/// is wider than an eighth of what it holds.
const STEPS: u64 = 8;

/// Up to 2^27 milliseconds, which is 37 hours; what takes longer is in the last.
pub(super) const BUCKETS: usize = 200;

/// Runs in a full generation.
const FULL: u32 = 512;

/// A generation this old ends with fewer runs.
const OLD: Duration = Duration::from_hours(24 * 7);
const ENOUGH: u32 = 32;

/// Fewer runs say little about the next.
pub(super) const LEAST: u32 = 5;

impl Sketch {
    /// A sketch of nothing.
    pub fn new(now: Timestamp) -> Self {
        Self { now: Generation::new(now), last: Generation::new(now) }
    }

    /// Counts a run.
    pub fn count(&mut self, took: Duration, now: Timestamp) {
        let is_old = self.now.total >= ENOUGH && now.since(self.now.since) > OLD;
        if self.now.total >= FULL || is_old {
            self.last = std::mem::replace(&mut self.now, Generation::new(now));
        }
        if self.now.total == 0 {
            self.now.since = now;
        }
        self.now.count(millis(took));
    }

    /// How many runs it tells of.
    pub fn samples(&self) -> u32 {
        self.now.total + self.last.total
    }

    /// The longest run that it tells of.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.now.longest.max(self.last.longest))
    }

    /// What `percent` of the runs took at most, too long by an eighth at most; zero if there were none.
    pub fn quantile(&self, percent: u32) -> Duration {
        let rank = (u64::from(self.samples()) * u64::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        for (at, (now, last)) in self.now.counts.iter().zip(self.last.counts.iter()).enumerate() {
            seen += u64::from(*now) + u64::from(*last);
            if seen >= rank {
                // The last bucket has no end.
                return if at + 1 < BUCKETS {
                    Duration::from_millis(edge(at)).min(self.longest())
                } else {
                    self.longest()
                };
            }
        }
        self.longest()
    }

    /// What is to be expected of the next run; `None` after too few.
    pub fn expected(&self) -> Option<Expected> {
        let samples = self.samples();
        (samples >= LEAST).then(|| Expected { p50: self.quantile(50), p95: self.quantile(95), samples })
    }
}

impl Generation {
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, counts: Box::new([0; BUCKETS]), longest: 0, total: 0 }
    }

    fn count(&mut self, took: u64) {
        if let Some(count) = self.counts.get_mut(bucket(took)) {
            // Full long before this overflows.
            *count = count.saturating_add(1);
            self.total += 1;
            self.longest = self.longest.max(took);
        }
    }
}

/// The bucket of so many milliseconds.
fn bucket(took: u64) -> usize {
    let Some(doublings) = took.max(1).ilog2().checked_sub(STEPS.ilog2()) else {
        return usize::try_from(took).unwrap_or_default();
    };
    let step = (took >> doublings) - STEPS;
    let at = STEPS * (u64::from(doublings) + 1) + step;
    usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The last millisecond of a bucket.
fn edge(bucket: usize) -> u64 {
    let at = bucket as u64;
    let Some(doublings) = (at / STEPS).checked_sub(1) else { return at };
    let (width, step) = (1_u64 << doublings, STEPS + at % STEPS);
    width * (step + 1) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    proptest! {
        #[test]
        fn a_quantile_is_never_too_short_and_an_eighth_too_long_at_most(
            mut took in prop::collection::vec(0..130_000_000_u64, 1..400),
            percent in 1..=100_u32,
        ) {
            let mut sketch = Sketch::new(START);
            for took in &took {
                sketch.count(Duration::from_millis(*took), START);
            }
            took.sort_unstable();
            let rank = (took.len() * percent as usize).div_ceil(100);
            let (true_one, found) = (took[rank - 1], millis(sketch.quantile(percent)));
            prop_assert!((true_one..=true_one + true_one / 8).contains(&found), "{found} for {true_one}");
            prop_assert_eq!(millis(sketch.longest()), took[took.len() - 1]);
        }

        #[test]
        fn a_bucket_ends_where_the_next_begins(at in 0..BUCKETS - 1) {
            prop_assert_eq!(bucket(edge(at)), at);
            prop_assert_eq!(bucket(edge(at) + 1), at + 1);
        }
    }

    #[test]
    fn as_many_runs_are_within_a_quantile_as_it_says() {
        let mut sketch = Sketch::new(START);
        (0..16).for_each(|_| sketch.count(Duration::from_millis(500), START));
        (0..4).for_each(|_| sketch.count(Duration::from_millis(3010), START));
        sketch.count(Duration::from_secs(9), START);
        let expected = sketch.expected().unwrap();
        assert!(
            expected.p50 >= Duration::from_millis(500) && expected.p95 >= Duration::from_millis(3010),
            "{expected:?}"
        );
        // As far as is known.
        assert_eq!(sketch.quantile(100), Duration::from_secs(9));
    }

    #[test]
    fn what_is_too_long_for_any_bucket_is_in_the_last() {
        let mut sketch = Sketch::new(START);
        sketch.count(Duration::from_hours(24 * 365), START);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(sketch.longest(), Duration::from_hours(24 * 365));
    }

    #[test]
    fn too_few_runs_promise_nothing() {
        let mut sketch = Sketch::new(START);
        assert_eq!((sketch.quantile(50), sketch.expected()), (Duration::ZERO, None));
        for samples in 1..=6 {
            sketch.count(Duration::from_millis(7), START);
            let expected = Expected { p50: Duration::from_millis(7), p95: Duration::from_millis(7), samples };
            assert_eq!(sketch.expected(), (samples >= 5).then_some(expected));
        }
    }

    /// A tool that has become slower is expected to be slow after a while, and not before it has shown it.
    #[test]
    fn what_was_long_ago_fades() {
        let mut sketch = Sketch::new(START);
        let (fast, slow) = (Duration::from_millis(4), Duration::from_millis(7));
        let count = |sketch: &mut Sketch, took, runs, now| (0..runs).for_each(|_| sketch.count(took, now));
        count(&mut sketch, fast, 1024, START);
        assert_eq!(sketch.samples(), 1024);
        count(&mut sketch, slow, 100, START);
        assert_eq!(sketch.quantile(50), fast);
        count(&mut sketch, slow, 924, START);
        assert_eq!((sketch.quantile(1), sketch.longest()), (slow, slow));
        // By time too, if there is something to put in its place.
        let mut sketch = Sketch::new(START);
        count(&mut sketch, fast, 40, START);
        let week = START.after(Duration::from_hours(24 * 8));
        count(&mut sketch, slow, 40, week);
        assert_eq!((sketch.samples(), sketch.quantile(50)), (80, fast));
        count(&mut sketch, slow, 1, week.after(Duration::from_hours(24 * 8)));
        assert_eq!((sketch.samples(), sketch.quantile(1)), (41, slow));
    }

    #[test]
    fn most_runs_take_longer_than_half_of_them() {
        let mut sketch = Sketch::new(START);
        (1..=100).for_each(|took| sketch.count(Duration::from_millis(took), START));
        let expected = sketch.expected().unwrap();
        assert!(
            expected.p50.as_millis().abs_diff(50) <= 4 && expected.p95.as_millis().abs_diff(95) <= 6,
            "{expected:?}"
        );
    }
}
