//! What clients get that cannot take a task, through the whole proxy: held with signs of life, or a handle in words.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::client::Client as Modern;
use crate::legacy::{Client, Events};
use crate::process::{Ground, Proxy};
use crate::upstream::{Transport, Upstream};
use crate::{bounded, member};

const BOTH: [Transport; 2] = [Transport::Stdio, Transport::Http];

/// What cuts idle connections after this time.
const CUT: Duration = Duration::from_secs(2);

/// Somebody on the way to `base` who cuts idle connections: the address.
async fn balancer(base: &str) -> String {
    let behind = base.strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((front, _)) = listener.accept().await {
            let back = TcpStream::connect(&behind).await.unwrap();
            tokio::spawn(relay(front, back));
        }
    });
    address
}

async fn relay(mut front: TcpStream, mut back: TcpStream) {
    let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    loop {
        let read = async {
            tokio::select! {
                read = front.read(&mut up) => (true, read),
                read = back.read(&mut down) => (false, read),
            }
        };
        let Ok((goes_up, Ok(count @ 1..))) = timeout(CUT, read).await else { return };
        let written = if goes_up { back.write_all(&up[..count]).await } else { front.write_all(&down[..count]).await };
        if written.is_err() {
            return;
        }
    }
}

fn words(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no words: {result}"))
}

fn job(result: &Value) -> String {
    result["_meta"]["dev.raincheck/taskId"].as_str().unwrap_or_else(|| panic!("no job: {result}")).to_owned()
}

/// The answer to a call of a legacy client, as it is spelled.
async fn answered(client: &Client, id: u32, tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments }).to_string();
    let mut events = client.request(&id.to_string(), "tools/call", &params).await;
    member(&events.next().await.unwrap().1, "result").to_owned()
}

#[tokio::test]
async fn a_held_call_survives_whoever_cuts_idle_connections() {
    for transport in BOTH {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "").with_listen("keep_alive = \"200ms\"");
        let proxy = ground.start().await;
        let base = balancer(&proxy.base).await;
        // Comments for three seconds and more.
        let client = Client::open_at(base.clone(), &json!({})).await;
        let mut events = client.call("1", "slow").await;
        let mut run = upstream.run().await;
        assert!(events.comments(16).await, "the connection was cut");
        run.says("late").await;
        assert_eq!(events.message().await["result"]["content"][0]["text"], "late", "{transport:?}");

        let client = Modern::new(format!("{base}/mcp")).undeclared();
        let calling = tokio::spawn(async move { client.call("slow", "{}").await });
        let mut run = upstream.run().await;
        // As long as this one, which is cut, since nobody keeps it alive.
        let mut idle = TcpStream::connect(base.strip_prefix("http://").unwrap()).await.unwrap();
        bounded(idle.read(&mut [0])).await.unwrap();
        run.says("late").await;
        let answer = bounded(calling).await.unwrap();
        assert_eq!(answer.result()["content"][0]["text"], "late");
        assert!(answer.body.matches(":\n\n").count() > 5, "{}", answer.body);
        assert_eq!(upstream.cancelled(), 0);
    }
}

#[tokio::test]
async fn without_signs_of_life_a_cut_is_a_clean_end_and_a_client_of_2025_11_25_comes_back() {
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "").with_listen("keep_alive = \"1h\"");
    let proxy = ground.start().await;
    let base = balancer(&proxy.base).await;
    let client = Modern::new(format!("{base}/mcp")).undeclared();
    let calling = tokio::spawn(async move {
        let text = client.text("tools/call", r#""name":"slow","arguments":{}"#);
        client.try_send("tools/call", "slow", text).await
    });
    let _run = upstream.run().await;
    bounded(calling).await.unwrap().expect_err("a cut connection has an answer");
    // To leave is to cancel in 2026-07-28.
    upstream.cancels(1).await;

    let client = Client::open_at(base, &json!({})).await;
    let mut events = client.call("1", "slow").await;
    let mut run = upstream.run().await;
    run.progress(1, "first").await;
    let (last, _) = events.next().await.unwrap();
    assert!(!events.comments(1).await, "it was not cut");
    run.says("late").await;
    let back = client.send(Method::GET, ("last-event-id", &last), "").await;
    assert_eq!(Events::of(back).message().await["result"]["content"][0]["text"], "late");
    assert_eq!(upstream.cancelled(), 1);
}

#[tokio::test]
async fn a_client_without_tasks_gets_a_handle_and_later_the_very_bytes_of_the_result() {
    let spelled = r#"{"content": [{"type":"text","text":"rows"}],"structuredContent":{"n":1.0,"big":9007199254740995},"isError":true,"zzz":1E2}"#;
    for transport in BOTH {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[defaults]\nfallback = \"handle\"\nhold = \"400ms\"");
        let proxy = ground.start().await;
        let client = Client::open(&proxy).await;
        let list = client.request("1", "tools/list", "{}").await.message().await;
        assert_eq!(list["result"]["tools"], json!([]), "no tool of the server answers with a handle");
        let handle: Value = serde_json::from_str(&answered(&client, 2, "slow", &json!({})).await).unwrap();
        let mut run = upstream.run().await;
        assert_eq!((&handle["isError"], &handle["resultType"]), (&json!(false), &Value::Null));
        let arguments = json!({ "job": job(&handle), "wait_seconds": 0 });
        let working: Value = serde_json::from_str(&answered(&client, 3, "check_job", &arguments).await).unwrap();
        assert!(words(&working).contains("has not ended"), "{working}");
        run.answer(spelled).await;
        proxy.client().ended(&job(&handle)).await;
        assert_eq!(answered(&client, 4, "check_job", &arguments).await, spelled, "{transport:?}");
        // A modern client that declares nothing is shown the same, in its shape.
        let modern = proxy.client().undeclared().call("check_job", &arguments.to_string()).await.result();
        assert_eq!((&modern["isError"], &modern["resultType"]), (&json!(true), &json!("complete")));
        assert_eq!(upstream.ledger().len(), 1);
    }
}

