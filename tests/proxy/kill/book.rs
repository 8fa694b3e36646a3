//! What is known of every call and every task over all rounds, and the ledger that is made of it at the end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::seq::IteratorRandom;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::scripted::worked;

/// What is known over all rounds.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) tasks: Mutex<BTreeMap<String, Task>>,
    calls: Mutex<HashMap<u64, (Kind, Told)>>,
    next: AtomicU64,
}

/// What was seen of a task, by anybody.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) n: u64,
    pub(crate) bytes: usize,
    pub(crate) kind: Kind,
    pub(crate) seen: Seen,
    pub(crate) is_cancelled: bool,
    pub(crate) round: usize,
    pub(crate) made: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It runs at once.
    Runs,
    /// It runs and never ends, so that others wait.
    Blocks,
    /// It waits behind such a run.
    Waits,
    /// It runs, and is forgotten soon.
    Fades,
    /// It runs, and once more if that run is lost.
    RunsAgain,
}

#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Open,
    /// Everything that must not change any more.
    Ended(String),
    /// It was forgotten.
    Gone,
}

/// What the caller was told.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// Nothing: the proxy was killed before.
    Nothing,
    /// That the proxy stops and takes no call.
    Refused,
    /// The result.
    Result,
    /// The handle.
    Handle(String),
}

/// How many calls were made and what became of them. Every call stands in one line of each of the two parts.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) calls: usize,
    /// The caller was told the result; nothing, since the proxy was killed; that it stops; a handle.
    pub(crate) results: usize,
    pub(crate) cut_off: usize,
    pub(crate) refused: usize,
    pub(crate) handles: usize,
    /// Calls that ran once, and those that never did; runs that are the second of their call.
    pub(crate) ran: usize,
    pub(crate) never_sent: usize,
    pub(crate) again: usize,
    /// Of the handles: found at the end, or forgotten when their time was over.
    pub(crate) found: usize,
    pub(crate) purged: usize,
    /// Of those that were found.
    pub(crate) completed: usize,
    pub(crate) cancelled: usize,
    pub(crate) timed_out: usize,
    pub(crate) unknown: usize,
    /// Of the completed: sent by another process than the one that took the call.
    pub(crate) sent_later: usize,
    /// Of the unknown: the server has seen the call.
    pub(crate) unknown_and_ran: usize,
    /// Never sent, as they say: their server was being started.
    pub(crate) unsent: usize,
}

/// The hard limit of the tool that is forgotten soon; its outcome is kept no longer.
const FADES_AFTER: Duration = Duration::from_millis(200);

impl Kind {
    /// How often a call may run at most.
    const fn most_runs(self) -> usize {
        match self {
            Self::RunsAgain => 2,
            Self::Runs | Self::Blocks | Self::Waits | Self::Fades => 1,
        }
    }
}

impl Book {
    /// The number of a new call.
    pub(crate) fn call(&self, kind: Kind) -> u64 {
        let n = self.next.fetch_add(1, Ordering::SeqCst);
        self.calls.lock().unwrap().insert(n, (kind, Told::Nothing));
        n
    }

    pub(crate) fn told(&self, n: u64, told: Told) {
        self.calls.lock().unwrap().get_mut(&n).unwrap().1 = told;
    }

    /// Any task of the round.
    pub(crate) fn pick(&self, round: usize) -> Option<(String, Task)> {
        let tasks = self.tasks.lock().unwrap();
        let of_round = tasks.iter().filter(|(_, task)| task.round == round);
        of_round.choose(&mut rand::rng()).map(|(id, task)| (id.clone(), task.clone()))
    }

    /// Compares what is seen of a task with what was seen before, and remembers it.
    pub(crate) fn saw(&self, id: &str, answer: &Answer) {
        let mut tasks = self.tasks.lock().unwrap();
        let task = tasks.get_mut(id).unwrap();
        if task.may_be_gone(answer) {
            task.seen = Seen::Gone;
            return;
        }
        let status = answer.result()["status"].as_str().unwrap().to_owned();
        let lasting = lasting(answer);
        match &task.seen {
            // The two polls may have come in another order than they were answered.
            Seen::Ended(_) if status == "working" => {}
            Seen::Ended(before) => assert_eq!(before, &lasting, "an end that changed: {task:?}"),
            Seen::Open if status != "working" => task.seen = Seen::Ended(lasting),
            // The two polls may have come in another order here too; at the end it must stay gone.
            Seen::Open | Seen::Gone => {}
        }
    }

