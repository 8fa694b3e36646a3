//! Cancelling and leaving, in both eras, and the end of the proxy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::config::{ForwardCancel, Limits, ServerConfig, UpstreamEra};
use raincheck::protocol::{Event, Json, Params, Principal, Reason, Reply};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

use crate::client::{Client, all, call_of, caller, client, client_with, config, waits_for_connection};
use crate::http_server::{self, PATIENCE, Server};

fn client_of(server: &Server, change: impl FnOnce(&mut ServerConfig)) -> Client {
    let mut config = config(server);
    change(&mut config);
    client_with(config, &Limits::default())
}

/// A legacy server whose tool `slow` answers once it was cancelled, `deaf` never does.
async fn slow() -> Server {
    let told = Arc::new(Notify::new());
    Server::legacy(move |seen, mut wire| {
        let told = Arc::clone(&told);
        async move {
            match (seen.method(), seen.tool()) {
                ("notifications/cancelled", _) => {
                    told.notify_one();
                    wire.status("202 Accepted").await
                }
                (_, "quick") => wire.json(&seen.says("quick")).await,
                (_, tool) => {
                    wire.events().await;
                    wire.event(&seen.progress(1)).await;
                    if tool == "deaf" {
                        wire.closed().await;
                    } else {
                        told.notified().await;
                        let id = seen.id();
                        wire.event(&format!(
                            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":0,"message":"Request cancelled"}}}}"#
                        ))
                        .await;
                    }
                    wire
                }
            }
        }
    })
    .await
}

async fn running(client: &Client, tool: &str) -> Reply {
    let mut reply = client.tool(tool).await;
    let first = loop {
        match tokio::time::timeout(PATIENCE, reply.next()).await.unwrap() {
            Some(Event::Waits(_) | Event::Began) => {}
            event => break event,
        }
    };
    assert!(matches!(first, Some(Event::Progress(_))), "{first:?}");
    reply
}

#[tokio::test]
async fn a_cancelled_call_is_told_to_a_legacy_server_and_its_answer_still_counts() {
    let server = slow().await;
    let client = client(&server);
    let mut reply = client.tool("slow").await;
    waits_for_connection(&mut reply).await;
    server.saw(|seen| seen.is("tools/call")).await;
    reply.cancel();
    assert_eq!(all(reply).await.error().message(), "Request cancelled");
    let told = server.saw(|seen| seen.is("notifications/cancelled")).await;
    assert_eq!(told.body["params"]["requestId"], *server.seen_of("tools/call")[0].id());
    assert_eq!(told.header("mcp-session-id"), Some("session-1"));
    // Answered, so the session is used again.
    client.call("quick").await.says("quick");
    assert_eq!(server.seen_of("initialize").len(), 1);
}

#[tokio::test]
async fn a_caller_who_leaves_has_a_legacy_server_told() {
    let server = slow().await;
    let client = client(&server);
    drop(running(&client, "slow").await);
    server.saw(|seen| seen.is("notifications/cancelled")).await;
}

#[tokio::test]
async fn a_cancel_without_an_answer_ends_after_the_grace_and_the_session_rests_till_then() {
    let server = slow().await;
    let client = client_of(&server, |config| config.cancel_grace = Duration::from_millis(300));
    let reply = running(&client, "deaf").await;
    reply.cancel();
    server.saw(|seen| seen.is("notifications/cancelled")).await;
    client.call("quick").await.says("quick");
    assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
    let sessions: Vec<_> =
        server.seen_of("tools/call").iter().map(|seen| seen.header("mcp-session-id").unwrap().to_owned()).collect();
    assert_eq!(sessions, ["session-1", "session-2"]);
    // The first one has nothing left to do.
    assert_eq!(server.saw(|seen| seen.verb == "DELETE").await.header("mcp-session-id"), Some("session-1"));
}

