//! How fast a line gets on, for whoever asks when to come back.

use std::time::Duration;

use tokio::time::Instant;

/// The usual time from one who got a slot to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When somebody got one last, or the line began.
    last: Option<Instant>,
    usual: Option<Duration>,
}

/// Where nothing is known.
const GUESS: Duration = Duration::from_secs(5);
/// What is said at least, and at most.
const BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

impl Pace {
    /// The line begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Somebody got a slot.
    pub(super) fn step(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            let took = now.saturating_duration_since(last);
            self.usual = Some(self.usual.map_or(took, |usual| (usual * 3 + took) / 4));
        }
    }

    /// Somebody who has waited since `begun` got a slot.
    pub(super) fn since(&mut self, begun: Instant, now: Instant) {
        self.last = Some(self.last.map_or(begun, |last| last.max(begun)));
        self.step(now);
    }

    /// About when the next place in the line is free.
    pub(super) fn estimate(&self) -> Duration {
        self.usual.map_or(GUESS, |usual| usual.clamp(BOUNDS.0, BOUNDS.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_what_was_seen_within_bounds() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let seconds = Duration::from_secs;
        assert_eq!(pace.estimate(), seconds(5));
        pace.begin(start);
        pace.step(start + seconds(8));
        assert_eq!(pace.estimate(), seconds(8));
        pace.step(start + seconds(24));
        assert_eq!(pace.estimate(), seconds(10));
        for step in 1..50 {
            pace.step(start + seconds(24) + Duration::from_millis(step));
        }
        assert_eq!(pace.estimate(), seconds(1));
        // Time in which nobody waited says nothing.
        pace.since(start + seconds(7200), start + seconds(7203));
        assert_eq!(pace.estimate(), seconds(1));
        pace.since(start + seconds(7203), start + seconds(20_000));
        assert_eq!(pace.estimate(), seconds(60));
    }
}
