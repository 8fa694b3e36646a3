//! No process outlives its time.

use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raincheck::config::UpstreamEra;
use raincheck::protocol::{Answer, Reason};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

fn with_life(script: &str, change: impl FnOnce(&mut ServerConfig)) -> (Bench, tokio::sync::oneshot::Receiver<()>) {
    let dir = TempDir::new().unwrap();
    let life = Life::new(&dir);
    let ended = life.ended();
    let mut config = config(script, &dir);
    let Transport::Stdio { env, .. } = &mut config.transport else { panic!() };
    env.insert("LIFE".to_owned(), life.path());
    change(&mut config);
    let upstream = Upstream::with_guard(Arc::new(config), &Limits::default(), &Jobs::new(), guard());
    (Bench { upstream, dir }, ended)
}

async fn gone(ended: tokio::sync::oneshot::Receiver<()>) {
    tokio::time::timeout(PATIENCE, ended).await.expect("a process is left").unwrap();
}

#[tokio::test]
async fn closing_lets_a_server_end_by_itself() {
    let (bench, ended) = with_life("plain", |_| {});
    result(bench.call("echo", json!({}))).await;
    bench.upstream.close().await;
    gone(ended).await;
    assert_eq!(bench.ledger("eof"), 1);
}

#[tokio::test]
async fn closing_ends_a_server_that_ignores_its_end_and_what_its_wrapper_left() {
    for script in ["stubborn", "wrapper,stubborn"] {
        let (bench, ended) = with_life(script, |_| {});
        result(bench.call("echo", json!({}))).await;
        tokio::time::timeout(PATIENCE, bench.upstream.close()).await.expect("close hangs");
        gone(ended).await;
    }
}

#[tokio::test]
async fn closing_does_not_wait_for_a_daemon_that_holds_the_error_output() {
    for ends in ["told", "by itself"] {
        let (pipe, dir) = (tempfile::tempdir().unwrap(), TempDir::new().unwrap());
        let path = pipe.path().join("daemon");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Opened both ways, so that nobody is waited for. The daemon ends when this is dropped.
        let _daemon = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut config = config("plain", &dir);
        let Transport::Stdio { env, .. } = &mut config.transport else { panic!() };
        env.insert("DAEMON".to_owned(), path.to_str().unwrap().to_owned());
        let upstream = Upstream::with_guard(Arc::new(config), &Limits::default(), &Jobs::new(), guard());
        let bench = Bench { upstream, dir };
        result(bench.call("echo", json!({}))).await;
        bench.noted("daemon", 1).await;
        if ends == "by itself" {
            failure(bench.call("die", json!({}))).await;
            result(bench.call("echo", json!({}))).await;
            bench.noted("daemon", 2).await;
        }
        tokio::time::timeout(PATIENCE, bench.upstream.close()).await.expect("close hangs");
    }
}

#[tokio::test]
async fn an_answer_does_not_wait_for_a_process_that_lingers() {
    let (bench, ended) = with_life("wrapper,stubborn", |_| {});
    let held = bench.call("hold", json!({ "n": 1 }));
    bench.noted("hold", 1).await;
    let released = bench.call("release", json!({}));
    assert_eq!(result(held).await, json!({ "n": 1 }));
    result(released).await;
    bench.upstream.close().await;
    gone(ended).await;
}

