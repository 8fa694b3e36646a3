//! A soak: mixed load on a proxy with faults injected, and its memory, descriptors, threads and disk each ten seconds.
//!
//! `soak PROGRAM SECONDS`: runs `PROGRAM serve` before its own demo server for that long. Clients call, poll, cancel,
//! hang up, reset their connections and never read; the server is killed every few seconds. Fails if a handle
//! is lost before its time, or if descriptors or threads have grown when the load is gone.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper of tests ends where it fails")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// What happened.
#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    handles: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    errors: AtomicU64,
    left: AtomicU64,
    kills: AtomicU64,
    lost: AtomicU64,
}

/// What the proxy takes: KiB of memory, descriptors, threads, KiB on the disk.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "they are printed")]
struct Figures {
    rss: u64,
    files: usize,
    threads: u64,
    disk: u64,
}

#[derive(Clone)]
struct Caller {
    http: Client<HttpConnector, Full<Bytes>>,
    address: String,
    counts: Arc<Counts>,
}

const CALLERS: usize = 8;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, seconds] = &words[..] else {
        eprintln!("usage: soak PROGRAM SECONDS");
        return ExitCode::from(64);
    };
    let folder = tempfile::tempdir().unwrap();
    let (mut proxy, address) = start(program, folder.path());
    let counts = Arc::new(Counts::default());
    let http = Client::builder(TokioExecutor::new()).build_http();
    let caller = Caller { http, address, counts: Arc::clone(&counts) };
    let pid = proxy.id();
    caller.once().await;
    sleep(Duration::from_secs(1)).await;
    let before = figures(pid, folder.path());
    println!("at rest: {before:?}");

    let until = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    let mut jobs = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let caller = caller.clone();
        jobs.spawn(async move {
            while Instant::now() < until {
                caller.once().await;
            }
        });
    }
    for kind in 0..3 {
        let (address, counts) = (caller.address.clone(), Arc::clone(&counts));
        jobs.spawn(async move {
            while Instant::now() < until {
                rude(&address, kind, until, &counts).await;
            }
        });
    }
    let killing = Arc::clone(&counts);
    jobs.spawn(async move {
        while Instant::now() + Duration::from_secs(7) < until {
            sleep(Duration::from_secs(7)).await;
            kill_servers(pid, &killing);
        }
    });
    let began = Instant::now();
    while Instant::now() < until {
        sleep(Duration::from_secs(10)).await;
        println!("{:5} s: {:?} {counts:?}", began.elapsed().as_secs(), figures(pid, folder.path()));
    }
    while jobs.join_next().await.is_some() {}
    drop(caller);
    sleep(Duration::from_secs(15)).await;
    let after = figures(pid, folder.path());
    println!("at rest again: {after:?} {counts:?}");
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = proxy.wait().unwrap();
    println!("the proxy ended: {status}");
    let grown = after.files > before.files + 10 || after.threads > before.threads + 10;
    let good = status.success() && !grown && counts.lost.load(Relaxed) == 0 && counts.completed.load(Relaxed) > 0;
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn start(program: &str, folder: &Path) -> (Child, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (store, config) = (folder.join("store"), folder.join("config.toml"));
    let text = format!(
        "[listen]\nhttp = \"127.0.0.1:{port}\"\n[store]\npath = \"{}\"\nmin_free = 1\n[log]\nlevel = \"error\"\n\
         [defaults]\nafter = \"50ms\"\ntimeout = \"10s\"\nkeep = \"20s\"\n\
         [[server]]\nname = \"behind\"\ncommand = [\"@self\", \"demo-server\"]\n",
        store.display()
    );
    fs::write(&config, text).unwrap();
    let command = Command::new(program).args(["serve", "--config"]).arg(&config).stdin(Stdio::null()).spawn();
    let proxy = command.unwrap();
    let address = format!("127.0.0.1:{port}");
    while std::net::TcpStream::connect(&address).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    (proxy, address)
}

impl Caller {
    async fn ask(&self, method: &str, name: &str, mut params: Value) -> Option<Value> {
        let extensions = json!({ "io.modelcontextprotocol/tasks": {} });
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "extensions": extensions },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let request = Request::post(format!("http://{}/mcp", self.address))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
            .header("mcp-name", name);
        let response = self.http.request(request.body(Full::new(Bytes::from(body))).unwrap()).await.ok()?;
        let body = response.into_body().collect().await.ok()?.to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(text);
        serde_json::from_str(last).ok()
    }

    /// One call, to the end of its task, unless it is given up or cancelled.
    async fn once(&self) {
        let counts = &self.counts;
        let seconds = rand::random_range(0..200_u32);
        let rows = [10, 100, 5000][rand::random_range(0..3)];
        let arguments = json!({ "seconds": f64::from(seconds) / 100.0, "rows": rows });
        counts.calls.fetch_add(1, Relaxed);
        let call = self.ask("tools/call", "slow_report", json!({ "name": "slow_report", "arguments": arguments }));
        let patience = if rand::random_range(0..10) == 0 { Duration::from_millis(20) } else { Duration::from_mins(1) };
        let Ok(answer) = timeout(patience, call).await else {
            counts.left.fetch_add(1, Relaxed);
            return;
        };
        let answer = answer.unwrap_or_default();
        let Some(id) = answer["result"]["taskId"].as_str() else {
            let kind = if answer["result"].is_object() { &counts.completed } else { &counts.errors };
            kind.fetch_add(1, Relaxed);
            return;
        };
        counts.handles.fetch_add(1, Relaxed);
        if rand::random_range(0..8) == 0 {
            self.ask("tasks/cancel", id, json!({ "taskId": id })).await;
        }
        loop {
            let task = self.ask("tasks/get", id, json!({ "taskId": id })).await.unwrap_or_default();
            let counter = match task["result"]["status"].as_str() {
                Some("completed") => &counts.completed,
                Some("cancelled") => &counts.cancelled,
                Some("failed") => &counts.failed,
                Some(_) => {
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
                None => &counts.lost,
            };
            counter.fetch_add(1, Relaxed);
            return;
        }
    }
}

/// Clients that leave in the middle of a request, reset their connection during a call, or never read.
async fn rude(address: &str, kind: u32, until: Instant, counts: &Counts) {
    let Ok(mut socket) = TcpStream::connect(address).await else { return };
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow_report","arguments":{"seconds":1,"rows":200000},"_meta":{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, \
         text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: slow_report\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let sent = if kind == 0 { &request[..request.len() / 2] } else { &request[..] };
    let _ = socket.write_all(sent.as_bytes()).await;
    let rest = [200, 300, 8000][kind as usize];
    sleep(Duration::from_millis(rest).min(until.saturating_duration_since(Instant::now()))).await;
    if kind == 1 {
        socket.set_zero_linger().unwrap();
    }
    counts.left.fetch_add(1, Relaxed);
}

/// kill -9 for the servers behind the proxy.
fn kill_servers(proxy: u32, counts: &Counts) {
    let mut below = vec![proxy];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if parent.is_some_and(|parent| below.contains(&parent)) {
            below.push(pid);
        }
    }
    for pid in below.into_iter().skip(1) {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if command.ends_with("demo-server\0") && kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).is_ok() {
            counts.kills.fetch_add(1, Relaxed);
        }
    }
}

fn figures(pid: u32, folder: &Path) -> Figures {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    Figures { rss: of("VmRSS:"), files, threads: of("Threads:"), disk: size(folder) >> 10 }
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
