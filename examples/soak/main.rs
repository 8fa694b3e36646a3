//! A soak: mixed load on a proxy with faults injected, a ledger at the end, and figures on the way.
//!
//! `soak PROGRAM SECONDS [--calm] [--disk DIRECTORY] [--memory MIB] [--callers N]` runs `PROGRAM serve` before a server of its
//! own for that long. Clients call in every way (plain, tasks, keys, questions, legacy, held), cancel, hang up, reset and
//! never read; the servers are killed every few seconds; the proxy is killed and stopped and started again, unless it is
//! to be `--calm`. `--disk`: an empty file system of its own (root), which is filled and frozen. `--memory`: the proxy runs in a
//! control group of that size (root). Fails where a line of the ledger does not hold, where an error is not explained by a
//! fault, where memory, descriptors, threads or the database are not flat, where a result is kept for longer than its task
//! lives, and where anything is left in the store when all has expired.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper of tests ends where it fails")]

mod book;
mod callers;
mod client;
mod faults;
mod flat;
mod proxy;
mod server;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::task::JoinSet;
use tokio::time::sleep;

use callers::{Caller, World};
use faults::Fault;
use flat::Samples;
use proxy::{Figures, Place, Proxy};

/// What is to be done.
#[derive(Debug)]
struct Plan {
    program: String,
    time: Duration,
    is_calm: bool,
    disk: Option<String>,
    memory: Option<u64>,
    callers: usize,
}

/// The faults that are to come.
#[derive(Debug)]
struct Timetable {
    servers: Instant,
    proxy: Instant,
    disk: Instant,
    turn: usize,
}

/// How often the servers are killed, and the disk is filled or frozen.
const SERVERS: Duration = Duration::from_secs(7);
const DISK: Duration = Duration::from_secs(45);
/// How long a disk is full or frozen.
const FULL: Duration = Duration::from_secs(4);
/// How long running calls may go on at a stop, and how long all the rest of a stop may take.
const GRACE: Duration = Duration::from_secs(2);
const STOP: Duration = Duration::from_secs(5);
/// How long after the load all that it left is closed.
const REST: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, ledger, group] = &words[..]
        && word == server::WORD
    {
        server::serve(ledger, group);
        return ExitCode::SUCCESS;
    }
    let Some(plan) = Plan::read(&words) else {
        eprintln!("usage: soak PROGRAM SECONDS [--calm] [--disk DIRECTORY] [--memory MIB] [--callers N]");
        return ExitCode::from(64);
    };
    if soak(&plan).await { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Plan {
    fn read(words: &[String]) -> Option<Self> {
        let (program, time) = (words.first()?.clone(), Duration::from_secs(words.get(1)?.parse().ok()?));
        let mut plan = Self { program, time, is_calm: false, disk: None, memory: None, callers: 12 };
        let mut rest = words.iter().skip(2);
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--calm" => plan.is_calm = true,
                "--disk" => plan.disk = Some(rest.next()?.clone()),
                "--memory" => plan.memory = Some(rest.next()?.parse().ok()?),
                "--callers" => plan.callers = rest.next()?.parse().ok()?,
                _ => return None,
            }
        }
        Some(plan)
    }

    /// How long a proxy lives until it is killed or stopped.
    fn life(&self) -> Duration {
        (self.time / 6).clamp(Duration::from_secs(12), Duration::from_mins(5))
    }
}

async fn soak(plan: &Plan) -> bool {
    let place = Place::new(&plan.program, plan.disk.as_deref(), plan.memory);
    let mut proxy = place.start().await;
    let world = Arc::new(World::new(place.address()));
    sleep(Duration::from_secs(1)).await;
    let before = place.figures(&proxy);
    println!("at rest: {before}");

    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..plan.callers {
        let (caller, is_over) = (Caller::new(&world), Arc::clone(&is_over));
        callers.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                caller.once().await;
            }
        });
    }
    let samples = load(plan, &place, &mut proxy, &world).await;
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = callers.join_next().await {
        if let Err(error) = ended {
            world.book.wrong(format!("a caller panicked: {error}"));
        }
    }
    let (after, tasks) = rest(&place, &proxy).await;
    println!("at rest again: {after}, {tasks:?} tasks");
    if let Some((kills, peak)) = place.pressure() {
        println!("memory of the group: {peak} MiB at most, {kills} processes killed for want of it");
        if kills > 0 {
            world.book.wrong(format!("{kills} processes were killed for want of memory"));
        }
    }
    samples.judge(&world.book);
    flat::judge_rest(&before, &after, tasks, &world.book);
    proxy.signal(Signal::SIGTERM);
    if !proxy.end().await {
        world.book.wrong("the proxy did not end well".to_owned());
    }
    finish(&place, &world)
}

