//! Event streams: their framing, what is on them beside the answer, how they break and go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use raincheck::config::Limits;
use raincheck::protocol::{Outcome, Reason, Retry};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::client::{client, client_with, config};
use crate::http_server::{PATIENCE, Server, notification};

#[tokio::test]
async fn every_line_ending_in_any_chunks_gives_the_answer() {
    let server = Server::legacy(|seen, mut wire| async move {
        wire.events().await;
        let ending = seen.tool().replace("lf", "\n").replace("cr", "\r");
        let stream = format!(": hi{ending}event: message{ending}data: {}{ending}{ending}", seen.says("done"));
        for byte in stream.as_bytes().chunks(7) {
            wire.raw(byte).await;
        }
        // Left open: the answer must be seen without the end of the stream.
        wire.closed().await;
        wire
    })
    .await;
    let client = client(&server);
    for ending in ["lf", "crlf", "cr"] {
        client.call(ending).await.says("done");
    }
}

#[tokio::test]
async fn one_message_over_many_data_lines_is_one_message() {
    let server = Server::legacy(|seen, mut wire| async move {
        let answer: Value = serde_json::from_str(&seen.says("two  spaces: \\u00e9")).unwrap();
        let pretty = serde_json::to_string_pretty(&answer).unwrap();
        assert!(pretty.lines().count() >= 12, "{pretty}");
        wire.events().await;
        for (at, line) in pretty.lines().enumerate() {
            let space = if at % 2 == 0 { "" } else { " " };
            wire.raw(format!("data:{space}{line}\n: comment\nretry: 10\nid: {at}\n")).await;
        }
        wire.raw("\n").await;
        wire
    })
    .await;
    client(&server).call("t").await.says("two  spaces: \\u00e9");
}

#[tokio::test]
async fn an_answer_counts_without_an_event_name_and_under_an_odd_one() {
    let server = Server::legacy(|seen, mut wire| async move {
        wire.events().await;
        wire.raw("event: ping\ndata: 2026-01-01\n\ndata: \n\n").await;
        let name = if seen.tool() == "odd" { "event: jsonrpc\n" } else { "" };
        wire.raw(format!("{name}data: {}\n\n", seen.says("done"))).await;
        wire.closed().await;
        wire
    })
    .await;
    let client = client(&server);
    client.call("none").await.says("done");
    client.call("odd").await.says("done");
}

#[tokio::test]
async fn an_answer_without_its_blank_line_is_taken_after_a_while_or_at_the_end() {
    let server = Server::legacy(|seen, mut wire| async move {
        wire.events().await;
        wire.raw(format!("data: {}", seen.says("done"))).await;
        if seen.tool() == "open" {
            wire.closed().await;
        }
        wire
    })
    .await;
    let client = client(&server);
    client.call("ends").await.says("done");
    client.call("open").await.says("done");
}

#[tokio::test]
async fn half_an_answer_is_no_answer() {
    let server = Server::legacy(|seen, mut wire| async move {
        wire.events().await;
        let answer = seen.says("done");
        wire.raw(format!("data: {}", &answer[..answer.len() - 3])).await;
        wire
    })
    .await;
    let failure = client(&server).call("t").await.failure().clone();
    assert_eq!((failure.reason, failure.retry), (Reason::OutcomeUnknown, Retry::Unknown), "{failure:?}");
}

#[tokio::test]
async fn a_stream_that_is_reset_after_progress_ends_its_call_and_the_next_one_is_fine() {
    let server = Server::legacy(|seen, mut wire| async move {
        if seen.tool() != "reset" {
            return wire.json(&seen.says("fine")).await;
        }
        wire.events().await;
        wire.event(&seen.progress(1)).await;
        wire.reset()
    })
    .await;
    let client = client(&server);
    let began = Instant::now();
    let seen = client.call("reset").await;
    assert_eq!(seen.failure().reason, Reason::OutcomeUnknown);
    assert!(began.elapsed().as_secs() < 5);
    client.call("next").await.says("fine");
    assert_eq!(server.seen().iter().filter(|seen| seen.tool() == "reset").count(), 1, "sent once");
}

