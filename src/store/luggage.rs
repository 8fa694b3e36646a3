//! What is kept beside the record of a task that has not ended, so that another process can go on with it: the call, to
//! be sent, and where its run is. Both go when they are of no use any more.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::engine::{Engine, EngineError, Oversized, Writes, caught, id_of};
use super::files::{FileName, InFlight};
use super::op::{Op, Outcome};
use super::shared::Shared;
use super::{ChangeError, CommitError, Committed, Keep, ReadError, Store};
use crate::clock::Timestamp;
use crate::protocol::{Abilities, Anchor, Json, Newcomer};
use crate::shared_map::SharedMap;
use crate::task::{Change, MOST_RERUNS, State, Stored, Task, TaskId};

/// What another process needs to go on with a task.
#[derive(Clone, Debug, Default)]
pub struct Luggage {
    /// To send its call.
    pub dispatch: Option<Dispatch>,
    /// To find its run.
    pub anchored: Option<Anchored>,
    /// Who made it, if nobody knows yet whether its credentials are any good. Not kept.
    pub newcomer: Option<Newcomer>,
}

/// What is needed to send the call of a task. Gone while the task runs, unless it may be run again, and when it has ended.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// When the call arrived.
    pub arrived: Timestamp,
    /// What its client can be asked.
    pub abilities: Abilities,
    /// The parameters of the request, as the client spelled them.
    pub params: Json,
    /// Whether a lost run may be run again.
    pub again: bool,
}

/// Where the run of a task is. Gone when the task has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchored {
    /// Where.
    pub anchor: Anchor,
    /// What its client can be asked.
    pub abilities: Abilities,
}

/// What there is beside the record of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    dispatch: Option<Kept>,
    anchor: bool,
}

/// A dispatch in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    file: Option<u32>,
    again: bool,
}

/// Luggage as it is written.
#[derive(Debug, Default)]
pub(super) struct Packed {
    dispatch: Option<Vec<u8>>,
    anchor: Option<Vec<u8>>,
    beside: Beside,
    newcomer: Option<Newcomer>,
    /// Keeps a file from the sweep until the luggage is committed.
    in_flight: Option<InFlight>,
}

const VERSION: u8 = 1;
/// The bit of the flags that says [`Dispatch::again`].
const AGAIN: u8 = 1;
/// The text follows, or a file has it.
const INLINE: u8 = 0;
const FILE: u8 = 1;

/// A text up to this size goes into the database.
const MOST_INLINE: usize = 3 << 10;
/// Bytes of an anchor with what belongs to it.
const MOST_ANCHOR: usize = 4000;

impl Store {
    /// As [`Store::create`], with luggage that is durable together with the record. An anchor that is too large is left
    /// out.
    pub async fn create_with(&self, task: Task, luggage: Luggage) -> Result<Committed<Task>, CommitError> {
        let id = task.id;
        let packed = self.pack(id, luggage).await?;
        let file = packed.file();
        let created = self.create_packed(task, Box::new(packed)).await;
        if let (Err(_), Some(file)) = (&created, file) {
            self.unlink(file).await;
        }
        created
    }

    /// Keeps where the run of a task is; ignored where that is of no use. Answered when it is durable. An anchor of more
    /// than 4,000 bytes, with what the client can be asked, is refused. If the returned future is dropped, it may be kept
    /// all the same.
    pub async fn anchor(&self, id: &TaskId, anchored: &Anchored) -> Result<(), CommitError> {
        let (id, value) = (*id, anchored.encoded());
        if !anchored.fits() {
            return Err(CommitError::TooLarge { bytes: value.len(), limit: MOST_ANCHOR });
        }
        self.ask(|answer| Op::Anchor { id, value, answer }).await
    }

    /// `Running | InputRequired -> Queued`, once: the run was lost and may be run again. Waits while too many writes wait.
    /// So long the lost run is paid for. If the returned future is dropped, the change may be made all the same.
    pub async fn rerun(&self, id: &TaskId, ran: Duration) -> Result<Committed<Task>, ChangeError> {
        self.change(id, Change::Rerun(ran)).await
    }

