//! Memory does not grow with messages or with clients that do not read (field case 82).

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bounded;
use crate::process::Ground;
use crate::upstream::{Transport, Upstream};

#[tokio::test(flavor = "multi_thread")]
async fn many_small_calls_on_one_session_take_no_more_memory_than_few() {
    const ROUND: usize = 1500;
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[log]\nlevel = \"warn\"");
        let proxy = ground.start().await;
        let (client, upstream) = (proxy.client(), &upstream);
        let round = async || {
            let calls = async {
                for n in 0..ROUND {
                    client.call("small", &format!(r#"{{"n":{n}}}"#)).await.result();
                }
            };
            let answers = async {
                for _ in 0..ROUND {
                    upstream.run().await.says("x").await;
                }
            };
            tokio::join!(calls, answers);
            proxy.memory("VmRSS:")
        };
        round().await;
        let warm = round().await;
        let later = round().await;
        println!("{transport:?}: {} KB, then {} KB", warm >> 10, later >> 10);
        assert!(later < warm + warm / 10, "{transport:?}: {warm} bytes, then {later}");
        assert_eq!(upstream.ledger().len(), 3 * ROUND);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_take_bounded_memory_and_harm_nobody() {
    const DEAF: usize = 10;
    const EVENTS: u64 = 200;
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[log]\nlevel = \"warn\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let mut sockets = Vec::new();
    let mut floods = Vec::new();
    let mut base = 0;
    for _ in 0..DEAF {
        let mut socket = TcpStream::connect(proxy.base.strip_prefix("http://").unwrap()).await.unwrap();
        socket.write_all(deaf_request().as_bytes()).await.unwrap();
        sockets.push(socket);
        let mut run = upstream.run().await;
        base = proxy.memory("VmRSS:");
        floods.push(tokio::spawn(async move {
            let piece = "y".repeat(64 << 10);
            for n in 0..EVENTS {
                run.progress(n, &piece).await;
            }
            run
        }));
    }
    proxy.forget_peak();
    // Somebody else is served meanwhile.
    let other = tokio::spawn(async move { client.call("other", "{}").await });
    upstream.run().await.says("served").await;
    let answer = tokio::time::timeout(Duration::from_secs(10), other).await.expect("others wait for it").unwrap();
    assert_eq!(answer.result()["content"][0]["text"], "served");
    let mut runs = Vec::new();
    for flood in floods {
        runs.push(bounded(flood).await.unwrap());
    }
    let peak = proxy.memory("VmHWM:");
    let sent = DEAF as u64 * EVENTS * (64 << 10);
    println!("{} MB sent to those who do not read: {} MB before, {} MB at most", sent >> 20, base >> 20, peak >> 20);
    assert!(peak < base + sent / 2, "{base} bytes before, {peak} at most, {sent} sent");
    // Whoever leaves at last frees the server.
    drop(sockets);
    upstream.cancels(DEAF).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_large_results_that_nobody_reads_is_bounded_and_given_back() {
    const DEAF: usize = 12;
    const SIZE: usize = 4 << 20;
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[log]\nlevel = \"warn\"\n[[tool]]\nmatch = \"task\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let result = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(SIZE));
    let mut peaks = Vec::new();
    let base = proxy.memory("VmRSS:");
    for _ in 0..4 {
        proxy.forget_peak();
        let mut sockets = Vec::new();
        for _ in 0..DEAF {
            let mut socket = TcpStream::connect(proxy.base.strip_prefix("http://").unwrap()).await.unwrap();
            socket.write_all(deaf_request().as_bytes()).await.unwrap();
            sockets.push(socket);
            upstream.run().await.answer(&result).await;
        }
        // Tasks with results as large end and are read meanwhile.
        for _ in 0..3 {
            let id = client.handle("task", "{}").await;
            upstream.run().await.answer(&result).await;
            assert!(client.ended(&id).await.outcome().len() > SIZE);
        }
        peaks.push(proxy.memory("VmHWM:"));
        drop(sockets);
    }
    println!("{} MiB before, at most {:?} MiB", base >> 20, peaks.iter().map(|peak| peak >> 20).collect::<Vec<_>>());
    let all = (DEAF * SIZE) as u64;
    assert!(peaks.iter().all(|peak| *peak < base + 2 * all + (32 << 20)), "{base} before, {peaks:?}");
    assert!(peaks[3] < peaks[0] + all / 2, "it grows: {peaks:?}");
}

/// A call that asks for progress.
fn deaf_request() -> String {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flood","arguments":{},"_meta":{"progressToken":"t","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: flood\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
