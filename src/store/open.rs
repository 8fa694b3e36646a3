//! Opening a store: what is in the directory, whether all of it is there, whether writes are durable.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::Committed;
use super::batch::{COUNTS, Counts};
use super::cache::OutcomeCache;
use super::committer::Committer;
use super::directory::{Directory, LAYOUT, Marker, MarkerState};
use super::durability::durable_flushes;
use super::engine::{Engine, Writes};
use super::files::OutcomeFiles;
use super::large::LargeOutcomes;
use super::luggage::{Beside, count_luggage};
use super::op::Op;
use super::open_error::{Damage, OpenCause};
use super::original::Original;
use super::quiet::drop_quietly;
use super::quota::Tally;
use super::shared::{CommittedCounts, Hot, Shared, Slot};
use super::space::Space;
use crate::clock::SharedClock;
use crate::config::{Durability, StoreConfig};
use crate::protocol::Principal;
use crate::shared_map::SharedMap;
use crate::task::{OwnerKey, Task, TaskId};

/// What opening makes.
pub(super) struct Parts {
    pub(super) shared: Arc<Shared>,
    pub(super) committer: Committer,
    pub(super) ops: mpsc::Sender<Op>,
    pub(super) left_open: Vec<Committed<Task>>,
}

/// What `meta` says.
struct Description {
    layout: u32,
    epoch: u64,
    counts: Counts,
    key: OwnerKey,
}

/// What a start needs of a database.
struct Looked {
    engine: Engine,
    found: Description,
    active: Vec<Task>,
    beside: SharedMap<TaskId, Beside>,
}

const MAGIC: [u8; 16] = *b"raincheck tasks\n";

/// Operations that may wait for the committer.
const WAITING: usize = 1024;

/// The most of the cache that is sled's: enough for the pages that are written to. What was read is kept apart, since a
/// page of sled's takes half as much memory again, and a read that has to build one several times as long.
const SLED: u64 = 6 << 20;

/// The first layout with lists of what each owner has.
const WITH_OWNERS: u32 = 3;
/// Tasks that are put into these lists with one commit.
const LISTED_AT_ONCE: usize = 4096;

/// Kibibytes of large outcomes that are being sent at the same time.
const LARGE_AT_ONCE: usize = 256 << 10;
/// The same of those in files that are smaller.
const MIDDLING_AT_ONCE: usize = 128 << 10;
/// How long a read waits for that.
const LARGE_PATIENCE: Duration = Duration::from_secs(30);

/// Opens or creates the store. Blocks. A store that is refused is what it was.
pub(super) fn open(config: &StoreConfig, clock: SharedClock) -> Result<Parts, OpenCause> {
    // sled panics where it is opened before 1970, which would pass for damage.
    if !clock.now().is_plausible() {
        return Err(OpenCause::Clock);
    }
    let (directory, marker) = Directory::take(&config.path)?;
    let original = match marker.state {
        MarkerState::Creating => None,
        MarkerState::Open | MarkerState::Closed => Some(Original::keep(directory.path())?),
    };
    directory.remove_torn()?;
    let sled_bytes = SLED.min(config.cache_bytes / 4);
    let outcome_bytes = usize::try_from(config.cache_bytes - sled_bytes).unwrap_or(usize::MAX);
    let looked = look(directory.path(), sled_bytes, marker, config.durability);
    let Looked { engine, mut found, active, beside } = match looked {
        Ok(looked) => looked,
        Err(cause) => {
            if let Some(original) = original {
                put_back(original, &cause);
            }
            return Err(cause);
        }
    };
    // From here on the length in the marker of a closed store is not that of the database any more.
    let commits = found.counts.commits;
    directory.write_marker(Marker { state: MarkerState::Open, commits, bytes: 0 })?;
    if let Some(original) = original {
        original.forget()?;
    }
    if found.layout < WITH_OWNERS {
        list_owners(&engine)?;
    }
    check_durability(&engine, &mut found, config.durability)?;
    directory.settle_files()?;
    let commits = found.counts.commits;
    directory.write_marker(Marker { state: MarkerState::Open, commits, bytes: 0 })?;

    let hot = SharedMap::default();
    let mut left_open = Vec::new();
    for task in active {
        let task = Committed::new(Arc::new(task));
        hot.insert(task.id, Hot::Committed(task.clone()));
        left_open.push(task);
    }
    let shared = Arc::new(Shared {
        engine: std::sync::RwLock::new(Slot::Closed),
        luggage: beside,
        hot,
        cache: OutcomeCache::new(outcome_bytes),
        large: LargeOutcomes::new(LARGE_AT_ONCE, LARGE_PATIENCE, found.key.owner(&Principal::Local)),
        middling: LargeOutcomes::new(MIDDLING_AT_ONCE, LARGE_PATIENCE, found.key.owner(&Principal::Local)),
        files: OutcomeFiles::new(directory.path()),
        space: Space::new(directory.path(), config.min_free_bytes),
        watched: SharedMap::default(),
        key: found.key,
        clock,
        max_tasks: config.max_tasks,
        quotas: std::sync::RwLock::default(),
        counts: CommittedCounts::default(),
        sooner: Notify::new(),
        is_reopened: AtomicBool::new(false),
        unmarked: Notify::new(),
        next_sweep: AtomicU64::new(u64::MAX),
    });
    found.counts.show(&shared);
    drop(shared.replace(Slot::Open(engine)));
    let (ops, inbox) = mpsc::channel(WAITING);
    let committer = Committer {
        shared: Arc::clone(&shared),
        inbox,
        directory,
        cache_bytes: sled_bytes,
        counts: found.counts,
        doubtful: Vec::new(),
        tally: Tally::default(),
        marked: std::time::Instant::now(),
    };
    Ok(Parts { shared, committer, ops, left_open })
}

