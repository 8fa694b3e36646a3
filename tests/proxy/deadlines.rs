//! Slow calls and clients that give up (field cases 1, 3, 5, 6).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::Ground;
use crate::upstream::{Transport, Upstream};
use crate::{bounded, within};

const TRANSPORTS: [Transport; 2] = [Transport::Stdio, Transport::Http];

#[tokio::test]
async fn a_handle_comes_long_before_any_client_gives_up() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[defaults]\nafter = \"1s\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let started = Instant::now();
    let mut calling = {
        let client = client.clone();
        tokio::spawn(async move { client.call("simmer", "{}").await })
    };
    let mut run = upstream.run().await;
    // The tool reports all the time; that changes nothing about when the handle comes.
    let mut done = 0;
    let answer = loop {
        done += 1;
        run.progress(done, "simmering").await;
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(20), &mut calling).await {
            break answer.unwrap();
        }
    };
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_secs(1), "a handle after {elapsed:?}");
    // The client would give up at 6 s.
    assert!(elapsed < Duration::from_secs(6), "a handle after {elapsed:?}");
    let created = answer.result();
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
    // The client sent no token, so nothing was said on the way.
    assert!(!answer.body.contains("notifications/progress"), "{}", answer.body);
    let id = answer.task_id();
    client.until_it_says(&id, "simmering").await;
    run.says("stew").await;
    let ended = client.ended(&id).await.result();
    assert_eq!((&ended["status"], &ended["result"]["content"][0]["text"]), (&json!("completed"), &json!("stew")));
    assert_eq!((upstream.ledger().len(), upstream.cancelled()), (1, 0));
}

