//! The other processes of the benchmark.

use std::convert::Infallible;
use std::io::{BufRead, Write};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpListener;

/// Plays a role until it is killed.
pub fn play(role: &str, port: &str, target: &str) {
    if role == "mute" {
        return mute();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let port: u16 = port.parse().unwrap();
    match role {
        "upstream" => runtime.block_on(upstream(port)),
        "bare" => runtime.block_on(bare(port, target.to_owned())),
        other => panic!("no role {other}"),
    }
}

/// The answer of a legacy server.
fn answer(request: &Value) -> Option<Value> {
    let id = request.get("id")?;
    let result = match request["method"].as_str()? {
        "initialize" => serde_json::json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "bench", "version": "1" },
        }),
        _ => serde_json::json!({ "content": [{ "type": "text", "text": "hello, world" }] }),
    };
    Some(serde_json::json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// A legacy server over stdio whose tools never answer.
fn mute() {
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if request["method"] != "tools/call"
            && let Some(answer) = answer(&request)
        {
            writeln!(out, "{answer}").unwrap();
            out.flush().unwrap();
        }
    }
}

/// A legacy server over HTTP that answers at once.
async fn upstream(port: u16) {
    serve(port, |request: http::Request<Incoming>| async move {
        if request.method() != http::Method::POST {
            return response(405, Bytes::new());
        }
        let body = request.into_body().collect().await.unwrap().to_bytes();
        match answer(&serde_json::from_slice(&body).unwrap()) {
            Some(answer) => response(200, Bytes::from(answer.to_string())),
            None => response(202, Bytes::new()),
        }
    })
    .await;
}

fn response(status: u16, body: Bytes) -> http::Response<Full<Bytes>> {
    let response = http::Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::new(body)).unwrap()
}

/// A reverse proxy that does nothing but pass on.
async fn bare(port: u16, target: String) {
    let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new()).build_http();
    serve(port, move |mut request: http::Request<Incoming>| {
        let (client, target) = (client.clone(), target.clone());
        async move {
            *request.uri_mut() = format!("http://127.0.0.1:{target}{}", request.uri().path()).parse().unwrap();
            client.request(request).await.unwrap()
        }
    })
    .await;
}

async fn serve<H, F, B>(port: u16, handler: H)
where
    H: Fn(http::Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = http::Response<B>> + Send,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let handler = handler.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answered = handler(request);
                async move { Ok::<_, Infallible>(answered.await) }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
