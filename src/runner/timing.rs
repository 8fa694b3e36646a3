//! What is said of the time that a task takes: how long it has run, how long that usually is, when to look again.

use std::fmt::Write as _;
use std::time::Duration;

use super::live::Live;
use crate::clock::{Timestamp, millis};
use crate::history::Expected;
use crate::task::{State, Task};

/// The time of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// How long the record is there.
    age: Duration,
    course: Course,
    expected: Option<Expected>,
}

/// How the time goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It runs: so long already, without what it waited for input.
    Running(Duration),
    /// It waits for input for so long, and ran before.
    Asking { waits: Duration, ran: Duration },
    /// It does not run yet, or any more.
    Standing,
}

/// The least and the greatest `pollIntervalMs`. Low at first, since clients wait that long before they look for the
/// first time; higher when the task has run for some time and is expected to go on.
const LEAST: Duration = Duration::from_millis(250);
const GREATEST: Duration = Duration::from_secs(10);
const GREATEST_LATER: Duration = Duration::from_mins(1);

impl Timing {
    /// By the clock of the run where it goes on here (`live`): that of the machine may jump.
    pub(super) fn of(task: &Task, live: Option<&Live>, now: Timestamp) -> Self {
        let course = match (&task.state, live.and_then(Live::clock)) {
            (State::Running { .. }, Some(clock)) => Course::Running(clock.ran()),
            (State::Running { started }, None) => Course::Running(now.since(*started)),
            (State::InputRequired { .. }, Some(clock)) => Course::Asking { waits: clock.stood(), ran: clock.ran() },
            (State::InputRequired { started, since, .. }, None) => {
                Course::Asking { waits: now.since(*since), ran: since.since(*started) }
            }
            (State::Queued | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. }, _) => {
                Course::Standing
            }
        };
        let age = live.map_or_else(|| now.since(task.created), Live::age);
        Self { age, course, expected: live.and_then(|live| live.expected(task)) }
    }

    /// How long it has run; `None` if it does not run.
    pub(super) fn ran(&self) -> Option<Duration> {
        match self.course {
            Course::Running(ran) | Course::Asking { ran, .. } => Some(ran),
            Course::Standing => None,
        }
    }

    /// "running for 12s; usually takes about 40s (95% within 2m)".
    pub(super) fn running(&self) -> String {
        let ran = self.ran().unwrap_or_default();
        let mut message = format!("running for {}", whole_seconds(ran));
        if let Some(Expected { p50, p95, .. }) = self.expected {
            let (usual, nearly_all) = (about(p50), about(p95));
            let longer = if ran > p95 { "longer than usual: it " } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(message, "; {longer}usually takes about {usual}");
            if nearly_all != usual {
                let _ = write!(message, " (95% within {nearly_all})");
            }
        }
        message
    }

    /// "waiting for input for 12s".
    pub(super) fn waiting(&self) -> String {
        match self.course {
            Course::Asking { waits, .. } if waits >= Duration::from_secs(1) => {
                format!("waiting for input for {}", whole_seconds(waits))
            }
            Course::Asking { .. } | Course::Running(_) | Course::Standing => "waiting for input".to_owned(),
        }
    }

    /// When to look again: when half of the runs are over, then more often until nearly all are, else after a tenth of
    /// the age.
    pub(super) fn poll_interval(&self) -> Duration {
        let by_age = (self.age / 10).clamp(LEAST, GREATEST);
        let (Course::Running(ran), Some(Expected { p50, p95, .. })) = (self.course, self.expected) else {
            return by_age;
        };
        let wanted = if ran < p50 {
            p50.saturating_sub(ran)
        } else if ran < p95 {
            p95.saturating_sub(ran) / 4
        } else {
            return by_age;
        };
        wanted.clamp(LEAST, (ran / 2).clamp(GREATEST, GREATEST_LATER))
    }

    /// Puts the numbers into `_meta`.
    pub(super) fn facts(&self, meta: &mut serde_json::Map<String, serde_json::Value>) {
        if let Some(ran) = self.ran() {
            meta.insert("dev.raincheck/elapsedMs".to_owned(), millis(ran).into());
        }
        if let Some(Expected { p50, p95, samples }) = self.expected {
            let numbers = serde_json::json!({ "p50Ms": millis(p50), "p95Ms": millis(p95), "samples": samples });
            meta.insert("dev.raincheck/expected".to_owned(), numbers);
        }
    }
}