    /// Records that the call of a task was not sent after all, and waits, and keeps what another process needs to send it, if
    /// that is given and not kept. Waits while too many writes wait. If the returned future is dropped, the change may be
    /// made all the same.
    pub async fn wait(&self, id: &TaskId, dispatch: Option<Dispatch>) -> Result<Committed<Task>, ChangeError> {
        let (id, before) = (*id, self.inner.shared.luggage_file(id));
        let dispatch = dispatch.filter(|_| !self.has_dispatch(&id));
        let packed = self.pack(id, Luggage { dispatch, ..Luggage::default() }).await?;
        let file = packed.file();
        let changed = self.ask(|answer| Op::Wait { id, luggage: Box::new(packed), answer }).await;
        for file in [before, file] {
            self.unload(&id, file).await;
        }
        changed
    }

    /// What is needed to send the call of a task, if it is kept.
    pub async fn dispatch(&self, id: &TaskId) -> Result<Option<Dispatch>, ReadError> {
        let (shared, id) = (Arc::clone(&self.inner.shared), *id);
        let Some(value) = shared.read(|engine| engine.dispatch(&id))? else { return Ok(None) };
        let read = move || read_dispatch(&shared, id, &Bytes::from(value)).map(Some);
        tokio::task::spawn_blocking(read).await.map_err(|error| ReadError::Io(io::Error::other(error)))?
    }

    /// Whether what is needed to send the call of a task is kept.
    pub fn has_dispatch(&self, id: &TaskId) -> bool {
        self.inner.shared.luggage.get(id).is_some_and(|beside| beside.dispatch.is_some())
    }

    /// Where the run of a task is, if that is known.
    pub fn anchored(&self, id: &TaskId) -> Result<Option<Anchored>, ReadError> {
        let value = self.inner.shared.read(|engine| engine.anchor(id))?;
        value.map(|value| Anchored::decoded(&Bytes::from(value)).ok_or(ReadError::Damaged)).transpose()
    }

    /// Makes a change, and removes a file that is of no use after it.
    pub(super) async fn change(&self, id: &TaskId, change: Change) -> Result<Committed<Task>, ChangeError> {
        let (id, before) = (*id, self.inner.shared.luggage_file(id));
        let (outcome, keep) = (Outcome::None, Keep::AsAnnounced);
        let changed = self.ask(|answer| Op::Change { id, change, ran: None, outcome, keep, answer }).await;
        self.unload(&id, before).await;
        changed
    }

    /// Removes a file that held what is not kept any more.
    pub(super) async fn unload(&self, id: &TaskId, before: Option<FileName>) {
        if let Some(file) = before.filter(|file| self.inner.shared.luggage_file(id) != Some(*file)) {
            self.unlink(file).await;
        }
    }

    pub(super) async fn unlink(&self, file: FileName) {
        let shared = Arc::clone(&self.inner.shared);
        // If it cannot be removed now, the sweep will.
        let _ = tokio::task::spawn_blocking(move || shared.files.remove(file)).await;
    }

    /// Puts what is large into a file, which is durable on return.
    pub(super) async fn pack(&self, id: TaskId, luggage: Luggage) -> Result<Packed, CommitError> {
        let mut packed = Packed { newcomer: luggage.newcomer, ..Packed::default() };
        if let Some(anchored) = luggage.anchored {
            packed.anchor = anchored.fits().then(|| anchored.encoded());
            packed.beside.anchor = packed.anchor.is_some();
        }
        let Some(dispatch) = luggage.dispatch else { return Ok(packed) };
        let text = joined(dispatch.abilities.raw(), dispatch.params.bytes());
        let mut value = dispatch.head();
        if text.len() <= MOST_INLINE {
            value.push(INLINE);
            value.extend_from_slice(&text);
            packed.beside.dispatch = Some(Kept { file: None, again: dispatch.again });
        } else {
            let (file, checksum) = self.write_luggage(id, text.clone()).await?;
            let revision = file.name().revision;
            value.push(FILE);
            value.put_u64(text.len() as u64);
            value.put_u32(checksum);
            value.put_u32(revision);
            packed.beside.dispatch = Some(Kept { file: Some(revision), again: dispatch.again });
            packed.in_flight = Some(file);
        }
        packed.dispatch = Some(value);
        Ok(packed)
    }

