//! HTTP/2 on both sides: resets that a client floods it with, resets and goodbyes of a server in mid-call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::bounded;
use crate::process::Ground;
use crate::upstream::{Transport, Upstream};

/// Who signed the certificate of the server, for the proxy.
const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proxy/tls/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("tls/cert.pem");
const KEY: &[u8] = include_bytes!("tls/key.pem");

/// Resets until it is told to go; how many there were (CVE-2023-44487).
async fn reset_until_closed(address: &str) -> usize {
    const MANY: usize = 20_000;
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client;
    for count in 0..MANY {
        let Ok(ready) = client.ready().await else {
            let ended = bounded(connection).await.unwrap();
            // The goodbye, or the end of the connection under what was still being sent.
            let error = ended.unwrap_err();
            assert!(error.is_io() || error.reason() == Some(Reason::ENHANCE_YOUR_CALM), "{error}");
            return count;
        };
        client = ready;
        let request = Request::post(format!("http://{address}/mcp"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(())
            .unwrap();
        let Ok((_, mut body)) = client.send_request(request, false) else { continue };
        body.send_reset(Reason::CANCEL);
        tokio::task::yield_now().await;
    }
    panic!("{MANY} requests were reset, and the connection is still open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_its_requests_at_once_loses_its_connection_and_harms_nobody() {
    let upstream = Upstream::start(Transport::Http).await;
    let ground = Ground::new(&upstream, "[log]\nlevel = \"warn\"");
    let proxy = ground.start().await;
    let address = proxy.base.strip_prefix("http://").unwrap().to_owned();
    let client = proxy.client();
    let before = proxy.memory("VmRSS:");
    for _ in 0..5 {
        let flood = tokio::spawn({
            let address = address.clone();
            async move { reset_until_closed(&address).await }
        });
        let (answer, ()) = bounded(async {
            tokio::join!(client.call("other", "{}"), async { upstream.run().await.says("ok").await })
        })
        .await;
        assert_eq!(answer.result()["content"][0]["text"], "ok");
        println!("closed after {} resets", bounded(flood).await.unwrap());
    }
    assert_eq!(upstream.ledger().len(), 5, "a request that was reset reached the server");
    let after = proxy.memory("VmRSS:");
    assert!(after < before + (32 << 20), "{before} bytes, then {after}");
}

/// A server over HTTP/2 and TLS that does with each call what its tool's name says; its URL, and the calls that it saw.
async fn server() -> (String, Arc<AtomicUsize>) {
    let certificates = CertificateDer::pem_slice_iter(CERTIFICATE).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port());
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let (goodbye, mut goodbyes) = mpsc::channel(1);
                loop {
                    tokio::select! {
                        Some(()) = goodbyes.recv() => connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM),
                        accepted = connection.accept() => {
                            let Some(Ok((request, respond))) = accepted else { break };
                            tokio::spawn(serve(request.into_body(), respond, Arc::clone(&count), goodbye.clone()));
                        }
                    }
                }
            });
        }
    });
    (url, calls)
}

async fn serve(
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    calls: Arc<AtomicUsize>,
    goodbye: mpsc::Sender<()>,
) {
    let mut text = BytesMut::new();
    while let Some(Ok(data)) = body.data().await {
        text.extend_from_slice(&data);
    }
    let request: Value = serde_json::from_slice(&text).unwrap_or_default();
    let head = |status: u16| Response::builder().status(status).header("content-type", "application/json");
    let mut whole = |result: Value| {
        let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
        let mut stream = respond.send_response(head(200).body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from(answer), true).unwrap();
    };
    match request["method"].as_str() {
        Some("initialize") => whole(json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } })),
        Some("tools/call") => {
            let count = calls.fetch_add(1, Ordering::SeqCst);
            match request["params"]["name"].as_str().unwrap() {
                "refused" if count == 0 => respond.send_reset(Reason::REFUSED_STREAM),
                "reset" | "rerun" => respond.send_reset(Reason::CANCEL),
                "broken" => {
                    let mut stream = respond.send_response(head(200).body(()).unwrap(), false).unwrap();
                    stream.send_data(Bytes::from_static(b"{\"jsonrpc\""), false).unwrap();
                    stream.send_reset(Reason::INTERNAL_ERROR);
                }
                "goodbye" => {
                    goodbye.send(()).await.unwrap();
                    std::future::pending::<()>().await;
                }
                _ => whole(json!({ "content": [{ "type": "text", "text": "fine" }] })),
            }
        }
        _ => {
            let status = if request.is_null() { 405 } else { 202 };
            respond.send_response(head(status).body(()).unwrap(), true).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_and_goodbyes_of_a_server_over_http2_end_their_call_only_and_run_nothing_twice() {
    let (url, calls) = server().await;
    let rest = "[defaults]\nmode = \"task\"\n[[tool]]\nmatch = \"rerun\"\non_lost = \"rerun\"";
    let ground = Ground::before(&format!("url = {url:?}\n"), rest).env("SSL_CERT_FILE", AUTHORITY);
    let proxy = ground.start().await;
    let client = proxy.client();
    let table = [
        ("refused", 2, None),
        ("fine", 1, None),
        ("reset", 1, Some("outcome_unknown")),
        ("broken", 1, Some("outcome_unknown")),
        ("rerun", 2, Some("outcome_unknown")),
        ("goodbye", 1, Some("outcome_unknown")),
        ("fine", 1, None),
    ];
    for (tool, runs, reason) in table {
        calls.store(0, Ordering::SeqCst);
        let id = client.handle(tool, "{}").await;
        let ended = client.ended(&id).await.result();
        match reason {
            None => assert_eq!(ended["result"]["content"][0]["text"], "fine", "{tool}"),
            Some(reason) => assert_eq!(ended["error"]["data"]["reason"], reason, "{tool}"),
        }
        assert_eq!(calls.load(Ordering::SeqCst), runs, "{tool}");
    }
}
