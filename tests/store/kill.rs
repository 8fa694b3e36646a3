//! Kill -9 at random moments: whatever was acknowledged is there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use raincheck::task::TaskId;

use crate::crash::{self, Known};

/// Set for the writer, to the directory of its store.
const WRITER: &str = "RAINCHECK_KILL_WRITER";

/// How many rounds; more come from the environment.
const ROUNDS: &str = "RAINCHECK_KILL_ROUNDS";

/// How many rounds one store lives through.
const ROUNDS_OF_A_STORE: usize = 20;

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_at_any_moment() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut directory = tempfile::tempdir().unwrap();
    let mut known = BTreeMap::new();
    let mut acknowledged = 0;
    for round in 0..rounds {
        if round > 0 && round % ROUNDS_OF_A_STORE == 0 {
            // Every check looks at all tasks, so a store must not grow for ever.
            acknowledged += acknowledged_in(&known);
            known.clear();
            directory = tempfile::tempdir().unwrap();
        }
        let path = directory.path().join("store");
        // Some rounds end while the store is being opened after the kill before.
        let lines = if round % 4 == 3 { rand::random_range(0..3) } else { rand::random_range(0..1500) };
        write_and_kill(&path, lines, &mut known);
        let found = runtime.block_on(crash::check(&path, &known)).unwrap_or_else(|error| {
            panic!("round {round}, killed after {lines} lines: {error}");
        });
        assert!(
            found.problems.is_empty(),
            "round {round}, killed after {lines} lines, {} checked, {} open: {:#?}",
            found.checked,
            found.open,
            &found.problems[..found.problems.len().min(10)]
        );
    }
    acknowledged += acknowledged_in(&known);
    assert!(acknowledged > 100, "the writer did too little to show anything: {acknowledged}");
}

fn acknowledged_in(known: &BTreeMap<TaskId, Known>) -> usize {
    known.values().filter(|known| **known != Known::CreateBegun).count()
}

/// Runs a writer and kills it when it has printed that many lines.
fn write_and_kill(path: &Path, lines: usize, known: &mut BTreeMap<TaskId, Known>) {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::writer_to_be_killed", "--nocapture"])
        .env(WRITER, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = 0;
    // What was in the pipe when the writer died still counts: it was acknowledged.
    for line in BufReader::new(writer.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        assert!(!line.starts_with("@ !"), "the writer failed: {line}");
        if line.starts_with('@') {
            said += 1;
            crash::learn(known, &line);
            if said == lines + 1 {
                writer.kill().unwrap();
            }
        }
    }
    assert!(!writer.wait().unwrap().success(), "the writer was to be killed, but ended by itself");
}

/// Not a test of its own: what [`write_and_kill`] starts.
#[test]
fn writer_to_be_killed() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(crash::write(Path::new(&path), u64::MAX)).unwrap();
}
