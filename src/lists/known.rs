//! The last good answers. Bounded in number and bytes; the one that was not used for longest goes first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use crate::clock::millis;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, Caller, ClientSession, Json, Method, Principal};

/// The last good answers of one server.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    by_key: HashMap<Key, Answer>,
    bytes: usize,
}

/// Who may see an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Whose {
    /// `None`: all callers share the server.
    principal: Option<Principal>,
    session: ClientSession,
}

/// Which answer: what is asked, and by whom. Servers show other tools to clients with other abilities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    whose: Whose,
    abilities: Json,
    method: Method,
    /// Without `_meta`.
    params: Json,
}

/// A good answer.
#[derive(Clone, Debug)]
struct Answer {
    result: Json,
    /// When it came.
    at: Instant,
    used: Instant,
    state: State,
    is_being_renewed: bool,
}

/// Whether the server still stands by an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// As far as it has said.
    Current,
    /// It has said that the list changed: this is better than nothing, and than that only.
    Changed,
}

/// Answers of one server.
const MOST: usize = 512;
/// Bytes of them.
const MOST_BYTES: usize = 32 << 20;
/// Bytes of one that is kept.
const LARGEST: usize = 8 << 20;

impl Whose {
    /// Those of this caller, or of all who share the server.
    pub(super) fn of(caller: &Caller, share: bool) -> Self {
        let principal = (!share).then(|| caller.principal.clone());
        Self { principal, session: caller.session.clone() }
    }

    /// Whether these are of one legacy client, which is gone when its session ends.
    pub(super) fn is_of_a_session(&self) -> bool {
        matches!(self.session, ClientSession::Legacy(_))
    }
}

impl Key {
    /// What `call` asks for; `None` if its answer must not be kept (2026-07-28, caching, cache key).
    pub(super) fn of(call: &Call, whose: Whose) -> Option<Self> {
        let raw = call.params.raw();
        let members = raw.members().ok()?;
        if members.get("inputResponses").is_some() || members.get("requestState").is_some() {
            return None;
        }
        let mut params = ObjectWriter::new();
        params.members_of(raw, |name| name != "_meta").ok()?;
        let abilities = call.caller.abilities.raw().clone();
        Some(Self { whose, abilities, method: call.method.clone(), params: params.finish_json() })
    }

    /// What is listed.
    pub(super) fn method(&self) -> &Method {
        &self.method
    }
}

impl Known {
    /// The last good answer, made honest about its age, and whether the server still stands by it.
    pub(super) fn get(&self, key: &Key) -> Option<(Json, State)> {
        let mut answers = self.lock();
        let answer = answers.by_key.get_mut(key)?;
        answer.used = Instant::now();
        let answer = answer.clone();
        drop(answers);
        Some((aged(&answer), answer.state))
    }

    /// Keeps a good answer.
    pub(super) fn put(&self, key: Key, result: &Json) {
        if result.len() > LARGEST || !is_complete(result) {
            return;
        }
        // The text may be a part of something larger, which it must not keep alive.
        let Ok(result) = Json::parse(Bytes::copy_from_slice(result.bytes())) else { return };
        let now = Instant::now();
        let answer = Answer { result, at: now, used: now, state: State::Current, is_being_renewed: false };
        let mut answers = self.lock();
        answers.remove(&key);
        answers.bytes += size(&key, &answer);
        answers.by_key.insert(key, answer);
        while answers.by_key.len() > MOST || answers.bytes > MOST_BYTES {
            let oldest = answers.by_key.iter().min_by_key(|(_, answer)| answer.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            answers.remove(&oldest);
        }
    }

    /// The server says that what `method` lists has changed.
    pub(super) fn changed(&self, whose: &Whose, method: &Method) {
        for (key, answer) in &mut self.lock().by_key {
            if key.whose == *whose && key.method == *method {
                answer.state = State::Changed;
            }
        }
    }

    /// Nobody asks for these any more.
    pub(super) fn forget(&self, whose: &Whose) {
        let mut answers = self.lock();
        let gone: Vec<Key> = answers.by_key.keys().filter(|key| key.whose == *whose).cloned().collect();
        for key in &gone {
            answers.remove(key);
        }
    }

    /// Whether whoever asks this is to wait for a new answer in the background: one at a time.
    pub(super) fn may_renew(&self, key: &Key) -> bool {
        let mut answers = self.lock();
        answers.by_key.get_mut(key).is_some_and(|answer| !std::mem::replace(&mut answer.is_being_renewed, true))
    }

    /// The waiting is over.
    pub(super) fn renewed(&self, key: &Key) {
        if let Some(answer) = self.lock().by_key.get_mut(key) {
            answer.is_being_renewed = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        // Nothing in here panics with the lock held, so poisoned answers are still in order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    fn remove(&mut self, key: &Key) {
        if let Some(answer) = self.by_key.remove(key) {
            self.bytes = self.bytes.saturating_sub(size(key, &answer));
        }
    }
}

fn size(key: &Key, answer: &Answer) -> usize {
    answer.result.len() + key.params.len() + key.abilities.len()
}

/// An interim result is not to be kept.
fn is_complete(result: &Json) -> bool {
    result.is_object() && result.member("resultType").is_none_or(|kind| kind.as_str() == "\"complete\"")
}

/// With what is left of the time for which the server called it fresh.
fn aged(answer: &Answer) -> Json {
    let told = answer.result.member("ttlMs").and_then(|ttl| ttl.read::<u64>().ok());
    let Some(told) = told else { return answer.result.clone() };
    let left = match answer.state {
        State::Current => told.saturating_sub(millis(answer.at.elapsed())),
        State::Changed => 0,
    };
    let mut writer = ObjectWriter::new();
    match writer.members_of(&answer.result, |name| name != "ttlMs") {
        Ok(writer) => writer.number("ttlMs", i64::try_from(left).unwrap_or(i64::MAX)),
        Err(_) => return answer.result.clone(),
    };
    writer.finish_json()
}