    /// Compares what ran with what was sent and what became of it.
    pub(crate) fn weigh(&self, ran: &[String]) -> Ledger {
        let mut runs: HashMap<u64, usize> = HashMap::new();
        for line in ran {
            *runs.entry(line.split(' ').nth(1).unwrap().parse().unwrap()).or_default() += 1;
        }
        let (calls, tasks) = (self.calls.lock().unwrap(), self.tasks.lock().unwrap());
        assert!(runs.keys().all(|n| calls.contains_key(n)), "a call ran that was never sent");
        let mut ledger = Ledger { calls: calls.len(), ..Ledger::default() };
        for (n, (kind, told)) in calls.iter() {
            let count = runs.get(n).copied().unwrap_or_default();
            assert!(count <= kind.most_runs(), "call {n}, {kind:?}, {told:?}, ran {count} times");
            ledger.ran += count.min(1);
            ledger.never_sent += usize::from(count == 0);
            ledger.again += count.saturating_sub(1);
            match told {
                Told::Nothing => ledger.cut_off += 1,
                Told::Refused => {
                    assert_eq!(count, 0, "call {n} ran though it was refused");
                    ledger.refused += 1;
                }
                Told::Result => {
                    assert!(count > 0, "call {n} was answered without a run");
                    ledger.results += 1;
                }
                Told::Handle(id) => {
                    ledger.handles += 1;
                    ledger.of_task(&tasks[id], count);
                }
            }
        }
        assert_eq!(ledger.ran + ledger.again, ran.len(), "{ledger:?}");
        assert_eq!(ledger.ran + ledger.never_sent, ledger.calls, "{ledger:?}");
        assert_eq!(ledger.handles, ledger.found + ledger.purged, "{ledger:?}");
        ledger
    }
}

impl Ledger {
    fn of_task(&mut self, task: &Task, count: usize) {
        let text = match &task.seen {
            Seen::Open => panic!("it was not looked at: {task:?}"),
            Seen::Gone => return self.purged += 1,
            Seen::Ended(text) => text,
        };
        self.found += 1;
        let shown: Value = serde_json::from_str(text).unwrap();
        match (shown["status"].as_str().unwrap(), shown["error"]["data"]["reason"].as_str()) {
            ("completed", _) => {
                assert!(count > 0, "completed without a run: {task:?}");
                self.completed += 1;
                self.sent_later += usize::from(task.kind == Kind::Waits);
            }
            ("failed", Some("timeout")) => self.timed_out += 1,
            ("failed", Some("not_started" | "stopping")) => {
                assert!(count == 0, "it ran, and is said not to have been sent: {task:?}");
                self.unsent += 1;
            }
            ("failed", _) => {
                self.unknown += 1;
                self.unknown_and_ran += usize::from(count > 0);
            }
            _ => {
                assert!(
                    task.kind != Kind::Waits || count == 0,
                    "it ran, though it was cancelled in the queue: {task:?}"
                );
                self.cancelled += 1;
            }
        }
    }
}

impl Task {
    /// Whether the answer says that there is no such task, and that may be so.
    pub(crate) fn may_be_gone(&self, answer: &Answer) -> bool {
        let is_gone = answer.value()["error"]["code"] == -32602;
        assert!(!is_gone || self.kind == Kind::Fades && self.made.elapsed() > FADES_AFTER, "lost: {self:?}");
        is_gone
    }

    /// Looks whether it may have ended in this way.
    pub(crate) fn ended_rightly(&self, answer: &Answer, shown: &Value) {
        match shown["status"].as_str().unwrap() {
            "completed" => {
                assert_ne!(self.kind, Kind::Blocks, "{shown}");
                assert!(answer.outcome().ends_with(&worked(self.n, self.bytes)[1..]), "changed: {self:?}");
            }
            "cancelled" => assert!(self.is_cancelled, "{self:?}: {shown}"),
            "failed" => {
                let error = &shown["error"];
                match (self.kind, error["data"]["reason"].as_str().unwrap()) {
                    (Kind::Fades, "timeout") => {}
                    // A process may be killed right after it has sent what waited.
                    (_, "outcome_unknown") => {
                        assert_eq!(error["data"], json!({ "reason": "outcome_unknown" }));
                        assert_eq!(shown["_meta"], json!({ "dev.raincheck/reason": "outcome_unknown" }));
                    }
                    // Its server was being started when the proxy was stopped or killed.
                    (_, "not_started" | "stopping") => assert_eq!(error["data"]["retryable"], true, "{shown}"),
                    _ => panic!("{self:?}: {shown}"),
                }
            }
            other => panic!("{other}: {shown}"),
        }
    }
}

/// What must stay as it is once a task has ended.
fn lasting(answer: &Answer) -> String {
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(answer.raw_result()).unwrap();
    members.remove("pollIntervalMs");
    serde_json::to_string(&members).unwrap()
}
