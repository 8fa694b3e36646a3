//! The ledger: every call has one line, and what was executed must be what was called.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Plain,
    Slow,
    Task,
    Queued,
    Again,
    Keyed,
    Asks,
    Cancelled,
    Left,
    Broken,
    Held,
    Legacy,
    Deaf,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nobody knows yet.
    Open,
    /// The caller has its result.
    Result,
    /// The caller was given an error with this reason.
    Error(String),
    /// The connection broke before an answer.
    CutOff,
    /// The caller left, or did not read.
    Left,
    /// It has a handle, and this became of the task.
    Task(End),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Completed,
    Cancelled,
    Failed(String),
}

#[derive(Debug)]
struct Line {
    kind: Kind,
    began: Instant,
    fate: Fate,
}

/// All calls, and what does not hold.
#[derive(Debug, Default)]
pub(crate) struct Book {
    lines: Mutex<HashMap<u64, Line>>,
    wrong: Mutex<Vec<String>>,
    /// Errors that faults explain, and other things worth a number.
    seen: Mutex<BTreeMap<String, u64>>,
}

/// Things that do not hold which are kept.
const MOST_WRONG: usize = 50;

impl Kind {
    const fn most_runs(self) -> usize {
        if matches!(self, Self::Again) { 2 } else { 1 }
    }
}

impl Book {
    /// The number of a new call.
    pub(crate) fn call(&self, kind: Kind) -> u64 {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let n = lines.len() as u64;
        lines.insert(n, Line { kind, began: Instant::now(), fate: Fate::Open });
        n
    }

    pub(crate) fn became(&self, n: u64, fate: Fate) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&n).unwrap().fate = fate;
    }

    pub(crate) fn began(&self, n: u64) -> Instant {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)[&n].began
    }

    /// Something that must not be.
    pub(crate) fn wrong(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.len() < MOST_WRONG {
            println!("DOES NOT HOLD: {what}");
            wrong.push(what);
        }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Counts something.
    pub(crate) fn saw(&self, what: &str) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn seen(&self) -> BTreeMap<String, u64> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn calls(&self) -> usize {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Compares what ran with what was called.
    pub(crate) fn weigh(&self, ran: &str) {
        let mut runs: HashMap<u64, usize> = HashMap::new();
        for line in ran.lines() {
            *runs.entry(line.parse().unwrap()).or_default() += 1;
        }
        let executions: usize = runs.values().sum();
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums: BTreeMap<(Kind, String), [usize; 3]> = BTreeMap::new();
        for (n, line) in lines.iter() {
            let count = runs.remove(n).unwrap_or_default();
            let fate = &line.fate;
            let sums = sums.entry((line.kind, format!("{fate:?}"))).or_default();
            sums[count.min(2)] += 1;
            let right = match fate {
                Fate::Open | Fate::Task(End::Open) => false,
                Fate::Result | Fate::Task(End::Completed) => (1..=line.kind.most_runs()).contains(&count),
                Fate::Error(reason) | Fate::Task(End::Failed(reason)) => match reason.as_str() {
                    "not_started" | "store" | "stopping" | "session" => count == 0,
                    "server" => count == 1,
                    _ => count <= line.kind.most_runs(),
                },
                Fate::CutOff | Fate::Left | Fate::Task(End::Cancelled) => count <= line.kind.most_runs(),
            };
            if !right {
                self.wrong(format!("call {n} ({:?}), {fate:?}, ran {count} times", line.kind));
            }
        }
        if !runs.is_empty() {
            self.wrong(format!("{} calls ran that nobody made", runs.len()));
        }
        println!("{:10} {:40} {:>8} {:>8} {:>8}", "calls", "what became of them", "ran 0", "once", "twice");
        let mut all = [0; 3];
        for ((kind, fate), counts) in &sums {
            let name = format!("{kind:?}");
            println!("{name:10} {fate:40} {:8} {:8} {:8}", counts[0], counts[1], counts[2]);
            all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        }
        let calls = lines.len();
        println!(
            "{calls} calls, {executions} executions = {} once + 2 x {} twice; {} never ran",
            all[1], all[2], all[0]
        );
        if executions != all[1] + 2 * all[2] || calls != all.iter().sum::<usize>() {
            self.wrong("the sums".to_owned());
        }
    }
}
