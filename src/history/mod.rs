//! How long tools take, learned from their own runs, and how runs ended. No I/O: whoever keeps it durable asks for what
//! is not saved.

mod meters;
mod record;
mod sketch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Timestamp, millis};
use crate::shared_map::SharedMap;

pub use meters::{BOUNDS, End, Meter, Meters};
pub use sketch::Sketch;

/// What is known of every tool. Clones share it.
#[derive(Clone, Default)]
pub struct History(Arc<Inner>);

#[derive(Default)]
struct Inner {
    tools: SharedMap<String, Entry>,
    meters: Meters,
    /// Tools that were taken out and may still be kept.
    forgotten: SharedMap<String, ()>,
    /// Whether something has changed since it was last asked for.
    changed: AtomicBool,
}

/// A tool.
#[derive(Debug)]
struct Entry {
    kept: Kept,
    /// Whether it is kept as it is.
    saved: bool,
}

/// What is kept of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    sketch: Sketch,
    /// Runs that took too long and were stopped.
    timeouts: u32,
    /// When it was last run.
    used: Timestamp,
}

/// How long a run is likely to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Half of the runs took no longer.
    pub p50: Duration,
    /// 95 of 100 took no longer.
    pub p95: Duration,
    /// How many runs this was learned from.
    pub samples: u32,
}

/// What is known of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolHistory {
    /// The name of the server in the config.
    pub server: String,
    /// The name of the tool.
    pub tool: String,
    /// How long its runs took.
    pub sketch: Sketch,
    /// Runs that took too long and were stopped.
    pub timeouts: u32,
    /// When it was last run.
    pub used: Timestamp,
}

/// What is known of one tool, in numbers. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The name of the server in the config.
    pub server: String,
    /// The name of the tool.
    pub tool: String,
    /// How many runs this was learned from.
    pub samples: u32,
    /// Half of them took no longer.
    pub p50_ms: u64,
    /// 95 of 100 took no longer.
    pub p95_ms: u64,
    /// 99 of 100 took no longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
    /// Runs that took too long and were stopped; they are not among the others.
    pub timeouts: u32,
}

/// What is to be kept of one tool: its name, and the bytes, or that there are none any more.
pub type Unsaved = (String, Option<Vec<u8>>);

/// Tools that are remembered; the one that was not run for the longest time goes.
const MOST: usize = 4096;

/// Bytes of a name that is remembered.
const LONGEST_NAME: usize = 256;

/// Between the names of server and tool.
const SEPARATOR: char = '\0';

/// Stands for the tools that have no place of their own.
const OTHER: &str = "(other)\0";

impl History {
    /// What was kept. What cannot be read begins anew.
    pub fn load(kept: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let history = Self::default();
        for (name, record) in kept {
            if let Some(kept) = record::decode(&record) {
                history.make_room();
                let (server, tool) = parts(&name);
                history.0.meters.know(server, [tool]);
                history.0.tools.insert(name, Entry { kept, saved: true });
            }
        }
        history
    }

    /// Counts a run that ended so after it had run for `time`, without what it waited for input. A tool has a history
    /// from its first result on, so that made-up names leave nothing.
    pub fn ended(&self, server: &str, tool: &str, how: End, time: Duration, now: Timestamp) {
        let name = name(server, tool);
        self.0.meters.count(&name, how, time);
        let count = |entry: &mut Entry| {
            match how {
                End::Completed => entry.kept.sketch.count(time, now),
                End::Timeout => entry.kept.timeouts = entry.kept.timeouts.saturating_add(1),
                // How long a refused call took says nothing about the others.
                End::ToolError | End::ServerError | End::Cancelled | End::Failed => return,
            }
            entry.kept.used = now;
            entry.saved = false;
            self.0.changed.store(true, Ordering::Release);
        };
        if self.0.tools.update(name.as_str(), count).is_some() || how != End::Completed || name.len() > LONGEST_NAME {
            return;
        }
        self.make_room();
        let new = || Entry { kept: Kept { sketch: Sketch::new(now), timeouts: 0, used: now }, saved: false };
        self.0.tools.update_or_insert(name, new, count);
    }

