//! Starts that owners share: who may have the next one, and when.

use std::time::Duration;

use tokio::time::Instant;

use super::rate::Bucket;
use super::refusal;
use super::told::{Asker, Told};
use crate::config::Rate;
use crate::protocol::Failure;
use crate::share::Company;

/// The starts of a tool, or of all.
#[derive(Debug, Default)]
pub(super) struct Starts {
    bucket: Bucket,
    told: Told,
}

/// Who asks for a start: what it had of the same rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub(super) key: u64,
    pub(super) own: &'a Bucket,
}

/// How long an owner must not start anything, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) time: Duration,
    why: Why,
}

#[derive(Clone, Copy, Debug)]
enum Why {
    /// There is none for anybody.
    None,
    /// Those that are left are for owners who had fewer.
    Share,
    /// The next are for owners who wait for them.
    Turn,
}

/// How late one may be for the start that it was told of: the time to the next one, within these.
const LATE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

impl Starts {
    /// Whether the owner may start one now.
    pub(super) fn check(&self, owner: Owner<'_>, company: Company, rate: Rate, now: Instant) -> Result<(), Wait> {
        let kept = u32::try_from(company.kept_of(rate.count as usize)).unwrap_or(u32::MAX);
        let ahead = self.told.ahead(&owner.asker(), now, |until| rate.had(until, now));
        let until_any = self.bucket.wait(rate, now).unwrap_or_default();
        let turn = self.bucket.wait_for(ahead.saturating_add(1), rate, now);
        let share = self.bucket.share_wait(owner.own, kept, rate, now).unwrap_or_default();
        let time = turn.max(share);
        let why = match () {
            () if time.is_zero() => return Ok(()),
            () if until_any >= time => Why::None,
            () if share >= time => Why::Share,
            () => Why::Turn,
        };
        Err(Wait { time, why })
    }

    /// The owner was told to come after that time.
    pub(super) fn tell(&mut self, owner: Owner<'_>, wait: Duration, rate: Rate, now: Instant) {
        let late = wait.saturating_add(rate.spacing().clamp(LATE.0, LATE.1));
        // Rates of a config are far from what an instant cannot hold.
        if let Some(until) = now.checked_add(late) {
            self.told.tell(owner.asker(), until, now, |until| rate.had(until, now));
        }
    }

    /// The owner starts one.
    pub(super) fn take(&mut self, key: u64, rate: Rate, now: Instant) {
        self.bucket.take(rate, now);
        self.told.served(key);
    }

    /// When none will be missing; `None` if none was ever taken.
    pub(super) const fn full_at(&self) -> Option<Instant> {
        self.bucket.full_at()
    }

    /// So many were taken before that none is missing only then.
    pub(super) fn recall(&mut self, full_at: Option<Instant>) {
        self.bucket.recall(full_at);
    }

    /// Whether nothing is missing, and nobody waits.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.bucket.is_full(now) && self.told.is_empty(now)
    }
}

impl Owner<'_> {
    fn asker(&self) -> Asker {
        Asker { owner: self.key, rested_at: self.own.full_at() }
    }
}

impl Wait {
    /// Of the tool with this name, or of all.
    pub(super) fn refusal(self, tool: Option<&str>, rate: Rate) -> Failure {
        let whose = match self.why {
            Why::None => "",
            Why::Share => ", and you have had your share of that",
            Why::Turn => ", and the next are for others who wait for them",
        };
        refusal::shared_rate(tool, rate, whose, self.time)
    }
}
