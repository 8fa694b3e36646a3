//! The store against the disk: `cargo bench --bench store [-- DIRECTORY]`.
//!
//! Medians of five: the disk's own rate of small durable appends, durable creations a second with 1 and 64 callers, reads
//! a second with 1,000 and 100,000 stored tasks, the time to open 100,000 tasks and the memory then. The stores are made in
//! DIRECTORY (default: the system's temporary directory); a RAM disk there makes the figures meaningless.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark ends where it fails")]
#![expect(clippy::cast_precision_loss, reason = "counts are far below what f64 holds")]

#[path = "../src/durable_sync.rs"]
mod durable_sync;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use raincheck::clock::{Clock, SystemClock};
use raincheck::config::{Durability, StoreConfig};
use raincheck::jobs::Jobs;
use raincheck::protocol::{Json, Principal};
use raincheck::store::{CommitError, Ending, Store};
use raincheck::task::{Expiry, State, Task, TaskId};
use tokio::runtime::Runtime;

/// Runs of each measurement.
const RUNS: usize = 5;
const SPAN: Duration = Duration::from_secs(2);
const MANY: usize = 100_000;
const FEW: usize = 1_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["open", path] => open_and_report(Path::new(path)),
        [path] => all(Path::new(path)),
        _ => all(&std::env::temp_dir()),
    }
}

fn all(below: &Path) {
    let scratch = tempfile::tempdir_in(below).unwrap();
    let at = |name: &str| scratch.path().join(name);
    println!("| store, medians of {RUNS} | |\n|---|---|");
    // One after the other within each run, so that a slow moment of the machine meets all of them.
    let (mut disk, mut one, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        disk.push(appends(&at(&format!("disk-{run}"))));
        one.push(creations(&at(&format!("one-{run}")), 1));
        many.push(creations(&at(&format!("many-{run}")), 64));
    }
    let (disk, one, many) = (median(disk), median(one), median(many));
    println!("| the disk: 4 KiB appended and fdatasync, alone | {disk:.0}/s |");
    println!("| durable creations, 1 caller | {one:.0}/s |");
    println!("| durable creations, 64 callers | {many:.0}/s = {:.1} for each fdatasync |", many / disk);

    let (few_path, many_path) = (at("few"), at("lots"));
    fill(&few_path, FEW);
    fill(&many_path, MANY);
    let (mut few, mut lots) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        few.push(reads(&few_path));
        lots.push(reads(&many_path));
    }
    let shown = |reads: &[Reads]| {
        let of = |pick: fn(&Reads) -> f64| median(reads.iter().map(pick).collect());
        (of(|reads| reads.rate), of(|reads| reads.p50), of(|reads| reads.p99))
    };
    let ((few_rate, few_p50, few_p99), (rate, p50, p99)) = (shown(&few), shown(&lots));
    println!("| reads of {FEW} tasks | {few_rate:.0}/s, p50 {few_p50:.2} µs, p99 {few_p99:.2} µs |");
    println!("| reads of {MANY} tasks | {rate:.0}/s, p50 {p50:.2} µs, p99 {p99:.2} µs |");
    println!("| p50 with {MANY} against {FEW} tasks | {:.2}, or {:.2} µs more |", p50 / few_p50, p50 - few_p50);

    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        // In a process of its own, for its memory.
        let out = Command::new(std::env::current_exe().unwrap()).arg("open").arg(&many_path).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<f64>().unwrap());
        times.push(numbers.next().unwrap());
        sizes.push(numbers.next().unwrap());
    }
    println!("| opening {MANY} tasks, of which {} had not ended | {:.0} ms |", MANY / 100, median(times));
    println!("| memory after that and after reading all of them with their results | {:.0} MiB |", median(sizes));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn config(path: &Path) -> StoreConfig {
    StoreConfig {
        path: path.to_owned(),
        durability: Durability::Power,
        cache_bytes: std::env::var("CACHE_MIB").ok().and_then(|mib| mib.parse::<u64>().ok()).unwrap_or(32) << 20,
        min_free_bytes: Some(0),
        max_tasks: 10_000_000,
    }
}

fn open(path: &Path) -> Store {
    Store::open(&config(path), Arc::new(SystemClock), &Jobs::new()).unwrap().store
}

