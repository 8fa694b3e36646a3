//! What another process goes on with: a kill or a stop, a start, and a ledger of what really ran.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::http_server::{Seen, Server, Wire};
use crate::process::Ground;
use crate::scripted::{note, worked};
use crate::upstream::{Upstream, folder_contains};
use crate::{PATIENCE, signs};

/// A 2025-11-25 server whose streams can be resumed: a call goes on although its connection is lost, and its answer is
/// given to whoever comes back behind the event `mark-42`.
struct Resumable {
    server: Server,
    folder: TempDir,
}

impl Resumable {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let ledger = folder.path().join("ledger");
        let server = Server::start(move |seen: Seen, mut wire: Wire| {
            let ledger = ledger.clone();
            async move {
                match (seen.verb.as_str(), seen.method(), seen.header("last-event-id")) {
                    ("POST", "initialize", _) => return wire.initialize(&seen, "session-77").await,
                    ("POST", "tools/call", _) => {
                        note(&ledger, &seen.body["params"]);
                        wire.events().await;
                        wire.raw("id: mark-42\ndata: \n\n").await;
                        wire.closed().await;
                    }
                    ("GET", _, Some("mark-42")) if seen.header("mcp-session-id") == Some("session-77") => {
                        wire.events().await;
                        let result = json!({ "content": [{ "type": "text", "text": "found again" }] });
                        let answer = json!({ "jsonrpc": "2.0", "id": 2, "result": result });
                        wire.raw(format!("id: mark-43\ndata: {answer}\n\n")).await;
                        wire.closed().await;
                    }
                    ("GET", ..) => return wire.status("405 Method Not Allowed").await,
                    _ => return wire.status("202 Accepted").await,
                }
                wire
            }
        })
        .await;
        Self { server, folder }
    }

    fn ground(&self, rest: &str) -> Ground {
        Ground::before(&format!("url = {:?}\n", self.server.url()), rest)
    }

    fn ledger(&self) -> Vec<String> {
        lines(&self.folder.path().join("ledger"))
    }
}

fn lines(ledger: &Path) -> Vec<String> {
    std::fs::read_to_string(ledger).unwrap_or_default().lines().map(str::to_owned).collect()
}

async fn is_stored(store: PathBuf, text: &'static str) {
    signs::files("it is in the store", &store, PATIENCE, || folder_contains(&store, text.as_bytes())).await;
}

#[tokio::test]
async fn a_run_over_a_resumable_stream_outlives_its_proxy() {
    for kill in [true, false] {
        let upstream = Resumable::start().await;
        let ground = upstream.ground("[shutdown]\ngrace = \"200ms\"\n[[tool]]\nmatch = \"*\"\nmode = \"task\"");
        let mut proxy = ground.start().await;
        let id = proxy.client().handle("slow", r#"{"n":1}"#).await;
        is_stored(ground.store(), "mark-42").await;
        if kill {
            proxy.kill();
        } else {
            assert_eq!(proxy.stop().await, Some(0));
            let stopped = upstream.server.seen_of("notifications/cancelled").len();
            assert_eq!((stopped, upstream.server.seen_by("DELETE").len()), (0, 0), "the run would end");
        }
        let proxy = ground.start().await;
        let found = proxy.client().ended(&id).await.result();
        assert_eq!(found["result"]["content"][0]["text"], "found again", "{found}");
        assert_eq!(upstream.ledger(), ["slow 1"], "it ran once");
        assert_eq!(upstream.server.seen_of("initialize").len(), 1);
        // Nothing is kept of an ended run.
        upstream.server.saw(|seen| seen.verb == "DELETE").await;
        assert_eq!(upstream.server.seen_by("DELETE").len(), 1);
    }
}

#[tokio::test]
async fn a_lost_run_is_begun_again_once_where_the_policy_says_so() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"\non_lost = \"rerun\"");
    let mut proxy = ground.start().await;
    let id = proxy.client().handle("again", r#"{"n": 7.0}"#).await;
    let first = upstream.run().await;
    proxy.kill();
    let mut proxy = ground.start().await;
    let second = upstream.run().await;
    assert_eq!((first.arguments(), second.arguments()), (r#"{"n": 7.0}"#, r#"{"n": 7.0}"#));
    proxy.kill();
    let proxy = ground.start().await;
    let lost = proxy.client().ended(&id).await.result();
    assert_eq!(lost["error"]["data"]["reason"], "outcome_unknown", "{lost}");
    // And without a restart: the child dies.
    let id = proxy.client().handle("again", r#"{"n":8}"#).await;
    upstream.run().await.dies().await;
    upstream.run().await.says("second").await;
    assert_eq!(proxy.client().ended(&id).await.result()["result"]["content"][0]["text"], "second");
    assert_eq!(upstream.ledger(), ["again 7.0", "again 7.0", "again 8", "again 8"]);
}

#[tokio::test]
async fn ten_kills_during_the_start_run_nothing_twice_and_lose_nothing() {
    let upstream = Upstream::stdio().await;
    let rest = "[[tool]]\nmatch = \"queued\"\nmode = \"task\"\nmax_running = 2";
    let ground = Ground::durable(&upstream, rest).env("RUST_LOG", "raincheck=debug");
    let mut proxy = ground.start().await;
    let lines = proxy.log().lines().count();
    let client = proxy.client();
    for n in [900, 901] {
        client.handle("queued", &format!("{{\"n\":{n}}}")).await;
        let _never_answered = upstream.run().await;
    }
    let mut waiting = Vec::new();
    for n in 0..30 {
        let bytes = [10, 10_000][n % 2];
        let arguments = json!({ "n": n, "ms": 30, "bytes": bytes, "pad": "x".repeat(bytes) });
        waiting.push((client.handle("queued", &arguments.to_string()).await, n, bytes));
    }
    proxy.kill();
    for _ in 0..10 {
        let (mut proxy, _ready) = ground.spawn();
        // At any step of the start.
        proxy.says_lines(rand::random_range(0..=lines)).await;
        proxy.kill();
    }
    let proxy = ground.start().await;
    let mut runs: HashMap<String, usize> = HashMap::new();
    for (id, n, bytes) in &waiting {
        let ended = proxy.client().ended(id).await;
        let task = ended.result();
        if task["status"] == "completed" {
            assert!(ended.outcome().ends_with(&worked(u64::try_from(*n).unwrap(), *bytes)[1..]));
        } else {
            assert_eq!(task["error"]["data"]["reason"], "outcome_unknown", "{task}");
        }
        *runs.entry(format!("queued {n}")).or_default() += usize::from(task["status"] == "completed");
    }
    let ledger = upstream.ledger();
    for (line, completed) in runs {
        let ran = ledger.iter().filter(|ran| **ran == line).count();
        assert!(ran <= 1 && completed <= ran, "{line} ran {ran} times");
    }
}

#[tokio::test]
async fn what_came_with_a_callers_credentials_is_not_sent_without_them() {
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"\nmax_running = 1");
    let mut proxy = ground.start().await;
    let client = proxy.client().bearer("very-secret-token");
    client.handle("one", r#"{"n":1}"#).await;
    let _run = upstream.run().await;
    let blocked = client.handle("one", r#"{"n":2}"#).await;
    proxy.kill();
    assert!(!folder_contains(&ground.store(), b"very-secret-token"));
    let proxy = ground.start().await;
    let task = proxy.client().bearer("very-secret-token").ended(&blocked).await.result();
    assert_eq!(task["error"]["data"], json!({ "reason": "not_started", "retryable": true }), "{task}");
    assert_eq!(upstream.ledger(), ["one 1"]);
}
