//! Outcomes of calls that were answered in rounds, for retries that come again: the client lost the answer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::request_state::Claim;
use super::seat;
use crate::clock::Timestamp;
use crate::protocol::{Outcome, Principal};
use crate::task::TaskId;

/// Outcomes, the oldest first. When there are too many the oldest go.
#[derive(Debug, Default)]
pub(super) struct Outcomes(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    kept: VecDeque<Kept>,
    total: Amount,
}

#[derive(Debug)]
struct Kept {
    task: TaskId,
    round: u32,
    expires: Timestamp,
    principal: Principal,
    bytes: usize,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    outcomes: usize,
    bytes: usize,
}

/// What is known of a run that has ended.
#[derive(Debug)]
pub(super) enum Known {
    /// How it ended, for the round that led to that.
    Outcome(Outcome),
    /// The retry is one of an earlier round.
    Earlier,
    /// Nothing.
    Nothing,
}

/// What is kept at most.
const MOST: Amount = Amount { outcomes: 1024, bytes: 32 << 20 };
/// The part of that which one principal may have.
const SHARE: usize = 4;

impl Outcomes {
    /// Keeps how the run ended that `claim` was made for, until that expires.
    pub(super) fn keep(&self, claim: Claim, principal: &Principal, outcome: &Outcome, now: Timestamp) {
        // A handle is shown again while its task runs, and can be read after that.
        if matches!(outcome, Outcome::Task(_)) {
            return;
        }
        let bytes = seat::size(outcome);
        let share = Amount { outcomes: MOST.outcomes / SHARE, bytes: MOST.bytes / SHARE };
        if bytes > share.bytes {
            return;
        }
        let mut table = self.lock();
        table.forget_all(|kept| kept.expires <= now);
        while !share.has_room(table.of(principal), bytes) && table.forget(|kept| kept.principal == *principal) {}
        while !MOST.has_room(table.total, bytes) && table.forget(|_| true) {}
        let Claim { task, round, expires } = claim;
        table.total.add(bytes);
        table.kept.push_back(Kept {
            task,
            round,
            expires,
            principal: principal.clone(),
            bytes,
            outcome: seat::copy(outcome),
        });
    }

    /// How the run of this claim ended.
    pub(super) fn of(&self, claim: &Claim) -> Known {
        let table = self.lock();
        match table.kept.iter().find(|kept| kept.task == claim.task) {
            Some(kept) if kept.round == claim.round => Known::Outcome(seat::copy(&kept.outcome)),
            Some(_) => Known::Earlier,
            None => Known::Nothing,
        }
    }

    /// The table is whole after every change, so a poisoned lock holds a good one.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn of(&self, principal: &Principal) -> Amount {
        let mut amount = Amount::default();
        self.kept.iter().filter(|kept| kept.principal == *principal).for_each(|kept| amount.add(kept.bytes));
        amount
    }

    /// Forgets the oldest of these; false if there is none.
    fn forget(&mut self, which: impl Fn(&Kept) -> bool) -> bool {
        let oldest = self.kept.iter().position(which).and_then(|at| self.kept.remove(at));
        if let Some(kept) = &oldest {
            self.total.outcomes -= 1;
            self.total.bytes -= kept.bytes;
        }
        oldest.is_some()
    }

    fn forget_all(&mut self, which: impl Fn(&Kept) -> bool) {
        while self.forget(&which) {}
    }
}

impl Amount {
    fn add(&mut self, bytes: usize) {
        self.outcomes += 1;
        self.bytes += bytes;
    }

    /// Whether this bound allows one more beside `taken`.
    fn has_room(self, taken: Self, bytes: usize) -> bool {
        taken.outcomes < self.outcomes && taken.bytes + bytes <= self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Json;

    fn claim(number: u8, round: u32, expires: u64) -> Claim {
        let task = format!("{number:0>3}{:0>33}", 0).parse().unwrap();
        Claim { task, round, expires: Timestamp::from_millis(expires) }
    }

    fn outcome(bytes: usize) -> Outcome {
        Outcome::Result(Json::string(&"x".repeat(bytes - 2)))
    }

    fn ann() -> Principal {
        Principal::Named("ann".into())
    }

    fn keep(outcomes: &Outcomes, number: u8, who: &Principal, bytes: usize) {
        outcomes.keep(claim(number, 1, 100), who, &outcome(bytes), Timestamp::from_millis(0));
    }

    fn has(outcomes: &Outcomes, number: u8) -> bool {
        matches!(outcomes.of(&claim(number, 1, 100)), Known::Outcome(_))
    }

    #[test]
    fn an_outcome_is_told_again_and_again_to_its_round_until_that_expires() {
        let outcomes = Outcomes::default();
        keep(&outcomes, 1, &ann(), 10);
        assert!(has(&outcomes, 1) && has(&outcomes, 1) && !has(&outcomes, 2));
        assert!(matches!(outcomes.of(&claim(1, 0, 100)), Known::Earlier));
        outcomes.keep(claim(2, 1, 300), &ann(), &outcome(10), Timestamp::from_millis(100));
        assert!(!has(&outcomes, 1) && has(&outcomes, 2));
    }

    #[test]
    fn the_oldest_go_when_there_is_too_much_and_nobody_pushes_out_those_of_all_others() {
        let outcomes = Outcomes::default();
        let share = MOST.bytes / SHARE;
        let bo = Principal::Named("bo".into());
        keep(&outcomes, 0, &bo, share / 2);
        for number in 1..=20 {
            keep(&outcomes, number, &ann(), share / 2);
        }
        assert!(has(&outcomes, 0), "another's was pushed out");
        let left: Vec<_> = (1..=20).filter(|number| has(&outcomes, *number)).collect();
        assert_eq!(left, [19, 20]);
        keep(&outcomes, 30, &ann(), share + 1);
        assert!(!has(&outcomes, 30) && has(&outcomes, 20), "what is too large is not kept");
        for number in 40..60 {
            keep(&outcomes, number, &Principal::Named(number.to_string().into()), share);
        }
        assert!(!has(&outcomes, 0) && has(&outcomes, 59));
        assert!(outcomes.lock().total.bytes <= MOST.bytes);
    }
}
