//! A writer that may be killed at any moment, and the check of what it left. Shared with `examples/store_crash.rs`.
//!
//! The writer prints a line before each operation (lower case) and one after it was acknowledged (upper case):
//! `@ c ID`, `@ C ID` for a creation, `s` and `S` for an end, `u` and `U` for the end of a task that an earlier
//! writer left open. A task whose id ends in one of some characters expires at once, so that purges go on too.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use raincheck::clock::{Clock, SystemClock};
use raincheck::config::{Durability, StoreConfig};
use raincheck::jobs::Jobs;
use raincheck::protocol::{Failure, Json, Principal, Reason, Retry};
use raincheck::store::{CommitError, Ending, OpenError, Opened, Store};
use raincheck::task::{Expiry, State, Task, TaskId};

/// What is known of a task from the writer's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its creation was begun.
    CreateBegun,
    /// It was created.
    Created,
    /// Its end was begun.
    EndBegun,
    /// It has ended.
    Ended,
    /// Its end as lost was begun.
    LossBegun,
    /// It has ended as lost.
    Lost,
}

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) checked: usize,
    pub(crate) open: usize,
    pub(crate) problems: Vec<String>,
}

const CALLERS: usize = 32;

pub(crate) fn open(path: &Path) -> Result<Opened, OpenError> {
    let config = StoreConfig {
        path: path.to_owned(),
        durability: Durability::Power,
        cache_bytes: 8 << 20,
        min_free_bytes: Some(0),
        max_tasks: 10_000_000,
    };
    Store::open(&config, Arc::new(SystemClock), &Jobs::new())
}

