//! The domain: what a task is, whose it is, and which states follow which. Pure, no I/O.

mod charge;
mod expiry;
mod id;
mod key;
mod owner;
mod question;
mod state;

pub use charge::Charge;
pub use expiry::Expiry;
pub use id::{InvalidTaskId, TaskId};
pub use key::{KeyDigest, KeySource};
pub use owner::{Owner, OwnerKey};
pub use question::{Asked, MOST_HINTS, MOST_QUESTION_BYTES, MOST_QUESTIONS, OpenQuestion};
pub use state::{Canceller, Cause, Change, Refusal, State, Stored};

use std::time::Duration;

use crate::clock::Timestamp;
use crate::config::Cost;

/// How often a task is run again at most.
pub const MOST_RERUNS: u32 = 1;

/// One call that goes on, or went on, in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The handle.
    pub id: TaskId,
    /// Whose it is.
    pub owner: Owner,
    /// The name of the server in the config.
    pub server: String,
    /// The name of the tool.
    pub tool: String,
    /// When the record was made.
    pub created: Timestamp,
    /// When the state last changed.
    pub updated: Timestamp,
    /// When it may be forgotten.
    pub expiry: Expiry,
    /// Stands for the key under which repeats of the call find it; `None` if it has none.
    pub key: Option<KeyDigest>,
    /// How often it was run again because a run was lost.
    pub reruns: u32,
    /// What it costs.
    pub charge: Charge,
    /// What it has asked so far.
    pub asked: Asked,
    /// How far it is.
    pub state: State,
}

impl Task {
    /// A task that waits for a free slot.
    pub fn queued(id: TaskId, owner: Owner, server: String, tool: String, now: Timestamp, expiry: Expiry) -> Self {
        let asked = Asked::default();
        let (key, reruns, charge, state) = (None, 0, Charge::default(), State::Queued);
        Self { id, owner, server, tool, created: now, updated: now, expiry, key, reruns, charge, asked, state }
    }

    /// The task after `change`, or why that may not be.
    ///
    /// A terminal state never changes; when the task ends, its expiry is set to the later of what
    /// was announced and the end plus the time outcomes are kept.
    pub fn apply(&self, change: Change, now: Timestamp) -> Result<Self, Refusal> {
        self.apply_after(None, change, now)
    }

    /// The same, for a run that has taken so long by a clock that does not jump, if that is known.
    pub fn apply_after(&self, ran: Option<Duration>, change: Change, now: Timestamp) -> Result<Self, Refusal> {
        let ran = ran.or_else(|| self.state.ran(now));
        let asked = match &change {
            Change::Ask(question) => self.asked.with(question),
            Change::Start
            | Change::Rerun(_)
            | Change::Wait
            | Change::Answer(_)
            | Change::Withdraw(_)
            | Change::Complete(_)
            | Change::Fail(_)
            | Change::Cancel(_) => Ok(self.asked.clone()),
        };
        let lost = if let Change::Rerun(ran) = change { Some(ran) } else { None };
        let state = match self.state.apply(change, now)? {
            // The run that was lost.
            State::Cancelled { by, .. } if self.reruns > 0 => State::Cancelled { by, sent: true },
            other => other,
        };
        if lost.is_some() && self.reruns >= MOST_RERUNS {
            return Err(Refusal::RunAgain);
        }
        let mut next = Self { asked: asked?, reruns: self.reruns + u32::from(lost.is_some()), ..self.clone() };
        if let Some(ran) = lost {
            next.charge.total = self.charge.with_run(ran);
        }
        next.updated = now.max(self.updated);
        if state.is_terminal() {
            next.expiry = self.expiry.at_end(self.created, next.updated);
            // Of a run that was lost the time is in there already.
            next.charge.total = self.cost(self.state.ran(now).and(ran));
        }
        next.state = state;
        Ok(next)
    }

    /// The task with its time to live made longer, if `now` comes near its end; `None` if there is no need.
    pub fn extended(&self, now: Timestamp) -> Option<Self> {
        if self.state.is_terminal() {
            return None;
        }
        let expiry = self.expiry.extended(self.created, now)?;
        Some(Self { expiry, ..self.clone() })
    }

    /// How long it has run at `at`, without the time that input was awaited; `None` if it does not run.
    pub fn ran(&self, at: Timestamp) -> Option<Duration> {
        self.state.ran(at)
    }