#[tokio::test]
async fn a_resting_session_is_used_where_there_is_no_room_for_another() {
    let server = slow().await;
    let client = client_of(&server, |config| config.max_sessions = 1);
    let reply = running(&client, "deaf").await;
    reply.cancel();
    server.saw(|seen| seen.is("notifications/cancelled")).await;
    client.call("quick").await.says("quick");
    assert_eq!(server.seen_of("initialize").len(), 1);
}

#[tokio::test]
async fn a_cancel_that_is_not_forwarded_is_not_sent() {
    let server = slow().await;
    let client = client_of(&server, |config| {
        config.cancel = ForwardCancel::Never;
        config.cancel_grace = Duration::from_millis(50);
    });
    let reply = running(&client, "deaf").await;
    reply.cancel();
    assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
    client.call("quick").await.says("quick");
    assert!(server.seen_of("notifications/cancelled").is_empty());
}

#[tokio::test]
async fn a_server_known_to_run_on_is_told_and_its_call_is_kept_to_its_end() {
    let gate = Arc::new(Notify::new());
    let shared = Arc::clone(&gate);
    let server = Server::legacy(move |seen, mut wire| {
        let gate = Arc::clone(&shared);
        async move {
            if seen.is("notifications/cancelled") {
                return wire.status("202 Accepted").await;
            }
            wire.events().await;
            wire.event(&seen.progress(1)).await;
            gate.notified().await;
            wire.event(&seen.says("ran on")).await;
            wire
        }
    })
    .await;
    let client = client_of(&server, |config| {
        config.cancel = ForwardCancel::Ignored;
        config.cancel_grace = Duration::ZERO;
    });
    let reply = running(&client, "t").await;
    reply.cancel();
    server.saw(|seen| seen.is("notifications/cancelled")).await;
    gate.notify_one();
    all(reply).await.says("ran on");
}

#[tokio::test]
async fn a_modern_call_is_cancelled_by_closing_its_response() {
    for leave in [true, false] {
        let closed = Arc::new(Notify::new());
        let shared = Arc::clone(&closed);
        let server = Server::start(move |seen, mut wire| {
            let closed = Arc::clone(&shared);
            async move {
                wire.events().await;
                wire.event(&seen.progress(1)).await;
                wire.closed().await;
                closed.notify_one();
                wire
            }
        })
        .await;
        let client = client_of(&server, |config| config.era = UpstreamEra::Modern);
        let reply = running(&client, "t").await;
        if leave {
            drop(reply);
        } else {
            reply.cancel();
            assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
        }
        tokio::time::timeout(PATIENCE, closed.notified()).await.expect("the response was not closed");
        assert_eq!(server.seen().len(), 1, "nothing else is sent");
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_connecting_is_never_sent() {
    let gate = Arc::new(Notify::new());
    let shared = Arc::clone(&gate);
    let server = Server::start(move |seen, wire| {
        let gate = Arc::clone(&shared);
        async move {
            match seen.method() {
                "initialize" => {
                    gate.notified().await;
                    wire.initialize(&seen, "s").await
                }
                "notifications/initialized" => wire.status("202 Accepted").await,
                _ => wire.json(&seen.result(&json!({}))).await,
            }
        }
    })
    .await;
    let client = client(&server);
    let reply = client.tool("t").await;
    server.saw(|seen| seen.is("initialize")).await;
    reply.cancel();
    assert_eq!(all(reply).await.failure().reason, Reason::NotStarted);
    gate.notify_one();
    server.saw(|seen| seen.is("notifications/initialized")).await;
    client.list().await;
    assert!(server.seen_of("tools/call").is_empty());
}

#[tokio::test]
async fn closing_ends_running_calls_and_refuses_new_ones() {
    let server = slow().await;
    let client = client(&server);
    let reply = running(&client, "deaf").await;
    client.close().await;
    assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
    assert_eq!(client.call("quick").await.failure().reason, Reason::Stopping);
    assert_eq!(server.saw(|seen| seen.verb == "DELETE").await.header("mcp-session-id"), Some("session-1"));
    assert_eq!(client.jobs.running(), 0);
}

/// A server of that era that does not read the large request before it is told to; how much of it came then.
async fn unread(modern: bool) -> (Server, Arc<Notify>, mpsc::UnboundedReceiver<usize>) {
    let gate = Arc::new(Notify::new());
    let (read, to_read) = mpsc::unbounded_channel();
    let shared = Arc::clone(&gate);
    let handle = move |seen: http_server::Seen, mut wire: http_server::Wire| {
        let (gate, read) = (Arc::clone(&shared), read.clone());
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "tools/call") => wire.json(&seen.says("quick")).await,
                ("POST", "") => {
                    gate.notified().await;
                    read.send(wire.read_to_end().await).unwrap();
                    wire
                }
                _ => wire.status("202 Accepted").await,
            }
        }
    };
    let server = if modern { Server::start(handle).await } else { Server::legacy(handle).await };
    (server, gate, to_read)
}

