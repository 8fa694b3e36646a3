//! How long a task lives (SEP-2663: `ttlMs` counts from `createdAt` and may change).

use std::time::Duration;

use crate::clock::Timestamp;

/// How long a task lives. What was told of it never becomes shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It is kept until somebody removes it.
    Never,
    /// It has a time to live.
    Limited {
        /// Announced as `ttlMs`, counted from the creation.
        ttl: Duration,
        /// How long its outcome stays readable after the end.
        keep: Duration,
    },
}

impl Expiry {
    /// A time to live that covers the run (`timeout`, and the wait for a slot) and the time after it.
    pub fn covering(queue: Duration, timeout: Duration, keep: Duration) -> Self {
        Self::Limited { ttl: queue.saturating_add(timeout).saturating_add(keep), keep }
    }

    /// The time to live that a client asked for, within the `keep` that the config allows. It is announced as it is, and
    /// counts again from the end of a run that takes longer.
    pub fn asked(ttl: Duration, keep: Option<Duration>) -> Self {
        let ttl = keep.map_or(ttl, |keep| ttl.min(keep)).max(Duration::from_secs(1));
        Self::Limited { ttl, keep: ttl }
    }

    /// The announced time to live; `None` for no limit.
    pub fn ttl(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Limited { ttl, .. } => Some(ttl),
        }
    }

    /// The announced end of a task that was made at `created`.
    pub fn announced(self, created: Timestamp) -> Option<Timestamp> {
        self.ttl().map(|ttl| created.after(ttl))
    }

    /// The expiry of a task that ends at `ended`: the later of what was announced and the end plus `keep`.
    #[must_use]
    pub fn at_end(self, created: Timestamp, ended: Timestamp) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Limited { ttl, keep } => {
                let needed = ended.since(created).saturating_add(keep);
                Self::Limited { ttl: ttl.max(needed), keep }
            }
        }
    }

    /// The expiry of a task that ended at `ended` and of which nobody was told: the end plus `keep`.
    #[must_use]
    pub fn from_end(self, created: Timestamp, ended: Timestamp) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Limited { keep, .. } => Self::Limited { ttl: ended.since(created).saturating_add(keep), keep },
        }
    }

    /// A longer expiry for a task that still runs at `now` although less than `keep` is left of its
    /// time to live; `None` while there is enough.
    pub fn extended(self, created: Timestamp, now: Timestamp) -> Option<Self> {
        let Self::Limited { ttl, keep } = self else { return None };
        let age = now.since(created);
        let margin = keep.max(Duration::from_secs(1));
        if ttl >= age.saturating_add(margin) {
            return None;
        }
        // Twice the margin, so that a long run is extended now and then and not at every look.
        Some(Self::Limited { ttl: age.saturating_add(margin.saturating_mul(2)), keep })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_run_that_goes_on_is_extended_before_its_time_to_live_ends() {
        let created = Timestamp::from_millis(1_000_000);
        let expiry = Expiry::Limited { ttl: secs(5), keep: secs(3) };
        assert_eq!(expiry.extended(created, created.after(secs(2))), None);
        let longer = expiry.extended(created, created.after(secs(3))).unwrap();
        assert_eq!(longer.ttl(), Some(secs(9)));
    }

    #[test]
    fn the_end_never_makes_the_time_to_live_shorter() {
        let created = Timestamp::from_millis(0);
        let expiry = Expiry::Limited { ttl: secs(100), keep: secs(3) };
        assert_eq!(expiry.at_end(created, created.after(secs(1))).ttl(), Some(secs(100)));
        assert_eq!(expiry.at_end(created, created.after(secs(99))).ttl(), Some(secs(102)));
        assert_eq!(Expiry::Never.at_end(created, created).ttl(), None);
    }
}
