//! An HTTP server whose every byte a test decides.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// No wait of a test is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The longest body that is read: whoever handles a request with a longer one has only its head.
pub(crate) const LEFT: usize = 16 << 20;

/// One request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    /// The text of the body.
    pub(crate) text: String,
    /// The body as JSON; `null` if it is none.
    pub(crate) body: Value,
}

/// The way back to the client.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    keep: bool,
}

/// A server on a port of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Log>,
    accepting: JoinHandle<()>,
}

/// What a server saw.
#[derive(Debug)]
pub(crate) struct Log {
    seen: Mutex<Vec<Seen>>,
    count: watch::Sender<usize>,
    sessions: AtomicUsize,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn is(&self, method: &str) -> bool {
        self.method() == method
    }

    pub(crate) fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn id(&self) -> &Value {
        &self.body["id"]
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The answer to this request.
    pub(crate) fn result(&self, result: &Value) -> String {
        json!({ "jsonrpc": "2.0", "id": self.id(), "result": result }).to_string()
    }

    /// A `tools/call` result with this text.
    pub(crate) fn says(&self, text: &str) -> String {
        self.result(&json!({ "content": [{ "type": "text", "text": text }] }))
    }

    /// Progress of this request.
    pub(crate) fn progress(&self, progress: u64) -> String {
        let token = &self.body["params"]["_meta"]["progressToken"];
        notification("notifications/progress", &json!({ "progressToken": token, "progress": progress }))
    }
}

pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

impl Wire {
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        // The client may have closed already.
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    /// A whole response, after which the connection is kept.
    pub(crate) async fn respond(mut self, status: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        self.raw(format!("{head}\r\n{body}")).await;
        self.keep = true;
        self
    }

    pub(crate) async fn json(self, body: &str) -> Self {
        self.respond("200 OK", &[("Content-Type", "application/json")], body).await
    }

    pub(crate) async fn status(self, status: &str) -> Self {
        self.respond(status, &[], "").await
    }

    /// The head of an event stream, which ends with the connection.
    pub(crate) async fn events(&mut self) {
        self.raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n").await;
    }

    pub(crate) async fn event(&mut self, data: &str) {
        self.raw(format!("event: message\ndata: {data}\n\n")).await;
    }

    /// Writes without end, until the client leaves.
    pub(crate) async fn flood(&mut self) {
        let piece = vec![b'x'; 16 << 10];
        while self.stream.write_all(&piece).await.is_ok() {}
    }

    /// Resets the connection.
    pub(crate) fn reset(self) -> Self {
        self.stream.set_zero_linger().unwrap();
        self
    }

    /// Resolves when the client has closed the connection.
    pub(crate) async fn closed(&mut self) {
        self.read_to_end().await;
    }

    /// How many bytes the client sends before it closes the connection.
    pub(crate) async fn read_to_end(&mut self) -> usize {
        let (mut read, mut rest) = (0, vec![0; 16 << 10]);
        loop {
            match self.stream.read(&mut rest).await {
                Ok(0) | Err(_) => return read,
                Ok(more) => read += more,
            }
        }
    }
}

impl Server {
    /// A server that answers every request with `handle`.
    pub(crate) async fn start<F, Fut>(handle: F) -> Self
    where
        F: Fn(Seen, Wire) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Wire> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0".parse().unwrap(), Arc::new(Log::default()), handle).await
    }

    /// A legacy server with sessions and without a listen stream. What comes after the handshake goes to `handle`.
    pub(crate) async fn legacy<F, Fut>(handle: F) -> Self
    where
        F: Fn(Seen, Wire) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Wire> + Send + 'static,
    {
        let log = Arc::new(Log::default());
        let shared = Arc::clone(&log);
        let handle = Arc::new(handle);
        let legacy = move |seen: Seen, wire: Wire| {
            let (log, handle) = (Arc::clone(&shared), Arc::clone(&handle));
            async move {
                match (seen.verb.as_str(), seen.method()) {
                    ("POST", "initialize") => wire.initialize(&seen, &log.new_session()).await,
                    ("POST", "notifications/initialized") => wire.status("202 Accepted").await,
                    ("GET", _) => wire.status("405 Method Not Allowed").await,
                    ("DELETE", _) => wire.status("200 OK").await,
                    _ => handle(seen, wire).await,
                }
            }
        };
        Self::start_at("127.0.0.1:0".parse().unwrap(), log, legacy).await
    }

    async fn start_at<F, Fut>(address: SocketAddr, log: Arc<Log>, handle: F) -> Self
    where
        F: Fn(Seen, Wire) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Wire> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let handle = Arc::new(handle);
        let shared = Arc::clone(&log);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (handle, log) = (Arc::clone(&handle), Arc::clone(&shared));
                tokio::spawn(async move {
                    let mut wire = Wire { stream, keep: true };
                    while wire.keep {
                        wire.keep = false;
                        let Some(seen) = read_request(&mut wire.stream).await else { return };
                        log.add(seen.clone());
                        wire = handle(seen, wire).await;
                    }
                });
            }
        });
        Self { address, log, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.seen.lock().unwrap().clone()
    }

    /// The requests of one method so far.
    pub(crate) fn seen_of(&self, method: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.is(method)).collect()
    }

    /// The requests with one HTTP verb so far.
    pub(crate) fn seen_by(&self, verb: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.verb == verb).collect()
    }

    /// Waits for the first request that `wanted` accepts.
    pub(crate) async fn saw(&self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let mut count = self.log.count.subscribe();
        let found = async {
            loop {
                count.mark_unchanged();
                if let Some(seen) = self.seen().into_iter().find(&wanted) {
                    return seen;
                }
                count.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("the request never came")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { seen: Mutex::default(), count: watch::Sender::new(0), sessions: AtomicUsize::new(0) }
    }
}

impl Log {
    fn add(&self, seen: Seen) {
        self.seen.lock().unwrap().push(seen);
        self.count.send_modify(|count| *count += 1);
    }

    fn new_session(&self) -> String {
        format!("session-{}", self.sessions.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

impl Wire {
    /// The answer to `initialize` of a legacy server.
    pub(crate) async fn initialize(self, seen: &Seen, session: &str) -> Self {
        let result = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "scripted", "version": "1" },
        });
        let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", session)];
        self.respond("200 OK", &headers, &seen.result(&result)).await
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut buffer = Vec::new();
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut start = lines.next()?.split(' ').map(str::to_owned);
    let (verb, path) = (start.next()?, start.next()?);
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    assert!(!headers.contains_key("transfer-encoding"), "this server cannot read chunked requests");
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    if length > LEFT {
        return Some(Seen { verb, path, headers, text: String::new(), body: Value::Null });
    }
    let mut body = buffer.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8(body).unwrap();
    // A number that no float can hold; `text` still has it.
    let body = serde_json::from_str(&text.replace("1e400", "1")).unwrap_or(Value::Null);
    Some(Seen { verb, path, headers, text, body })
}
