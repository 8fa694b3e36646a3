//! Starts that count for rates, also those before a restart: a proxy that is killed again and again would let a whole burst
//! through each time.
//!
//! What is kept of a rate is when none of its starts will count any more. It is written in the background, at most once a
//! second: a crash may lose the starts of the last second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::HEXLOWER;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::gate::{Counting, Gate, Guest};
use crate::clock::Timestamp;
use crate::config::Rate;
use crate::jobs::Jobs;
use crate::store::{Shelf, Store};

/// Keeps what is counted for rates.
#[derive(Clone, Debug)]
pub(super) struct KeptStarts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    jobs: Jobs,
    /// Fires when runs are to end: then all is written at once.
    ending: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What an earlier process has written, until it is of use.
    left: HashMap<Name, Timestamp>,
    /// What is on the shelf, or about to be.
    kept: HashMap<Name, Timestamp>,
    /// What of that has changed since it was written.
    changed: Vec<Name>,
    /// Whether a job is about to write it.
    is_due: bool,
}

/// Which rate: a digest, so that the store tells no names.
type Name = [u8; 16];

/// The rates that hold for a call, with their names.
pub(super) struct Rates {
    all: Option<(Name, Rate)>,
    tool: Option<(Name, Rate)>,
    owner: Option<(Name, Rate)>,
}

/// How often it is written at most.
const PAUSE: Duration = Duration::from_secs(1);
/// Of more rates than these nothing is kept.
const MOST: usize = 4096;
/// What counts no more is looked for when there are so many.
const MANY: usize = 1024;
/// So many writes are asked for at a time.
const AT_ONCE: usize = 64;

impl KeptStarts {
    /// With what is in the store, if there are rates to begin with. Reads the disk.
    pub(super) fn open(store: &Store, jobs: &Jobs, ending: &CancellationToken) -> Self {
        let read = store.shelf(Shelf::Rate).unwrap_or_else(|error| {
            tracing::error!(%error, "what was started before cannot be read; rates begin anew");
            Vec::new()
        });
        let mut left = HashMap::new();
        for (name, value) in read {
            let name = HEXLOWER.decode(name.as_bytes()).ok().and_then(|name| name.try_into().ok());
            if let (Some(name), Ok(until)) = (name, value.try_into()) {
                left.insert(name, Timestamp::from_millis(u64::from_be_bytes(until)));
            }
        }
        let state = State { kept: left.clone(), left, ..State::default() };
        let inner =
            Inner { store: store.clone(), jobs: jobs.clone(), ending: ending.clone(), state: Mutex::new(state) };
        Self(Arc::new(inner))
    }

    /// The rates that hold for a guest; `None` if none does. `all` is that of all tools together.
    pub(super) fn rates(&self, guest: &Guest<'_>, all: Option<Rate>) -> Option<Rates> {
        let tool =
            guest.tool.filter(|tool| all.is_some() || tool.policy.rate.is_some() || tool.limits.rate.is_some())?;
        let store = &self.0.store;
        let named = |rate: Option<Rate>, parts: &[&[u8]]| {
            let seal = |_| store.seal("rate", parts);
            rate.and_then(|rate| Some((*seal(rate).first_chunk()?, rate)))
        };
        let owner = tool.limits.rate.map(|_| store.owner(guest.principal));
        let digest = owner.as_ref().map_or(&[][..], |owner| owner.digest());
        Some(Rates {
            all: named(all, &[b"all"]),
            tool: named(tool.policy.rate, &[b"tool", tool.server.as_bytes(), tool.name.as_bytes()]),
            owner: named(tool.limits.rate, &[b"owner", digest]),
        })
    }

    /// Counts what an earlier process has started, before the first start of this one.
    pub(super) fn recall(&self, rates: &Rates, gate: &Gate, guest: &Guest<'_>) {
        let mut state = self.state();
        if state.left.is_empty() {
            return;
        }
        let (now, instant) = (self.0.store.clock().now(), Instant::now());
        let mut until = |rate: &Option<(Name, Rate)>| {
            let (name, rate) = rate.as_ref()?;
            // However the machine's clock was set: no longer than all that it allows.
            let wait = state.left.remove(name)?.since(now).min(rate.per);
            instant.checked_add(wait).filter(|_| !wait.is_zero())
        };
        let before = Counting { all: until(&rates.all), tool: until(&rates.tool), owner: until(&rates.owner) };
        drop(state);
        gate.recall(guest, before);
    }

