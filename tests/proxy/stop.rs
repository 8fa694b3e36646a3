//! How the proxy ends.

use http_body_util::BodyExt;
use serde_json::json;

use crate::bounded;
use crate::client::Client;
use crate::process::Ground;
use crate::upstream::{Transport, Upstream};

#[tokio::test]
async fn a_stop_lets_running_calls_and_tasks_end() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let rest = "[shutdown]\ngrace = \"50s\"\n[[tool]]\nmatch = \"task\"\nmode = \"task\"";
        let ground = Ground::new(&upstream, rest);
        let mut proxy = ground.start().await;
        let client = proxy.client();
        let id = client.handle("task", "{}").await;
        let mut task = upstream.run().await;
        let held = {
            let client = client.undeclared();
            tokio::spawn(async move { client.call("held", "{}").await })
        };
        let mut call = upstream.run().await;
        proxy.terminate();
        proxy.says("stopping:").await;
        task.says("still kept").await;
        // While another runs, who polls can fetch it: on a connection that is there, and on a new one.
        for client in [client.clone(), proxy.client()] {
            let ended = bounded(async {
                loop {
                    let task = client.get(&id).await.result();
                    if task["status"] != "working" {
                        return task;
                    }
                    tokio::task::yield_now().await;
                }
            });
            assert_eq!(ended.await["result"]["content"][0]["text"], "still kept", "{transport:?}");
        }
        call.says("still answered").await;
        assert_eq!(bounded(held).await.unwrap().result()["content"][0]["text"], "still answered");
        assert_eq!(proxy.end().await.code(), Some(0), "{transport:?}");
        assert_eq!(upstream.cancelled(), 0);
        let proxy = ground.start().await;
        let kept = proxy.client().get(&id).await.result();
        assert_eq!(kept["result"]["content"][0]["text"], "still kept", "{transport:?}");
    }
}

#[tokio::test]
async fn what_does_not_end_within_the_grace_time_is_told_and_recorded() {
    for transport in [Transport::Stdio, Transport::Http] {
        let upstream = Upstream::start(transport).await;
        let rest = "[shutdown]\ngrace = \"300ms\"\n[[tool]]\nmatch = \"task\"\nmode = \"task\"\nmax_running = 1";
        let ground = Ground::new(&upstream, rest);
        let mut proxy = ground.start().await;
        let client = proxy.client();
        let lost = client.handle("task", "{}").await;
        let _task = upstream.run().await;
        let queued = client.handle("task", "{}").await;
        let held = {
            let client = client.undeclared();
            tokio::spawn(async move { client.call("held", "{}").await })
        };
        let _call = upstream.run().await;
        proxy.terminate();
        let told = bounded(held).await.unwrap().error();
        assert_eq!(told["data"], json!({ "reason": "outcome_unknown" }), "{transport:?}");
        assert_eq!(proxy.end().await.code(), Some(0), "{transport:?}");
        let proxy = ground.start().await;
        let client = proxy.client();
        let lost = client.ended(&lost).await.result();
        assert_eq!(
            (&lost["status"], &lost["error"]["data"]),
            (&json!("failed"), &json!({ "reason": "outcome_unknown" }))
        );
        // What waited is left to the next process.
        upstream.run().await.says("sent later").await;
        let queued = client.ended(&queued).await.result();
        assert_eq!(queued["result"]["content"][0]["text"], "sent later", "{transport:?}");
        assert_eq!(upstream.ledger(), ["task null", "held null", "task null"], "{transport:?}");
    }
}

#[tokio::test]
async fn no_process_is_left_however_the_proxy_ends() {
    for kill in [true, false] {
        let upstream = Upstream::stubborn().await;
        let ground = Ground::new(&upstream, "[shutdown]\ngrace = \"100ms\"\n[[tool]]\nmatch = \"*\"\nmode = \"task\"");
        let mut proxy = ground.start().await;
        proxy.client().handle("slow", "{}").await;
        let _run = upstream.run().await;
        proxy.client().bearer("another").handle("slow", "{}").await;
        let _another = upstream.run().await;
        assert!(upstream.processes() >= 2, "nothing to leave behind");
        if kill {
            proxy.kill();
        } else {
            assert_eq!(proxy.stop().await, Some(0));
        }
        upstream.left(0).await;
    }
}

