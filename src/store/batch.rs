//! Operations that are committed together: decided one after the other, written and published at once.

mod owners;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::codec::{self, MAX_RECORD, RESERVED_FOR_END};
use super::engine::{Engine, ExpiryKey, Oversized, Writes};
use super::files::InFlight;
use super::keys::{Claim, Claimed, Keyed};
use super::luggage::{Beside, Packed};
use super::op::{Answer, Op, Outcome, Purged};
use super::quota::Tally;
use super::shared::{Hot, Shared};
use super::space::Room;
use super::{ChangeError, CommitError, Committed, Keep, StoreFailed};
use crate::clock::Timestamp;
use crate::task::{Change, KeyDigest, Owner, Refusal, Task, TaskId};

/// Counts that are kept in `meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Commits so far.
    pub(super) commits: u64,
    /// Tasks in the store.
    pub(super) tasks: u64,
}

/// Operations that are committed together.
pub(super) struct Batch<'a> {
    shared: &'a Shared,
    engine: &'a Engine,
    now: Timestamp,
    writes: Writes,
    counts: Counts,
    tally: &'a mut Tally,
    /// Tasks as they will be.
    next: HashMap<TaskId, Arc<Task>>,
    /// Keys that are claimed here.
    keyed: HashMap<KeyDigest, Keyed>,
    /// What will be beside their records, where that changes.
    luggage: HashMap<TaskId, Beside>,
    /// Tasks that are made here.
    created: Vec<TaskId>,
    purged: Vec<(TaskId, Owner)>,
    answers: Vec<Pending>,
}

/// Operations whose commit failed.
pub(super) struct FailedBatch {
    pub(super) error: CommitError,
    /// Tasks whose creation is in doubt.
    pub(super) created: Vec<TaskId>,
    answers: Vec<Pending>,
}

/// An answer that is given when the batch is durable.
enum Pending {
    /// With what keeps the file of the luggage from the sweep until then.
    Create(Answer<Committed<Task>, CommitError>, Arc<Task>, Box<Packed>),
    Claim(Answer<Claimed, CommitError>, Possession, Box<Packed>),
    /// With what keeps a file from the sweep until then.
    Change(Answer<Committed<Task>, ChangeError>, Decided, Option<InFlight>),
    Extend(Answer<u64, CommitError>, u64),
    /// Something small is kept.
    Keep(Answer<(), CommitError>),
    Purge(Answer<Purged, CommitError>, Purged),
}

/// Who has a key.
enum Possession {
    New(Arc<Task>),
    Earlier(Arc<Task>),
    Differs,
}

/// The task as it will be, or as it is and why it stays so.
type Decided = Result<Arc<Task>, (Refusal, Arc<Task>)>;

/// The place of [`Counts`] in `meta`.
pub(super) const COUNTS: &str = "counts";

