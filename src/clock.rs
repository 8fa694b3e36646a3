//! The one clock for what is stored. Waits use tokio's clock instead.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment, in whole milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// Tells the time that is written into records.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// A clock that several owners share.
pub type SharedClock = Arc<dyn Clock>;

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// A clock that stands still until it is told to go on, for tests.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

/// 9999-12-31T23:59:59.999Z: the last moment that four year digits can spell.
const LAST: u64 = 253_402_300_799_999;

/// Does `work` as long as there is a date for what the clock shows: hyper panics otherwise, since it spells a `Date`
/// however it is configured. `None` as soon as there is none.
pub async fn while_dated<F: Future>(clock: &impl Clock, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    poll_fn(|context| if clock.now().has_date() { work.as_mut().poll(context).map(Some) } else { Poll::Ready(None) })
        .await
}

/// A wait in words, rounded up so that nobody comes too early: to minutes from an hour on, to seconds from a second on.
pub fn rough(wait: Duration) -> humantime::FormattedDuration {
    let second = Duration::from_secs(1);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    humantime::format_duration(match seconds {
        0 | 1 if wait < second => {
            let whole = Duration::from_millis(millis(wait));
            if whole < wait { whole + Duration::from_millis(1) } else { whole }
        }
        0..3600 => Duration::from_secs(seconds),
        _ => Duration::from_secs(seconds.div_ceil(60) * 60),
    })
}

impl Timestamp {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whether a clock may show this: some time in the years 1970 to 9999. One before that shows the very epoch.
    pub const fn is_plausible(self) -> bool {
        0 < self.0 && self.has_date()
    }

    /// Whether a date with a year of four digits can be told for this.
    pub const fn has_date(self) -> bool {
        self.0 <= LAST
    }

    /// This moment plus `span`, saturating.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// RFC 3339 in UTC with milliseconds, as the wire wants it: `2026-07-28T10:30:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = Duration::from_millis(self.0.min(LAST));
        humantime::format_rfc3339_millis(UNIX_EPOCH + shown).fmt(f)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(millis(since_epoch))
    }
}

impl ManualClock {
    /// A clock that shows `start`.
    pub const fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new(start.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(millis(span), Ordering::SeqCst);
    }

    /// Puts the clock somewhere else, also back.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Whole milliseconds of a duration, saturating.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_timestamp_is_spelled_as_rfc_3339_with_milliseconds() {
        let shown = Timestamp::from_millis(1_785_234_600_123).to_string();
        assert_eq!(shown, "2026-07-28T10:30:00.123Z");
    }

    #[test]
    fn a_timestamp_past_the_year_9999_still_has_a_spelling() {
        assert_eq!(Timestamp::from_millis(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }
    #[test]
    fn a_clock_before_1970_or_after_9999_is_not_plausible() {
        for (millis, is_plausible) in [(0, false), (1, true), (LAST, true), (LAST + 1, false)] {
            assert_eq!(Timestamp::from_millis(millis).is_plausible(), is_plausible, "{millis}");
        }
    }
    #[test]
    fn work_ends_unpolled_once_there_is_no_date_for_what_the_clock_shows() {
        let clock = ManualClock::new(Timestamp::from_millis(1));
        let polls = std::cell::Cell::new(0);
        let work = poll_fn(|_| {
            polls.set(polls.get() + 1);
            Poll::<()>::Pending
        });
        let mut work = pin!(while_dated(&clock, work));
        assert_eq!((work.as_mut().now_or_never(), polls.get()), (None, 1));
        clock.set(Timestamp::from_millis(LAST + 1));
        assert_eq!((work.now_or_never(), polls.get()), (Some(None), 1));
    }
}
