//! The server behind, as a child process: this test binary run again with `SCRIPT` set.
//!
//! The harness prints its own lines on the same output, so every test is one with noise.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio, exit};

use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};

#[path = "scripted_tasks.rs"]
pub(crate) mod tasks;

/// What the child does differently, by name; `flag` or `flag=value`, split at commas.
struct Script(HashMap<String, String>);

struct Server {
    script: Script,
    initialized: bool,
    handshakes: u64,
    calls: u64,
    held: Vec<(Value, Value)>,
    /// The parameters of `initialize`, and the notifications since.
    opening: Value,
    told: Vec<Value>,
    /// The tokens of the calls that are tasks, by the number of the task.
    tokens: Vec<Value>,
    answered_tasks: Vec<Value>,
    /// Notifications that are to be answered.
    notified: usize,
    input: std::io::Lines<std::io::StdinLock<'static>>,
}

/// The command line that runs the child.
pub(crate) fn command() -> Vec<String> {
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&this, "scripted::server", "--exact", "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

#[test]
fn server() {
    let Ok(script) = std::env::var("SCRIPT") else { return };
    let pairs = script.split(',').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let script = Script(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
    // The harness has begun a line.
    println!();
    let input = std::io::stdin().lock().lines();
    Server {
        script,
        initialized: false,
        handshakes: 0,
        calls: 0,
        held: Vec::new(),
        opening: Value::Null,
        told: Vec::new(),
        tokens: Vec::new(),
        answered_tasks: Vec::new(),
        notified: 0,
        input,
    }
    .run();
}

impl Script {
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|is| is == value)
    }
}

fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A proxy that is gone is no reason to fail.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}

fn notify(method: &str, params: Value) {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
}

/// Keeps the pipe at `LIFE` open: it ends when the last process that did this has.
fn hold_life() {
    if let Ok(path) = std::env::var("LIFE") {
        // Nobody watches any more once the first processes have ended.
        let mut options = std::fs::File::options();
        if let Ok(life) = options.write(true).custom_flags(nix::libc::O_NONBLOCK).open(path) {
            std::mem::forget(life);
        }
    }
}

/// Leaves a process behind that holds the error output, in a group of its own. It ends with the pipe at `DAEMON`.
fn leave_daemon() {
    if let Ok(path) = std::env::var("DAEMON") {
        let pipe = std::fs::File::open(path).unwrap();
        let daemon = Command::new("cat").stdin(pipe).stdout(Stdio::null()).process_group(0).spawn().unwrap();
        std::mem::forget(daemon);
        note("daemon");
    }
}

fn note(word: &str) {
    if let Ok(path) = std::env::var("LEDGER") {
        let mut ledger = std::fs::File::options().append(true).create(true).open(path).unwrap();
        writeln!(ledger, "{word}").unwrap();
    }
}

impl Server {
    fn run(&mut self) {
        note("start");
        if self.script.has("exit") {
            eprint!("starting\n\u{1b}[31mno database {}\n\n", "x".repeat(300));
            exit(self.script.0["exit"].parse().unwrap());
        }
        hold_life();
        leave_daemon();
        if self.script.has("wrapper") {
            self.wrap();
        }
        if self.script.has("stubborn") {
            let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
            signals.thread_block().unwrap();
        }
        if self.script.has("banner") {
            line("Server started\n\u{1b}[32mready\u{1b}[0m\n{\"level\":\"info\"}\nnull\n42\n");
        }
        if self.script.has("chatty") {
            eprint!("{}", "a line of no interest\n".repeat(50_000));
        }
        while let Some(Ok(text)) = self.input.next() {
            let message: Value = serde_json::from_str(&text).unwrap();
            self.take_in(&message);
        }
        note("eof");
        if self.script.has("stubborn") {
            loop {
                std::thread::park();
            }
        }
        exit(0);
    }

