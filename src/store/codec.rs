//! The record of a task: compact, versioned, and never larger than [`MAX_RECORD`].
//!
//! Numbers as LEB128, texts with their length before them, each enum as one byte. Version 2 has, before the state,
//! what was asked so far, and a state with open questions, whose texts are beside the record. Version 3 has, before
//! what was asked, the digest of the call's key, how often the call was run again and what it costs. Both are still read.
//! A new value of an enum needs no new version: a build that does not know it refuses the record, and never misreads it.

use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::config::Cost;
use crate::protocol::{Failure, Json, QuestionKind, Reason, Retry};
use crate::task::{
    Asked, Canceller, Cause, Charge, Expiry, KeyDigest, KeySource, MOST_HINTS, OpenQuestion, Owner, State, Stored,
    Task, TaskId,
};

/// sled moves larger values into files that it never syncs; no power cut was survived with them.
pub(super) const MAX_RECORD: usize = 4096;

/// Bytes of a new record that are left for what its end, and the keys that are asked until then, may add.
pub(super) const RESERVED_FOR_END: usize = 1280 + 8 * MOST_HINTS;

/// Bytes of a message that are kept; the rest is cut off.
pub(super) const MAX_MESSAGE: usize = 1024;

const VERSION: u8 = 3;
/// Before there were keys.
const WITHOUT_KEYS: u8 = 2;
/// Before there were questions.
const WITHOUT_QUESTIONS: u8 = 1;

/// Why bytes are not a record that this version can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadRecord {
    /// The first byte names another layout.
    Version(u8),
    /// It ends too early, goes on too long or holds a value that is none.
    Malformed,
}

/// Writes the record of `task`; the id is the key and not part of it.
pub(super) fn encode(task: &Task) -> Vec<u8> {
    let mut record = Vec::with_capacity(128);
    record.push(VERSION);
    record.push(task.owner.scheme());
    record.extend_from_slice(task.owner.digest());
    put_text(&mut record, &task.server);
    put_text(&mut record, &task.tool);
    put_number(&mut record, task.created.as_millis());
    put_number(&mut record, task.updated.as_millis());
    match task.expiry {
        Expiry::Never => record.push(0),
        Expiry::Limited { ttl, keep } => {
            record.push(1);
            put_duration(&mut record, ttl);
            put_duration(&mut record, keep);
        }
    }
    match &task.key {
        None => record.push(0),
        Some(key) => {
            let (kind, window) = match key.source() {
                KeySource::Caller => (1, None),
                KeySource::Running => (2, None),
                KeySource::Window(window) => (3, Some(window)),
            };
            record.push(kind);
            record.extend_from_slice(key.as_bytes());
            if let Some(window) = window {
                put_duration(&mut record, window);
            }
        }
    }
    put_number(&mut record, task.reruns.into());
    if task.charge.is_free() {
        record.push(0);
    } else {
        record.push(1);
        for cost in [task.charge.price, task.charge.per_minute, task.charge.total] {
            put_number(&mut record, cost.millionths());
        }
    }
    put_number(&mut record, task.asked.count.into());
    put_number(&mut record, task.asked.hinted.len() as u64);
    for hinted in &task.asked.hinted {
        record.extend_from_slice(&hinted.to_be_bytes());
    }
    put_state(&mut record, &task.state);
    record
}

/// Reads the record under the key `id`. The texts of open questions are not in it: they read as `null`.
pub(super) fn decode(id: TaskId, record: &[u8]) -> Result<Task, BadRecord> {
    let mut reader = Reader(record);
    let version = match reader.byte()? {
        version @ (WITHOUT_QUESTIONS | WITHOUT_KEYS | VERSION) => version,
        other => return Err(BadRecord::Version(other)),
    };
    let scheme = reader.byte()?;
    let owner = Owner::from_parts(scheme, reader.array()?);
    let server = reader.text()?;
    let tool = reader.text()?;
    let created = reader.timestamp()?;
    let updated = reader.timestamp()?;
    let expiry = match reader.byte()? {
        0 => Expiry::Never,
        1 => Expiry::Limited { ttl: reader.duration()?, keep: reader.duration()? },
        _ => return Err(BadRecord::Malformed),
    };
    let (key, reruns, charge) = match version {
        VERSION => (reader.key()?, reader.small()?, reader.charge()?),
        _ => (None, 0, Charge::default()),
    };
    let asked = if version == WITHOUT_QUESTIONS { Asked::default() } else { reader.asked()? };
    let state = reader.state()?;
    if !reader.0.is_empty() {
        return Err(BadRecord::Malformed);
    }
    Ok(Task { id, owner, server, tool, created, updated, expiry, key, reruns, charge, asked, state })
}

