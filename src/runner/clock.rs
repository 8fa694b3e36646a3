//! The time that a run may still take.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the time of a run, but not while input is awaited.
#[derive(Debug)]
pub(super) struct RunClock {
    ran: Duration,
    limit: Duration,
    /// Since when it runs; `None` while it stands still.
    since: Option<Instant>,
}

/// Longer than any process lives.
const FAR: Duration = Duration::from_hours(24 * 365 * 30);

impl RunClock {
    /// Runs from now on.
    pub(super) fn start(limit: Duration) -> Self {
        Self { ran: Duration::ZERO, limit, since: Some(Instant::now()) }
    }

    /// The same, of a run that has taken so long already.
    pub(super) fn after(self, ran: Duration) -> Self {
        Self { ran, ..self }
    }

    /// Stands still while `waiting`.
    pub(super) fn pause_if(&mut self, waiting: bool) {
        match (waiting, self.since) {
            (true, Some(_)) => {
                self.ran = self.ran();
                self.since = None;
            }
            (false, None) => self.since = Some(Instant::now()),
            (true, None) | (false, Some(_)) => {}
        }
    }

    /// How long it ran.
    pub(super) fn ran(&self) -> Duration {
        self.ran + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// When it will have run for that long; `None` while it stands still.
    pub(super) fn when(&self, ran: Duration) -> Option<Instant> {
        self.since.map(|since| since + ran.saturating_sub(self.ran).min(FAR))
    }

    /// How long it may run.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// How much is left.
    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.ran())
    }
}