#[tokio::test]
async fn calls_that_are_given_up_hold_nothing_and_delay_nobody() {
    for transport in TRANSPORTS {
        let upstream = Upstream::start(transport).await;
        // One more than those that are given up.
        let ground = Ground::new(&upstream, "[limits]\ncalls = 4\nqueue = 1");
        let proxy = ground.start().await;
        let client = proxy.client().undeclared();
        let mut runs = Vec::new();
        let mut calls = Vec::new();
        for _ in 0..3 {
            let client = proxy.client().undeclared();
            calls.push(tokio::spawn(async move { client.call("simmer", "{}").await }));
            runs.push(upstream.run().await);
        }
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        upstream.cancels(3).await;
        let pinging = {
            let client = client.clone();
            tokio::spawn(async move { client.call("ping_me", "{}").await })
        };
        let mut ping = upstream.run().await;
        ping.says("pong").await;
        within(Duration::from_secs(5), pinging).await.unwrap().result();
        // The late answers go nowhere, and give the slots back.
        for mut run in runs {
            run.says("too late").await;
        }
        let mut calls = Vec::new();
        let mut again = Vec::new();
        for n in 0..4 {
            let client = proxy.client().undeclared();
            calls.push(tokio::spawn(async move { client.call("again", &format!(r#"{{"n":{n}}}"#)).await }));
            again.push(upstream.run().await);
        }
        for mut run in again {
            let arguments = run.arguments().to_owned();
            run.answer(&format!(r#"{{"content":[],"structuredContent":{arguments}}}"#)).await;
        }
        for (n, call) in calls.into_iter().enumerate() {
            assert_eq!(bounded(call).await.unwrap().result()["structuredContent"]["n"], n, "{transport:?}");
        }
        let simmered = upstream.ledger().iter().filter(|line| line.starts_with("simmer")).count();
        assert_eq!(simmered, 3, "{transport:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_at_the_limit() {
    for transport in TRANSPORTS {
        let upstream = Upstream::start(transport).await;
        let rest = "[[tool]]\nmatch = \"silent\"\nmode = \"task\"\ntimeout = \"1500ms\"";
        let ground = Ground::new(&upstream, rest);
        let proxy = ground.start().await;
        let client = proxy.client();
        let started = Instant::now();
        let id = client.handle("silent", "{}").await;
        let _run = upstream.run().await;
        let working = client.get(&id).await.result();
        assert!(working["statusMessage"].as_str().unwrap().starts_with("running for "), "{working}");
        let failed = client.ended(&id).await.result();
        let elapsed = started.elapsed();
        assert!(elapsed >= Duration::from_millis(1500) && elapsed < Duration::from_secs(6), "{elapsed:?}");
        assert_eq!((&failed["status"], &failed["error"]["data"]["reason"]), (&json!("failed"), &json!("timeout")));
        let took = millis(&failed["lastUpdatedAt"]) - millis(&failed["createdAt"]);
        assert!((1400..4000).contains(&took), "{took} ms: {failed}");
        // It was told to stop, and the next call is fine.
        upstream.cancels(1).await;
        let next = {
            let client = client.clone();
            tokio::spawn(async move { client.call("next", "{}").await })
        };
        upstream.run().await.says("fine").await;
        assert_eq!(bounded(next).await.unwrap().result()["content"][0]["text"], "fine", "{transport:?}");
    }
}

#[tokio::test]
async fn a_repeated_call_runs_again_and_a_polled_one_does_not() {
    for transport in TRANSPORTS {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[defaults]\nafter = \"300ms\"");
        let proxy = ground.start().await;
        // A client without Tasks drops the connection and tries again: two runs, for the proxy adds and merges none.
        let impatient = proxy.client().undeclared();
        let first = tokio::spawn(async move { impatient.call("wall", "{}").await });
        let _first_run = upstream.run().await;
        first.abort();
        upstream.cancels(1).await;
        let client = proxy.client().undeclared();
        let second = tokio::spawn(async move { client.call("wall", "{}").await });
        upstream.run().await.says("two walls").await;
        assert_eq!(bounded(second).await.unwrap().result()["content"][0]["text"], "two walls");
        assert_eq!(upstream.ledger().len(), 2, "{transport:?}");
        // One with Tasks has a handle before it gives up, and polls.
        let client = proxy.client();
        let id = client.handle("wall", "{}").await;
        for _ in 0..20 {
            assert_eq!(client.get(&id).await.result()["status"], "working");
        }
        upstream.run().await.says("one wall").await;
        assert_eq!(client.ended(&id).await.result()["result"]["content"][0]["text"], "one wall");
        assert_eq!(upstream.ledger().len(), 3, "{transport:?}");
    }
}

/// Servers may report as fast as they can.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_progress_delays_neither_the_limit_nor_a_cancel_nor_a_handle() {
    for transport in TRANSPORTS {
        let upstream = Upstream::start(transport).await;
        let rest = "[defaults]\nafter = \"500ms\"\n[[tool]]\nmatch = \"limited\"\nmode = \"task\"\ntimeout = \"1s\"";
        let ground = Ground::new(&upstream, rest);
        let proxy = ground.start().await;
        let client = proxy.client();
        for tool in ["cancelled", "limited"] {
            let calling = {
                let client = client.clone();
                tokio::spawn(async move { client.handle(tool, "{}").await })
            };
            let mut run = upstream.run().await;
            let flood = tokio::spawn(async move {
                for n in 0.. {
                    run.progress(n, "").await;
                }
            });
            let id = within(Duration::from_secs(20), calling).await.unwrap();
            if tool == "cancelled" {
                client.cancel(&id).await;
            }
            let ended = within(Duration::from_secs(20), client.ended(&id)).await.result();
            match tool {
                "cancelled" => assert_eq!(ended["status"], "cancelled", "{transport:?}"),
                _ => assert_eq!(ended["error"]["data"]["reason"], "timeout", "{transport:?}"),
            }
            flood.abort();
        }
    }
}

/// A timestamp of the wire in milliseconds of its day.
fn millis(stamp: &Value) -> i64 {
    let text = stamp.as_str().unwrap();
    let number = |at: std::ops::Range<usize>| text[at].parse::<i64>().unwrap();
    ((number(11..13) * 60 + number(14..16)) * 60 + number(17..19)) * 1000 + number(20..23)
}

#[tokio::test]
async fn of_a_server_that_is_not_told_to_stop_nobody_is_told_that_it_was() {
    let upstream = Upstream::stdio().await;
    let rest = "[owner.limits]\nbudget = \"1/1h\"\n[[tool]]\nmatch = \"*\"\nmode = \"task\"\n\
                [[tool]]\nmatch = \"silent\"\nmode = \"task\"\ntimeout = \"500ms\"\n\
                [[tool]]\nmatch = \"idle\"\nmode = \"task\"\nidle_timeout = \"500ms\"\n\
                [[tool]]\nmatch = \"dear\"\nmode = \"task\"\nprice_per_minute = 600\n\
                [[tool]]\nmatch = \"told_in_words\"\nfallback = \"handle\"\nhold = \"200ms\"";
    let ground = Ground::with_server(&upstream, "cancel = \"never\"\n", rest);
    let proxy = ground.start().await;
    let client = proxy.client();
    let (not_told, goes_on) = ("is not told to stop", "may go on to its end");
    for tool in ["silent", "idle", "dear"] {
        let id = client.handle(tool, "{}").await;
        let _run = upstream.run().await;
        let failed = client.ended(&id).await.result();
        let message = failed["statusMessage"].as_str().unwrap();
        assert!(message.contains(not_told) && message.contains(goes_on), "{message}");
    }
    let in_words = client.undeclared();
    let (handle, _run) = tokio::join!(in_words.call("told_in_words", "{}"), upstream.run());
    let job = json!({ "job": handle.result()["_meta"]["dev.raincheck/taskId"] });
    let cancelled = in_words.call("cancel_job", &job.to_string()).await.result();
    let said = cancelled["content"][0]["text"].as_str().unwrap();
    assert!(said.contains(not_told) && said.contains(goes_on), "{said}");
    assert_eq!(upstream.cancelled(), 0);
}