    /// As npx does: the real server is a child, and signals are not passed on.
    fn wrap(&self) -> ! {
        let script = self.script.0.keys().filter(|name| *name != "wrapper").cloned().collect::<Vec<_>>().join(",");
        let mut command = Command::new(&command()[0]);
        command.args(command_arguments()).env("SCRIPT", script).stdin(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let _ = child.wait();
        exit(0)
    }

    fn take_in(&mut self, message: &Value) {
        let id = message["id"].clone();
        self.answer_notifications(&id);
        match message["method"].as_str().unwrap_or("") {
            "initialize" if self.script.has("breaks-handshake") => {
                line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\u{0}"));
            }
            "initialize" if self.script.has("modern") => Self::refuse(&id, -32601),
            "initialize" if self.script.has("mute") => {}
            "initialize" => {
                self.handshakes += 1;
                self.opening = message["params"].clone();
                let version = self.script.0.get("version").map_or("2025-11-25", String::as_str);
                let result = json!({
                    "protocolVersion": version, "capabilities": { "tools": {}, "tasks": {} },
                    "serverInfo": { "name": "scripted", "version": "1" },
                });
                let full = json!({
                    "protocolVersion": version, "serverInfo": { "name": "scripted", "version": "1" },
                    "capabilities": {
                        "logging": {}, "tools": { "listChanged": true }, "prompts": {},
                        "resources": { "subscribe": true, "listChanged": true },
                    },
                    "zzz": 1.0,
                });
                let result = if self.script.has("full") { full } else { result };
                let result = if self.script.has("tasks") { tasks::opening() } else { result };
                self.answer(&id, &result);
            }
            "notifications/initialized" => {
                self.initialized = true;
                if self.script.has("asks-at-start") {
                    line(&json!({ "jsonrpc": "2.0", "id": "start", "method": "roots/list" }).to_string());
                }
            }
            "notifications/cancelled" => {
                note("cancelled");
                if self.script.has("dies-of-cancel") {
                    exit(7);
                }
            }
            "server/discover" if self.script.has("modern") => self.answer(
                &id,
                &json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "resultType": "complete" }),
            ),
            "server/discover" if self.script.has("silent-to-discover") => {}
            "test/release" => {
                note("released");
                for (id, arguments) in std::mem::take(&mut self.held) {
                    self.answer(&id, &arguments);
                }
            }
            _ if self.script.has("tasks") && tasks::is_theirs(message) => self.task(&id, message),
            "tools/list" => {
                let extra = self.opening["capabilities"]["elicitation"].is_object();
                let names = ["plain", "asking"].into_iter().take(if extra { 2 } else { 1 });
                let tools: Vec<_> = names.map(|name| json!({ "name": name })).collect();
                self.answer(&id, &json!({ "tools": tools }));
            }
            "test/say" => {
                let mut said = message["params"].clone();
                said["params"].as_object_mut().unwrap().remove("_meta");
                line(&said.to_string());
                self.answer(&id, &json!({}));
            }
            "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" | "completion/complete" => {
                note(message["method"].as_str().unwrap());
                self.told.push(message.clone());
                self.answer(&id, &json!({ "asked": message["params"] }));
            }
            "tools/call" if self.initialized || self.script.has("modern") => self.call(&id, &message["params"]),
            _ if id.is_null() => self.told.push(message.clone()),
            "" => {
                note("answered");
                self.told.push(message.clone());
            }
            _ => Self::refuse(&id, -32601),
        }
    }

    /// Servers made by hand answer notifications, each in its own way. Here when the next request has come, so that
    /// the answer is there while that runs.
    fn answer_notifications(&mut self, id: &Value) {
        let Some(answer) = self.script.0.get("notes") else { return };
        if id.is_null() {
            self.notified += 1;
            return;
        }
        for _ in 0..std::mem::take(&mut self.notified) {
            line(match answer.as_str() {
                "refused" => r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}"#,
                "unnamed" => r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"}}"#,
                "done" => r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
                "done-unnamed" => r#"{"jsonrpc":"2.0","result":{}}"#,
                _ => r#"{"jsonrpc":"2.0","id":-1,"result":{}}"#,
            });
        }
    }

    /// What a server with tasks of 2025-11-25 does.
    fn task(&mut self, id: &Value, message: &Value) {
        let at = |task: &Value| task.as_str().unwrap().trim_start_matches("theirs-").parse::<usize>().unwrap();
        match message["method"].as_str().unwrap_or_default() {
            "tools/list" => self.answer(id, &tasks::tools()),
            "tools/call" => {
                let handle = tasks::handle(self.tokens.len());
                self.tokens.push(message["params"]["_meta"]["progressToken"].clone());
                self.answer(id, &json!({ "task": tasks::state(&handle, "working", "begun") }));
                note("created");
                self.answered_tasks.push(Value::Null);
            }
            // Says something about a task, as the test wants.
            "test/task" => {
                let (task, step) = (&message["params"]["which"], message["params"]["step"].as_str().unwrap());
                let token = self.tokens[at(task)].clone();
                tasks::say(task, &token, step);
                self.answer(id, &json!({}));
            }
            "tasks/get" => {
                let task = &message["params"]["taskId"];
                let is_over = !self.answered_tasks[at(task)].is_null();
                note("polled");
                self.answer(id, &tasks::state(task, if is_over { "completed" } else { "working" }, ""));
            }
            "tasks/result" => {
                let task = &message["params"]["taskId"];
                let result = json!({ "told": self.answered_tasks[at(task)], "_meta": tasks::tie(task) });
                self.answer(id, &result);
            }
            "tasks/cancel" => {
                note("tasks/cancel");
                self.answer(id, &tasks::state(&message["params"]["taskId"], "cancelled", ""));
            }
            // The answer to a question of a task, whose id is the handle.
            _ => {
                note("answered");
                self.answered_tasks[at(&message["id"])] = message.clone();
            }
        }
    }

    fn refuse(id: &Value, code: i64) {
        line(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": "no" } }).to_string());
    }

    fn answer(&self, id: &Value, result: &Value) {
        let id = match id {
            id if self.script.is("ids", "string") => json!(id.to_string()),
            _ if self.script.is("ids", "zero") => json!(0),
            _ if self.script.is("ids", "null") => Value::Null,
            id => id.clone(),
        };
        // The order of the TypeScript SDK.
        line(&format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#));
    }

    fn call(&mut self, id: &Value, params: &Value) {
        self.calls += 1;
        let (name, arguments) = (params["name"].as_str().unwrap(), params["arguments"].clone());
        note(name);
        match name {
            "echo" => self.answer(id, &json!({ "arguments": arguments, "meta": params["_meta"] })),
            "who" => {
                let pid = std::process::id();
                self.answer(id, &json!({ "pid": pid, "handshakes": self.handshakes, "calls": self.calls }));
            }
            "hold" => self.held.push((id.clone(), arguments)),
            "release" => {
                for (id, arguments) in std::mem::take(&mut self.held).into_iter().rev() {
                    self.answer(&id, &arguments);
                }
                self.answer(id, &json!({}));
            }
            "die" => exit(3),
            "answer-and-die" => {
                self.answer(id, &json!({ "last": true }));
                exit(3);
            }
            // Writes what the arguments say in place of an answer, without the end of the line, and ends its output or itself.
            "last-words" => {
                let text = arguments["text"].as_str().unwrap().replace("ID", &id.to_string());
                let mut output = std::io::stdout().lock();
                output.write_all(text.as_bytes()).unwrap();
                output.flush().unwrap();
                if arguments["exits"].as_bool().unwrap() {
                    exit(3);
                }
                nix::unistd::dup2_stdout(std::fs::File::open("/dev/null").unwrap()).unwrap();
            }
            // Asks by a result, and ends.
            "ask-and-die" if params["requestState"].is_null() => {
                let question = json!({ "who": { "method": "elicitation/create", "params": { "message": "who?" } } });
                let asks = json!({ "resultType": "input_required", "inputRequests": question, "requestState": "s" });
                self.answer(id, &asks);
                exit(3);
            }
            "ask" => self.ask(id),
            // Asks what the arguments say, and answers with what it was told.
            "question" => {
                let answer = self.question(&arguments);
                self.answer(id, &answer);
            }
            // Asks, and does not wait.
            "only-ask" => {
                line(&arguments.to_string());
                self.held.push((id.clone(), json!({})));
            }
            "opening" => self.answer(id, &json!({ "opening": self.opening, "told": self.told })),
            "say" => {
                line(&arguments.to_string());
                self.answer(id, &json!({}));
            }
            "big" => {
                let text = "x".repeat(arguments["bytes"].as_u64().unwrap().try_into().unwrap());
                self.answer(id, &json!({ "text": text }));
            }
            // Leaves a line in its log first.
            "bare" => line(&format!("{{\"id\":{id},\"msg\":\"x\"}}\n{{\"id\":{id},\"result\":{{}}}}")),
            "deep" => {
                let (opened, closed) = ("[".repeat(200), "]".repeat(200));
                line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"deep\":{opened}{closed}}}}}"));
            }
            // Cannot read what it was sent, and so not whose it was.
            "unreadable" => Self::refuse(&Value::Null, -32700),
            "separators" => {
                line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"t\":\"left\u{2028}right\"}}}}"));
            }
            "late-progress" => {
                self.answer(id, &json!({}));
                for token in [id.clone(), id.clone(), json!("ghost")] {
                    notify("notifications/progress", json!({ "progressToken": token, "progress": 9 }));
                }
            }
            "progress" => {
                notify(
                    "notifications/progress",
                    json!({ "progressToken": params["_meta"]["progressToken"], "progress": 1, "total": 2 }),
                );
                self.answer(id, &json!({}));
            }
            "deaf" => loop {
                std::thread::park();
            },
            other => panic!("{other}"),
        }
    }

    fn question(&mut self, request: &Value) -> Value {
        line(&request.to_string());
        loop {
            let message: Value = serde_json::from_str(&self.input.next().unwrap().unwrap()).unwrap();
            if message["method"].is_null() && message["id"] == request["id"] {
                return json!({ "answer": message });
            }
            self.take_in(&message);
        }
    }

    /// Asks the client while the call waits, as servers that hold their tool lock do.
    fn ask(&mut self, id: &Value) {
        let mut answers = Vec::new();
        for (own, method) in ["ping", "roots/list", "made/up"].into_iter().enumerate() {
            line(&json!({ "jsonrpc": "2.0", "id": own, "method": method }).to_string());
            let answer: Value = serde_json::from_str(&self.input.next().unwrap().unwrap()).unwrap();
            assert_eq!(answer["id"], own);
            answers.push(answer);
        }
        let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].clone()).collect();
        self.answer(id, &json!({ "ping": answers[0]["result"], "codes": codes }));
    }
}

fn command_arguments() -> Vec<String> {
    command().split_off(1)
}