/// Arguments, and whether they are in memory.
struct Large {
    text: Vec<u8>,
    _in_use: Arc<()>,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[tokio::test]
async fn a_call_that_is_stopped_while_its_request_is_not_read_ends_with_its_connection_and_takes_no_memory() {
    for (modern, leaves) in [(false, false), (false, true), (true, false)] {
        let (server, gate, mut to_read) = unread(modern).await;
        let client = client_of(&server, |config| {
            config.cancel_grace = Duration::from_hours(1);
            config.era = if modern { UpstreamEra::Modern } else { UpstreamEra::Legacy };
        });
        client.call("quick").await.says("quick");
        let in_use = Arc::new(());
        let text = format!(r#"{{"name":"t","arguments":{{"t":"{}"}}}}"#, "x".repeat(http_server::LEFT * 2));
        let large = Large { text: text.into_bytes(), _in_use: Arc::clone(&in_use) };
        let mut call = call_of("tools/call", r#"{"name":"t"}"#, caller(Principal::Local, None));
        call.params = Params::read(&call.method, Some(Json::parse(Bytes::from_owner(large)).unwrap())).unwrap();
        let reply = client.send(call).await.in_background();
        let seen = server.saw(|seen| seen.verb == "POST" && seen.body.is_null()).await;
        // A call of a modern server takes several requests, each with a reply of its own.
        assert_eq!(reply.is_unwritten(), !modern);
        if leaves {
            drop(reply);
        } else {
            reply.cancel();
            assert_eq!(all(reply).await.failure().reason, Reason::NotStarted, "modern: {modern}");
        }
        let freed = async {
            while Arc::strong_count(&in_use) > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, freed).await.expect("its request is still in memory");
        gate.notify_one();
        let read = tokio::time::timeout(PATIENCE, to_read.recv()).await.expect("the connection is open").unwrap();
        assert!(read < seen.header("content-length").unwrap().parse().unwrap());
        // It has nothing to stop, and its session goes on.
        client.call("quick").await.says("quick");
        assert!(server.seen_of("notifications/cancelled").is_empty());
        assert_eq!(server.seen_of("initialize").len(), usize::from(!modern));
    }
}

#[tokio::test]
async fn a_request_that_a_server_has_read_is_written_although_it_does_not_answer() {
    let server = Server::legacy(|_, mut wire| async move {
        wire.closed().await;
        wire
    })
    .await;
    let client = client_of(&server, |config| config.cancel_grace = Duration::from_millis(50));
    let mut reply = client.tool("t").await;
    waits_for_connection(&mut reply).await;
    let reply = reply.in_background();
    server.saw(|seen| seen.is("tools/call")).await;
    let written = async {
        while reply.is_unwritten() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("it counts as unwritten");
    reply.cancel();
    assert_eq!(all(reply).await.failure().reason, Reason::OutcomeUnknown);
    server.saw(|seen| seen.is("notifications/cancelled")).await;
}
