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

    /// When the time is over; `None` while it stands still.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + self.limit.saturating_sub(self.ran))
    }

    /// How much is left.
    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.ran())
    }
}
