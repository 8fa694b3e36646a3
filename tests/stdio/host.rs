//! A host: starts `raincheck stdio` as its server and speaks with it.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::signs::{self, Said};
use crate::{PATIENCE, scripted};

/// A user's machine: where stores and traces of the server are.
pub(crate) struct Machine {
    pub(crate) folder: TempDir,
    environment: Vec<(String, String)>,
}

/// A connection to one server. The process is killed when this is dropped.
pub(crate) struct Connection {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    log: Said,
    next: u64,
    /// Messages that came while another was waited for.
    early: Vec<Value>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With a server that does things differently.
    pub(crate) fn with(script: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let environment = [
            ("SCRIPT", format!("plain,{script}")),
            ("LEDGER", at("ledger")),
            ("XDG_DATA_HOME", at("data")),
            ("RAINCHECK_STORE_MIN_FREE", "1".to_owned()),
            ("RAINCHECK_STORE_DURABILITY", "process".to_owned()),
            ("RUST_LOG", "debug".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
        Self { folder, environment }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The arguments that put Raincheck in front of the scripted server.
    pub(crate) fn wrapped(flags: &[&str]) -> Vec<String> {
        let mut arguments: Vec<String> = ["stdio"].iter().chain(flags).map(|&part| part.to_owned()).collect();
        arguments.push("--".to_owned());
        arguments.extend(scripted::command());
        arguments
    }

    pub(crate) fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
        command.args(arguments).envs(self.environment.iter().cloned()).current_dir(self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    pub(crate) fn start_with(&self, arguments: &[String]) -> Connection {
        let mut connection = self.start_unread(arguments);
        let (mut errors, kept) = (connection.child.stderr.take().unwrap(), connection.log.clone());
        tokio::spawn(async move {
            let mut chunk = [0; 4096];
            while let Ok(1..) = errors.read(&mut chunk).await.inspect(|count| {
                kept.push(&String::from_utf8_lossy(&chunk[..*count]));
            }) {}
        });
        connection
    }

    /// The same, with a stderr that is never read.
    pub(crate) fn start_unread(&self, arguments: &[String]) -> Connection {
        let mut child = self.command(arguments).spawn().unwrap();
        let input = child.stdin.take();
        let output = child.stdout.take().map(BufReader::new);
        Connection { child, input, output, log: Said::new(), next: 1, early: Vec::new() }
    }

    /// Starts Raincheck in front of the scripted server.
    pub(crate) fn start(&self, flags: &[&str]) -> Connection {
        self.start_with(&Self::wrapped(flags))
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// How often a word stands in the ledger of the server.
    pub(crate) fn ledger(&self, word: &str) -> usize {
        let text = std::fs::read_to_string(self.folder.path().join("ledger")).unwrap_or_default();
        text.lines().filter(|line| *line == word).count()
    }

    /// Resolves when the ledger has `word` `count` times.
    pub(crate) async fn noted(&self, word: &str, count: usize) {
        signs::files(word, self.folder.path(), PATIENCE, || self.ledger(word) >= count).await;
    }

    /// The stores of all lineages.
    pub(crate) fn stores(&self) -> Vec<PathBuf> {
        let list = |path: PathBuf| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(path).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        let mut stores: Vec<_> =
            list(self.folder.path().join("data/raincheck/stdio")).into_iter().flat_map(list).collect();
        stores.sort();
        stores
    }
}

/// Parameters as a modern client with Tasks sends them.
pub(crate) fn modern(params: Value) -> Value {
    modern_with(params, json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }))
}

/// Parameters as a modern client with these capabilities sends them.
pub(crate) fn modern_with(mut params: Value, capabilities: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    params
}

impl Connection {
    /// Writes these very bytes.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).await.unwrap();
        input.flush().await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// Sends a request under an id of its own.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next);
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    /// Calls a tool as a modern client with Tasks does.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", modern(json!({ "name": tool, "arguments": arguments }))).await
    }

    /// The next line, as it is.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.output.as_mut().unwrap().read_line(&mut line);
        let count = tokio::time::timeout(PATIENCE, read).await;
        let count = count.unwrap_or_else(|_| panic!("nothing comes; the log: {}", self.log())).unwrap();
        (count > 0).then(|| line.strip_suffix('\n').expect("a whole line").to_owned())
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        if !self.early.is_empty() {
            return self.early.remove(0);
        }
        self.fresh().await
    }

    async fn fresh(&mut self) -> Value {
        let line = self.line().await.unwrap_or_else(|| panic!("the output ended; the log: {}", self.log()));
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The answer to the request of this id; what comes before is kept.
    pub(crate) async fn answer(&mut self, id: &Value) -> Value {
        if let Some(at) = self.early.iter().position(|message| message["id"] == *id && message["method"].is_null()) {
            return self.early.remove(at);
        }
        loop {
            let message = self.fresh().await;
            if message["id"] == *id && message["method"].is_null() {
                return message;
            }
            self.early.push(message);
        }
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(&id).await
    }

    /// The state of a task.
    pub(crate) async fn task(&mut self, handle: &Value) -> Value {
        let answer = self.request("tasks/get", modern(json!({ "taskId": handle }))).await;
        if answer["result"].is_null() { answer } else { answer["result"].clone() }
    }

    /// Listens to the task until it has this status, and reads it then.
    pub(crate) async fn until(&mut self, handle: &Value, status: &str) -> Value {
        let filter = json!({ "notifications": { "taskIds": [handle] } });
        let stream = self.ask("subscriptions/listen", modern(filter)).await;
        loop {
            let told = self.fresh().await;
            match told["method"].as_str() {
                Some("notifications/tasks") if told["params"]["taskId"] == *handle => {
                    if told["params"]["status"] == status {
                        break;
                    }
                    assert_eq!(told["params"]["status"], "working", "{told}");
                }
                Some("notifications/subscriptions/acknowledged") => {}
                _ => self.early.push(told),
            }
        }
        self.notify("notifications/cancelled", json!({ "requestId": stream })).await;
        self.task(handle).await
    }

    /// The host wants no more.
    pub(crate) fn end_input(&mut self) {
        self.input = None;
    }

    /// The host reads no more.
    pub(crate) fn end_output(&mut self) {
        self.output = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()), signal).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// Resolves when the log has these words.
    pub(crate) async fn says(&self, words: &str) {
        self.log.until(PATIENCE, |log| log.contains(words)).await;
    }

    /// The end of the process.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end; the log: {}", self.log())).unwrap()
    }

    /// Closes the input and waits for a good end; what came out in between.
    pub(crate) async fn close(mut self) -> Vec<Value> {
        self.end_input();
        let mut rest = std::mem::take(&mut self.early);
        while let Some(line) = self.line().await {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{}", self.log());
        rest
    }
}
