//! What Raincheck costs, against a bare proxy and against nothing, in one run.
#![allow(
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark: a program of its own that stops at the first thing that is wrong"
)]
//!
//! `cargo bench --bench proxy` starts every part as a process of its own: an upstream that answers at
//! once, a bare hyper reverse proxy, and Raincheck. It prints medians of five runs and gates nothing.
//! `RAINCHECK_BENCH_SECONDS` (default 2) is the length of one run.

mod load;
mod roles;
mod seed;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use load::{Load, Request, Summary};

/// The allocator of Raincheck, so that the bare proxy has it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUNS: usize = 5;

/// A part of the benchmark, given the seconds of one run.
type Part = fn(f64);

/// A child process that is ended with its guard.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// The memory that it has in RAM now, in MiB.
    fn resident(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024.0
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn await_port(port: u16) {
    let until = Instant::now() + Duration::from_mins(1);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "nothing listens on {port}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn role(name: &str, port: u16, target: u16) -> Process {
    let this = std::env::current_exe().unwrap();
    let child = Command::new(this).args(["--role", name, &port.to_string(), &target.to_string()]).spawn().unwrap();
    await_port(port);
    Process(child)
}

/// Starts Raincheck; also how long it took until it listened.
fn raincheck(folder: &Path, server: &str, extra: &str) -> (Process, u16, Duration) {
    let port = free_port();
    let config = folder.join("config.toml");
    let text = format!(
        "[listen]\nhttp = \"127.0.0.1:{port}\"\n[store]\npath = \"{}\"\n[limits]\ncalls = 1000000\n{extra}\n[[server]]\nname = \"bench\"\n{server}\n",
        folder.join("store").display()
    );
    std::fs::write(&config, text).unwrap();
    let started = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["serve", "--config"])
        .arg(&config)
        .env("RUST_LOG", "warn")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = Process(child);
    await_port(port);
    // It listens before the store is open; it is up when it answers from the store.
    while !load::is_up(port) {
        assert!(started.elapsed() < Duration::from_mins(1), "no answer on {port}");
    }
    (process, port, started.elapsed())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn medians(load: &Load, seconds: f64) -> Summary {
    in_the_middle(&(0..RUNS).map(|_| load.run(seconds)).collect::<Vec<_>>())
}

/// Medians of each load, whose runs alternate, so that what else the machine does hits all of them.
fn medians_side_by_side<const N: usize>(loads: [Load; N], seconds: f64) -> [Summary; N] {
    let mut runs = [const { Vec::new() }; N];
    for _ in 0..RUNS {
        for (load, runs) in loads.iter().zip(&mut runs) {
            runs.push(load.run(seconds));
        }
    }
    runs.map(|runs| in_the_middle(&runs))
}

fn in_the_middle(runs: &[Summary]) -> Summary {
    Summary {
        per_second: median(runs.iter().map(|run| run.per_second).collect()),
        p50: median(runs.iter().map(|run| run.p50).collect()),
        p99: median(runs.iter().map(|run| run.p99).collect()),
        failed: runs.iter().map(|run| run.failed).sum(),
    }
}

fn show(name: &str, summary: &Summary, memory: Option<f64>) {
    let memory = memory.map_or(String::new(), |mib| format!("  {mib:7.1} MiB"));
    println!(
        "{name:<44} {:>9.0}/s  p50 {:>7.3} ms  p99 {:>8.3} ms  failed {}{memory}",
        summary.per_second, summary.p50, summary.p99, summary.failed
    );
}

fn pass_through(seconds: f64) {
    let (up, bare) = (free_port(), free_port());
    let _upstream = role("upstream", up, 0);
    let bare_process = role("bare", bare, up);
    let folder = tempfile::tempdir().unwrap();
    let server = format!("url = \"http://127.0.0.1:{up}/mcp\"");
    let (process, port, _) = raincheck(folder.path(), &server, "");
    for callers in [1, 32] {
        // The very same request to all three: that of a client of 2026-07-28.
        let loads = [up, bare, port].map(|port| Load::new(port, callers, Request::Call));
        let [straight, through_bare, through] = medians_side_by_side(loads, seconds);
        show(&format!("tools/call straight, {callers} callers"), &straight, None);
        show(&format!("tools/call, bare proxy, {callers} callers"), &through_bare, Some(bare_process.resident()));
        show(&format!("tools/call, Raincheck, {callers} callers"), &through, Some(process.resident()));
        println!("  of the bare proxy's throughput: {:.2}", through.per_second / through_bare.per_second);
    }
}

fn creates(seconds: f64) {
    let this = std::env::current_exe().unwrap();
    let server = format!("command = [\"{}\", \"--role\", \"mute\", \"0\", \"0\"]", this.display());
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = seed::fdatasync_rate(folder.path());
    println!("fdatasync of 4 KiB alone{alone:>31.0}/s");
    for callers in [1, 64] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (process, port, _) = raincheck(folder.path(), &server, "[defaults]\nmode = \"task\"");
        let summary = medians(&Load::new(port, callers, Request::Call), seconds);
        show(&format!("durable creates over HTTP, {callers} callers"), &summary, Some(process.resident()));
        println!("  for each fdatasync that the disk does alone: {:.2}", summary.per_second / alone);
    }
}

/// A proxy in front of a store with that many ended tasks.
struct Stocked {
    tasks: usize,
    /// The median of the times until it answered after a start.
    start: f64,
    /// Just after a start.
    resident: f64,
    port: u16,
    ids: Arc<Vec<String>>,
    process: Process,
    _upstream: Process,
    _folder: tempfile::TempDir,
}

impl Stocked {
    fn with(tasks: usize) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let ids = seed::fill(&folder.path().join("store"), tasks);
        let up = free_port();
        let upstream = role("upstream", up, 0);
        let server = format!("url = \"http://127.0.0.1:{up}/mcp\"");
        let starts = (0..RUNS).map(|_| raincheck(folder.path(), &server, "").2.as_secs_f64()).collect();
        let (process, port, _) = raincheck(folder.path(), &server, "");
        let resident = process.resident();
        Self { tasks, start: median(starts), resident, port, ids, process, _upstream: upstream, _folder: folder }
    }
}

fn polls(seconds: f64) {
    let both = [1_000, 100_000].map(Stocked::with);
    for Stocked { tasks, start, resident, .. } in &both {
        println!("{tasks} tasks: {start:.3} s from the start until it answers, {resident:.1} MiB then");
    }
    for callers in [1, 32] {
        let loads = both.each_ref().map(|at| Load::new(at.port, callers, Request::Get(at.ids.clone())));
        let [few, many] = medians_side_by_side(loads, seconds);
        for (at, summary) in both.iter().zip([&few, &many]) {
            let name = format!("tasks/get, {} tasks, {callers} callers", at.tasks);
            show(&name, summary, Some(at.process.resident()));
        }
        println!("  p50 at 100,000 for that at 1,000: {:.2}", many.p50 / few.p50);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--role") {
        return roles::play(&arguments[at + 1], &arguments[at + 2], &arguments[at + 3]);
    }
    let seconds = std::env::var("RAINCHECK_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let wanted: Vec<&str> =
        arguments.iter().skip(1).map(String::as_str).filter(|name| !name.starts_with('-')).collect();
    let parts: [(&str, Part); 3] = [("pass-through", pass_through), ("creates", creates), ("polls", polls)];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.contains(&name) {
            println!("== {name}");
            part(seconds);
        }
    }
}