    /// What it has cost, having run for so long, without the time that it waits for input: nothing before it was started.
    pub fn cost(&self, ran: Option<Duration>) -> Cost {
        match ran {
            Some(ran) => self.charge.with_run(ran),
            None => self.charge.total,
        }
    }

    /// A task of whose time to live nobody was told: if it has ended, it is kept for no longer than its outcome.
    #[must_use]
    pub fn untold(self) -> Self {
        let expiry =
            if self.state.is_terminal() { self.expiry.from_end(self.created, self.updated) } else { self.expiry };
        Self { expiry, ..self }
    }

    /// When it may be forgotten; `None` for never, and while it has not ended.
    pub fn expires(&self) -> Option<Timestamp> {
        if self.state.is_terminal() { self.expiry.announced(self.created) } else { None }
    }

    /// `ttlMs` on the wire: counted from `createdAt`, `None` for no limit.
    pub fn ttl(&self) -> Option<Duration> {
        self.expiry.ttl()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_is_of_the_call_and_the_minutes_of_each_run() {
        let (now, cost) = (Timestamp::from_millis(1000), |units: u64| Cost::from_millionths(units * 1_000_000));
        let (owner, minute) = (Owner::from_parts(1, [0; 32]), Duration::from_mins(1));
        let queued = Task::queued(TaskId::generate(now), owner, "s".to_owned(), "t".to_owned(), now, Expiry::Never);
        let queued = Task { charge: Charge::new(cost(7), cost(2)), ..queued };
        assert_eq!(queued.cost(queued.ran(now)), Cost::ZERO);
        let running = queued.apply(Change::Start, now).unwrap();
        assert_eq!(running.cost(running.ran(now.after(minute))), cost(9));
        // The clock says more than the run took.
        let again = running.apply(Change::Rerun(minute * 3), now.after(minute * 60)).unwrap();
        assert_eq!(again.cost(again.ran(now.after(minute * 70))), cost(13));
        let by = Canceller::Owner;
        let ends = |task: &Task| task.apply(Change::Cancel(by), now).unwrap().state;
        assert_eq!(
            (ends(&queued), ends(&again)),
            (State::Cancelled { by, sent: false }, State::Cancelled { by, sent: true })
        );
        let twice = again.apply(Change::Start, now.after(minute * 70)).unwrap();
        assert_eq!(twice.cost(twice.ran(now.after(minute * 71))), cost(15));
        let ended = twice.apply(Change::Cancel(Canceller::Owner), now.after(minute * 72)).unwrap();
        assert_eq!(ended.cost(ended.ran(now.after(minute * 80))), cost(17));
    }

    #[test]
    fn a_lost_run_is_run_again_once_and_no_key_of_its_questions_is_used_again() {
        let now = Timestamp::from_millis(1000);
        let owner = Owner::from_parts(1, [0; 32]);
        let queued = Task::queued(TaskId::generate(now), owner, "s".to_owned(), "t".to_owned(), now, Expiry::Never);
        let asked = Asked { count: 3, hinted: vec![7] };
        let running = Task { asked: asked.clone(), ..queued.apply(Change::Start, now).unwrap() };
        let again = running.apply(Change::Rerun(Duration::ZERO), now).unwrap();
        assert_eq!((&again.state, again.reruns, &again.asked), (&State::Queued, 1, &asked));
        let twice = again.apply(Change::Start, now).unwrap();
        assert_eq!(twice.apply(Change::Rerun(Duration::ZERO), now), Err(Refusal::RunAgain));
    }

    #[test]
    fn a_result_is_kept_for_as_long_as_is_promised_from_its_end_on() {
        let now = Timestamp::from_millis(1000);
        let (minute, owner) = (Duration::from_mins(1), Owner::from_parts(1, [0; 32]));
        let expiry = Expiry::Limited { ttl: minute, keep: minute * 10 };
        let queued = Task::queued(TaskId::generate(now), owner, "s".to_owned(), "t".to_owned(), now, expiry);
        let running = queued.apply(Change::Start, now).unwrap();
        assert_eq!(running.expires(), None);
        let end = now.after(minute * 5);
        let ended = running.apply(Change::Cancel(Canceller::Owner), end).unwrap();
        assert_eq!(ended.expires(), Some(end.after(minute * 10)));
    }
}
