//! Slots of runs that were stopped and whose servers may still be at work: they stay taken, and whoever waits is told.

use tokio::time::Instant;

use super::gate::Permits;
use super::slots::{Claim, Slots};
use crate::runner::Linger;

/// The slots of a run that was stopped, taken until this is dropped.
#[derive(Debug)]
pub(in crate::runner) struct Lingering {
    permits: Permits,
    kept: Kept,
    number: u64,
}

/// Until when slots stay taken at most, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// When they are given back at the latest.
    pub until: Instant,
    /// Why so late.
    pub rule: Linger,
}

/// A run that was stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    pub(super) claim: Claim,
    pub(super) kept: Kept,
}

impl Permits {
    /// The run was stopped; its slots stay taken for now.
    pub(in crate::runner) fn linger(self, kept: Kept) -> Lingering {
        let number = self.gate().map_or(0, |(gate, claim)| gate.stopped(Stopped { claim: *claim, kept }));
        Lingering { permits: self, kept, number }
    }
}

impl Lingering {
    /// Until when, at most.
    pub(in crate::runner) const fn kept(&self) -> Kept {
        self.kept
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let Some((gate, _)) = self.permits.gate() {
            gate.stopped_no_more(self.number);
        }
    }
}

/// Until when a call that waits for `claim` may have to wait for nothing but runs that were stopped; `None` if they are
/// not what it waits for.
pub(super) fn kept<'a>(slots: &mut Slots, claim: &Claim, stopped: impl Iterator<Item = &'a Stopped>) -> Option<Kept> {
    if slots.fit(claim) {
        return None;
    }
    let mut by_end: Vec<_> = stopped.copied().collect();
    by_end.sort_by_key(|stopped| stopped.kept.until);
    let (mut given, mut found) = (0, None);
    for stopped in &by_end {
        slots.release(&stopped.claim);
        given += 1;
        if slots.fit(claim) {
            found = Some(stopped.kept);
            break;
        }
    }
    // It was only a question.
    for stopped in by_end.iter().take(given) {
        slots.take(&stopped.claim);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{gate, runs};
    use super::*;

    #[test]
    fn who_waits_is_told_of_runs_that_were_stopped_only_where_it_waits_for_those() {
        let (gate, of) = (gate(10, 10), runs(1));
        let running = of.free(&gate, "ann", "t");
        let waiting = of.wait(&gate, "ann", "t");
        assert_eq!(waiting.watcher().kept(), None, "the run goes on");
        let kept =
            |secs| Kept { until: Instant::now() + Duration::from_secs(secs), rule: Linger::AtMost(Duration::ZERO) };
        let other = runs(1);
        let _goes_on = other.free(&gate, "ann", "u");
        let waits_for_another = other.wait(&gate, "ann", "u");
        let soon = kept(5);
        let stopped = running.linger(soon);
        assert_eq!((gate.running(), gate.lingering()), (2, 1));
        assert_eq!((waiting.watcher().kept(), waits_for_another.watcher().kept()), (Some(soon), None));
        // To look changes nothing.
        assert_eq!((gate.running(), waiting.watcher().now()), (2, Some(1)));
        let place = waiting.watcher();
        drop(stopped);
        assert_eq!((gate.running(), gate.lingering(), place.now(), place.kept()), (2, 0, None, None));
        drop(waiting);
        assert_eq!(gate.running(), 1);
    }

    #[test]
    fn of_several_runs_that_were_stopped_the_first_that_makes_room_is_told() {
        let (gate, of) = (gate(10, 10), runs(4));
        let kept =
            |secs| Kept { until: Instant::now() + Duration::from_secs(secs), rule: Linger::AtMost(Duration::ZERO) };
        let (late, soon, other) = (kept(9), kept(5), kept(1));
        let _late = of.free(&gate, "ann", "t").linger(late);
        let _other = runs(1).free(&gate, "ann", "u").linger(other);
        let _soon = of.free(&gate, "ann", "t").linger(soon);
        let _go_on = (of.free(&gate, "ann", "t"), of.free(&gate, "bo", "t"));
        let waiting = of.wait(&gate, "cy", "t");
        assert_eq!(waiting.watcher().kept(), Some(soon));
    }
}
