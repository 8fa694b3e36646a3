//! A front with a scripted server behind it, and a client that sees every byte.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use raincheck::config::{Limits, Listen, OwnerConfig, OwnerSource};
use raincheck::front::{Front, Mount};
use raincheck::jobs::{Jobs, Workers};
use raincheck::protocol::{Call, Event, Json, Notification, Outcome, Reply, ReplySender};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Nothing in these tests takes this long, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A call that reached the server, and the way to answer it.
pub(crate) struct Asked {
    pub(crate) call: Call,
    pub(crate) sender: ReplySender,
}

/// What a test may change.
pub(crate) struct Setup {
    pub(crate) listen: Listen,
    pub(crate) limits: Limits,
    pub(crate) owner: OwnerConfig,
    pub(crate) names: Vec<&'static str>,
    pub(crate) grace: Duration,
    pub(crate) workers: Workers,
}

/// A running front.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// What a stop of the proxy stops first: new calls, streams.
    pub(crate) fronts: Jobs,
    /// Connections.
    pub(crate) jobs: Jobs,
    pub(crate) served: JoinHandle<std::io::Result<()>>,
    asked: mpsc::UnboundedReceiver<Asked>,
}

/// One connection of a client.
pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self {
            listen: Listen {
                http: SocketAddr::from(([127, 0, 0, 1], 0)),
                public_url: None,
                allowed_hosts: Vec::new(),
                allowed_origins: Vec::new(),
                keep_alive: Duration::from_secs(15),
                session_idle: Duration::from_hours(1),
            },
            limits: Limits::default(),
            owner: OwnerConfig {
                from: OwnerSource::Authorization,
                tokens: Vec::new(),
                jwt: None,
                allow_anonymous: false,
            },
            names: vec!["only"],
            grace: Duration::from_secs(5),
            workers: Workers::start(|| ()).unwrap(),
        }
    }

    /// Starts the front; the test answers the calls.
    pub(crate) async fn start(self) -> Server {
        let (calls, asked) = mpsc::unbounded_channel();
        self.start_with(asked, move |call| {
            let (sender, reply) = Reply::channel();
            let _ = calls.send(Asked { call, sender });
            reply
        })
        .await
    }

    /// Starts the front; `answer` answers the calls.
    pub(crate) async fn start_answering(
        self,
        answer: impl Fn(Call) -> Reply + Clone + Send + Sync + 'static,
    ) -> Server {
        let (_, asked) = mpsc::unbounded_channel();
        self.start_with(asked, answer).await
    }

    async fn start_with(
        self,
        asked: mpsc::UnboundedReceiver<Asked>,
        answer: impl Fn(Call) -> Reply + Clone + Send + Sync + 'static,
    ) -> Server {
        let service = tower::service_fn(move |call: Call| {
            let answer = answer.clone();
            async move { Ok::<_, Infallible>(answer(call)) }
        });
        let mounts =
            self.names.iter().map(|name| Mount { name: (*name).to_owned(), service: service.clone() }).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // A stop of these stops the other too.
        let jobs = Jobs::new();
        let fronts = jobs.child();
        let front = Front::new(self.listen, self.limits, self.owner, mounts).with_workers(self.workers);
        let served = tokio::spawn(front.serve_until(listener, fronts.clone(), jobs.clone(), self.grace));
        Server { address, fronts, jobs, served, asked }
    }
}