/// Creates and ends tasks until `most` were created, or until it is killed.
pub(crate) async fn write(path: &Path, most: u64) -> Result<(), OpenError> {
    say("OPENING");
    let Opened { store, left_open } = open(path)?;
    say("READY");
    let mut callers = tokio::task::JoinSet::new();
    let lost = store.clone();
    callers.spawn(async move {
        for task in left_open {
            say(&format!("u {}", task.id));
            match lost.settle(&task.id, loss()).await {
                Ok(_) => say(&format!("U {}", task.id)),
                Err(error) => say(&format!("! {error}")),
            }
        }
    });
    let made = Arc::new(AtomicU64::new(0));
    for caller in 0..CALLERS {
        let (store, made) = (store.clone(), Arc::clone(&made));
        callers.spawn(async move {
            let mut turn = caller;
            while made.fetch_add(1, Ordering::Relaxed) < most {
                turn += 1;
                if let Err(error) = one_task(&store, turn).await {
                    say(&format!("! {error}"));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }
    callers.join_all().await;
    store.close().await;
    say("DONE");
    Ok(())
}

async fn one_task(store: &Store, turn: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let now = SystemClock.now();
    let id = TaskId::generate(now);
    let keep = if expires_at_once(&id) { Duration::from_millis(1) } else { Duration::from_hours(24) };
    let expiry = Expiry::Limited { ttl: keep, keep };
    let owner = store.owner(&Principal::Local);
    let task = Task::queued(id, owner, "reports".to_owned(), format!("tool {turn}"), now, expiry);
    say(&format!("c {id}"));
    match store.create(task).await {
        Ok(_) => say(&format!("C {id}")),
        Err(CommitError::Busy) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    if turn.is_multiple_of(5) {
        // Left as it is, for the next writer.
        return Ok(());
    }
    store.start(&id).await?;
    say(&format!("s {id}"));
    store.settle(&id, ending(&id)).await?;
    say(&format!("S {id}"));
    Ok(())
}

fn expires_at_once(id: &TaskId) -> bool {
    matches!(last_of(id), b'0'..=b'4')
}

fn last_of(id: &TaskId) -> u8 {
    *id.as_bytes().last().unwrap_or(&b'0')
}

/// The end of a task depends on its id only, so that the check knows it.
fn ending(id: &TaskId) -> Ending {
    let text = |repeat: usize| {
        let text = format!("{{\"of\":\"{id}\",\"rows\":\"{}\"}}", id.as_str().repeat(repeat));
        Json::parse(Bytes::from(text)).unwrap()
    };
    match last_of(id) {
        b'0'..=b'9' => Ending::Completed(text(1)),
        b'a'..=b'f' => Ending::Completed(text(70)),
        b'g'..=b'h' => Ending::Completed(text(1000)),
        b'i'..=b'n' => Ending::Cancelled,
        _ => Ending::Failed(Failure::new(Reason::Timeout, id.as_str(), Retry::No)),
    }
}

fn loss() -> Ending {
    Ending::Failed(Failure::outcome_unknown("the writer was killed"))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader may have gone; then so will this process.
    let _ = writeln!(out, "@ {line}").and_then(|()| out.flush());
}

/// Takes a line of the writer into account.
pub(crate) fn learn(known: &mut BTreeMap<TaskId, Known>, line: &str) {
    let Some((kind, id)) = line.strip_prefix("@ ").and_then(|line| line.trim_end().split_once(' ')) else { return };
    let Ok(id) = id.parse() else { return };
    let now = match kind {
        "c" => Known::CreateBegun,
        "C" => Known::Created,
        "s" => Known::EndBegun,
        "S" => Known::Ended,
        "u" => Known::LossBegun,
        "U" => Known::Lost,
        _ => return,
    };
    known.insert(id, now);
}

/// Opens the store and compares it with what is known.
pub(crate) async fn check(path: &Path, known: &BTreeMap<TaskId, Known>) -> Result<Found, OpenError> {
    let Opened { store, left_open } = open(path)?;
    let mut found = Found { open: left_open.len(), ..Found::default() };
    let open: HashSet<TaskId> = left_open.iter().map(|task| task.id).collect();
    let owner = store.owner(&Principal::Local);
    for (id, known) in known {
        if expires_at_once(id) {
            continue;
        }
        found.checked += 1;
        let task = match store.get(&owner, id).await {
            Ok(task) => task,
            Err(error) => {
                found.problems.push(format!("{id} {known:?}: {error}"));
                continue;
            }
        };
        let is_open = open.contains(id);
        let state = task.as_ref().map(|task| &task.state);
        if is_open != state.is_some_and(|state| !state.is_terminal()) {
            found.problems.push(format!("{id} {known:?}: open {is_open}, but it reads {state:?}"));
        }
        let good = match (known, state) {
            (Known::CreateBegun, None | Some(State::Queued))
            | (Known::Created | Known::LossBegun, Some(State::Queued | State::Running { .. }))
            | (Known::EndBegun, Some(State::Running { .. })) => true,
            (Known::CreateBegun | Known::Created, Some(_)) | (_, None) => false,
            (Known::EndBegun | Known::Ended, Some(state)) => is_end(state, &ending(id)),
            // A writer that was killed may have ended it before its end was lost on the way to us.
            (Known::LossBegun | Known::Lost, Some(state)) => is_end(state, &loss()),
        };
        if !good {
            found.problems.push(format!("{id} {known:?}: it reads {state:?}"));
        } else if let (Some(task), Ending::Completed(expected)) = (&task, ending(id))
            && matches!(task.state, State::Completed { .. })
        {
            match store.outcome(task).await {
                Ok(outcome) if outcome == expected => {}
                other => found.problems.push(format!("{id}: its outcome reads {other:?}")),
            }
        }
    }
    if std::fs::read_dir(path.join("blobs")).is_ok_and(|mut blobs| blobs.next().is_some()) {
        found.problems.push("sled wrote a blob".to_owned());
    }
    store.close().await;
    Ok(found)
}

fn is_end(state: &State, ending: &Ending) -> bool {
    use raincheck::task::Cause;
    match (state, ending) {
        (State::Completed { .. }, Ending::Completed(_)) | (State::Cancelled { .. }, Ending::Cancelled) => true,
        (State::Failed { cause: Cause::Ours(kept) }, Ending::Failed(failure)) => kept == failure,
        _ => false,
    }
}