impl<'a> Batch<'a> {
    pub(super) fn new(shared: &'a Shared, engine: &'a Engine, counts: Counts, tally: &'a mut Tally) -> Self {
        Self {
            shared,
            engine,
            now: shared.clock.now(),
            writes: Writes::default(),
            counts: Counts { commits: counts.commits + 1, ..counts },
            tally,
            next: HashMap::new(),
            keyed: HashMap::new(),
            luggage: HashMap::new(),
            created: Vec::new(),
            purged: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// How many bytes there are to write.
    pub(super) const fn bytes(&self) -> usize {
        self.writes.bytes()
    }

    /// Decides one operation. What is refused for itself is answered at once; what is refused because of a
    /// task's state is answered with the batch, since that state may stand in the same batch.
    pub(super) fn add(&mut self, op: Op) {
        match op {
            Op::Create { task, record, luggage, answer } => match self.create(task, &record, &luggage) {
                Ok(task) => self.answers.push(Pending::Create(answer, task, luggage)),
                Err(error) => drop(answer.send(Err(error))),
            },
            Op::Claim { task, record, luggage, key, claim, answer } => {
                match self.claim(task, &record, &luggage, key, claim) {
                    Ok(possession) => self.answers.push(Pending::Claim(answer, possession, luggage)),
                    Err(error) => drop(answer.send(Err(error))),
                }
            }
            Op::Change { id, change, ran, outcome, keep, answer } => {
                match self.change(&id, change, ran, &outcome, keep) {
                    Ok(decided) => self.answers.push(Pending::Change(answer, decided, outcome.into_file())),
                    Err(error) => drop(answer.send(Err(error))),
                }
            }
            Op::Wait { id, luggage, answer } => match self.wait(&id, &luggage) {
                Ok(decided) => self.answers.push(Pending::Change(answer, decided, luggage.into_file())),
                Err(error) => drop(answer.send(Err(error))),
            },
            Op::Extend { ids, answer } => match self.extend(&ids) {
                Ok(extended) => self.answers.push(Pending::Extend(answer, extended)),
                Err(error) => drop(answer.send(Err(error))),
            },
            Op::Shelve { shelf, name, value, answer } => match self.writes.shelve(shelf, &name, value.as_deref()) {
                Ok(()) => self.answers.push(Pending::Keep(answer)),
                Err(error) => drop(answer.send(Err(error.into()))),
            },
            Op::Anchor { id, value, answer } => match self.anchor(&id, &value) {
                Ok(()) => self.answers.push(Pending::Keep(answer)),
                Err(error) => drop(answer.send(Err(error))),
            },
            Op::Purge { keys, answer } => match self.purge(&keys) {
                Ok(purged) => self.answers.push(Pending::Purge(answer, purged)),
                Err(error) => drop(answer.send(Err(error))),
            },
            // The committer keeps these for itself.
            Op::Mark | Op::Close { .. } => {}
        }
    }

    fn create(&mut self, task: Task, record: &[u8], luggage: &Packed) -> Result<Arc<Task>, CommitError> {
        match self.shared.space.room() {
            Room::Enough => {}
            Room::Low(low) => return Err(CommitError::LowSpace(low)),
            Room::Gone => return Err(CommitError::Failed(StoreFailed::gone())),
        }
        if self.counts.tasks >= self.shared.max_tasks {
            return Err(CommitError::Full { max: self.shared.max_tasks });
        }
        let limit = MAX_RECORD - RESERVED_FOR_END;
        if record.len() > limit {
            return Err(CommitError::TooLarge { bytes: record.len(), limit });
        }
        if self.current(&task.id)?.is_some() {
            return Err(CommitError::Exists);
        }
        let newcomer = luggage.newcomer();
        self.check_owner(&task.owner, newcomer)?;
        self.writes.put_task(&task, record)?;
        self.writes.put_owned(&task);
        self.writes.put_questions(None, &task)?;
        self.load(task.id, luggage)?;
        self.counts.tasks += 1;
        self.tally.made(&task.owner, newcomer);
        self.created.push(task.id);
        // Before the write, so that no reader takes what sled shows early for durable.
        self.shared.hot.insert(task.id, Hot::Pending);
        Ok(self.will_be(task))
    }

    fn claim(
        &mut self,
        task: Task,
        record: &[u8],
        luggage: &Packed,
        key: KeyDigest,
        claim: Claim,
    ) -> Result<Possession, CommitError> {
        if let Some(keyed) = self.holder(&key)?
            && let Some(earlier) = self.current(&keyed.id)?
            && claim.joins(&earlier, self.now)
        {
            let is_same = keyed.arguments == claim.arguments;
            return Ok(if is_same { Possession::Earlier(earlier) } else { Possession::Differs });
        }
        let keyed = Keyed { id: task.id, arguments: claim.arguments };
        let task = self.create(task, record, luggage)?;
        self.writes.put_key(&key, &keyed)?;
        self.keyed.insert(key, keyed);
        Ok(Possession::New(task))
    }

    /// Who has a key after what was decided in this batch so far.
    fn holder(&self, key: &KeyDigest) -> Result<Option<Keyed>, CommitError> {
        match self.keyed.get(key) {
            Some(keyed) => Ok(Some(*keyed)),
            None => self.engine.keyed(key).map_err(CommitError::failed),
        }
    }

    fn change(
        &mut self,
        id: &TaskId,
        change: Change,
        ran: Option<Duration>,
        outcome: &Outcome,
        keep: Keep,
    ) -> Result<Decided, ChangeError> {
        let current = self.current(id)?.ok_or(ChangeError::Unknown)?;
        let task = match (current.apply_after(ran, change, self.now), keep) {
            (Ok(task), Keep::AsAnnounced) => task,
            (Ok(task), Keep::FromItsEnd) => task.untold(),
            (Err(refusal), _) => return Ok(Err((refusal, current))),
        };
        if let Outcome::Inline(text) = outcome {
            self.writes.put_result(id, text.bytes()).map_err(CommitError::from)?;
        }
        let record = codec::encode(&task);
        // Before anything is put into the batch, so that what is refused leaves nothing in it.
        if record.len() > MAX_RECORD {
            return Err(CommitError::TooLarge { bytes: record.len(), limit: MAX_RECORD }.into());
        }
        self.writes.put_task(&task, &record).map_err(CommitError::from)?;
        self.writes.put_questions(Some(&current), &task).map_err(CommitError::from)?;
        self.unload(&task);
        if task.state.is_terminal() {
            self.tally.ended(&task.owner);
        }
        Ok(Ok(self.will_be(task)))
    }

    fn wait(&mut self, id: &TaskId, luggage: &Packed) -> Result<Decided, ChangeError> {
        let decided = self.change(id, Change::Wait, None, &Outcome::None, Keep::AsAnnounced)?;
        if decided.is_ok() && self.beside(id).is_empty() {
            self.load(*id, luggage)?;
        }
        Ok(decided)
    }

    /// Puts luggage beside a record that has none.
    fn load(&mut self, id: TaskId, luggage: &Packed) -> Result<(), CommitError> {
        let (dispatch, anchor, beside) = luggage.values();
        if !beside.is_empty() {
            self.writes.put_luggage(&id, dispatch, anchor)?;
            self.luggage.insert(id, beside);
        }
        Ok(())
    }

    /// Takes away what is of no use to a task any more.
    fn unload(&mut self, task: &Task) {
        let before = self.beside(&task.id);
        let after = before.of_use(task);
        if after != before {
            self.writes.remove_luggage(&task.id, before.without(after));
            self.luggage.insert(task.id, after);
        }
    }

    fn anchor(&mut self, id: &TaskId, value: &[u8]) -> Result<(), CommitError> {
        let Some(task) = self.current(id)? else { return Ok(()) };
        let before = self.beside(id);
        if before.anchored().of_use(&task) == before.anchored() {
            self.writes.put_luggage(id, None, Some(value))?;
            self.luggage.insert(*id, before.anchored());
        }
        Ok(())
    }

    fn beside(&self, id: &TaskId) -> Beside {
        self.luggage.get(id).copied().or_else(|| self.shared.luggage.get(id)).unwrap_or_default()
    }

    fn extend(&mut self, ids: &[TaskId]) -> Result<u64, CommitError> {
        let mut extended = 0;
        for id in ids {
            if let Some(task) = self.current(id)?.and_then(|task| task.extended(self.now)) {
                self.put(&task)?;
                self.will_be(task);
                extended += 1;
            }
        }
        Ok(extended)
    }

    fn purge(&mut self, keys: &[ExpiryKey]) -> Result<Purged, CommitError> {
        let mut purged = Purged::default();
        // Later than the batch: what has expired since that began is to go as well.
        let now = self.shared.clock.now();
        for key in keys {
            let task = self.current(&key.id)?;
            let expires = task.as_ref().and_then(|task| task.expires());
            // The clock was set back: without its key the task would never be found again.
            if expires == Some(key.expires) && key.expires > now {
                continue;
            }
            self.writes.remove_expiry(key);
            // A key that is no longer the task's own says nothing about it.
            if let Some(task) = task
                && expires.is_some_and(|expires| expires <= now)
            {
                self.writes.remove_task(&task);
                if let Some(of_call) = task.key
                    && self.holder(&of_call)?.is_some_and(|keyed| keyed.id == key.id)
                {
                    self.writes.remove_key(&of_call);
                }
                self.counts.tasks = self.counts.tasks.saturating_sub(1);
                self.purged.push((key.id, task.owner));
                self.tally.purged(&task.owner);
                purged.tasks += 1;
                purged.files.extend(super::outcome_file(&task));
            }
        }
        Ok(purged)
    }

    fn put(&mut self, task: &Task) -> Result<(), CommitError> {
        self.writes.put_task(task, &codec::encode(task))?;
        Ok(())
    }

    fn will_be(&mut self, task: Task) -> Arc<Task> {
        let task = Arc::new(task);
        self.next.insert(task.id, Arc::clone(&task));
        task
    }

    /// A task as it is after what was decided in this batch so far.
    fn current(&self, id: &TaskId) -> Result<Option<Arc<Task>>, CommitError> {
        if let Some(task) = self.next.get(id) {
            return Ok(Some(Arc::clone(task)));
        }
        match self.shared.hot.get(id) {
            Some(Hot::Committed(task)) => Ok(Some(task.share())),
            Some(Hot::Pending) | None => {
                let task = self.engine.task(id).map_err(CommitError::failed)?;
                Ok(task.map(Arc::new))
            }
        }
    }

    /// Makes everything durable, then visible, then answers. On an error nothing becomes visible and
    /// nothing is answered yet.
    pub(super) fn commit(mut self) -> Result<Counts, FailedBatch> {
        if self.writes.is_empty() {
            // Only refusals: what they refer to is durable already.
            let counts = Counts { commits: self.counts.commits - 1, ..self.counts };
            self.publish();
            return Ok(counts);
        }
        let written = self.writes.put_meta(COUNTS, &self.counts.bytes()).map_err(CommitError::from);
        let written = written.and_then(|()| self.engine.commit(&self.writes).map_err(CommitError::failed));
        match written {
            Ok(()) => {
                let counts = self.counts;
                counts.show(self.shared);
                self.publish();
                Ok(counts)
            }
            Err(error) => {
                for id in &self.created {
                    self.shared.hot.remove(id);
                }
                Err(FailedBatch { error, created: self.created, answers: self.answers })
            }
        }
    }

    fn publish(self) {
        let Self { shared, next, luggage, purged, answers, .. } = self;
        for (id, beside) in luggage {
            if beside.is_empty() {
                shared.luggage.remove(&id);
            } else {
                shared.luggage.insert(id, beside);
            }
        }
        for (id, task) in next {
            if task.state.is_terminal() {
                shared.hot.remove(&id);
                if let Some(expires) = task.expires() {
                    shared.sweep_by(expires);
                }
            } else {
                if let Some(due) = super::sweep::extension_due(&task) {
                    shared.sweep_by(due);
                }
                shared.hot.insert(id, Hot::Committed(Committed::new(task)));
            }
            shared.watched.with(&id, |watchers| watchers.send_replace(()));
        }
        for (id, _) in &purged {
            shared.cache.remove(id);
        }
        for answer in answers {
            answer.give();
        }
    }
}

impl FailedBatch {
    /// Tells everybody.
    pub(super) fn answer(self) {
        for answer in self.answers {
            answer.fail(&self.error);
        }
    }
}

impl Pending {
    fn give(self) {
        // Whoever asked may have gone.
        match self {
            Self::Create(answer, task, luggage) => {
                drop(answer.send(Ok(Committed::new(task))));
                // From here on the map keeps the file.
                drop(luggage);
            }
            Self::Claim(answer, possession, luggage) => {
                drop(answer.send(Ok(match possession {
                    Possession::New(task) => Claimed::Made(Committed::new(task)),
                    Possession::Earlier(task) => Claimed::Earlier(Committed::new(task)),
                    Possession::Differs => Claimed::Differs,
                })));
                drop(luggage);
            }
            Self::Change(answer, decided, file) => {
                let decided = decided.map(Committed::new);
                let refused = |(refusal, task)| ChangeError::Refused(refusal, Committed::new(task));
                let _ = answer.send(decided.map_err(refused));
                // From here on the record, or nothing, keeps the file from the sweep.
                drop(file);
            }
            Self::Extend(answer, extended) => drop(answer.send(Ok(extended))),
            Self::Keep(answer) => drop(answer.send(Ok(()))),
            Self::Purge(answer, purged) => drop(answer.send(Ok(purged))),
        }
    }

    fn fail(self, error: &CommitError) {
        match self {
            Self::Create(answer, ..) => drop(answer.send(Err(error.clone()))),
            Self::Claim(answer, ..) => drop(answer.send(Err(error.clone()))),
            Self::Change(answer, ..) => drop(answer.send(Err(error.clone().into()))),
            Self::Extend(answer, _) => drop(answer.send(Err(error.clone()))),
            Self::Keep(answer) => drop(answer.send(Err(error.clone()))),
            Self::Purge(answer, _) => drop(answer.send(Err(error.clone()))),
        }
    }
}

impl Counts {
    /// Lets others see them.
    pub(super) fn show(self, shared: &Shared) {
        shared.counts.commits.store(self.commits, Ordering::Relaxed);
        shared.counts.tasks.store(self.tasks, Ordering::Relaxed);
    }

    pub(super) fn bytes(self) -> [u8; 16] {
        let both = u128::from(self.commits) << 64 | u128::from(self.tasks);
        both.to_be_bytes()
    }

    pub(super) fn read(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        let low = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or_default();
        Self { commits: low(both >> 64), tasks: low(both) }
    }
}

impl From<Oversized> for CommitError {
    fn from(error: Oversized) -> Self {
        Self::TooLarge { bytes: error.bytes, limit: MAX_RECORD }
    }
}