    /// Keeps what is counted after a start.
    pub(super) fn keep(&self, rates: &Rates, counting: Counting) {
        let (now, instant) = (self.0.store.clock().now(), Instant::now());
        let mut state = self.state();
        for (rate, until) in [(&rates.all, counting.all), (&rates.tool, counting.tool), (&rates.owner, counting.owner)]
        {
            if let (Some((name, _)), Some(until)) = (rate, until) {
                state.put(*name, now.after(until.saturating_duration_since(instant)));
            }
        }
        if !state.changed.is_empty() && !std::mem::replace(&mut state.is_due, true) {
            let kept = self.clone();
            self.0.jobs.spawn("write what was started", async move { kept.write().await });
        }
    }

    /// Writes what has changed until nothing changes any more.
    async fn write(&self) {
        loop {
            let writes = self.state().writes(self.0.store.clock().now());
            let Some(writes) = writes else { return };
            for some in writes.chunks(AT_ONCE) {
                let write = |(name, until): &(Name, Option<Timestamp>)| {
                    let value = until.map(|until| until.as_millis().to_be_bytes().to_vec());
                    let (store, name) = (self.0.store.clone(), HEXLOWER.encode(name));
                    async move { store.shelve(Shelf::Rate, &name, value).await }
                };
                let written = join_all(some.iter().map(write)).await;
                let mut failed = None;
                for ((name, _), written) in some.iter().zip(written) {
                    if let Err(error) = written {
                        if !self.0.ending.is_cancelled() && !self.0.jobs.is_stopping() {
                            self.state().again(*name);
                        }
                        failed = Some(error);
                    }
                }
                if let Some(error) = failed {
                    tracing::warn!(%error, "what was started could not be written yet; a restart would forget it");
                }
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = self.0.ending.cancelled() => {}
                () = self.0.jobs.stopping() => {}
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held, so a poisoned state is still in order.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, name: Name, until: Timestamp) {
        if self.kept.len() >= MOST && !self.kept.contains_key(&name) {
            return;
        }
        if self.kept.insert(name, until) != Some(until) && !self.changed.contains(&name) {
            self.changed.push(name);
        }
    }

    /// What could not be written is written with what changes next. What was to be taken away is not: it counts for nothing.
    fn again(&mut self, name: Name) {
        if self.kept.contains_key(&name) && !self.changed.contains(&name) {
            self.changed.push(name);
        }
    }

    /// What is to be written, and taken away; `None` if nothing is.
    fn writes(&mut self, now: Timestamp) -> Option<Vec<(Name, Option<Timestamp>)>> {
        if self.changed.is_empty() {
            self.is_due = false;
            return None;
        }
        let mut writes = Vec::new();
        if self.kept.len() >= MANY {
            let over = self.kept.extract_if(|_, until| *until <= now);
            writes.extend(over.map(|(name, _)| (name, None)));
            self.left.retain(|name, _| self.kept.contains_key(name));
        }
        for name in self.changed.drain(..) {
            if let Some(until) = self.kept.get(&name) {
                writes.push((name, Some(*until)));
            }
        }
        Some(writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_no_more_is_taken_away_and_never_too_much_is_kept() {
        let (mut state, at) = (State::default(), Timestamp::from_millis);
        let name = |number: u64| {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&number.to_be_bytes());
            name
        };
        assert!(state.writes(at(0)).is_none());
        for number in 0..MOST as u64 + 10 {
            state.put(name(number), at(if number == 7 { 100 } else { 10 }));
        }
        assert_eq!(state.writes(at(5)).unwrap().len(), MOST);
        state.put(name(1 << 40), at(100));
        assert!(state.writes(at(5)).is_none(), "no room");
        state.put(name(7), at(101));
        let writes = state.writes(at(50)).unwrap();
        assert_eq!((writes.len(), writes.last().copied()), (MOST, Some((name(7), Some(at(101))))));
        assert!(writes.iter().filter(|(_, until)| until.is_none()).count() == MOST - 1 && state.kept.len() == 1);
        // What could not be written is written again, if it still counts.
        state.again(name(7));
        state.again(name(1));
        assert_eq!(state.writes(at(50)).unwrap(), [(name(7), Some(at(101)))]);
        // Of two changes the last counts.
        for until in [102, 103] {
            state.put(name(7), at(until));
        }
        assert_eq!(state.writes(at(50)).unwrap(), [(name(7), Some(at(103)))]);
    }
}
