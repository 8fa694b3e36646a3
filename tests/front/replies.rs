use raincheck::protocol::reply::Delivery;
use raincheck::protocol::{Challenge, Event, Failure, Handle, Outcome, Progress, Reason, Retry, Rope, RpcError};
use serde_json::json as value;

use crate::support::*;

fn progress(number: &str) -> Event {
    Event::Progress(Progress { progress: json(number), total: Some(json("5")), message: Some("rows".to_owned()) })
}

fn log(level: &str) -> Event {
    Event::Log(json(&format!(r#"{{"level":"{level}","data": 1.0}}"#)))
}

fn handle() -> (Handle, tokio::sync::oneshot::Receiver<()>) {
    let (delivery, delivered) = Delivery::new();
    let created = Rope::from(json(r#"{"resultType":"task","taskId":"t"}"#));
    (Handle { created, delivery }, delivered)
}

#[tokio::test]
async fn a_quick_answer_is_plain_json_with_the_id_as_it_was_spelled() {
    let server = Setup::new().start_answering(|_| {
        let big = r#"{"n":[9007199254740995,-9223372036854775808,18446744073709551615,1e400,0.1,1E2,1.0]}"#;
        raincheck::protocol::Reply::ready(result(big))
    });
    let server = server.await;
    let mut client = server.connect().await;
    for id in ["1", "1e2", r#""a\u0062""#, "9007199254740995"] {
        let (text, headers) = call(id, "add", "");
        client.post(&text, &headers).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, head.get("content-type")), (200, Some("application/json")));
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","n":[9007199254740995,-9223372036854775808,18446744073709551615,1e400,0.1,1E2,1.0]}}}}"#
        );
        assert_eq!(body, expected);
        assert_eq!(head.get("content-length"), Some(expected.len().to_string().as_str()));
    }
}

#[tokio::test]
async fn a_slow_answer_is_a_stream_that_begins_with_a_comment_and_ends_with_the_answer() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    let head = client.head().await;
    assert_eq!((head.status, head.get("content-type")), (200, Some("text/event-stream")));
    assert_eq!((head.get("x-accel-buffering"), head.get("cache-control")), (Some("no"), Some("no-store")));
    assert_eq!(client.chunk().await.unwrap(), b":\n\n");
    asked.sender.done(result("{\"content\":\r\n []}"));
    let message = client.message().await.unwrap();
    assert_eq!(message, value!({"jsonrpc": "2.0", "id": 7, "result": {"resultType": "complete", "content": []}}));
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn comments_keep_a_silent_stream_alive() {
    let mut setup = Setup::new();
    setup.listen.keep_alive = std::time::Duration::from_millis(10);
    let mut server = setup.start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    client.head().await;
    for _ in 0..5 {
        assert_eq!(client.chunk().await.unwrap(), b":\n\n");
    }
    asked.sender.done(result("{}"));
    assert!(client.message().await.unwrap()["result"].is_object());
}

#[tokio::test]
async fn progress_comes_with_the_clients_own_token_and_before_the_answer() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", r#","progressToken":"p-\u0031""#);
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    asked.sender.event(progress("1.50"));
    asked.sender.event(log("emergency"));
    asked.sender.event(progress("2"));
    asked.sender.done(result("{}"));
    client.head().await;
    let first = client.message().await.unwrap();
    assert_eq!(
        first,
        value!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": "p-1", "progress": 1.5, "total": 5, "message": "rows"}})
    );
    assert_eq!(client.message().await.unwrap()["params"]["progress"], 2);
    assert!(client.message().await.unwrap()["result"].is_object());
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn without_a_token_there_is_no_progress_and_without_a_level_no_log() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    client.head().await;
    asked.sender.event(progress("1"));
    asked.sender.event(log("emergency"));
    asked.sender.done(result("{}"));
    assert!(client.message().await.unwrap()["result"].is_object());
}

#[tokio::test]
async fn logs_come_from_the_level_that_was_asked_for_and_as_they_were_spelled() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", r#","io.modelcontextprotocol/logLevel":"warning""#);
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    asked.sender.event(log("notice"));
    asked.sender.event(log("error"));
    asked.sender.done(result("{}"));
    client.head().await;
    assert_eq!(client.chunk().await.unwrap(), b":\n\n");
    let event = String::from_utf8(client.chunk().await.unwrap()).unwrap();
    assert!(event.contains(r#""method":"notifications/message","params":{"level":"error","data": 1.0}}"#), "{event}");
    assert!(client.message().await.unwrap()["result"].is_object());
}

#[tokio::test]
async fn a_client_is_answered_in_a_type_that_it_named() {
    let server = Setup::new().start_answering(|_| raincheck::protocol::Reply::ready(result("{}"))).await;
    let mut client = server.connect().await;
    let cases = [
        ("", "application/json"),
        ("accept: */*\r\n", "application/json"),
        ("accept: application/json\r\n", "application/json"),
        ("accept: text/event-stream\r\n", "text/event-stream"),
        ("accept: application/json, text/event-stream\r\n", "application/json"),
        ("accept: text/event-stream, application/json\r\n", "application/json"),
        ("accept: text/event-stream\r\naccept: application/json\r\n", "application/json"),
    ];
    for (accept, expected) in cases {
        let (text, headers) = call("7", "add", "");
        let bare = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json; charset=utf-8\r\n{accept}{headers}content-length: {}\r\n\r\n{text}",
            text.len()
        );
        client.send(bare).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, head.get("content-type")), (200, Some(expected)), "{accept}");
        assert!(body.contains(r#""result":{"resultType":"complete"}"#), "{body}");
    }
    let (text, headers) = call("7", "add", "");
    client.post(&text, &format!("accept: text/html\r\n{headers}")).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (406, -32600));
}

