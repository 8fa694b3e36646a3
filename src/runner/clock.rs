//! The time that a run may still take.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the time of a run, but not while input is awaited. Whatever the clock of the machine does, this goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    /// How long it ran before this.
    ran: Duration,
    limit: Duration,
    course: Course,
}

#[derive(Clone, Copy, Debug)]
enum Course {
    /// It has run since.
    Runs(Instant),
    /// It has stood still since.
    Stands(Instant),
}

/// Longer than any process lives.
const FAR: Duration = Duration::from_hours(24 * 365 * 30);

impl RunClock {
    /// Runs from now on.
    pub(super) fn start(limit: Duration) -> Self {
        Self { ran: Duration::ZERO, limit, course: Course::Runs(Instant::now()) }
    }

    /// The same, of a run that has taken so long already.
    pub(super) fn after(self, ran: Duration) -> Self {
        Self { ran, ..self }
    }

    /// Stands still while `waiting`.
    pub(super) fn pause_if(&mut self, waiting: bool) {
        match (waiting, self.course) {
            (true, Course::Runs(_)) => {
                self.ran = self.ran();
                self.course = Course::Stands(Instant::now());
            }
            (false, Course::Stands(_)) => self.course = Course::Runs(Instant::now()),
            (true, Course::Stands(_)) | (false, Course::Runs(_)) => {}
        }
    }

    /// How long it ran.
    pub(super) fn ran(&self) -> Duration {
        match self.course {
            Course::Runs(since) => self.ran + since.elapsed(),
            Course::Stands(_) => self.ran,
        }
    }

    /// How long it has stood still now.
    pub(super) fn stood(&self) -> Duration {
        match self.course {
            Course::Runs(_) => Duration::ZERO,
            Course::Stands(since) => since.elapsed(),
        }
    }

    /// When it will have run for that long; `None` while it stands still.
    pub(super) fn when(&self, ran: Duration) -> Option<Instant> {
        match self.course {
            Course::Runs(since) => Some(since + ran.saturating_sub(self.ran).min(FAR)),
            Course::Stands(_) => None,
        }
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