    /// Takes out the tool that was not run for the longest time, if there are too many.
    fn make_room(&self) {
        if self.0.tools.len() < MOST {
            return;
        }
        let mut oldest: Option<(Timestamp, String)> = None;
        self.0.tools.for_each(|name, entry| {
            if oldest.as_ref().is_none_or(|(used, _)| entry.kept.used < *used) {
                oldest = Some((entry.kept.used, name.clone()));
            }
        });
        if let Some((_, name)) = oldest {
            self.0.tools.remove(name.as_str());
            // More are told when they are loaded again.
            if self.0.forgotten.len() < MOST {
                self.0.forgotten.insert(name, ());
                self.0.changed.store(true, Ordering::Release);
            }
        }
    }

    /// How long the next run of a tool is likely to take, if that is known.
    pub fn expected(&self, server: &str, tool: &str) -> Option<Expected> {
        self.0.tools.with(name(server, tool).as_str(), |entry| entry.kept.sketch.expected()).flatten()
    }

    /// What is known of every tool, in the order of their names.
    pub fn all(&self) -> Vec<ToolHistory> {
        let mut all = Vec::new();
        self.0.tools.for_each(|name, Entry { kept, .. }| {
            let (server, tool) = parts(name);
            let (server, tool, sketch) = (server.to_owned(), tool.to_owned(), kept.sketch.clone());
            all.push(ToolHistory { server, tool, sketch, timeouts: kept.timeouts, used: kept.used });
        });
        all.sort_by(|one, other| (&one.server, &one.tool).cmp(&(&other.server, &other.tool)));
        all
    }

    /// The same in numbers.
    pub fn measured(&self) -> Vec<Measured> {
        self.all().into_iter().map(ToolHistory::measured).collect()
    }

    /// How runs ended since the start of the process.
    pub fn meters(&self) -> &Meters {
        &self.0.meters
    }

    /// Whether something is not saved.
    pub fn is_unsaved(&self) -> bool {
        self.0.changed.load(Ordering::Acquire)
    }

    /// What is not saved, which counts as saved from now on.
    pub fn take_unsaved(&self) -> Vec<Unsaved> {
        self.0.changed.store(false, Ordering::Release);
        let mut names = Vec::new();
        self.0.forgotten.for_each(|name, ()| names.push(name.clone()));
        for name in &names {
            self.0.forgotten.remove(name.as_str());
        }
        self.0.tools.for_each(|name, entry| {
            if !entry.saved {
                names.push(name.clone());
            }
        });
        let take = |name: String| {
            let record = self.0.tools.update(name.as_str(), |entry| {
                entry.saved = true;
                record::encode(&entry.kept)
            });
            (name, record)
        };
        names.into_iter().map(take).collect()
    }

    /// It could not be saved after all.
    pub fn not_saved(&self, name: &str) {
        if self.0.tools.update(name, |entry| entry.saved = false).is_none() {
            self.0.forgotten.insert(name.to_owned(), ());
        }
        self.0.changed.store(true, Ordering::Release);
    }
}

impl ToolHistory {
    fn measured(self) -> Measured {
        let Self { server, tool, sketch, timeouts, .. } = self;
        let [p50_ms, p95_ms, p99_ms] = [50, 95, 99].map(|percent| millis(sketch.quantile(percent)));
        let (samples, max_ms) = (sketch.samples(), millis(sketch.longest()));
        Measured { server, tool, samples, p50_ms, p95_ms, p99_ms, max_ms, timeouts }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("tools", &self.0.tools.len()).finish_non_exhaustive()
    }
}

fn name(server: &str, tool: &str) -> String {
    [server, tool].join("\0")
}

