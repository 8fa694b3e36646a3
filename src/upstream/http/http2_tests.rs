//! HTTP/2: resets and goodbyes in the middle of a call (field case 11).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason as H2, RecvStream};
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::HttpClient;
use super::*;
use crate::config::{Limits, ServerConfig};
use crate::protocol::{Credentials, Event, Failure, Json, Method, Params, Principal, Reason};
use crate::upstream::Shared;
use crate::upstream::handshake::LastSeen;

/// No wait is longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a server says goodbye to a connection (`GOAWAY`).
enum Goodbye {
    /// What runs is answered.
    Gentle,
    /// Nothing is answered any more.
    Abrupt,
}

/// An upstream over HTTP/2 to a server that does with each `tools/call` what its tool's name says, and how
/// many of them it has seen.
async fn upstream() -> (HttpUpstream, Jobs, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
    let jobs = Jobs::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let (serving, count) = (jobs.clone(), Arc::clone(&calls));
    jobs.spawn("listener", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (requests, count) = (serving.clone(), Arc::clone(&count));
            serving.spawn("connection", async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let (goodbye, mut goodbyes) = mpsc::channel(1);
                loop {
                    tokio::select! {
                        Some(how) = goodbyes.recv() => match how {
                            Goodbye::Gentle => connection.graceful_shutdown(),
                            Goodbye::Abrupt => connection.abrupt_shutdown(H2::ENHANCE_YOUR_CALM),
                        },
                        accepted = connection.accept() => {
                            let Some(Ok((request, respond))) = accepted else { break };
                            let serving = serve(request.into_body(), respond, Arc::clone(&count), goodbye.clone());
                            requests.spawn("request", serving);
                        }
                    }
                }
            });
        }
    });
    let transport = Transport::Http { url, headers: HeaderMap::new(), forward: Vec::new() };
    let config = ServerConfig {
        cancel_grace: PATIENCE,
        connect_timeout: PATIENCE,
        max_sessions: 1,
        session_idle: PATIENCE,
        ..ServerConfig::new("h2", transport.clone())
    };
    let limits = Arc::new(Limits::default());
    let (config, last_seen, shared) = (Arc::new(config), LastSeen::default(), Shared::default());
    let setup = Setup { config, limits, jobs: Jobs::new(), last_seen, shared };
    let Transport::Http { url, headers, forward } = transport else { unreachable!() };
    let endpoint = Endpoint::new(&url, &headers, &forward, PATIENCE).unwrap();
    let endpoint = endpoint.with_client(HttpClient::http2_only(PATIENCE));
    let closing = CancellationToken::new();
    let runner = Runner::new(&setup, Arc::new(endpoint), closing.clone());
    let upstream =
        HttpUpstream { runner: Ok(runner), resource: None, name: "h2".to_owned(), jobs: setup.jobs, closing };
    (upstream, jobs, calls)
}

async fn serve(
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    calls: Arc<AtomicUsize>,
    goodbye: mpsc::Sender<Goodbye>,
) {
    let mut text = BytesMut::new();
    while let Some(Ok(data)) = body.data().await {
        text.extend_from_slice(&data);
    }
    let request: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
    let answer = |result: Value| json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
    let head = |media: &str| Response::builder().header("content-type", media).body(()).unwrap();
    let whole = |mut respond: SendResponse<Bytes>, text: String| {
        let mut stream = respond.send_response(head("application/json"), false).unwrap();
        stream.send_data(Bytes::from(text), true).unwrap();
    };
    match request["method"].as_str() {
        Some("initialize") => whole(respond, answer(json!({ "protocolVersion": "2025-11-25" }))),
        Some("tools/call") => {
            let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
            match request["params"]["name"].as_str() {
                Some("reset") => {
                    let mut stream = respond.send_response(head("text/event-stream"), false).unwrap();
                    let params = json!({ "progressToken": request["params"]["_meta"]["progressToken"], "progress": 1 });
                    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
                    stream.send_data(Bytes::from(format!("data: {progress}\n\n")), false).unwrap();
                    stream.send_reset(H2::CANCEL);
                }
                Some("refused") if first => respond.send_reset(H2::REFUSED_STREAM),
                Some("gentle") => {
                    goodbye.send(Goodbye::Gentle).await.unwrap();
                    whole(respond, answer(json!({ "content": [] })));
                }
                Some("abrupt") => {
                    goodbye.send(Goodbye::Abrupt).await.unwrap();
                    std::future::pending::<()>().await;
                }
                Some("lost") => respond.send_reset(H2::CANCEL),
                _ => whole(respond, answer(json!({ "content": [] }))),
            }
        }
        _ => {
            let accepted = Response::builder().status(if request.is_null() { 405 } else { 202 }).body(()).unwrap();
            respond.send_response(accepted, true).unwrap();
        }
    }
}

fn call_of(tool: &str) -> Call {
    let raw = Json::from_value(&json!({ "name": tool }));
    let params = Params::read(&Method::CallTool, Some(raw)).unwrap();
    let caller = Caller::of_modern(&params, Principal::Local, Credentials::default());
    Call { method: Method::CallTool, params, caller, arrived: Instant::now() }
}

async fn call(upstream: &HttpUpstream, tool: &str) -> Outcome {
    let mut reply = upstream.call(call_of(tool));
    let ended = async {
        loop {
            if let Some(Event::Done(outcome)) = reply.next().await {
                return outcome;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the call hangs")
}

fn failure(outcome: Outcome) -> Failure {
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    failure
}

#[tokio::test]
async fn a_reset_in_mid_call_ends_it_as_unknown_and_the_next_call_is_fine() {
    let (upstream, _jobs, calls) = upstream().await;
    for tool in ["reset", "lost"] {
        assert_eq!(failure(call(&upstream, tool).await).reason, Reason::OutcomeUnknown, "{tool}");
    }
    assert!(matches!(call(&upstream, "fine").await, Outcome::Result(_)));
    assert_eq!(calls.load(Ordering::SeqCst), 3, "nothing was sent twice");
}

#[tokio::test]
async fn a_refused_stream_was_never_taken_so_the_call_is_sent_again() {
    let (upstream, _jobs, calls) = upstream().await;
    assert!(matches!(call(&upstream, "refused").await, Outcome::Result(_)));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn after_a_goodbye_calls_go_over_another_connection_and_none_is_sent_twice() {
    let (upstream, _jobs, calls) = upstream().await;
    assert!(matches!(call(&upstream, "gentle").await, Outcome::Result(_)), "what ran is answered");
    assert!(matches!(call(&upstream, "fine").await, Outcome::Result(_)));
    assert_eq!(failure(call(&upstream, "abrupt").await).reason, Reason::OutcomeUnknown);
    assert!(matches!(call(&upstream, "fine").await, Outcome::Result(_)));
    assert_eq!(calls.load(Ordering::SeqCst), 4, "nothing was sent twice");
}

#[tokio::test]
async fn what_is_set_aside_and_moved_for_each_call_is_small() {
    let (upstream, _jobs, _) = upstream().await;
    let (sender, _reply) = Reply::channel();
    let size = size_of_val(&upstream.runner.unwrap().run(call_of("quick"), sender));
    assert!(size <= 11 << 9, "{size} bytes");
}