#[tokio::test]
async fn a_call_whose_process_ends_after_it_has_asked_is_not_begun_again_with_another_one() {
    let (bench, ended) = with_life("modern", |config| config.era = UpstreamEra::Modern);
    let able = caller("ann", ClientSession::Stateless, &json!({ "elicitation": {} }));
    let mut reply = bench.ask_as(able, Method::CallTool, json!({ "name": "ask-and-die", "arguments": {} }));
    let ask = asked(&mut reply).await;
    gone(ended).await;
    ask.answer(Answer::Result(raw(r#"{"action":"accept"}"#)));
    assert_eq!(failure(reply).await.reason, Reason::OutcomeUnknown);
    assert_eq!(bench.ledger("ask-and-die"), 1);
    bench.upstream.close().await;
}

#[tokio::test]
async fn an_idle_process_is_ended_and_started_again_on_demand() {
    let (bench, ended) = with_life("plain", |config| config.session_idle = Duration::from_millis(50));
    let first = pid(&bench, "ann").await;
    gone(ended).await;
    assert_eq!(bench.ledger("eof"), 1);
    assert_ne!(pid(&bench, "ann").await, first);
    bench.upstream.close().await;
}

/// A proxy of its own, to be killed.
#[test]
fn proxy() {
    let Ok(script) = std::env::var("PROXY") else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let dir = TempDir::new().unwrap();
        let mut config = config(&script, &dir);
        let Transport::Stdio { env, .. } = &mut config.transport else { panic!() };
        env.insert("LIFE".to_owned(), std::env::var("LIFE").unwrap());
        let upstream = Upstream::with_guard(Arc::new(config), &Limits::default(), &Jobs::new(), guard());
        let bench = Bench { upstream, dir };
        let server = pid(&bench, "ann").await;
        let _running = bench.call("hold", json!({}));
        println!("\nserver {server}");
        std::future::pending::<()>().await;
    });
}

/// Starts a proxy with a server that runs a call, kills it, and waits until nothing is left.
async fn kill_proxy(signal: Signal, script: &str) {
    let dir = TempDir::new().unwrap();
    let life = Life::new(&dir);
    let ended = life.ended();
    let mut proxy = tokio::process::Command::new(std::env::current_exe().unwrap());
    proxy.args(["life::proxy", "--exact", "--nocapture"]).env("PROXY", script).env("LIFE", life.path());
    let mut running = proxy.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(running.stdout.take().unwrap()).lines();
    let server = loop {
        let told = output.next_line().await.unwrap().unwrap();
        if let Some(server) = told.strip_prefix("server ") {
            break Pid::from_raw(server.parse().unwrap());
        }
    };
    assert!(kill(server, None).is_ok());
    kill(Pid::from_raw(running.id().unwrap().try_into().unwrap()), signal).unwrap();
    running.wait().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), ended).await.expect("a process is left").unwrap();
}

#[tokio::test]
async fn no_process_is_left_when_the_proxy_is_killed() {
    let scripts = ["plain", "stubborn", "wrapper,stubborn"];
    let kills = [Signal::SIGKILL, Signal::SIGTERM].map(|signal| scripts.map(|script| kill_proxy(signal, script)));
    futures_util::future::join_all(kills.into_iter().flatten()).await;
}

#[tokio::test]
async fn a_server_does_not_outlive_its_guard_by_much() {
    let (bench, ended) = with_life("stubborn", |_| {});
    let server = i32::try_from(pid(&bench, "ann").await).unwrap();
    let held = bench.call("hold", json!({}));
    bench.noted("hold", 1).await;
    let guard = nix::unistd::getpgid(Some(Pid::from_raw(server))).unwrap();
    assert_ne!(guard.as_raw(), server);
    kill(guard, Signal::SIGKILL).unwrap();
    assert_eq!(failure(held).await.reason, raincheck::protocol::Reason::OutcomeUnknown);
    gone(ended).await;
    bench.upstream.close().await;
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_begins_with_no_signal_blocked_and_what_ends_it_is_not_ignored() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_raincheck"));
    let output = command.args(["guard", "--", "cat", "/proc/self/status"]).output().unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let of = |signals: [Signal; 4]| signals.iter().fold(0, |mask, signal| mask | (1_u64 << (*signal as i32 - 1)));
    let ending = of([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE]);
    assert_eq!((mask("SigBlk:"), mask("SigIgn:") & ending), (0, 0), "{status}");
}

#[test]
fn the_guard_passes_on_how_its_command_ended() {
    let guard = |script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
        command.arg("guard").arg("--").args(scripted::command()).env("SCRIPT", script);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
    };
    assert_eq!(guard("exit=41"), Some(41));
    assert_eq!(guard("plain"), Some(0));
    let mut missing = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    let missing = missing.args(["guard", "--", "no-such-program-here"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-program-here"));
}