fn whole_seconds(span: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(span.as_secs()))
}

/// Rounded to what is known of it and what people say.
fn about(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let step = match millis {
        0..100 => 1,
        100..1_000 => 10,
        1_000..120_000 => 1_000,
        120_000..600_000 => 5_000,
        600_000..7_200_000 => 60_000,
        _ => 300_000,
    };
    humantime::format_duration(Duration::from_millis(millis.saturating_add(step / 2) / step * step)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn timing(course: Course, expected: Option<(Duration, Duration)>) -> Timing {
        let expected = expected.map(|(p50, p95)| Expected { p50, p95, samples: 9 });
        Timing { age: secs(40), course, expected }
    }

    #[test]
    fn a_message_says_how_long_it_has_run_and_how_long_that_usually_is() {
        let usual = Some((Duration::from_millis(39_936), Duration::from_millis(118_784)));
        let table = [
            (12_300, None, "running for 12s"),
            (12_300, usual, "running for 12s; usually takes about 40s (95% within 1m 59s)"),
            (90_000, usual, "running for 1m 30s; usually takes about 40s (95% within 1m 59s)"),
            (130_000, usual, "running for 2m 10s; longer than usual: it usually takes about 40s (95% within 1m 59s)"),
            (0, Some((secs(4), secs(4))), "running for 0s; usually takes about 4s"),
        ];
        for (ran, expected, message) in table {
            assert_eq!(timing(Course::Running(Duration::from_millis(ran)), expected).running(), message);
        }
    }

    #[test]
    fn a_wait_for_input_is_told_once_it_is_one() {
        let waits = |millis| Course::Asking { waits: Duration::from_millis(millis), ran: secs(3) };
        for (millis, message) in [
            (0, "waiting for input"),
            (999, "waiting for input"),
            (1000, "waiting for input for 1s"),
            (61_000, "waiting for input for 1m 1s"),
        ] {
            assert_eq!(timing(waits(millis), None).waiting(), message);
        }
    }

    #[test]
    fn the_next_look_is_near_the_expected_end() {
        let usual = |p50, p95| Some((secs(p50), secs(p95)));
        let table = [
            // Half of them are over then.
            (10_000, usual(13, 20), 3_000),
            (10_000, usual(10, 30), 5_000),
            (29_900, usual(10, 30), 250),
            // Never long at first, longer later, and never without bound.
            (10_000, usual(7200, 9000), 10_000),
            (60_000, usual(7200, 9000), 30_000),
            (3_600_000, usual(7200, 9000), 60_000),
            // Nobody knows any more: a tenth of the age.
            (31_000, usual(10, 30), 4_000),
            (10_000, None, 4_000),
        ];
        for (ran, expected, interval) in table {
            let found = timing(Course::Running(Duration::from_millis(ran)), expected).poll_interval();
            assert_eq!(found, Duration::from_millis(interval), "{ran} {expected:?}");
        }
        // Waiting for somebody takes as long as it takes.
        let asking = Course::Asking { waits: secs(1), ran: secs(1) };
        assert_eq!(timing(asking, usual(10, 30)).poll_interval(), secs(4));
        let old = Timing { age: Duration::from_hours(9), ..timing(Course::Standing, None) };
        assert_eq!(old.poll_interval(), GREATEST);
        assert_eq!(Timing { age: Duration::ZERO, ..old }.poll_interval(), LEAST);
    }

    #[test]
    fn durations_are_said_as_people_say_them() {
        for (millis, said) in [
            (0, "0s"),
            (7, "7ms"),
            (844, "840ms"),
            (1_499, "1s"),
            (39_936, "40s"),
            (123_000, "2m 5s"),
            (900_000, "15m"),
            (7_300_000, "2h"),
        ] {
            assert_eq!(about(Duration::from_millis(millis)), said);
        }
    }
}