#[tokio::test]
async fn progress_and_logs_of_the_call_come_out_and_those_of_others_do_not() {
    let server = Server::legacy(|seen, mut wire| async move {
        wire.events().await;
        wire.event(&seen.progress(1)).await;
        wire.event(&notification("notifications/progress", &json!({ "progressToken": "ghost", "progress": 7 }))).await;
        wire.event(&notification("notifications/progress", &json!({ "progressToken": 999, "progress": 8 }))).await;
        wire.event(&notification("notifications/progress", &json!({ "progress": 9 }))).await;
        wire.event(&notification("notifications/message", &json!({ "level": "info", "data": "x" }))).await;
        wire.event(&seen.progress(2)).await;
        // Behind the answer nothing counts.
        wire.raw(format!("data: {}\n\ndata: {}\n\n", seen.says("done"), seen.progress(3))).await;
        wire.closed().await;
        wire
    })
    .await;
    let client = client(&server);
    let (seen, other) = tokio::join!(client.call("t"), client.call("t"));
    for seen in [seen, other] {
        seen.says("done");
        assert_eq!((seen.progress, seen.logs), (vec!["1".to_owned(), "2".to_owned()], 1));
    }
}

#[tokio::test]
async fn what_a_server_asks_is_answered_at_once_and_the_call_goes_on() {
    let asked = Arc::new(Notify::new());
    let answered = Arc::new(AtomicUsize::new(0));
    let (shared, count) = (Arc::clone(&asked), Arc::clone(&answered));
    let server = Server::legacy(move |seen, mut wire| {
        let (asked, answered) = (Arc::clone(&shared), Arc::clone(&count));
        async move {
            if !seen.is("tools/call") {
                if answered.fetch_add(1, Ordering::SeqCst) == 2 {
                    asked.notify_one();
                }
                return wire.status("202 Accepted").await;
            }
            wire.events().await;
            for (id, method) in [("1", "ping"), ("\"1\"", "roots/list"), ("0", "made/up")] {
                wire.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)).await;
            }
            asked.notified().await;
            wire.event(&seen.says("done")).await;
            wire
        }
    })
    .await;
    client(&server).call("t").await.says("done");
    let answers: Vec<_> = server.seen().into_iter().filter(|seen| seen.body.get("method").is_none()).collect();
    let of = |id: &Value| answers.iter().find(|seen| seen.id() == id && seen.verb == "POST").unwrap();
    assert_eq!(of(&json!(1)).body["result"], json!({}));
    assert_eq!(of(&json!("1")).body["error"]["code"], json!(-32601));
    assert_eq!(of(&json!(0)).body["error"]["code"], json!(-32601));
    assert!(answers.iter().filter(|seen| seen.verb == "POST").all(|seen| seen.header("mcp-session-id").is_some()));
}