    async fn write_luggage(&self, id: TaskId, text: Bytes) -> Result<(InFlight, u32), CommitError> {
        let shared = Arc::clone(&self.inner.shared);
        let write = move || {
            let file = shared.files.reserve(id);
            shared.files.write(file.name(), &text)?;
            Ok::<_, io::Error>((file, crc32fast::hash(&text)))
        };
        let written = tokio::task::spawn_blocking(write).await;
        written.map_err(CommitError::failed)?.map_err(CommitError::failed)
    }
}

impl Dispatch {
    fn head(&self) -> Vec<u8> {
        let mut value = vec![VERSION, if self.again { AGAIN } else { 0 }];
        value.put_u64(self.arrived.as_millis());
        value
    }
}

impl Anchored {
    /// Whether it is small enough to be kept.
    pub fn fits(&self) -> bool {
        1 + 4 + self.abilities.raw().len() + self.anchor.bytes().len() <= MOST_ANCHOR
    }

    fn encoded(&self) -> Vec<u8> {
        let text = joined(self.abilities.raw(), self.anchor.bytes());
        [&[VERSION][..], &text].concat()
    }

    fn decoded(value: &Bytes) -> Option<Self> {
        let (version, _) = value.split_first()?;
        let (abilities, anchor) = parted(&value.slice(1..)).filter(|_| *version == VERSION)?;
        Some(Self { anchor: Anchor::new(anchor), abilities })
    }
}

impl Beside {
    /// Whether there is nothing.
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The file that belongs to it.
    pub(super) fn file(self, id: TaskId) -> Option<FileName> {
        let revision = self.dispatch?.file?;
        Some(FileName { id, revision })
    }

    /// What of it is of use to a task that is so now.
    pub(super) fn of_use(self, task: &Task) -> Self {
        match task.state {
            State::Queued => Self { anchor: false, ..self },
            State::Running { .. } | State::InputRequired { .. } => {
                let may_run_again = |kept: &Kept| kept.again && task.reruns < MOST_RERUNS;
                Self { dispatch: self.dispatch.filter(may_run_again), ..self }
            }
            State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } => Self::default(),
        }
    }

    /// The same with an anchor.
    pub(super) fn anchored(self) -> Self {
        Self { anchor: true, ..self }
    }

    /// What is here and not in `kept`: of the dispatch, of the anchor.
    pub(super) fn without(self, kept: Self) -> (bool, bool) {
        (self.dispatch.is_some() && kept.dispatch.is_none(), self.anchor && !kept.anchor)
    }
}

impl Packed {
    /// The file that it is in, if it is in one.
    pub(super) fn file(&self) -> Option<FileName> {
        self.in_flight.as_ref().map(InFlight::name)
    }

    /// What keeps that file from the sweep.
    pub(super) fn into_file(self) -> Option<InFlight> {
        self.in_flight
    }

    /// The values, and what there is then.
    pub(super) fn newcomer(&self) -> Option<&Newcomer> {
        self.newcomer.as_ref()
    }

    pub(super) fn values(&self) -> (Option<&[u8]>, Option<&[u8]>, Beside) {
        (self.dispatch.as_deref(), self.anchor.as_deref(), self.beside)
    }
}

impl Shared {
    /// The file with the call of a task, if there is one.
    pub(super) fn luggage_file(&self, id: &TaskId) -> Option<FileName> {
        self.luggage.get(id)?.file(*id)
    }
}

/// Makes the map of luggage what the database says.
pub(super) fn count_luggage(luggage: &SharedMap<TaskId, Beside>, engine: &Engine) -> Result<(), EngineError> {
    luggage.retain(|_, _| false);
    for (id, value) in engine.dispatches()? {
        let kept = kept(&value).ok_or(EngineError::Key)?;
        luggage.update_or_insert(id, Beside::default, |beside| beside.dispatch = Some(kept));
    }
    for id in engine.anchors()? {
        luggage.update_or_insert(id, Beside::default, |beside| beside.anchor = true);
    }
    Ok(())
}

impl Engine {
    fn dispatch(&self, id: &TaskId) -> Result<Option<Vec<u8>>, EngineError> {
        caught(|| Ok(self.dispatch.get(id.as_bytes())?.map(|value| value.to_vec())))
    }

