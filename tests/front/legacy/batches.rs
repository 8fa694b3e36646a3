use serde_json::json;

use super::*;

#[tokio::test]
async fn a_batch_runs_each_request_and_is_answered_on_one_stream() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-03-26").await;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let batch = format!("[{}, {notification} ,{}]", tool("1"), tool(r#""b""#));
    client.post(&batch, &session.header()).await;
    let (first, second) = (server.asked().await, server.asked().await);
    assert_eq!(client.head().await.get("content-type"), Some("text/event-stream"));
    second.sender.done(result("{}"));
    assert_eq!(message(&mut client).await["id"], "b");
    first.sender.done(result("{}"));
    assert_eq!(message(&mut client).await["id"], 1);
    assert_eq!(event(&mut client).await, None);
}

#[tokio::test]
async fn a_batch_is_answered_by_an_array_where_the_client_takes_no_stream() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-03-26").await;
    let json_only = format!("{}accept: application/json\r\n", session.header());
    for ids in [&["1", "2"][..], &["1"]] {
        let calls: Vec<_> = ids.iter().map(|id| tool(id)).collect();
        client.post(&format!("[{}]", calls.join(",")), &json_only).await;
        for _ in ids {
            server.asked().await.sender.done(result("{}"));
        }
        let (head, body) = client.response().await;
        assert_eq!(head.get("content-type"), Some("application/json"));
        let answers: Vec<Value> = serde_json::from_str(&body).unwrap();
        assert_eq!(answers.len(), ids.len(), "{body}");
    }
    client.post(r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#, &session.header()).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, body.as_str()), (202, ""));
}

/// A server answers requests; nobody answers an answer (2025-03-26, base protocol, batching).
#[tokio::test]
async fn a_stray_answer_in_a_batch_is_ignored_and_the_rest_of_it_runs() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-03-26").await;
    let stray = r#"{"jsonrpc":"2.0","id":77,"result":{}}"#;
    let json_only = format!("{}accept: application/json\r\n", session.header());
    client.post(&format!("[{},{stray},{}]", tool("1"), tool("2")), &json_only).await;
    for _ in 0..2 {
        server.asked().await.sender.done(result("{}"));
    }
    let (head, body) = client.response().await;
    assert_eq!(head.status, 200, "{body}");
    let answers: Vec<Value> = serde_json::from_str(&body).unwrap();
    assert_eq!(answers.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(), [1, 2]);
    // With nothing that is taken it is refused.
    client.post(&format!("[{stray},{stray}]"), &session.header()).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (400, -32600));
}

/// JSON-RPC 2.0, batch: each element that is no request gets an error of its own.
#[tokio::test]
async fn what_is_no_message_in_a_batch_gets_an_error_of_its_own_and_the_rest_of_it_runs() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-03-26").await;
    let (modern, _) = call("7", "t", "");
    let nested = format!("[{}]", tool("8"));
    let initialize = initialize("2025-03-26");
    // It may be meant as an answer, under the id of another side's request.
    let nameless = r#"{"jsonrpc":"2.0","id":9,"foo":"boo"}"#;
    let bad = [("1", json!(null)), ("{}", json!(null)), (&nested, json!(null)), (&modern, json!(7))];
    let bad = bad.into_iter().chain([(&*initialize, json!("i")), (nameless, json!(null))]);
    for (element, id) in bad {
        for accept in ["accept: application/json\r\n", ""] {
            client
                .post(&format!("[{},{element},{}]", tool("1"), tool("2")), &format!("{}{accept}", session.header()))
                .await;
            for _ in 0..2 {
                server.asked().await.sender.done(result("{}"));
            }
            let (head, body) = client.response().await;
            assert_eq!(head.status, 200, "{element}: {body}");
            let mut answers: Vec<Value> = match accept {
                "" => body.lines().filter_map(|line| line.strip_prefix("data: ")).map(read).collect(),
                _ => serde_json::from_str(&body).unwrap(),
            };
            let at = answers.iter().position(|answer| answer.get("error").is_some()).expect("an error");
            let error = answers.remove(at);
            assert_eq!((&error["id"], &error["error"]["code"]), (&id, &json!(-32600)), "{element}");
            assert!(error.as_object().unwrap().contains_key("id"), "{error}");
            let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
            assert_eq!(ids, [1, 2], "{element}: {body}");
        }
    }
    // With nothing that runs.
    client.post("[1,2]", &session.header()).await;
    let (head, body) = client.response().await;
    let answers: Vec<Value> = serde_json::from_str(&body).unwrap();
    assert_eq!((head.status, answers.len()), (400, 2), "{body}");
    assert!(server.is_untouched());
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn a_batch_that_is_not_allowed_or_broken_is_refused_before_any_of_it_runs() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let old = Session::open(&mut server, &mut client, "2025-03-26").await;
    let new = Session::open(&mut server, &mut client, "2025-06-18").await;
    let fine = format!("[{}]", tool("1"));
    let many = format!("[{}]", vec![tool("1"); 65].join(","));
    let cases =
        [(new.header(), fine.clone()), (String::new(), fine), (old.header(), "[]".to_owned()), (old.header(), many)];
    for (headers, text) in cases {
        client.post(&text, &headers).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (400, -32600), "{text}");
    }
    client.post(&format!("[{}", tool("1")), &old.header()).await;
    assert_eq!(code(&client.response().await.1), -32700);
    assert!(server.is_untouched());
}