/// The load, with its faults, until its time is over.
async fn load(plan: &Plan, place: &Place, proxy: &mut Proxy, world: &Arc<World>) -> Samples {
    let (began, mut samples) = (Instant::now(), Samples::new(plan.time));
    let mut next = Timetable { servers: began + SERVERS, proxy: began + plan.life(), disk: began + DISK / 3, turn: 0 };
    while began.elapsed() < plan.time {
        sleep(Duration::from_millis(500)).await;
        let now = Instant::now();
        if !proxy.is_alive() {
            world.book.wrong("the proxy has ended by itself".to_owned());
            break;
        }
        if samples.take(began.elapsed(), proxy.since.elapsed(), place.figures(proxy)) {
            println!("{:5} s: {} {:?}", began.elapsed().as_secs(), place.figures(proxy), world.book.seen());
        }
        if now >= next.servers {
            next.servers = now + SERVERS;
            world.faults.begin(Fault::Servers);
            let killed = proxy.kill_servers();
            world.faults.end(Fault::Servers);
            (0..killed).for_each(|_| world.book.saw("servers killed"));
        }
        let is_near_the_end = began.elapsed() + Duration::from_secs(10) > plan.time;
        if place.has_disk && now >= next.disk && !is_near_the_end {
            next.disk = now + DISK;
            next.turn += 1;
            world.faults.begin(Fault::Disk);
            if next.turn % 2 == 1 {
                place.fill(FULL).await;
            } else {
                place.freeze(FULL / 2).await;
            }
            world.faults.end(Fault::Disk);
            // It is opened again before it may be killed.
            next.proxy = next.proxy.max(Instant::now() + Duration::from_secs(20));
        }
        if !plan.is_calm && now >= next.proxy && !is_near_the_end {
            next.turn += 1;
            world.faults.begin(Fault::Proxy);
            let another = again(place, proxy, next.turn.is_multiple_of(3), world).await;
            drop(std::mem::replace(proxy, another));
            world.faults.end(Fault::Proxy);
            next.proxy = Instant::now() + plan.life();
        }
    }
    println!(
        "{} times the proxy was ended, {} times its servers were killed, {} times its disk was full or frozen",
        world.faults.count(Fault::Proxy),
        world.faults.count(Fault::Servers),
        world.faults.count(Fault::Disk)
    );
    samples
}

/// Waits until all that the load has left is closed and has expired; what there is then.
async fn rest(place: &Place, proxy: &Proxy) -> (Figures, Option<u64>) {
    let began = Instant::now();
    loop {
        sleep(Duration::from_secs(1)).await;
        let (figures, tasks) = (place.figures(proxy), place.tasks().await);
        let is_empty = tasks == Some(0) && figures.results.count == 0;
        if (is_empty && began.elapsed() > REST) || began.elapsed() > flat::EMPTY {
            return (figures, tasks);
        }
    }
}

/// Ends the proxy and starts another one.
async fn again(place: &Place, proxy: &mut Proxy, gently: bool, world: &World) -> Proxy {
    let began = Instant::now();
    proxy.signal(if gently { Signal::SIGTERM } else { Signal::SIGKILL });
    while proxy.is_alive() {
        sleep(Duration::from_millis(20)).await;
    }
    let took = began.elapsed();
    if took > GRACE + STOP {
        world.book.wrong(format!("a stop took {took:?}"));
    }
    place.start().await
}

/// The ledger; whether all is right.
fn finish(place: &Place, world: &World) -> bool {
    let left = place.servers_left();
    if left > 0 {
        world.book.wrong(format!("{left} servers are left"));
    }
    world.book.weigh(&place.ran());
    let seen = world.book.seen();
    println!("{} calls; {seen:?}", world.book.calls());
    if seen.get("handles seen") != seen.get("handles found at their end") {
        world.book.wrong("handles seen are not handles found".to_owned());
    }
    let log = place.log();
    let panics = log.lines().filter(|line| line.contains("panic")).count();
    println!("the log has {} lines, {panics} of them about panics", log.lines().count());
    if panics > 0 {
        world.book.wrong("a panic in the log".to_owned());
    }
    println!("{}", if world.book.is_right() { "ALL HOLDS" } else { "FAILED" });
    world.book.is_right()
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rss, files, threads, database, results } = self;
        let (rss, results, count) = (rss >> 10, results.size >> 10, results.count);
        write!(
            f,
            "{rss} MiB, {files} descriptors, {threads} threads, a database of {database} KiB, {results} MiB in {count} results"
        )
    }
}