impl Server {
    pub(crate) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), unread: Vec::new() }
    }

    /// The next call that reached the server.
    pub(crate) async fn asked(&mut self) -> Asked {
        bounded(self.asked.recv()).await.unwrap()
    }

    /// Whether no call has reached the server.
    pub(crate) fn is_untouched(&mut self) -> bool {
        self.asked.try_recv().is_err()
    }
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        bounded(self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends a POST of this JSON-RPC text with the headers that a good client sends and these more.
    pub(crate) async fn post(&mut self, text: &str, more: &str) {
        self.send(post(text, more)).await;
    }

    /// Reads the head of the next response.
    pub(crate) async fn head(&mut self) -> Head {
        loop {
            if let Some(end) = self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return Head::read(std::str::from_utf8(&head).unwrap());
            }
            assert!(self.more().await, "the connection ended before a response: {:?}", self.unread);
        }
    }

    /// Reads the whole next response.
    pub(crate) async fn response(&mut self) -> (Head, String) {
        let head = self.head().await;
        let body = self.body(&head).await;
        (head, body)
    }

    /// Reads the body that belongs to `head`.
    pub(crate) async fn body(&mut self, head: &Head) -> String {
        let mut body = Vec::new();
        if head.get("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await {
                body.extend_from_slice(&chunk);
            }
        } else {
            let length = head.get("content-length").map_or(0, |length| length.parse().unwrap());
            body = self.take(length).await;
        }
        String::from_utf8(body).unwrap()
    }

    /// Closes the sending side only.
    pub(crate) async fn says_no_more(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Reads the next chunk of a body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = loop {
            if let Some(end) = self.unread.windows(2).position(|bytes| bytes == b"\r\n") {
                break self.unread.drain(..end + 2).collect::<Vec<u8>>();
            }
            assert!(self.more().await, "the connection ended within a body");
        };
        let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        let mut chunk = self.take(length + 2).await;
        chunk.truncate(length);
        (length > 0).then_some(chunk)
    }

    /// Reads events until one carries a message, and gives that; comments are skipped.
    pub(crate) async fn message(&mut self) -> Option<serde_json::Value> {
        loop {
            let mut event = String::new();
            while !event.ends_with("\n\n") {
                event.push_str(std::str::from_utf8(&self.chunk().await?).unwrap());
            }
            if event != ":\n\n" {
                let data = event.strip_prefix("event: message\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
                return Some(serde_json::from_str(data.unwrap()).unwrap());
            }
        }
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            assert!(self.more().await, "the connection ended within a body");
        }
        self.unread.drain(..length).collect()
    }

    /// Reads until the connection ends.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.unread)).into_owned()
    }

    /// Reads more bytes; false at the end of the connection.
    async fn more(&mut self) -> bool {
        self.unread.reserve(64 << 10);
        let read = bounded(self.stream.read_buf(&mut self.unread)).await.unwrap_or(0);
        read > 0
    }
}

impl Head {
    fn read(text: &str) -> Self {
        let mut lines = text.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Self { status, headers }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// Waits for what must come soon.
pub(crate) async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("this must not hang")
}

/// A POST of this text, as a good client sends it.
pub(crate) fn post(text: &str, more: &str) -> String {
    let accept = if more.contains("accept:") { "" } else { "accept: application/json, text/event-stream\r\n" };
    let kind = if more.contains("content-type:") { "" } else { "content-type: application/json\r\n" };
    format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\n{accept}{kind}{more}content-length: {}\r\n\r\n{text}", text.len())
}

/// A request of the modern era for a tool, and the headers that go with it.
pub(crate) fn call(id: &str, tool: &str, meta: &str) -> (String, String) {
    request(id, "tools/call", &format!(r#""name":"{tool}","arguments":{{}},"#), meta, &format!("mcp-name: {tool}\r\n"))
}

/// A request of the modern era, and the headers that go with it. `params` and `meta` are members with a comma
/// behind or in front.
pub(crate) fn request(id: &str, method: &str, params: &str, meta: &str, more: &str) -> (String, String) {
    let meta = format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}{meta}}}"#
    );
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{meta}}}}}"#);
    (text, format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{more}"))
}

/// A `subscriptions/listen` request with this filter, of a client that declares Tasks or does not.
pub(crate) fn listen(id: &str, filter: &str, tasks: bool) -> (String, String) {
    let (text, headers) = request(id, "subscriptions/listen", &format!(r#""notifications":{filter},"#), "", "");
    if tasks {
        let declared =
            r#""io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
        return (text.replace(r#""io.modelcontextprotocol/clientCapabilities":{}"#, declared), headers);
    }
    (text, headers)
}

/// What a service says first of a subscription.
pub(crate) fn acknowledged(honoured: &str) -> Event {
    notification("subscriptions/acknowledged", &format!(r#"{{"notifications":{honoured}}}"#))
}

/// A notification of a server.
pub(crate) fn notification(method: &str, params: &str) -> Event {
    Event::Notification(Notification { method: format!("notifications/{method}"), params: Some(json(params)) })
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
}

pub(crate) fn result(text: &str) -> Outcome {
    Outcome::Result(json(text))
}

/// The code of the JSON-RPC error in this text.
pub(crate) fn code(text: &str) -> i64 {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {text}"))
}