/// The beginning of a message that is too long to be kept whole.
pub(super) fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
    }
    message
}

fn put_state(record: &mut Vec<u8>, state: &State) {
    match state {
        State::Queued => record.push(0),
        State::Running { started } => {
            record.push(1);
            put_number(record, started.as_millis());
        }
        State::Completed { result } => {
            record.push(2);
            put_stored(record, *result);
        }
        State::Failed { cause: Cause::Server { code, message, error } } => {
            record.push(3);
            record.extend_from_slice(&code.to_be_bytes());
            put_text(record, message);
            put_stored(record, *error);
        }
        State::Failed { cause: Cause::Ours(failure) } => {
            record.push(4);
            record.push(reason_tag(failure.reason));
            put_text(record, &failure.message);
            put_retry(record, failure.retry);
        }
        State::Cancelled { by: Canceller::Owner, sent: true } => record.push(5),
        State::Cancelled { by: Canceller::Operator, sent: true } => record.push(7),
        State::Cancelled { by: Canceller::Owner, sent: false } => record.push(8),
        State::Cancelled { by: Canceller::Operator, sent: false } => record.push(9),
        State::InputRequired { started, since, questions } => {
            record.push(6);
            put_number(record, started.as_millis());
            put_number(record, since.as_millis());
            put_number(record, questions.len() as u64);
            for question in questions {
                put_number(record, question.number.into());
                put_text(record, &question.key);
                record.push(kind_tag(question.kind));
            }
        }
    }
}

/// A tag is never given to another kind.
const fn kind_tag(kind: QuestionKind) -> u8 {
    match kind {
        QuestionKind::Elicitation => 1,
        QuestionKind::Sampling => 2,
        QuestionKind::Roots => 3,
    }
}

const fn kind_of(tag: u8) -> Option<QuestionKind> {
    Some(match tag {
        1 => QuestionKind::Elicitation,
        2 => QuestionKind::Sampling,
        3 => QuestionKind::Roots,
        _ => return None,
    })
}

fn put_stored(record: &mut Vec<u8>, stored: Stored) {
    put_number(record, stored.len);
    record.extend_from_slice(&stored.checksum.to_be_bytes());
    match stored.file {
        None => record.push(0),
        Some(revision) => {
            record.push(1);
            record.extend_from_slice(&revision.to_be_bytes());
        }
    }
}

fn put_retry(record: &mut Vec<u8>, retry: Retry) {
    match retry {
        Retry::Yes => record.push(0),
        Retry::After(wait) => {
            record.push(1);
            put_duration(record, wait);
        }
        Retry::No => record.push(2),
        Retry::Unknown => record.push(3),
    }
}

/// A tag is never given to another reason, also when a reason goes away.
const fn reason_tag(reason: Reason) -> u8 {
    match reason {
        Reason::OutcomeUnknown => 1,
        Reason::NotStarted => 2,
        Reason::Timeout => 3,
        Reason::QueueTimeout => 4,
        Reason::Busy => 5,
        Reason::Unauthorized => 6,
        Reason::BadAnswer => 7,
        Reason::TooLarge => 8,
        Reason::Store => 9,
        Reason::Stopping => 10,
        Reason::InputTimeout => 11,
        Reason::IdleTimeout => 12,
        Reason::QueueFull => 13,
        Reason::RateLimited => 14,
        Reason::OverBudget => 15,
        Reason::KeyReused => 16,
    }
}

const fn reason_of(tag: u8) -> Option<Reason> {
    Some(match tag {
        1 => Reason::OutcomeUnknown,
        2 => Reason::NotStarted,
        3 => Reason::Timeout,
        4 => Reason::QueueTimeout,
        5 => Reason::Busy,
        6 => Reason::Unauthorized,
        7 => Reason::BadAnswer,
        8 => Reason::TooLarge,
        9 => Reason::Store,
        10 => Reason::Stopping,
        11 => Reason::InputTimeout,
        12 => Reason::IdleTimeout,
        13 => Reason::QueueFull,
        14 => Reason::RateLimited,
        15 => Reason::OverBudget,
        16 => Reason::KeyReused,
        _ => return None,
    })
}

fn put_number(record: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        record.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    record.push(low_bits(number));
}

/// The seven lowest bits.
const fn low_bits(number: u64) -> u8 {
    let [low, ..] = number.to_le_bytes();
    low & 0x7f
}

fn put_duration(record: &mut Vec<u8>, duration: Duration) {
    put_number(record, duration.as_secs());
    put_number(record, duration.subsec_nanos().into());
}

fn put_text(record: &mut Vec<u8>, text: &str) {
    put_number(record, text.len() as u64);
    record.extend_from_slice(text.as_bytes());
}

