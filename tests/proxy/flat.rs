//! Memory does not grow with messages or with clients that do not read (field case 82).

use std::ops::Range;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::process::Ground;
use crate::upstream::{Run, Transport, Upstream};
use crate::within;

/// How many small calls are made on each session; another number comes from the environment. Those of the case, 100 000,
/// take minutes: `.ci/faults` makes them.
const CALLS: &str = "RAINCHECK_FLAT_CALLS";

#[tokio::test(flavor = "multi_thread")]
async fn many_small_calls_on_one_session_take_no_more_memory_than_few() {
    let calls = std::env::var(CALLS).ok().and_then(|calls| calls.parse().ok()).unwrap_or(4500);
    let count = usize::div_ceil(calls, 3);
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[log]\nlevel = \"warn\"");
        let proxy = ground.start().await;
        let (client, upstream) = (proxy.client(), &upstream);
        let round = async || {
            let calls = async {
                for n in 0..count {
                    client.call("small", &format!(r#"{{"n":{n}}}"#)).await.result();
                }
            };
            let answers = async {
                for _ in 0..count {
                    upstream.run().await.says("x").await;
                }
            };
            tokio::join!(calls, answers);
            proxy.memory("VmRSS:")
        };
        round().await;
        let warm = round().await;
        let later = round().await;
        println!("{} calls, {transport:?}: {} KB, then {} KB", 3 * count, warm >> 10, later >> 10);
        assert!(later < warm + warm / 10, "{transport:?}: {warm} bytes, then {later}");
        assert_eq!(upstream.ledger().len(), 3 * count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_take_bounded_memory_and_harm_nobody() {
    const DEAF: usize = 50;
    const EVENTS: u64 = 80;
    const PIECE: usize = 64 << 10;
    const FILLING: u64 = 450;
    const WARM: u64 = 40;
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[log]\nlevel = \"warn\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let address = proxy.base.strip_prefix("http://").unwrap().parse().unwrap();
    let (mut sockets, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..DEAF {
        // What the kernel takes for such a client nobody has to keep or drop.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut socket = socket.connect(address).await.unwrap();
        socket.write_all(deaf_request().as_bytes()).await.unwrap();
        sockets.push(socket);
        runs.push(upstream.run().await);
    }
    // All that is kept for them is full, and before it what the kernel takes: up to 4 MiB for each. Of a longer message no more is passed on.
    let runs = flood(runs, 0..FILLING, 8 << 10).await;
    proxy.forget_peak();
    let runs = flood(runs, FILLING..FILLING + WARM, PIECE).await;
    let warm = proxy.memory("VmHWM:");
    proxy.forget_peak();
    let floods = tokio::spawn(flood(runs, FILLING + WARM..FILLING + WARM + EVENTS, PIECE));
    // Somebody else is served meanwhile.
    let other = tokio::spawn(async move { client.call("other", "{}").await });
    upstream.run().await.says("served").await;
    let answer = tokio::time::timeout(Duration::from_secs(10), other).await.expect("others wait for it").unwrap();
    assert_eq!(answer.result()["content"][0]["text"], "served");
    let _runs = within(Duration::from_mins(1), floods).await.unwrap();
    let peak = proxy.memory("VmHWM:");
    let sent = DEAF as u64 * EVENTS * (PIECE as u64);
    println!("{} MB sent to {DEAF} who do not read: {} MB, then {} MB at most", sent >> 20, warm >> 20, peak >> 20);
    // A tenth, and what buffers of so many may take by chance. Without a bound it is 36 MB more.
    assert!(peak < warm + warm / 10 + (8 << 20), "{warm} bytes, and {peak} at most while {sent} were sent");
    // Whoever leaves at last frees the server.
    drop(sockets);
    upstream.cancels(DEAF).await;
}

/// Sends events of progress of all these calls at the same time.
async fn flood(runs: Vec<Run>, events: Range<u64>, bytes: usize) -> Vec<Run> {
    let floods = runs.into_iter().map(|mut run| {
        let events = events.clone();
        tokio::spawn(async move {
            let piece = "y".repeat(bytes);
            for n in events {
                run.progress(n, &piece).await;
            }
            run
        })
    });
    let floods: Vec<_> = floods.collect();
    let mut runs = Vec::new();
    for flood in floods {
        runs.push(within(Duration::from_mins(1), flood).await.unwrap());
    }
    runs
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
