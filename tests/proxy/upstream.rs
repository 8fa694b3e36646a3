//! The server behind the proxy, over stdio or Streamable HTTP: the test holds every call in its hand.

use std::future::pending;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::http_server::{Seen, Server, Wire};
use crate::scripted::{self, CONTROL, DIE, LEDGER};
use crate::{PATIENCE, bounded, member, signs};

/// A legacy server with tools of any name.
pub(crate) struct Upstream {
    kind: Kind,
    runs: Mutex<mpsc::UnboundedReceiver<Run>>,
    cancels: watch::Receiver<usize>,
    folder: TempDir,
    marker: String,
}

enum Kind {
    Stdio { control: String, accepting: JoinHandle<()> },
    Http(Server),
}

/// A call that runs.
pub(crate) struct Run {
    /// The request as it came.
    pub(crate) request: String,
    /// The `Authorization` that came with it.
    pub(crate) authorization: Option<String>,
    way: Way,
}

enum Way {
    Line(TcpStream),
    Http { wire: Option<Wire>, is_stream: bool, back: Option<oneshot::Sender<Wire>> },
}

/// Which transport a test is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    Stdio,
    Http,
}

impl Upstream {
    pub(crate) async fn start(transport: Transport) -> Self {
        match transport {
            Transport::Stdio => Self::stdio().await,
            Transport::Http => Self::http().await,
        }
    }

    pub(crate) async fn stdio() -> Self {
        let (sender, runs) = mpsc::unbounded_channel();
        let (cancelled, cancels) = watch::channel(0);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let control = listener.local_addr().unwrap().to_string();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, cancelled) = (sender.clone(), cancelled.clone());
                tokio::spawn(async move {
                    let mut reader = BufReader::new(stream);
                    let mut request = String::new();
                    reader.read_line(&mut request).await.unwrap();
                    if request.contains("notifications/cancelled") {
                        cancelled.send_modify(|count| *count += 1);
                    } else {
                        let way = Way::Line(reader.into_inner());
                        let _ = sender.send(Run { request, authorization: None, way });
                    }
                });
            }
        });
        Self::new(Kind::Stdio { control, accepting }, runs, cancels, TempDir::new().unwrap())
    }

    /// A server that runs on when its input ends.
    pub(crate) async fn stubborn() -> Self {
        let mut upstream = Self::stdio().await;
        upstream.marker.push_str(scripted::STUBBORN);
        upstream
    }

    pub(crate) async fn http() -> Self {
        let (sender, runs) = mpsc::unbounded_channel();
        let (cancelled, cancels) = watch::channel(0);
        let folder = TempDir::new().unwrap();
        let ledger = folder.path().join("ledger");
        let server = Server::legacy(move |seen: Seen, wire: Wire| {
            let (sender, cancelled, ledger) = (sender.clone(), cancelled.clone(), ledger.clone());
            async move {
                if seen.is("notifications/cancelled") {
                    cancelled.send_modify(|count| *count += 1);
                    return wire.status("202 Accepted").await;
                }
                let is_answer =
                    seen.body["method"].is_null() && seen.body["id"].as_str().is_some_and(|id| id.starts_with('q'));
                if is_answer {
                    let way = Way::Http { wire: None, is_stream: false, back: None };
                    let _ = sender.send(Run { request: seen.text, authorization: None, way });
                    return wire.status("202 Accepted").await;
                }
                if !seen.is("tools/call") {
                    let list = seen.result(&json!({ "tools": [] }));
                    return wire.json(&list).await;
                }
                scripted::note(&ledger, &seen.body["params"]);
                let (back, given) = oneshot::channel();
                let authorization = seen.header("authorization").map(str::to_owned);
                let way = Way::Http { wire: Some(wire), is_stream: false, back: Some(back) };
                let _ = sender.send(Run { request: seen.text, authorization, way });
                match given.await {
                    Ok(wire) => wire,
                    // The test let go of the call: it is never answered.
                    Err(_) => pending().await,
                }
            }
        })
        .await;
        Self::new(Kind::Http(server), runs, cancels, folder)
    }

    fn new(kind: Kind, runs: mpsc::UnboundedReceiver<Run>, cancels: watch::Receiver<usize>, folder: TempDir) -> Self {
        let marker = format!("e2e-{:032x}", rand::random::<u128>());
        Self { kind, runs: Mutex::new(runs), cancels, folder, marker }
    }

    /// Its `[[server]]` table, without a name.
    pub(crate) fn config(&self) -> String {
        match &self.kind {
            Kind::Stdio { control, .. } => {
                let (command, ledger) =
                    (json!(scripted::command(&self.marker)), self.ledger_file().display().to_string());
                format!("command = {command}\nenv = {{ {CONTROL} = {control:?}, {LEDGER} = {ledger:?} }}\n")
            }
            Kind::Http(server) => format!("url = {:?}\n", server.url()),
        }
    }

    /// The next call that reaches the server.
    pub(crate) async fn run(&self) -> Run {
        bounded(async { self.runs.lock().await.recv().await }).await.unwrap()
    }

    /// Waits until so many cancels have come.
    pub(crate) async fn cancels(&self, count: usize) {
        let mut cancels = self.cancels.clone();
        bounded(cancels.wait_for(|seen| *seen >= count)).await.unwrap();
    }

    /// How many cancels have come.
    pub(crate) fn cancelled(&self) -> usize {
        *self.cancels.borrow()
    }

    fn ledger_file(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// A line for each call that ran.
    pub(crate) fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.ledger_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How many processes of this server there are, their guards included.
    pub(crate) fn processes(&self) -> usize {
        self.pids().len()
    }

    fn pids(&self) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| contains(&line, self.marker.as_bytes()))
        };
        pids.filter(is_ours).collect()
    }

    /// Resolves when so many of its processes are left, at most.
    pub(crate) async fn left(&self, most: usize) {
        loop {
            let pids = self.pids();
            if pids.len() <= most {
                return;
            }
            let ends = pids.into_iter().map(|pid| Box::pin(signs::ended(pid, PATIENCE)));
            futures_util::future::select_all(ends).await;
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Kind::Stdio { accepting, .. } = &self.kind {
            accepting.abort();
        }
    }
}

