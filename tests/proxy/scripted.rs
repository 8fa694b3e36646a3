//! A legacy server over stdio: this test binary, run again as a child of the proxy.
//!
//! It does not decide how calls end: each one is handed to the test over a connection of its own (`CONTROL`), and what
//! the test writes there goes to the proxy. Only `work` ends by itself. The harness prints lines of its own on the
//! same output, so every test is one with noise (field case 34).

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::exit;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Where the test listens for calls.
pub(crate) const CONTROL: &str = "RAINCHECK_E2E_CONTROL";
/// The file with a line for each call that really ran.
pub(crate) const LEDGER: &str = "RAINCHECK_E2E_LEDGER";
/// What a test writes to end the server in the middle of a call.
pub(crate) const DIE: &str = "!die";
/// How the marker of a server ends that does not end with its input.
pub(crate) const STUBBORN: &str = "-stubborn";

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// The command line that runs the server. `marker` names the processes of one test.
pub(crate) fn command(marker: &str) -> Vec<String> {
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&this, "scripted::server", "--exact", "--nocapture", "--test-threads=1", marker].map(str::to_owned).to_vec()
}

#[test]
fn server() {
    let (Ok(control), Ok(ledger)) = (std::env::var(CONTROL), std::env::var(LEDGER)) else { return };
    // The harness has begun a line.
    println!();
    for line in std::io::stdin().lock().split(b'\n') {
        let Ok(line) = line else { break };
        let text = String::from_utf8(line).unwrap();
        take(text, &control, &ledger);
    }
    if std::env::args().any(|argument| argument.ends_with(STUBBORN)) {
        loop {
            std::thread::park();
        }
    }
    exit(0);
}

fn take(text: String, control: &str, ledger: &str) {
    let message: Message<'_> = serde_json::from_str(&text).unwrap();
    let id = message.id.map_or("null", RawValue::get);
    match message.method.as_deref() {
        Some("initialize") => answer(
            id,
            &json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "scripted", "version": "1" },
            })
            .to_string(),
        ),
        Some("tools/call") => {
            let params: Value = serde_json::from_str(&message.params.unwrap().get().replace("1e400", "1")).unwrap();
            note(Path::new(ledger), &params);
            let (id, control) = (id.to_owned(), control.to_owned());
            std::thread::spawn(move || match params["name"].as_str().unwrap() {
                "work" | "queued" | "auto" | "again" if params["arguments"]["ms"].is_u64() => {
                    work(&id, &params["arguments"]);
                }
                _ => hand_over(&text, &control),
            });
        }
        Some("notifications/cancelled") => {
            let control = control.to_owned();
            std::thread::spawn(move || hand_over(&text, &control));
        }
        Some("tools/list") => answer(id, r#"{"tools":[]}"#),
        // The answer to a question that a test asked.
        None if id.starts_with("\"q") => {
            let control = control.to_owned();
            std::thread::spawn(move || hand_over(&text, &control));
        }
        _ => {}
    }
}

/// A line for a call that runs: its tool, and its number if it has one.
pub(crate) fn note(ledger: &Path, params: &Value) {
    let line = format!("{} {}\n", params["name"].as_str().unwrap(), params["arguments"]["n"]);
    let mut file = std::fs::File::options().append(true).create(true).open(ledger).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

/// What `work` says: always the same for the same number.
pub(crate) fn product(n: u64, bytes: usize) -> String {
    let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write!(text, "{state:016x}").unwrap();
    }
    text.truncate(bytes);
    text
}

/// The result of `work`.
pub(crate) fn worked(n: u64, bytes: usize) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{}"}}],"structuredContent":{{"n":{n}.0}}}}"#, product(n, bytes))
}

/// A tool that takes its time, and then ends by itself.
fn work(id: &str, arguments: &Value) {
    let (n, ms) = (arguments["n"].as_u64().unwrap(), arguments["ms"].as_u64().unwrap());
    std::thread::sleep(Duration::from_millis(ms));
    answer(id, &worked(n, arguments["bytes"].as_u64().unwrap().try_into().unwrap()));
}

fn hand_over(text: &str, control: &str) {
    let mut control = TcpStream::connect(control).unwrap();
    control.write_all(text.as_bytes()).and_then(|()| control.write_all(b"\n")).unwrap();
    for said in BufReader::new(control).split(b'\n') {
        let Ok(said) = said else { return };
        if said == DIE.as_bytes() {
            exit(3);
        }
        line(&said);
    }
}

fn answer(id: &str, result: &str) {
    line(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).as_bytes());
}

fn line(text: &[u8]) {
    let mut out = std::io::stdout().lock();
    // A proxy that is gone is no reason to fail.
    let _ = out.write_all(text).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}