#[tokio::test]
async fn a_server_that_dies_in_mid_call_leaves_the_outcome_unknown_and_the_next_call_starts_it_anew() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"task\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let id = client.handle("task", "{}").await;
    upstream.run().await.dies().await;
    proxy.says("the server has ended by itself").await;
    let lost = client.ended(&id).await.result();
    assert_eq!((&lost["status"], &lost["error"]["data"]), (&json!("failed"), &json!({ "reason": "outcome_unknown" })));
    let calling = {
        let client = client.clone();
        tokio::spawn(async move { client.call("next", "{}").await })
    };
    upstream.run().await.says("fine").await;
    assert_eq!(bounded(calling).await.unwrap().result()["content"][0]["text"], "fine");
    assert_eq!(upstream.ledger(), ["task null", "next null"]);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_what_ran_is_recorded_by_the_next_process() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[shutdown]\ngrace = \"1h\"\n[[tool]]\nmatch = \"task\"\nmode = \"task\"");
    let mut proxy = ground.start().await;
    let id = proxy.client().handle("task", "{}").await;
    let _run = upstream.run().await;
    proxy.terminate();
    proxy.says("stopping:").await;
    proxy.terminate();
    assert_eq!(proxy.end().await.code(), Some(143));
    let proxy = ground.start().await;
    let lost = proxy.client().ended(&id).await.result();
    assert_eq!(lost["error"]["data"], json!({ "reason": "outcome_unknown" }));
}

#[tokio::test]
async fn a_stream_ends_with_its_answer_at_the_beginning_of_a_stop() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[shutdown]\ngrace = \"1h\"\n[[tool]]\nmatch = \"task\"\nmode = \"task\"");
    let mut proxy = ground.start().await;
    let client = proxy.client();
    client.handle("task", "{}").await;
    let mut run = upstream.run().await;
    let stream = client.listens(r#""toolsListChanged":true"#).await;
    proxy.terminate();
    let rest = bounded(stream.collect()).await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains(r#""resultType":"complete""#), "{rest:?}");
    assert!(proxy.is_alive(), "the task still runs");
    run.says("done").await;
    assert_eq!(proxy.end().await.code(), Some(0));
}

#[tokio::test]
async fn tasks_of_a_server_that_is_gone_from_the_configuration_are_ended_by_the_next_process() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"task\"\nmode = \"task\"");
    let mut proxy = ground.start().await;
    let id = proxy.client().handle("task", "{}").await;
    let _run = upstream.run().await;
    proxy.kill();
    let config = std::fs::read_to_string(ground.config()).unwrap();
    std::fs::write(ground.config(), config.replace("name = \"behind\"", "name = \"another\"")).unwrap();
    let proxy = ground.start().await;
    let lost = proxy.client().ended(&id).await.result();
    assert_eq!(lost["error"]["data"], json!({ "reason": "outcome_unknown" }));
    assert!(lost["statusMessage"].as_str().unwrap().contains("not in the configuration any more"), "{lost}");
}

#[tokio::test]
async fn what_was_learned_of_a_tool_outlives_a_stop() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"task\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    for _ in 0..5 {
        let id = client.handle("task", "{}").await;
        upstream.run().await.says("good").await;
        client.ended(&id).await;
    }
    assert_eq!(proxy.stop().await, Some(0));
    let proxy = ground.start().await;
    let id = proxy.client().handle("task", "{}").await;
    let _run = upstream.run().await;
    let task = proxy.client().get(&id).await.result();
    assert_eq!(task["_meta"]["dev.raincheck/expected"]["samples"], 5, "{task}");
}

#[tokio::test]
async fn servers_that_are_slow_to_end_do_not_wait_for_each_other() {
    // Each waits at its end until the other is at its own.
    const SLOW: &str = r#""$0" demo-server; touch "$1"; until [ -e "$2" ]; do sleep 0.02; done; touch "$1.done""#;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let server = |own: &str, other: &str| {
        let program = env!("CARGO_BIN_EXE_raincheck");
        format!("command = {:?}\n", ["sh", "-c", SLOW, program, &path(own), &path(other)])
    };
    let other = format!("[[server]]\nname = \"other\"\n{}", server("two", "one"));
    let ground = Ground::before(&server("one", "two"), &other);
    let proxy = ground.start().await;
    for name in ["behind", "other"] {
        let client = Client::new(format!("{}/{name}/mcp", proxy.base));
        assert!(client.ask("tools/list", "", "").await.result()["tools"].is_array(), "{name}");
    }
    assert_eq!(proxy.stop().await, Some(0));
    for name in ["one.done", "two.done"] {
        assert!(std::path::Path::new(&path(name)).exists(), "{name}");
    }
}