    fn anchor(&self, id: &TaskId) -> Result<Option<Vec<u8>>, EngineError> {
        caught(|| Ok(self.anchors.get(id.as_bytes())?.map(|value| value.to_vec())))
    }

    /// All of them; their texts are small, or in files.
    fn dispatches(&self) -> Result<Vec<(TaskId, Vec<u8>)>, EngineError> {
        caught(|| {
            let mut found = Vec::new();
            for entry in &self.dispatch {
                let (key, value) = entry?;
                found.push((id_of(&key)?, value.to_vec()));
            }
            Ok(found)
        })
    }

    /// The tasks that have one.
    fn anchors(&self) -> Result<Vec<TaskId>, EngineError> {
        caught(|| self.anchors.iter().keys().map(|key| id_of(&key?)).collect())
    }
}

impl Writes {
    /// Puts what there is of luggage.
    pub(super) fn put_luggage(
        &mut self,
        id: &TaskId,
        dispatch: Option<&[u8]>,
        anchor: Option<&[u8]>,
    ) -> Result<(), Oversized> {
        if let Some(dispatch) = dispatch {
            let value = self.checked(dispatch)?;
            self.dispatch.insert(id.as_bytes(), value);
        }
        if let Some(anchor) = anchor {
            let value = self.checked(anchor)?;
            self.anchors.insert(id.as_bytes(), value);
        }
        Ok(())
    }

    /// Takes out what is named: the dispatch, the anchor.
    pub(super) fn remove_luggage(&mut self, id: &TaskId, (dispatch, anchor): (bool, bool)) {
        self.bytes += 1;
        if dispatch {
            self.dispatch.remove(id.as_bytes());
        }
        if anchor {
            self.anchors.remove(id.as_bytes());
        }
    }
}

/// The two texts as one.
fn joined(abilities: &Json, rest: &Bytes) -> Bytes {
    let mut text = BytesMut::with_capacity(4 + abilities.len() + rest.len());
    text.put_u32(u32::try_from(abilities.len()).unwrap_or(u32::MAX));
    text.put_slice(abilities.bytes());
    text.put_slice(rest);
    text.freeze()
}

fn parted(text: &Bytes) -> Option<(Abilities, Bytes)> {
    let (length, rest) = text.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok().filter(|length| *length <= rest.len())?;
    let abilities = Json::parse(text.slice(4..4 + length)).ok()?;
    Some((Abilities::of(abilities), text.slice(4 + length..)))
}

/// Where in a value the text of a dispatch begins.
const HEAD: usize = 11;

fn kept(value: &[u8]) -> Option<Kept> {
    let [VERSION, flags, .., place] = value.first_chunk::<HEAD>()? else { return None };
    let file = match *place {
        INLINE => None,
        FILE => Some(u32::from_be_bytes(*value.last_chunk()?)),
        _ => return None,
    };
    Some(Kept { file, again: flags & AGAIN != 0 })
}

/// Reads the text of a dispatch where it is. Blocks.
fn read_dispatch(shared: &Shared, id: TaskId, value: &Bytes) -> Result<Dispatch, ReadError> {
    let kept = kept(value).ok_or(ReadError::Damaged)?;
    let arrived = value.get(2..10).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let arrived = Timestamp::from_millis(arrived.ok_or(ReadError::Damaged)?);
    let text = match kept.file {
        None => value.slice(HEAD..),
        Some(revision) => {
            let described = value.get(HEAD..).and_then(described).ok_or(ReadError::Damaged)?;
            let stored = Stored { file: Some(revision), ..described };
            let read = shared.files.read(FileName { id, revision }, stored).map_err(ReadError::Io)?;
            if !stored.describes(&read) {
                return Err(ReadError::Damaged);
            }
            Bytes::from(read)
        }
    };
    let (abilities, params) = parted(&text).ok_or(ReadError::Damaged)?;
    let params = Json::parse(params).map_err(|_| ReadError::Damaged)?;
    Ok(Dispatch { arrived, abilities, params, again: kept.again })
}

fn described(value: &[u8]) -> Option<Stored> {
    let (len, rest) = value.split_first_chunk::<8>()?;
    let checksum = u32::from_be_bytes(*rest.first_chunk()?);
    Some(Stored { len: u64::from_be_bytes(*len), checksum, file: None })
}
