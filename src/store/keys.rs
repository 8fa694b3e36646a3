//! Tasks that are found by the key of their call: a repeat of the call joins the first one.
//!
//! The place in `by_key` is written with the record, so after any crash both are there or neither is.

use std::time::Duration;

use tokio::sync::oneshot;

use super::luggage::{Luggage, Packed};
use super::op::Op;
use super::{CommitError, Committed, ReadError, Store, codec};
use crate::clock::Timestamp;
use crate::protocol::{Failure, Reason, Retry};
use crate::task::{Cause, KeyDigest, Owner, State, Task, TaskId};

/// What is claimed of the key of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// A digest of what the call asks for: with the same key it must be the same.
    pub arguments: [u8; 32],
    /// How long after its start a task that has ended is still found, if it ended well or nobody knows how; `None` for as
    /// long as it is kept, however it ended.
    pub within: Option<Duration>,
}

/// What became of a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// The key was free: here is the task that has it now.
    Made(Committed<Task>),
    /// An earlier call has it; this is its task.
    Earlier(Committed<Task>),
    /// An earlier call has it, which asked for something else.
    Differs,
}

/// The task that has a key, and what its call asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keyed {
    pub(super) id: TaskId,
    pub(super) arguments: [u8; 32],
}

impl Keyed {
    pub(super) fn bytes(&self) -> Vec<u8> {
        [self.arguments.as_slice(), self.id.as_bytes()].concat()
    }

    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (arguments, id) = value.split_first_chunk()?;
        Some(Self { id: std::str::from_utf8(id).ok()?.parse().ok()?, arguments: *arguments })
    }
}

impl Claim {
    /// Whether a repeat still joins `task`. It does not if nothing was run for it: then the repeat is the first.
    pub fn joins(&self, task: &Task, now: Timestamp) -> bool {
        let is_expired = || task.expires().is_some_and(|expires| expires <= now);
        let is_late = || self.within.is_some_and(|within| task.created.after(within) <= now);
        match &task.state {
            State::Queued | State::Running { .. } | State::InputRequired { .. } => true,
            State::Failed { cause: Cause::Ours(Failure { retry: Retry::Yes | Retry::After(_), .. }) } => false,
            State::Completed { .. }
            | State::Failed { cause: Cause::Ours(Failure { reason: Reason::OutcomeUnknown, .. }) } => {
                !is_expired() && !is_late()
            }
            // A caller who gave no key and calls again after that wants a new run.
            State::Failed { .. } | State::Cancelled { .. } => self.within.is_none() && !is_expired(),
        }
    }
}

impl Store {
    /// Keeps a new task under its key, unless an earlier task has that. Otherwise as [`Store::create`].
    pub async fn claim(&self, task: Task, key: KeyDigest, claim: Claim) -> Result<Claimed, CommitError> {
        self.claim_with(task, key, claim, Luggage::default()).await
    }

    /// The same, with luggage that is durable together with the record, as for [`Store::create_with`].
    pub async fn claim_with(
        &self,
        task: Task,
        key: KeyDigest,
        claim: Claim,
        luggage: Luggage,
    ) -> Result<Claimed, CommitError> {
        let task = Task { key: Some(key), ..task };
        let luggage = Box::new(self.pack(task.id, luggage).await?);
        let file = luggage.file();
        let claimed = self.claim_packed(task, key, claim, luggage).await;
        if let (Ok(Claimed::Earlier(_) | Claimed::Differs) | Err(_), Some(file)) = (&claimed, file) {
            self.unlink(file).await;
        }
        claimed
    }

    async fn claim_packed(
        &self,
        task: Task,
        key: KeyDigest,
        claim: Claim,
        luggage: Box<Packed>,
    ) -> Result<Claimed, CommitError> {
        let record = codec::encode(&task);
        let (answer, answered) = oneshot::channel();
        self.offer(Op::Claim { task, record, luggage, key, claim, answer })?;
        answered.await.unwrap_or_else(|_| Err(super::sweep::lost_answer()))
    }

    /// The task of an earlier call of `owner` that has this key, if there is one that a repeat joins.
    pub async fn earlier(&self, owner: &Owner, key: &KeyDigest, claim: &Claim) -> Result<Option<Claimed>, ReadError> {
        let Some(keyed) = self.inner.shared.read(|engine| engine.keyed(key))? else { return Ok(None) };
        // One that is not durable yet is not found.
        let Some(task) = self.get(owner, &keyed.id).await? else { return Ok(None) };
        if !claim.joins(&task, self.clock().now()) {
            return Ok(None);
        }
        Ok(Some(if keyed.arguments == claim.arguments { Claimed::Earlier(task) } else { Claimed::Differs }))
    }
}
