//! How often runs may be started.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Rate;

/// Tokens for starts, refilled evenly, as many as one period has at most (the generic cell rate algorithm: all there is
/// to know is when the bucket will be full again).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// `None` if it was never used.
    full_at: Option<Instant>,
}

impl Bucket {
    /// How long it takes until there is a token; `None` if there is one now.
    pub(super) fn wait(&self, rate: Rate, now: Instant) -> Option<Duration> {
        missing_time(self, now).checked_sub(room(rate, 0)).filter(|wait| !wait.is_zero())
    }

    /// How long it takes until there are so many tokens, or would be if those before were taken as they come.
    pub(super) fn wait_for(&self, tokens: u32, rate: Rate, now: Instant) -> Duration {
        let (missing, spacing) = (missing_time(self, now), rate.spacing());
        match rate.count.checked_sub(tokens) {
            Some(spare) => missing.saturating_sub(spacing.saturating_mul(spare)),
            None => missing.saturating_add(spacing.saturating_mul(tokens.saturating_sub(rate.count))),
        }
    }

    /// The same as [`Bucket::wait`] for somebody who took those that are missing in `own`, while the last `kept` are for those who took fewer
    /// than are left.
    pub(super) fn share_wait(&self, own: &Self, kept: u32, rate: Rate, now: Instant) -> Option<Duration> {
        let (all, own) = (missing_time(self, now), missing_time(own, now));
        let until_plenty = all.saturating_sub(room(rate, kept));
        // Enough when no more than `taken` are missing of its own, and one more than that is left. It has less of the one
        // to wait for, and more of the other, the larger `taken` is: the best is where both are about the same.
        let until = |taken: u32| {
            own.saturating_sub(rate.spacing().saturating_mul(taken)).max(all.saturating_sub(room(rate, taken)))
        };
        let both = (2 * rate.spacing().as_nanos()).max(1);
        let best = room(rate, 0).saturating_add(own).saturating_sub(all).as_nanos() / both;
        let best = u32::try_from(best).unwrap_or(u32::MAX).min(rate.count.saturating_sub(1));
        let next = best.saturating_add(1).min(rate.count.saturating_sub(1));
        Some(until_plenty.min(until(best)).min(until(next))).filter(|wait| !wait.is_zero())
    }

    /// Takes a token.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) {
        let full = self.full_at.map_or(now, |full| full.max(now));
        // Rates of a config are far from what an instant cannot hold.
        self.full_at = full.checked_add(rate.spacing());
    }

    /// When nothing will be missing; `None` if it was never used.
    pub(super) const fn full_at(&self) -> Option<Instant> {
        self.full_at
    }

    /// So many were taken before that nothing is missing only then.
    pub(super) fn recall(&mut self, full_at: Option<Instant>) {
        self.full_at = self.full_at.max(full_at);
    }

    /// Whether nothing is missing.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full| full <= now)
    }
}

/// The time until nothing is missing.
fn missing_time(bucket: &Bucket, now: Instant) -> Duration {
    bucket.full_at.map_or(Duration::ZERO, |full| full.saturating_duration_since(now))
}

/// How much of that leaves one token beside those that are kept.
fn room(rate: Rate, kept: u32) -> Duration {
    rate.spacing().saturating_mul(rate.count.saturating_sub(kept).saturating_sub(1))
}

impl Rate {
    /// The time from one token to the next, rounded up: never more than so many in a period.
    pub(super) fn spacing(self) -> Duration {
        let nanos = self.per.as_nanos().div_ceil(u128::from(self.count.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many tokens are missing where none will be at `full_at`.
    pub(super) fn had(self, full_at: Option<Instant>, now: Instant) -> u64 {
        let missing = full_at.map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        u64::try_from(missing.as_nanos().div_ceil(self.spacing().as_nanos().max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::share::Company;

    const fn rate(count: u32, seconds: u64) -> Rate {
        Rate { count, per: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_wait_is_exact() {
        let (start, rate) = (Instant::now(), rate(3, 60));
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.wait(rate, start), None);
            bucket.take(rate, start);
        }
        assert_eq!(bucket.wait(rate, start), Some(Duration::from_secs(20)));
        let almost = start + Duration::from_nanos(19_999_999_999);
        assert_eq!(bucket.wait(rate, almost), Some(Duration::from_nanos(1)));
        assert_eq!(bucket.wait(rate, start + Duration::from_secs(20)), None);
        bucket.take(rate, start + Duration::from_secs(20));
        assert_eq!(bucket.wait(rate, start + Duration::from_secs(20)), Some(Duration::from_secs(20)));
        assert!(!bucket.is_full(start + Duration::from_secs(79)) && bucket.is_full(start + Duration::from_secs(80)));
    }

    proptest! {
        #[test]
        fn a_share_is_what_counting_tokens_gives_and_its_wait_is_exact(
            count in 1..40_u32,
            takes in proptest::collection::vec((any::<bool>(), 0..3_000_u64), 1..100),
        ) {
            let (start, rate) = (Instant::now(), rate(count, 60));
            let (mut all, mut own, mut now) = (Bucket::default(), Bucket::default(), start);
            let kept = u32::try_from(Company::Others.kept_of(count as usize)).unwrap();
            let missing = |bucket: &Bucket, now| {
                usize::try_from(missing_time(bucket, now).as_nanos().div_ceil(rate.spacing().as_nanos())).unwrap()
            };
            for (is_own, later) in takes {
                now += Duration::from_millis(later);
                let whole = count as usize - missing(&all, now);
                let may_take = Company::Others.may_take(count as usize, whole, missing(&own, now));
                match all.share_wait(&own, kept, rate, now) {
                    None => {
                        prop_assert!(may_take, "{whole}");
                        all.take(rate, now);
                        if is_own {
                            own.take(rate, now);
                        }
                    }
                    Some(wait) => {
                        prop_assert!(!may_take);
                        prop_assert!(all.share_wait(&own, kept, rate, now + wait).is_none());
                        prop_assert!(all.share_wait(&own, kept, rate, now + wait - Duration::from_nanos(1)).is_some());
                    }
                }
            }
        }

        #[test]
        fn a_wait_is_neither_too_long_nor_too_short_and_never_more_than_the_burst_and_the_refill_start(
            count in 1..50_u32,
            seconds in 1..100_000_u64,
            steps in proptest::collection::vec(0..5_000_u64, 1..200),
        ) {
            let (start, rate) = (Instant::now(), rate(count, seconds));
            let (mut bucket, mut now, mut taken) = (Bucket::default(), start, 0_u32);
            for step in steps {
                now += Duration::from_millis(step);
                match bucket.wait(rate, now) {
                    None => {
                        bucket.take(rate, now);
                        taken += 1;
                    }
                    Some(wait) => {
                        prop_assert!(bucket.wait(rate, now + wait).is_none());
                        prop_assert!(bucket.wait(rate, now + wait - Duration::from_nanos(1)).is_some());
                    }
                }
            }
            let refilled = (now - start).as_nanos() * u128::from(count) / rate.per.as_nanos();
            prop_assert!(u128::from(taken) <= u128::from(count) + refilled);
        }
    }
}