#[tokio::test]
async fn a_client_that_takes_json_only_waits_for_it() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", r#","progressToken":1"#);
    client.post(&text, &format!("accept: application/json\r\n{headers}")).await;
    let asked = server.asked().await;
    asked.sender.event(progress("1"));
    let stream = tokio::time::timeout(std::time::Duration::from_millis(300), client.head()).await;
    assert!(stream.is_err(), "{stream:?}");
    asked.sender.done(result("{}"));
    let (head, body) = client.response().await;
    assert_eq!(head.get("content-type"), Some("application/json"));
    assert_eq!(body, r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}"#);
}

#[tokio::test]
async fn leaving_cancels_the_call_before_and_after_the_stream_is_open() {
    let mut server = Setup::new().start().await;
    for accept in ["accept: application/json\r\n", "accept: application/json, text/event-stream\r\n"] {
        let mut client = server.connect().await;
        let (text, headers) = call("7", "slow", "");
        client.post(&text, &format!("{accept}{headers}")).await;
        let mut asked = server.asked().await;
        if accept.contains("event-stream") {
            client.head().await;
        }
        assert!(!asked.sender.is_cancelled());
        drop(client);
        bounded(asked.sender.cancelled()).await;
        bounded(asked.sender.abandoned()).await;
    }
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_has_left() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    let mut asked = server.asked().await;
    client.says_no_more().await;
    bounded(asked.sender.abandoned()).await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn calls_with_the_same_id_get_each_their_own_answer() {
    let mut server = Setup::new().start().await;
    let (mut ann, mut bo) = (server.connect().await, server.connect().await);
    let (text, headers) = call("1", "ann", "");
    ann.post(&text, &headers).await;
    let for_ann = server.asked().await;
    let (text, headers) = call("1", "bo", "");
    bo.post(&text, &headers).await;
    let for_bo = server.asked().await;
    assert_eq!((for_ann.call.params.name(), for_bo.call.params.name()), (Some("ann"), Some("bo")));
    for_bo.sender.done(result(r#"{"who":"bo"}"#));
    assert!(bo.response().await.1.contains(r#""who":"bo""#));
    for_ann.sender.done(result(r#"{"who":"ann"}"#));
    let head = ann.head().await;
    assert!(ann.body(&head).await.contains(r#""who":"ann""#));
}

#[tokio::test]
async fn a_handle_is_delivered_when_it_went_out() {
    let mut server = Setup::new().start().await;
    for (accept, wait) in
        [("application/json", false), ("text/event-stream", false), ("application/json, text/event-stream", true)]
    {
        let mut client = server.connect().await;
        let (text, headers) = call("7", "slow", "");
        client.post(&text, &format!("accept: {accept}\r\n{headers}")).await;
        let asked = server.asked().await;
        let head = if wait { Some(client.head().await) } else { None };
        let (handle, delivered) = handle();
        asked.sender.done(Outcome::Task(handle));
        bounded(delivered).await.unwrap();
        let head = match head {
            Some(head) => head,
            None => client.head().await,
        };
        assert!(client.body(&head).await.contains(r#""result":{"resultType":"task","taskId":"t"}"#), "{accept}");
    }
}

#[tokio::test]
async fn a_client_that_closes_as_soon_as_it_has_the_handle_has_it() {
    let mut server = Setup::new().start().await;
    for _ in 0..50 {
        let mut client = server.connect().await;
        let (text, headers) = call("7", "slow", "");
        client.post(&text, &headers).await;
        let asked = server.asked().await;
        let (handle, delivered) = handle();
        asked.sender.done(Outcome::Task(handle));
        client.response().await;
        drop(client);
        bounded(delivered).await.unwrap();
    }
}

#[tokio::test]
async fn a_handle_for_a_client_that_left_is_lost() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    let mut asked = server.asked().await;
    drop(client);
    bounded(asked.sender.abandoned()).await;
    let (handle, delivered) = handle();
    asked.sender.done(Outcome::Task(handle));
    bounded(delivered).await.unwrap_err();
}

#[tokio::test]
async fn a_handle_that_waits_for_the_client_to_read_is_not_delivered() {
    // More than the socket's buffers hold. Made before the call, which gets a stream if its answer takes a while.
    let created = Rope::from(json(&format!("{{\"resultType\":\"task\",\"taskId\":\"{}\"}}", "x".repeat(32 << 20))));
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    let (delivery, mut delivered) = Delivery::new();
    asked.sender.done(Outcome::Task(Handle { created, delivery }));
    let head = client.head().await;
    assert!(delivered.try_recv().is_err());
    assert_eq!(client.body(&head).await.len(), head.get("content-length").unwrap().parse::<usize>().unwrap());
    bounded(delivered).await.unwrap();
}

#[tokio::test]
async fn a_handle_is_lost_with_a_connection_that_broke_before_its_last_byte() {
    let created = Rope::from(json(&format!("{{\"taskId\":\"{}\"}}", "x".repeat(32 << 20))));
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    let (delivery, delivered) = Delivery::new();
    asked.sender.done(Outcome::Task(Handle { created, delivery }));
    client.head().await;
    drop(client);
    bounded(delivered).await.unwrap_err();
}

#[tokio::test]
async fn errors_have_the_status_that_the_specification_gives_them() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let rpc = |text: &str| Outcome::Error(RpcError::from_server(json(text)).unwrap());
    let failure = Failure::new(Reason::Timeout, "too slow", Retry::No);
    let cases: Vec<(Outcome, &str, u16, i64)> = vec![
        (rpc(r#"{"code":-32602,"message":"m"}"#), "tools/call", 200, -32602),
        (rpc(r#"{"code":-32601,"message":"m"}"#), "tools/call", 200, -32601),
        (rpc(r#"{"code":-32601,"message":"m"}"#), "made/up", 404, -32601),
        (rpc(r#"{"code":-32603,"message":"m"}"#), "tools/call", 200, -32603),
        (rpc(r#"{"code":0,"message":"m"}"#), "tools/call", 200, 0),
        (rpc(r#"{"code":-32002,"message":"m"}"#), "made/up", 200, -32602),
        (rpc(r#"{"code":-32042,"message":"m"}"#), "tools/call", 200, -31042),
        (Outcome::Error(RpcError::tasks_not_declared()), "tasks/get", 400, -32021),
        (Outcome::Error(RpcError::unknown_task()), "tasks/get", 200, -32602),
        (Outcome::Failed(failure), "tools/call", 200, -31003),
        (result("[]"), "tools/call", 200, -31007),
        (result("null"), "tools/call", 200, -31007),
    ];
    for (outcome, method, status, expected) in cases {
        let (text, headers) = match method {
            "tools/call" => call("7", "add", ""),
            "tasks/get" => request("7", method, r#""taskId":"t","#, "", ""),
            _ => request("7", method, "", "", ""),
        };
        client.post(&text, &headers).await;
        server.asked().await.sender.done(outcome);
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (status, expected), "{body}");
        assert!(body.starts_with(r#"{"jsonrpc":"2.0","id":7,"error":{"#), "{body}");
    }
}

#[tokio::test]
async fn what_a_server_wants_of_the_callers_credentials_is_the_status_of_the_answer() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    for (status, method) in [(401, "tools/call"), (403, "tools/list")] {
        let (text, headers) = match method {
            "tools/call" => call("7", "add", ""),
            _ => request("7", method, "", "", ""),
        };
        client.post(&text, &headers).await;
        let wanted = vec!["Bearer scope=\"w\"".parse().unwrap()];
        let challenge = Some(Box::new(Challenge { status: http::StatusCode::from_u16(status).unwrap(), wanted }));
        let failure = Failure { challenge, ..Failure::new(Reason::Unauthorized, "refused", Retry::No) };
        server.asked().await.sender.done(Outcome::Failed(failure));
        let (head, body) = client.response().await;
        assert_eq!((head.status, head.get("www-authenticate")), (status, Some("Bearer scope=\"w\"")), "{body}");
        assert_eq!(code(&body), -31006);
    }
}

#[tokio::test]
async fn a_panic_below_is_the_end_of_that_call_only() {
    let server = Setup::new().start_answering(|call| match call.params.name() {
        Some("broken") => panic!("on purpose"),
        _ => raincheck::protocol::Reply::ready(result("{}")),
    });
    let server = server.await;
    let mut client = server.connect().await;
    for (tool, broken) in [("broken", true), ("add", false)] {
        let (text, headers) = call("7", tool, "");
        client.post(&text, &headers).await;
        let (_, body) = client.response().await;
        assert_eq!(body.contains("-31001"), broken, "{body}");
    }
}

#[tokio::test]
async fn a_server_that_vanishes_is_an_answer_too() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", "");
    client.post(&text, &headers).await;
    drop(server.asked().await);
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (200, -31001));
}

#[tokio::test]
async fn lists_have_hints_for_caches_and_nothing_of_the_old_tasks() {
    let server = Setup::new().start_answering(|_| {
        raincheck::protocol::Reply::ready(result(
            r#"{"tools":[{"name":"a","execution":{"taskSupport":"required"}}],"zzz":1}"#,
        ))
    });
    let server = server.await;
    let mut client = server.connect().await;
    let (text, headers) = request("7", "tools/list", "", "", "");
    client.post(&text, &headers).await;
    let (_, body) = client.response().await;
    let expected = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"a"}],"zzz":1}}"#;
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_progress_and_gets_the_answer() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let (text, headers) = call("7", "slow", r#","progressToken":1"#);
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    let message = "x".repeat(64 << 10);
    for number in 0..2000 {
        let message = Some(message.clone());
        let progress = Progress { progress: json(&number.to_string()), total: None, message };
        asked.sender.event(Event::Progress(progress));
        tokio::task::yield_now().await;
    }
    asked.sender.done(result("{}"));
    client.head().await;
    let mut seen = 0;
    loop {
        let message = client.message().await.unwrap();
        if message["result"].is_object() {
            break;
        }
        seen += 1;
    }
    assert!(seen < 2000, "128 MB of progress were kept");
    assert_eq!(client.chunk().await, None);
}
