//! Which clients get tasks, and what the others learn (field cases 52, 68, 70).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bounded;
use crate::process::Ground;
use crate::upstream::Upstream;

#[tokio::test]
async fn only_the_request_itself_makes_a_task() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let created = client.call("slow", "{}").await.result();
    assert_eq!(created["resultType"], "task");
    assert!(created.get("content").is_none(), "{created}");
    upstream.run().await.says("first").await;

    // On the same connections, none of these declares anything.
    let plain = client.undeclared();
    let params = r#""name":"slow","arguments":{}"#;
    let text = plain.text("tools/call", params);
    let extension = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
    let texts = [
        text.clone(),
        text.replace(r#""_meta":{"#, &format!(r#""task":{{"ttl":1}},{extension},"_meta":{{"#)),
        text.replace(
            r#""_meta":{"#,
            &format!(r#""_meta":{{"io.modelcontextprotocol/clientInfo":{{"name":"c","version":"1",{extension}}},"#),
        ),
        text.replace(r#""extensions":{}"#, r#""tasks":{"requests":{"tools":{"call":{}}}},"extensions":{}"#),
    ];
    for text in texts {
        let (sender, sent) = (plain.clone(), text.clone());
        let calling = tokio::spawn(async move { sender.send("tools/call", "slow", sent).await });
        upstream.run().await.says("held").await;
        let result = bounded(calling).await.unwrap().result();
        assert_eq!(
            (&result["resultType"], &result["content"][0]["text"]),
            (&json!("complete"), &json!("held")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_client_without_tasks_learns_nothing_about_ids() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let client = proxy.client();
    let valid = client.handle("slow", "{}").await;
    let unknown = "0".repeat(36);
    let plain = client.undeclared();
    let wanted = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    for (with_valid, with_unknown, of_declared) in [
        (plain.get(&valid).await, plain.get(&unknown).await, client.get(&unknown).await),
        (plain.cancel(&valid).await, plain.cancel(&unknown).await, client.cancel(&unknown).await),
        (plain.update(&valid).await, plain.update(&unknown).await, client.update(&unknown).await),
    ] {
        assert_eq!((with_valid.status, &with_valid.body), (400, &with_unknown.body));
        assert_eq!(with_unknown.status, 400);
        let error = with_valid.error();
        assert_eq!((&error["code"], &error["data"]["requiredCapabilities"]), (&json!(-32021), &wanted));
        assert_eq!((of_declared.status, of_declared.error()["code"].as_i64()), (200, Some(-32602)));
    }
    let listening =
        plain.ask("subscriptions/listen", "", &format!(r#""notifications":{{"taskIds":["{valid}"]}}"#)).await;
    assert_eq!((listening.status, listening.error()["code"].as_i64()), (400, Some(-32021)), "{}", listening.body);
    // The old methods are gone.
    for method in ["tasks/list", "tasks/result"] {
        let gone = client.ask(method, "", &format!(r#""taskId":"{valid}""#)).await;
        assert_eq!((gone.status, gone.error()["code"].as_i64()), (404, Some(-32601)), "{}", gone.body);
    }
    // Nothing of this touched the task.
    upstream.run().await.says("done").await;
    assert_eq!(client.ended(&valid).await.result()["status"], "completed");
}

#[tokio::test]
async fn what_raincheck_is_can_be_asked_while_no_server_is_there() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("url = \"http://{}/mcp\"", taken.local_addr().unwrap());
    let away = {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("url = \"http://{}/mcp\"", gone.local_addr().unwrap())
    };
    // What says nothing may only be slow to start: it is waited for, but not for as long as clients wait (10 s). What
    // has failed is not.
    let (slow, failed) = (Duration::from_secs(10), Duration::from_secs(4));
    let table = [
        (silent, slow),
        ("command = [\"sleep\", \"600\"]".to_owned(), slow),
        (away, failed),
        ("command = [\"/nowhere/at-all\"]".to_owned(), failed),
        ("command = [\"sleep\", \"600\"]\nconnect_timeout = \"500ms\"".to_owned(), failed),
    ];
    let asked = table.map(|(server, within)| async move {
        let proxy = Ground::before(&server, "").start().await;
        let began = Instant::now();
        let answer = proxy.client().ask("server/discover", "", "").await;
        assert!(began.elapsed() < within, "{server}: {:?}", began.elapsed());
        let result = answer.result();
        assert_eq!(result["supportedVersions"][0], "2026-07-28", "{server}: {result}");
        assert!(result["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{result}");
    });
    futures_util::future::join_all(asked).await;
}
