//! Lines, whatever is in them.

use serde_json::{Value, json};

use crate::host::{Machine, modern, modern_with};

fn echo(id: &str) -> String {
    let params = modern(json!({ "name": "echo", "arguments": {} }));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

#[tokio::test]
async fn ids_come_back_byte_for_byte() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    for id in ["1e2", "9007199254740995", r#""a\u0062""#, r#""""#, "-0", "0.0"] {
        client.raw(format!("{}\n", echo(id)).as_bytes()).await;
        let line = client.line().await.unwrap();
        assert!(line.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result""#)), "{line}");
    }
    client.close().await;
}

#[tokio::test]
async fn blank_lines_carriage_returns_and_split_characters_do_no_harm() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let line = echo("1").replace("{}", "{\"text\":\"\u{4e16}\u{2028}\"}");
    let whole = format!("\n \r\n\t\n{line}\r\n{}", echo("2"));
    let middle = whole.find('\u{4e16}').unwrap() + 1;
    client.raw(&whole.as_bytes()[..middle]).await;
    tokio::task::yield_now().await;
    client.raw(&whole.as_bytes()[middle..]).await;
    let first = client.line().await.unwrap();
    // Readers that end lines at U+2028 see one line.
    assert!(first.contains("\u{4e16}\\u2028"), "{first}");
    // The last line has no end but that of the input.
    let rest = client.close().await;
    assert_eq!(rest[0]["id"], 2, "{rest:?}");
}

#[tokio::test]
async fn garbage_is_answered_and_the_next_line_is_taken() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let cases = [
        ("nonsense", -32700, Value::Null),
        ("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\",\"params\":{]", -32700, json!("x")),
        ("\u{fffd}", -32700, Value::Null),
        ("42", -32600, Value::Null),
        ("[]", -32600, Value::Null),
        ("[1]", -32600, Value::Null),
        ("{\"id\":5,\"method\":\"ping\"}", -32600, json!(5)),
        (&"[".repeat(1000), -32600, Value::Null),
        ("{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", -32600, Value::Null),
        (&echo("1.5"), -32600, Value::Null),
    ];
    for (line, code, id) in cases {
        client.raw(format!("{line}\n").as_bytes()).await;
        let answer = client.next().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{line}: {answer}");
        // No schema of MCP has `null` there.
        assert_eq!(answer.get("id").is_some(), !id.is_null(), "{line}: {answer}");
    }
    client.raw(b"\xff\xfe\n").await;
    assert_eq!(client.next().await["error"]["code"], -32700);
    // Answers and notifications that nobody waits for are nothing.
    client.raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n").await;
    client.raw(format!("{}\n", echo("1")).as_bytes()).await;
    assert_eq!(client.next().await["id"], 1);
    client.close().await;
}

#[tokio::test]
async fn a_line_over_the_limit_is_refused_under_its_id_and_the_next_is_taken() {
    let machine = Machine::new().env("RAINCHECK_LIMITS_BODY", "64KiB");
    let mut client = machine.start(&[]);
    let id = client.call("echo", json!({ "text": "x".repeat(100_000) })).await;
    let refused = client.answer(&id).await;
    assert_eq!(refused["error"]["code"], -32600);
    assert!(refused["error"]["message"].as_str().unwrap().contains("limits.body"), "{refused}");
    let id = client.call("echo", json!({ "text": "x".repeat(10_000) })).await;
    assert!(client.answer(&id).await["result"].is_object());
    client.close().await;
    assert_eq!(machine.ledger("echo"), 1);
}

#[tokio::test]
async fn a_result_of_many_megabytes_is_one_line_where_the_client_takes_that() {
    let machine = Machine::new().env("RAINCHECK_LIMITS_LINE", "100MB");
    // Not a task, however busy the machine is.
    let mut client = machine.start(&["--after", "20m"]);
    let id = client.call("big", json!({ "bytes": 30 << 20 })).await;
    let answer = client.answer(&id).await;
    assert_eq!(answer["result"]["text"].as_str().unwrap().len(), 30 << 20);
    client.close().await;
}

#[tokio::test]
async fn a_result_that_would_end_the_connection_is_an_error_and_stays_readable_as_a_task() {
    let machine = Machine::new();
    let mut client = machine.start(&["--after", "1ms"]);
    let plain = modern_with(json!({ "name": "big", "arguments": { "bytes": 11 << 20 } }), json!({}));
    let refused = client.request("tools/call", plain).await;
    assert_eq!(refused["error"]["data"]["reason"], "too_large", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("limits.line"), "{refused}");
    let id = client.call("hold", json!({ "text": "x".repeat(2 << 20) })).await;
    let handle = client.answer(&id).await["result"]["taskId"].clone();
    machine.noted("hold", 1).await;
    let released = client.call("release", json!({})).await;
    client.answer(&released).await;
    client.until(&handle, "completed").await;
    client.close().await;
    let machine = machine.env("RAINCHECK_LIMITS_LINE", "1MB");
    let mut narrow = machine.start(&[]);
    assert_eq!(narrow.task(&handle).await["error"]["data"]["reason"], "too_large");
    narrow.close().await;
    let machine = machine.env("RAINCHECK_LIMITS_LINE", "10MB");
    let mut wide = machine.start(&[]);
    assert_eq!(wide.task(&handle).await["result"]["text"].as_str().unwrap().len(), 2 << 20);
    wide.close().await;
}

#[tokio::test]
async fn nothing_but_messages_is_on_the_output_whatever_the_server_prints() {
    let machine = Machine::with("banner,chatty");
    let mut client = machine.start(&[]);
    let id = client.call("echo", json!({})).await;
    assert_eq!(client.next().await["id"], id);
    client.close().await;
}

#[tokio::test]
async fn a_host_that_never_reads_the_log_is_served_all_the_same() {
    let machine = Machine::with("chatty").env("RUST_LOG", "trace");
    let mut client = machine.start_unread(&Machine::wrapped(&[]));
    // Each of them is logged; a pipe takes 64 KiB.
    for _ in 0..40 {
        client.raw(&b"x\n".repeat(50)).await;
        for _ in 0..50 {
            assert_eq!(client.next().await["error"]["code"], -32700);
        }
    }
    let id = client.call("echo", json!({})).await;
    assert!(client.answer(&id).await["result"].is_object());
    client.close().await;
}
