//! Which faults there were, and when: an error is expected only where one of them explains it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The proxy is killed or stopped, and started again.
    Proxy,
    /// The servers behind it are killed.
    Servers,
    /// Its disk is full, or takes no writes.
    Disk,
}

/// All faults so far, with their end if they have one.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<(Fault, Instant, Option<Instant>)>>);

/// How long a server that was killed may be left alone, and how long a store looks for free space.
const AFTERMATH: Duration = Duration::from_secs(40);
/// What is not seen at the very moment.
const SLACK: Duration = Duration::from_millis(1500);

impl Faults {
    pub(crate) fn begin(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((fault, Instant::now(), None));
    }

    pub(crate) fn end(&self, fault: Fault) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.iter_mut().rev().find(|(kind, _, end)| *kind == fault && end.is_none());
        open.unwrap().2 = Some(Instant::now());
    }

    pub(crate) fn count(&self, fault: Fault) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|(kind, ..)| *kind == fault).count()
    }

    /// Whether one of these faults was at some time since `from`, or so long before it.
    fn since(&self, kinds: &[Fault], from: Instant, before: Duration) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = |end: &Option<Instant>| end.is_none_or(|end| end + before + SLACK > from);
        all.iter().rev().any(|(kind, _, end)| kinds.contains(kind) && lasts(end))
    }

    /// Whether an error with this reason is expected now, of something that began at `from`.
    pub(crate) fn explain(&self, reason: &str, from: Instant) -> bool {
        match reason {
            "connection" | "stopping" => self.since(&[Fault::Proxy], from, Duration::ZERO),
            // The session of a legacy client ends with its server.
            "outcome_unknown" | "session" => self.since(&[Fault::Proxy, Fault::Servers], from, Duration::ZERO),
            "not_started" => self.since(&[Fault::Proxy, Fault::Servers], from, AFTERMATH),
            "store" => self.since(&[Fault::Disk], from, AFTERMATH),
            _ => false,
        }
    }
}