fn parts(name: &str) -> (&str, &str) {
    name.split_once(SEPARATOR).unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn known(history: &History) -> Vec<(String, u32)> {
        history.all().into_iter().map(|tool| (tool.tool, tool.sketch.samples())).collect()
    }

    /// What was taken to be kept, put together with what was kept before.
    fn saved(history: &History, kept: &mut std::collections::BTreeMap<String, Vec<u8>>) -> usize {
        let unsaved = history.take_unsaved();
        let changes = unsaved.len();
        for (name, record) in unsaved {
            match record {
                Some(record) => drop(kept.insert(name, record)),
                None => drop(kept.remove(&name)),
            }
        }
        changes
    }

    #[test]
    fn only_results_make_a_history_and_tell_how_long_a_tool_takes() {
        let history = History::default();
        history.meters().know("s", ["t"]);
        for end in [End::ToolError, End::ServerError, End::Cancelled, End::Timeout, End::Failed] {
            history.ended("s", "t", end, seconds(1), START);
            assert_eq!((known(&history), history.is_unsaved()), (vec![], false), "{end:?}");
        }
        for _ in 0..5 {
            history.ended("s", "t", End::Completed, Duration::from_millis(4), START);
        }
        for end in [End::ToolError, End::ServerError, End::Cancelled, End::Timeout, End::Failed] {
            history.ended("s", "t", end, seconds(1), START);
        }
        let expected = history.expected("s", "t").unwrap();
        assert_eq!(
            (expected.p50, expected.p95, expected.samples),
            (Duration::from_millis(4), Duration::from_millis(4), 5)
        );
        assert_eq!(history.all()[0].timeouts, 1);
        assert_eq!((history.expected("s", "other"), history.expected("other", "t")), (None, None));
        assert_eq!(history.meters().all()[0].2.ends, [5, 2, 2, 2, 2, 2]);
        history.ended("s", &"n".repeat(300), End::Completed, seconds(1), START);
        assert_eq!(known(&history).len(), 1);
    }

    #[test]
    fn what_was_saved_is_known_again_and_only_changes_are_saved() {
        let (history, mut kept) = (History::default(), std::collections::BTreeMap::new());
        history.ended("s", "a", End::Completed, seconds(1), START);
        history.ended("s", "b", End::Completed, seconds(2), START);
        assert_eq!((saved(&history, &mut kept), history.is_unsaved()), (2, false));
        history.ended("s", "b", End::Completed, seconds(3), START);
        assert_eq!((saved(&history, &mut kept), saved(&history, &mut kept)), (1, 0));
        history.not_saved("s\0a");
        assert!(history.is_unsaved());
        assert_eq!(saved(&history, &mut kept), 1);
        kept.insert("s\0c".to_owned(), b"something else".to_vec());
        assert_eq!(History::load(kept).all(), history.all());
    }

    #[test]
    fn the_tool_that_was_not_run_for_the_longest_time_goes() {
        let (history, mut kept) = (History::default(), std::collections::BTreeMap::new());
        let run = |tool: usize, at: u64| {
            history.ended("s", &tool.to_string(), End::Completed, seconds(1), Timestamp::from_millis(at));
        };
        (0..MOST).for_each(|tool| run(tool, tool as u64));
        run(0, MOST as u64);
        saved(&history, &mut kept);
        run(MOST, MOST as u64 + 1);
        run(MOST + 1, MOST as u64 + 2);
        saved(&history, &mut kept);
        assert_eq!((kept.len(), known(&history).len()), (MOST, MOST));
        let gone = |tool: usize| !kept.contains_key(&name("s", &tool.to_string()));
        assert_eq!([0, 1, 2, 3].map(gone), [false, true, true, false]);
        // A store that has more than that, from whenever, is made smaller.
        let more = kept.get(&name("s", "5")).unwrap().clone();
        kept.extend((0..10).map(|tool| (name("t", &tool.to_string()), more.clone())));
        let loaded = History::load(kept.clone());
        assert_eq!(known(&loaded).len(), MOST);
        saved(&loaded, &mut kept);
        assert_eq!(kept.len(), MOST);
    }
}