#[tokio::test]
async fn a_broken_stream_goes_on_behind_its_last_event() {
    let server = Server::start(|seen, mut wire| async move {
        match (seen.verb.as_str(), seen.method(), seen.header("last-event-id")) {
            ("POST", "initialize", _) => return wire.initialize(&seen, "s").await,
            ("POST", "tools/call", _) => {
                // A priming event, then one that counts, then one that breaks off.
                wire.events().await;
                wire.raw("id: a-0\nretry: 20\ndata: \n\n").await;
                wire.raw(format!("id: a-1\ndata: {}\n\n", seen.progress(1))).await;
                wire.raw("id: a-2\ndata: {\"jsonr").await;
            }
            ("GET", _, Some("a-1")) => {
                wire.events().await;
                wire.raw("id: a-2\nretry: 0\ndata: \n\n").await;
            }
            ("GET", _, Some("a-2")) => {
                wire.events().await;
                // What belongs to other streams is replayed too.
                wire.event(r#"{"jsonrpc":"2.0","id":1,"result":{"wrong":1}}"#).await;
                wire.event(r#"{"jsonrpc":"2.0","id":null,"result":{"wrong":2}}"#).await;
                wire.event(r#"{"jsonrpc":"2.0","id":777,"result":{"wrong":3}}"#).await;
                wire.event(
                    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":2}}"#,
                )
                .await;
                wire.event(r#"{"jsonrpc":"2.0","id":2,"result":{"right":1}}"#).await;
                wire.closed().await;
            }
            ("GET", _, _) => return wire.status("405 Method Not Allowed").await,
            _ => return wire.status("202 Accepted").await,
        }
        wire
    })
    .await;
    let seen = client(&server).call("t").await;
    assert_eq!(seen.result(), r#"{"right":1}"#);
    assert_eq!(seen.progress, ["1", "2"]);
    assert_eq!(server.seen_of("tools/call").len(), 1);
}

#[tokio::test]
async fn an_event_id_that_was_taken_back_is_not_resumed_behind_and_one_with_a_nul_is_none() {
    for (id, resumed) in [("", 0), ("a\0b", 1)] {
        let server = Server::legacy(move |seen, mut wire| async move {
            wire.events().await;
            wire.raw(format!("id: a-1\nretry: 0\ndata: {}\n\n", seen.progress(1))).await;
            wire.raw(format!("id: {id}\ndata: {}\n\n", seen.progress(2))).await;
            wire
        })
        .await;
        let seen = client(&server).call("t").await;
        assert_eq!((seen.failure().reason, seen.progress.len()), (Reason::OutcomeUnknown, 2));
        let asked = server.seen_by("GET").into_iter().filter(|seen| seen.header("last-event-id").is_some());
        let asked: Vec<_> = asked.map(|seen| seen.header("last-event-id").unwrap().to_owned()).collect();
        assert_eq!(asked, vec!["a-1"; resumed], "{id:?}");
    }
}

#[tokio::test]
async fn an_event_id_lasts_on_a_resumed_stream_that_names_none_until_it_is_taken_back() {
    let streams = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen, mut wire| {
        let streams = Arc::clone(&streams);
        async move {
            match (seen.verb.as_str(), seen.method(), seen.header("last-event-id")) {
                ("POST", "initialize", _) => return wire.initialize(&seen, "s").await,
                ("POST", "tools/call", _) => {
                    wire.events().await;
                    wire.raw("id: a\nretry: 0\ndata: \n\n").await;
                }
                ("GET", _, Some("a")) => {
                    wire.events().await;
                    // Nothing but a comment, then the end of resuming.
                    let first = streams.fetch_add(1, Ordering::Relaxed) == 0;
                    wire.raw(if first { ": hello\n\n" } else { "id\n\n" }).await;
                }
                ("GET", _, _) => return wire.status("405 Method Not Allowed").await,
                _ => return wire.status("202 Accepted").await,
            }
            wire
        }
    })
    .await;
    assert_eq!(client(&server).call("t").await.failure().reason, Reason::OutcomeUnknown);
    assert_eq!(server.seen().iter().filter(|seen| seen.header("last-event-id") == Some("a")).count(), 2);
}

#[tokio::test]
async fn the_listen_stream_is_not_taken_up_behind_an_event_id_that_was_taken_back() {
    let listened = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen, mut wire| {
        let listened = Arc::clone(&listened);
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("POST", "tools/call") => wire.json(&seen.says("done")).await,
                ("GET", _) => match listened.fetch_add(1, Ordering::Relaxed) {
                    0 => {
                        wire.events().await;
                        wire.raw("retry: 1\nid: a\ndata: \n\n").await;
                        wire
                    }
                    1 => {
                        wire.events().await;
                        wire.raw("retry: 1\nid\n\n").await;
                        wire
                    }
                    _ => wire.status("405 Method Not Allowed").await,
                },
                _ => wire.status("202 Accepted").await,
            }
        }
    })
    .await;
    let client = client(&server);
    client.call("t").await.says("done");
    server.saw(|_| server.seen_by("GET").len() == 3).await;
    let ids: Vec<_> =
        server.seen_by("GET").iter().map(|seen| seen.header("last-event-id").map(str::to_owned)).collect();
    assert_eq!(ids, [None, Some("a".to_owned()), None]);
}

#[tokio::test]
async fn a_server_that_wants_to_be_asked_at_once_again_and_again_is_asked_with_pauses() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Server::start(move |seen, mut wire| {
        let count = Arc::clone(&count);
        async move {
            match (seen.verb.as_str(), seen.method()) {
                ("POST", "initialize") => wire.initialize(&seen, "s").await,
                ("GET", _) if seen.header("last-event-id").is_none() => wire.status("405 Method Not Allowed").await,
                ("POST", "tools/call") | ("GET", _) => {
                    wire.events().await;
                    let end = count.fetch_add(1, Ordering::Relaxed) == 5;
                    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"right":1}}"#;
                    let data = if end { answer } else { "" };
                    wire.raw(format!("retry: 0\nid: a\ndata: {data}\n\n")).await;
                    wire
                }
                _ => wire.status("202 Accepted").await,
            }
        }
    })
    .await;
    let begun = Instant::now();
    assert_eq!(client(&server).call("t").await.result(), r#"{"right":1}"#);
    assert!(begun.elapsed() >= std::time::Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_leaves_the_outcome_unknown() {
    let server = Server::legacy(|seen, mut wire| async move {
        wire.events().await;
        wire.raw(format!("id: a-1\nretry: 0\ndata: {}\n\n", seen.progress(1))).await;
        wire
    })
    .await;
    let seen = client(&server).call("t").await;
    assert_eq!(seen.failure().reason, Reason::OutcomeUnknown);
    assert!(seen.failure().message.contains("405"), "{}", seen.failure().message);
    let resumed = server.seen_by("GET").into_iter().filter(|seen| seen.header("last-event-id") == Some("a-1"));
    assert_eq!(resumed.count(), 1);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_for_the_rest_is_given_up_in_bounded_time() {
    let server = Server::start(|seen, mut wire| async move {
        match (seen.verb.as_str(), seen.method()) {
            ("POST", "initialize") => wire.initialize(&seen, "s").await,
            ("POST", "tools/call") => {
                wire.events().await;
                wire.raw("id: a\nretry: 1\ndata: \n\n").await;
                wire
            }
            ("GET", _) if seen.header("last-event-id").is_some() => wire.reset(),
            ("GET", _) => wire.status("405 Method Not Allowed").await,
            _ => wire.status("202 Accepted").await,
        }
    })
    .await;
    let client = client(&server);
    let begun = Instant::now();
    let outcome = tokio::time::timeout(3 * PATIENCE, client.tool("t").await.outcome()).await.expect("the call hangs");
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.reason, Reason::OutcomeUnknown);
    assert!(failure.message.contains("in 7 attempts"), "{}", failure.message);
    let attempts = server.seen_by("GET").into_iter().filter(|seen| seen.header("last-event-id").is_some()).count();
    assert_eq!(attempts, 7);
    // As long as without the wait that it names.
    assert!(begun.elapsed().as_secs() >= 15, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_list_whose_stream_broke_is_asked_for_again_once() {
    let server = Server::legacy(|_, wire| async move { wire.reset() }).await;
    assert_eq!(client(&server).list().await.failure().reason, Reason::OutcomeUnknown);
    assert_eq!(server.seen_of("tools/list").len(), 2);
}

#[tokio::test]
async fn an_event_past_the_limit_ends_its_call_only() {
    let gate = Arc::new(Notify::new());
    let shared = Arc::clone(&gate);
    let server = Server::legacy(move |seen, mut wire| {
        let gate = Arc::clone(&shared);
        async move {
            wire.events().await;
            if seen.tool() == "small" {
                gate.notified().await;
                wire.event(&seen.says("fine")).await;
                return wire;
            }
            wire.raw("data: ").await;
            wire.flood().await;
            wire
        }
    })
    .await;
    let limits = Limits { message: 1 << 20, ..Limits::default() };
    let client = client_with(config(&server), &limits);
    let small = client.tool("small").await;
    let seen = client.call("large").await;
    assert_eq!((seen.failure().reason, seen.failure().retry), (Reason::TooLarge, Retry::No));
    gate.notify_one();
    crate::client::all(small).await.says("fine");
}