/// Opens the database and reads all that a start needs of it. Writes nothing of ours into a store that was made before.
fn look(path: &Path, cache: u64, marker: Marker, durability: Durability) -> Result<Looked, OpenCause> {
    let engine = Engine::open(path, cache)?;
    let beside = SharedMap::default();
    let looked = match marker.state {
        MarkerState::Creating => describe(&engine),
        MarkerState::Open | MarkerState::Closed => recall(&engine, marker, durability),
    };
    let looked = looked.and_then(|found| {
        let active = engine.active()?;
        count_luggage(&beside, &engine)?;
        Ok((found, active))
    });
    match looked {
        Ok((found, active)) => Ok(Looked { engine, found, active, beside }),
        Err(cause) => {
            drop_quietly(engine);
            Err(cause)
        }
    }
}

/// Makes a store that is refused what it was.
fn put_back(original: Original, cause: &OpenCause) {
    let done = match cause {
        // Whoever has it may have changed it since.
        OpenCause::Held { .. } => original.forget(),
        _ => original.put_back(),
    };
    if let Err(error) = done {
        tracing::error!(%error, "what the start has changed of the store could not be put back; the next start tries again");
    }
}

/// Describes a new store.
fn describe(engine: &Engine) -> Result<Description, OpenCause> {
    let key: [u8; 32] = rand::random();
    let mut writes = Writes::default();
    let put = [writes.put_meta("magic", &MAGIC), writes.put_meta("owner-key", &key)];
    if put.iter().any(Result::is_err) {
        return Err(OpenCause::Corrupt(Damage::Meta));
    }
    engine.commit(&writes)?;
    Ok(Description { layout: LAYOUT, epoch: 0, counts: Counts::default(), key: OwnerKey::from_bytes(key) })
}

/// Reads the description of a store that was made before, and whether all that was durable is there.
fn recall(engine: &Engine, marker: Marker, durability: Durability) -> Result<Description, OpenCause> {
    let missing = || OpenCause::Corrupt(Damage::Meta);
    if engine.meta("magic")? != Some(MAGIC) {
        return Err(missing());
    }
    let layout = u32::from_be_bytes(engine.meta("layout")?.ok_or_else(missing)?);
    if layout > LAYOUT {
        return Err(OpenCause::Newer { found: layout, known: LAYOUT });
    }
    let key = OwnerKey::from_bytes(engine.meta("owner-key")?.ok_or_else(missing)?);
    let epoch = u64::from_be_bytes(engine.meta("epoch")?.ok_or_else(missing)?);
    let counts = Counts::read(engine.meta(COUNTS)?.ok_or_else(missing)?);
    if counts.commits < marker.commits {
        let lost = Damage::Lost { found: counts.commits, expected: marker.commits };
        match durability {
            Durability::Power => return Err(OpenCause::Corrupt(lost)),
            // That is what the user chose: a power cut may take the last writes.
            Durability::Process => tracing::warn!(%lost, "the store lost acknowledged writes"),
        }
    }
    Ok(Description { layout, epoch, counts, key })
}

/// Makes the lists of what each owner has, for a store from before there were any. What was cut short is done again.
fn list_owners(engine: &Engine) -> Result<(), OpenCause> {
    let mut last = None;
    loop {
        let tasks = engine.tasks_before(last.as_ref(), LISTED_AT_ONCE)?;
        let Some(oldest) = tasks.last() else { return Ok(()) };
        last = Some(oldest.id);
        let mut writes = Writes::default();
        for task in &tasks {
            writes.put_owned(task);
        }
        engine.commit(&writes)?;
    }
}

/// Begins a new boot epoch: one write, whose flush must reach the disk.
fn check_durability(engine: &Engine, found: &mut Description, durability: Durability) -> Result<(), OpenCause> {
    found.epoch += 1;
    found.counts.commits += 1;
    let mut writes = Writes::default();
    let put = [
        writes.put_meta("layout", &LAYOUT.to_be_bytes()),
        writes.put_meta("epoch", &found.epoch.to_be_bytes()),
        writes.put_meta(COUNTS, &found.counts.bytes()),
    ];
    if put.iter().any(Result::is_err) {
        return Err(OpenCause::Corrupt(Damage::Meta));
    }
    let before = durable_flushes();
    engine.commit(&writes)?;
    let is_durable = durable_flushes() > before || !cfg!(target_os = "linux");
    match durability {
        Durability::Power if !is_durable => Err(OpenCause::NotDurable),
        Durability::Power | Durability::Process => Ok(()),
    }
}