/// Whether `part` stands in `bytes`.
pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Whether `part` stands in any file under `folder`.
pub(crate) fn folder_contains(folder: &Path, part: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { folder_contains(&path, part) } else { contains(&std::fs::read(path).unwrap(), part) }
    })
}

impl Run {
    fn params(&self) -> Value {
        serde_json::from_str(&self.request.replace("1e400", "1"))
            .map(|mut request: Value| request["params"].take())
            .unwrap()
    }

    pub(crate) fn progress_token(&self) -> Value {
        self.params()["_meta"]["progressToken"].clone()
    }

    /// `arguments`, as they are spelled.
    pub(crate) fn arguments(&self) -> &str {
        member(member(&self.request, "params"), "arguments")
    }

    fn id(&self) -> &str {
        member(&self.request, "id")
    }

    /// The answer with this result.
    pub(crate) fn result(&self, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.id())
    }

    /// Ends the call with this result.
    pub(crate) async fn answer(&mut self, result: &str) {
        let message = self.result(result);
        self.end(&message).await;
    }

    /// Ends the call with this text.
    pub(crate) async fn says(&mut self, text: &str) {
        self.answer(&json!({ "content": [{ "type": "text", "text": text }] }).to_string()).await;
    }

    /// Ends the call with this error.
    pub(crate) async fn fails(&mut self, error: &str) {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.id());
        self.end(&message).await;
    }

    /// A notification of progress.
    pub(crate) async fn progress(&mut self, progress: u64, message: &str) {
        let params = json!({ "progressToken": self.progress_token(), "progress": progress, "message": message });
        let text = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }).to_string();
        self.message(&text).await;
    }

    /// Sends any text as a message that does not end the call.
    pub(crate) async fn message(&mut self, text: &str) {
        match &mut self.way {
            Way::Line(stream) => {
                // The child may be gone.
                let _ = stream.write_all(text.as_bytes()).await;
                let _ = stream.write_all(b"\n").await;
            }
            Way::Http { wire, is_stream, .. } => {
                let wire = wire.as_mut().unwrap();
                if !*is_stream {
                    wire.events().await;
                    *is_stream = true;
                }
                wire.event(text).await;
            }
        }
    }

    async fn end(&mut self, message: &str) {
        let is_plain = matches!(self.way, Way::Http { is_stream: false, .. });
        if !is_plain {
            self.message(message).await;
        }
        if let Way::Http { wire, back, .. } = &mut self.way {
            let wire = wire.take().unwrap();
            let wire = if is_plain { wire.json(message).await } else { wire };
            let _ = back.take().unwrap().send(wire);
        }
    }

    /// Ends the process of the server, in the middle of the call.
    pub(crate) async fn dies(mut self) {
        self.message(DIE).await;
    }
}