/// A running task with names as long as they usually are, and arguments nowhere: they are not stored.
fn running(store: &Store) -> Task {
    let now = SystemClock.now();
    let owner = store.owner(&Principal::Local);
    let expiry = Expiry::covering(Duration::from_hours(1), Duration::from_mins(30), Duration::from_hours(24));
    let task = Task::queued(TaskId::generate(now), owner, "reports".into(), "export_quarter".into(), now, expiry);
    Task { state: State::Running { started: now }, ..task }
}

/// Durable appends a second, as a program does them that has the disk for itself.
fn appends(path: &Path) -> f64 {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let (start, mut done) = (Instant::now(), 0.0);
    while start.elapsed() < SPAN {
        file.write_all(&[7; 4096]).unwrap();
        file.sync_data().unwrap();
        done += 1.0;
    }
    done / start.elapsed().as_secs_f64()
}

fn creations(path: &Path, callers: usize) -> f64 {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open(path);
        let (made, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut running_callers = tokio::task::JoinSet::new();
        let start = Instant::now();
        for _ in 0..callers {
            let (store, made, stop) = (store.clone(), Arc::clone(&made), Arc::clone(&stop));
            running_callers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    store.create(running(&store)).await.unwrap();
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        tokio::time::sleep(SPAN).await;
        let rate = made.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        running_callers.join_all().await;
        store.close().await;
        rate
    })
}

/// That many tasks, of which one in a hundred has not ended; results of about 600 bytes.
fn fill(path: &Path, tasks: usize) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open(path);
        let result = Json::parse(Bytes::from(format!("{{\"content\":\"{}\"}}", "x".repeat(600)))).unwrap();
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..128 {
            let (store, result) = (store.clone(), result.clone());
            callers.spawn(async move {
                for at in (caller..tasks).step_by(128) {
                    let id = loop {
                        match store.create(running(&store)).await {
                            Ok(task) => break task.id,
                            Err(CommitError::Busy) => tokio::task::yield_now().await,
                            Err(error) => panic!("{error}"),
                        }
                    };
                    if !at.is_multiple_of(100) {
                        store.settle(&id, Ending::Completed(result.clone())).await.unwrap();
                    }
                    ids(&id, at);
                }
            });
        }
        callers.join_all().await;
        store.close().await;
        let known: Vec<String> = IDS.lock().unwrap().drain(..).map(|id| id.to_string()).collect();
        std::fs::write(path.with_extension("ids"), known.join("\n")).unwrap();
    });
}

static IDS: std::sync::Mutex<Vec<TaskId>> = std::sync::Mutex::new(Vec::new());

fn ids(id: &TaskId, at: usize) {
    // Those that have not ended are read from the map, which is not what is measured.
    if !at.is_multiple_of(100) {
        IDS.lock().unwrap().push(*id);
    }
}

fn known_ids(path: &Path) -> Vec<TaskId> {
    let text = std::fs::read_to_string(path.with_extension("ids")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

struct Reads {
    rate: f64,
    p50: f64,
    p99: f64,
}

/// Reads of ended tasks at random, by one caller.
fn reads(path: &Path) -> Reads {
    let ids = known_ids(path);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open(path);
        let owner = store.owner(&Principal::Local);
        // As after some time of use, not right after the start.
        for id in &ids {
            store.get(&owner, id).await.unwrap().unwrap();
        }
        let mut times = Vec::new();
        let start = Instant::now();
        while start.elapsed() < SPAN {
            for _ in 0..1000 {
                let id = &ids[rand::random_range(0..ids.len())];
                let before = Instant::now();
                store.get(&owner, id).await.unwrap().unwrap();
                times.push(before.elapsed().as_secs_f64() * 1e6);
            }
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        store.close().await;
        times.sort_by(f64::total_cmp);
        Reads { rate, p50: times[times.len() / 2], p99: times[times.len() * 99 / 100] }
    })
}

/// Prints the milliseconds that opening took, and the memory in MiB after every task was read once.
fn open_and_report(path: &Path) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let store = open(path);
        let took = start.elapsed().as_secs_f64() * 1e3;
        let owner = store.owner(&Principal::Local);
        for id in known_ids(path) {
            let task = store.get(&owner, &id).await.unwrap().unwrap();
            store.outcome(&task).await.unwrap();
        }
        println!("{took} {}", resident());
        store.close().await;
    });
}

/// Resident memory of this process in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or_default() / 1024.0
}