/// What is still to be read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, BadRecord> {
        let (first, rest) = self.0.split_first().ok_or(BadRecord::Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRecord> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(BadRecord::Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Result<u64, BadRecord> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                return Err(BadRecord::Malformed);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadRecord::Malformed)
    }

    fn timestamp(&mut self) -> Result<Timestamp, BadRecord> {
        self.number().map(Timestamp::from_millis)
    }

    fn duration(&mut self) -> Result<Duration, BadRecord> {
        let seconds = self.number()?;
        match u32::try_from(self.number()?) {
            Ok(nanos @ 0..1_000_000_000) => Ok(Duration::new(seconds, nanos)),
            _ => Err(BadRecord::Malformed),
        }
    }

    fn text(&mut self) -> Result<String, BadRecord> {
        let length = usize::try_from(self.number()?).map_err(|_| BadRecord::Malformed)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(BadRecord::Malformed)?;
        self.0 = rest;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| BadRecord::Malformed)
    }

    fn stored(&mut self) -> Result<Stored, BadRecord> {
        let len = self.number()?;
        let checksum = u32::from_be_bytes(self.array()?);
        let file = match self.byte()? {
            0 => None,
            1 => Some(u32::from_be_bytes(self.array()?)),
            _ => return Err(BadRecord::Malformed),
        };
        Ok(Stored { len, checksum, file })
    }

    fn key(&mut self) -> Result<Option<KeyDigest>, BadRecord> {
        let kind = self.byte()?;
        if kind == 0 {
            return Ok(None);
        }
        let key = KeyDigest::from_bytes(self.array()?);
        let source = match kind {
            1 => KeySource::Caller,
            2 => KeySource::Running,
            3 => KeySource::Window(self.duration()?),
            _ => return Err(BadRecord::Malformed),
        };
        Ok(Some(key.from_source(source)))
    }

    fn charge(&mut self) -> Result<Charge, BadRecord> {
        match self.byte()? {
            0 => Ok(Charge::default()),
            1 => {
                let mut cost = || self.number().map(Cost::from_millionths);
                Ok(Charge { price: cost()?, per_minute: cost()?, total: cost()? })
            }
            _ => Err(BadRecord::Malformed),
        }
    }

    fn asked(&mut self) -> Result<Asked, BadRecord> {
        let count = self.small()?;
        let mut hinted = Vec::new();
        for _ in 0..self.number()? {
            hinted.push(u64::from_be_bytes(self.array()?));
        }
        Ok(Asked { count, hinted })
    }

    fn questions(&mut self) -> Result<Vec<OpenQuestion>, BadRecord> {
        let mut questions = Vec::new();
        for _ in 0..self.number()? {
            let number = self.small()?;
            let key = self.text()?;
            let kind = kind_of(self.byte()?).ok_or(BadRecord::Malformed)?;
            questions.push(OpenQuestion { number, key, kind, params: Json::null() });
        }
        Ok(questions)
    }

    fn small(&mut self) -> Result<u32, BadRecord> {
        u32::try_from(self.number()?).map_err(|_| BadRecord::Malformed)
    }

    fn state(&mut self) -> Result<State, BadRecord> {
        Ok(match self.byte()? {
            0 => State::Queued,
            1 => State::Running { started: self.timestamp()? },
            2 => State::Completed { result: self.stored()? },
            3 => {
                let code = i64::from_be_bytes(self.array()?);
                State::Failed { cause: Cause::Server { code, message: self.text()?, error: self.stored()? } }
            }
            4 => {
                let reason = reason_of(self.byte()?).ok_or(BadRecord::Malformed)?;
                let message = self.text()?;
                State::Failed { cause: Cause::Ours(Failure::new(reason, message, self.retry()?)) }
            }
            5 => State::Cancelled { by: Canceller::Owner, sent: true },
            6 => State::InputRequired {
                started: self.timestamp()?,
                since: self.timestamp()?,
                questions: self.questions()?,
            },
            7 => State::Cancelled { by: Canceller::Operator, sent: true },
            8 => State::Cancelled { by: Canceller::Owner, sent: false },
            9 => State::Cancelled { by: Canceller::Operator, sent: false },
            _ => return Err(BadRecord::Malformed),
        })
    }

    fn retry(&mut self) -> Result<Retry, BadRecord> {
        Ok(match self.byte()? {
            0 => Retry::Yes,
            1 => Retry::After(self.duration()?),
            2 => Retry::No,
            3 => Retry::Unknown,
            _ => return Err(BadRecord::Malformed),
        })
    }
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "a record has layout {version}, which this version cannot read"),
            Self::Malformed => f.write_str("a record is damaged"),
        }
    }
}

impl std::error::Error for BadRecord {}
