//! The server behind the proxy: it notes every call that it runs, and answers each with bytes that follow from its number.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What the threads of one server share.
#[derive(Default)]
struct Shared {
    /// The calls that run, by the spelling of their ids.
    stops: Mutex<HashMap<String, Arc<AtomicBool>>>,
    /// Who waits for the answer to a question.
    asked: Mutex<HashMap<String, Sender<Value>>>,
}

/// The word that names this program as a server.
pub(crate) const WORD: &str = "soak-server";

/// Serves stdin until it ends; each call is a line in the file `ledger`. `group`: the control group to go to.
pub(crate) fn serve(ledger: &str, group: &str) {
    if !group.is_empty() {
        std::fs::write(group, std::process::id().to_string()).unwrap();
    }
    let ledger = File::options().append(true).create(true).open(ledger).unwrap();
    let (ledger, shared) = (Arc::new(ledger), Arc::new(Shared::default()));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let message: Value = serde_json::from_str(&line).unwrap();
        let id = message["id"].to_string();
        match message["method"].as_str() {
            Some("initialize") => answer(
                &id,
                &json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "soak", "version": "1" },
                })
                .to_string(),
            ),
            Some("tools/call") => {
                let params = &message["params"];
                let n = &params["arguments"]["n"];
                // One write, so that the lines of several servers never mix.
                (&*ledger).write_all(format!("{n}\n").as_bytes()).unwrap();
                let (shared, params) = (Arc::clone(&shared), params.clone());
                let stop = Arc::new(AtomicBool::new(false));
                shared.stops.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), Arc::clone(&stop));
                std::thread::spawn(move || {
                    run(&id, &params, &stop, &shared);
                    shared.stops.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                });
            }
            Some("notifications/cancelled") => {
                let stops = shared.stops.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(stop) = stops.get(&message["params"]["requestId"].to_string()) {
                    stop.store(true, SeqCst);
                }
            }
            Some("tools/list") => answer(&id, r#"{"tools":[]}"#),
            Some(_) => {}
            None => {
                let mut asked = shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(asked) = asked.remove(&id) {
                    // Its call may have ended.
                    let _ = asked.send(message["result"].clone());
                }
            }
        }
    }
    std::process::exit(0);
}

fn run(id: &str, params: &Value, stop: &AtomicBool, shared: &Shared) {
    let arguments = &params["arguments"];
    let n = arguments["n"].as_u64().unwrap();
    if params["name"] == "broken" {
        let error = json!({ "code": -32000, "message": "broken" });
        return line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    }
    if params["name"] == "ask" && !asks(n, shared) {
        return;
    }
    let until = Instant::now() + Duration::from_millis(arguments["ms"].as_u64().unwrap());
    let token = params["_meta"]["progressToken"].clone();
    while Instant::now() < until {
        if stop.load(SeqCst) {
            return;
        }
        if !token.is_null() {
            let progress = json!({ "progressToken": token, "progress": until.elapsed().as_millis() });
            let message = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": progress });
            line(&message.to_string());
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
    }
    answer(id, &result(n, arguments["bytes"].as_u64().unwrap()));
}

/// Asks for a name; false if nobody answers any more.
fn asks(n: u64, shared: &Shared) -> bool {
    let (sender, answered) = channel();
    let id = json!(format!("question-{n}")).to_string();
    shared.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), sender);
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let params = json!({ "message": "who?", "requestedSchema": schema });
    line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{params}}}"#));
    answered.recv_timeout(Duration::from_mins(2)).is_ok()
}

/// The result of call `n`, in its spelling: always the same.
pub(crate) fn result(n: u64, bytes: u64) -> String {
    let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let bytes = usize::try_from(bytes).unwrap();
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write!(text, "{state:016x}").unwrap();
    }
    text.truncate(bytes);
    format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"structuredContent":{{"n":{n}.0}}}}"#)
}

/// Whether this is the result of call `n`, as it was spelled, whatever members of its own Raincheck has put beside it.
pub(crate) fn is_result(raw: &RawValue, n: u64, bytes: u64) -> bool {
    let members = |text| serde_json::from_str::<HashMap<String, &RawValue>>(text).unwrap_or_default();
    let wanted = result(n, bytes);
    let (wanted, found) = (members(&wanted), members(raw.get()));
    wanted.iter().all(|(name, value)| found.get(name).is_some_and(|found| found.get() == value.get()))
}

fn answer(id: &str, result: &str) {
    line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
}

fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A proxy that is gone is no reason to fail.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}