#[tokio::test]
async fn a_question_that_is_open_at_the_time_of_the_handle_goes_on_in_the_job() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[defaults]\nfallback = \"handle\"\nhold = \"1s\"");
    let proxy = ground.start().await;
    let client = Client::open(&proxy).await;
    let mut events = client.call("1", "slow").await;
    let mut run = upstream.run().await;
    let params = r#"{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}"#;
    run.message(&format!(r#"{{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{params}}}"#)).await;
    let question = events.message().await;
    assert_eq!(question["params"]["message"], "Sure?");
    // Nobody answers; it is taken back.
    let mut taken_back = events.message().await;
    assert_eq!(taken_back["method"], "notifications/cancelled", "{taken_back}");
    assert_eq!(taken_back["params"]["requestId"].take(), question["id"]);
    let handle = events.message().await["result"].take();
    assert!(words(&handle).contains("Sure?") && words(&handle).contains("`answer_job`"), "{handle}");
    let late = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    assert_eq!(client.post(&late.to_string()).await.status(), 202);
    let given = answered(&client, 2, "answer_job", &json!({ "job": job(&handle), "action": "cancel" })).await;
    assert!(given.contains("The job goes on"), "{given}");
    let answer = upstream.run().await.request;
    assert!(answer.contains(r#""id":"q1""#) && answer.contains(r#"{"action":"cancel"}"#), "{answer}");
    run.says("sure").await;
    let ended = proxy.client().ended(&job(&handle)).await.result();
    assert_eq!(ended["result"]["content"][0]["text"], "sure");
}

#[tokio::test]
async fn a_job_outlives_the_session_that_its_handle_was_given_on() {
    for transport in BOTH {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[defaults]\nfallback = \"handle\"\nhold = \"200ms\"");
        let mut proxy = ground.start().await;
        let client = Client::open(&proxy).await;
        let handle: Value = serde_json::from_str(&answered(&client, 1, "slow", &json!({})).await).unwrap();
        let mut run = upstream.run().await;
        assert_eq!(client.send(Method::DELETE, ("", ""), "").await.status(), 200);
        run.says("after the session").await;
        let ended = proxy.client().ended(&job(&handle)).await.result();
        assert_eq!(ended["result"]["content"][0]["text"], "after the session", "{transport:?}");

        // The same at a stop, within the grace time.
        let client = Client::open(&proxy).await;
        let handle: Value = serde_json::from_str(&answered(&client, 1, "slow", &json!({})).await).unwrap();
        let mut run = upstream.run().await;
        proxy.terminate();
        proxy.says("stopping").await;
        run.says("after the stop").await;
        assert_eq!(proxy.end().await.code(), Some(0));
        let proxy = ground.start().await;
        let ended = proxy.client().ended(&job(&handle)).await.result();
        assert_eq!(ended["result"]["content"][0]["text"], "after the stop", "{transport:?}");
        assert_eq!(upstream.cancelled(), 0);
    }
}

#[tokio::test]
async fn a_handle_in_words_is_there_after_a_kill() {
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[defaults]\nfallback = \"handle\"\nmode = \"task\"");
    let mut proxy: Proxy = ground.start().await;
    let client = Client::open(&proxy).await;
    let handle: Value = serde_json::from_str(&answered(&client, 1, "slow", &json!({})).await).unwrap();
    proxy.kill();
    let proxy = ground.start().await;
    let client = Client::open(&proxy).await;
    let checked: Value =
        serde_json::from_str(&answered(&client, 1, "check_job", &json!({ "job": job(&handle) })).await).unwrap();
    assert!(checked["isError"] == true && words(&checked).contains("may or may not have run"), "{checked}");
}

#[tokio::test]
async fn a_cancelled_check_ends_and_the_job_goes_on() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[defaults]\nfallback = \"handle\"\nmode = \"task\"\nhold = \"20m\"");
    let proxy = ground.start().await;
    let client = Client::open(&proxy).await;
    let handle: Value = serde_json::from_str(&answered(&client, 1, "slow", &json!({})).await).unwrap();
    let mut run = upstream.run().await;
    let params = json!({ "name": "check_job", "arguments": { "job": job(&handle), "wait_seconds": 1000 } });
    let mut check = client.request("2", "tools/call", &params.to_string()).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    assert_eq!(client.post(cancel).await.status(), 202);
    assert!(timeout(Duration::from_secs(20), check.next()).await.unwrap().is_none());
    // One whose client leaves is as little to the job.
    drop(client.request("3", "tools/call", &params.to_string()).await);
    assert_eq!(upstream.cancelled(), 0);
    run.says("done").await;
    let ended = proxy.client().ended(&job(&handle)).await.result();
    assert_eq!((&ended["status"], upstream.cancelled()), (&json!("completed"), 0));
}
