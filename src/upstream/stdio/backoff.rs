//! How long a server that keeps failing is left alone.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row, and when the next start may be tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
    why: String,
}

/// After the first failure; doubled with each one that follows.
const FIRST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(30);

impl Backoff {
    /// One more failure, and why.
    pub(super) fn failed(&mut self, why: &str) {
        let delay = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(Instant::now() + delay);
        why.clone_into(&mut self.why);
    }

    /// It works.
    pub(super) fn worked(&mut self) {
        *self = Self::default();
    }

    /// How long to wait still; zero if a start may be tried.
    pub(super) fn remaining(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Why the last start failed.
    pub(super) fn why(&self) -> &str {
        &self.why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wait_doubles_up_to_a_bound_and_is_forgotten_when_it_works() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.remaining(), Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..40 {
            backoff.failed("no");
            waits.push(backoff.remaining().as_millis());
            tokio::time::sleep(backoff.remaining()).await;
            assert_eq!(backoff.remaining(), Duration::ZERO);
        }
        assert_eq!(waits[..4], [100, 200, 400, 800]);
        assert_eq!(waits[39], 30_000);
        backoff.worked();
        backoff.failed("no");
        assert_eq!(backoff.remaining().as_millis(), 100);
    }
}
