//! Callers that send one request after the other, each on a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// What is sent over and over.
#[derive(Clone)]
pub enum Request {
    /// A `tools/call` of 2026-07-28 that declares tasks.
    Call,
    /// A `tasks/get` of one of these.
    Get(Arc<Vec<String>>),
}

/// Callers on one port.
pub struct Load {
    port: u16,
    callers: usize,
    request: Request,
}

/// What a run showed. Times in milliseconds.
pub struct Summary {
    pub per_second: f64,
    pub p50: f64,
    pub p99: f64,
    pub failed: usize,
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

impl Request {
    fn build(&self, turn: usize) -> http::Request<Full<Bytes>> {
        let (body, method, name) = match self {
            Self::Call => (
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"hello, world"}},{META}}}}}"#
                ),
                "tools/call",
                "echo".to_owned(),
            ),
            Self::Get(ids) => {
                // A stride that is prime to the length, so that hits do not cluster.
                let id = &ids[turn.wrapping_mul(7919) % ids.len()];
                let body =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"{id}",{META}}}}}"#);
                (body, "tasks/get", id.clone())
            }
        };
        http::Request::post("/mcp")
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
            .header("mcp-name", name)
            .body(Full::new(Bytes::from(body)))
            .unwrap()
    }
}

/// Whether a `tasks/get` is answered, here with "no such task".
pub fn is_up(port: u16) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = Request::Get(Arc::new(vec!["0".repeat(36)])).build(0);
    runtime.block_on(async {
        let answered = async { exchange(&mut connect(port).await, request).await };
        tokio::time::timeout(Duration::from_secs(10), answered).await.is_ok_and(|answer| answer.is_ok())
    })
}

impl Load {
    pub fn new(port: u16, callers: usize, request: Request) -> Self {
        Self { port, callers, request }
    }

    /// Lets all callers send for `seconds`.
    pub fn run(&self, seconds: f64) -> Summary {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.drive(Duration::from_secs_f64(seconds)))
    }

    async fn drive(&self, length: Duration) -> Summary {
        let (turns, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut callers = Vec::new();
        let started = Instant::now();
        for _ in 0..self.callers {
            let (port, request, turns, failed) = (self.port, self.request.clone(), turns.clone(), failed.clone());
            callers.push(tokio::spawn(async move {
                let mut times = Vec::new();
                let mut connection = connect(port).await;
                while started.elapsed() < length {
                    let sent = Instant::now();
                    match exchange(&mut connection, request.build(turns.fetch_add(1, Ordering::Relaxed))).await {
                        Ok(true) => times.push(sent.elapsed().as_secs_f64() * 1e3),
                        Ok(false) => _ = failed.fetch_add(1, Ordering::Relaxed),
                        Err(_) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            connection = connect(port).await;
                        }
                    }
                }
                times
            }));
        }
        let mut times = Vec::new();
        for caller in callers {
            times.extend(caller.await.unwrap());
        }
        let elapsed = started.elapsed().as_secs_f64();
        times.sort_by(f64::total_cmp);
        assert!(!times.is_empty(), "no request succeeded");
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Summary {
            per_second: times.len() as f64 / elapsed,
            p50: at(0.5),
            p99: at(0.99),
            failed: failed.load(Ordering::Relaxed),
        }
    }
}

async fn connect(port: u16) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Whether the answer carries a result.
async fn exchange(
    connection: &mut SendRequest<Full<Bytes>>,
    request: http::Request<Full<Bytes>>,
) -> hyper::Result<bool> {
    connection.ready().await?;
    let response = connection.send_request(request).await?;
    let good = response.status().is_success();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(good && body.windows(9).any(|window| window == b"\"result\":"))
}
