//! The key of a call, from its headers or its `_meta` to the layers behind.

use crate::legacy::{Session, answer};
use crate::support::*;

const IN_META: &str = r#","dev.raincheck/idempotency-key":"k-1""#;

#[tokio::test]
async fn a_key_comes_with_a_call_of_a_tool_and_with_nothing_else() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let table = [
        ("", "", None),
        ("", "idempotency-key: \"k-1\"\r\n", Some("k-1")),
        ("", "Idempotency-Key: k-1\r\n", Some("k-1")),
        (IN_META, "", Some("k-1")),
        (IN_META, "idempotency-key: \"k-1\"\r\n", Some("k-1")),
    ];
    for (meta, header, expected) in table {
        let (text, headers) = call("1", "export", meta);
        client.post(&text, &format!("{headers}{header}")).await;
        let asked = server.asked().await;
        assert_eq!(asked.call.caller.key.as_ref().map(raincheck::protocol::CallKey::as_str), expected, "{header}");
        asked.sender.done(result("{}"));
        assert_eq!(client.response().await.0.status, 200);
    }
    for header in ["idempotency-key: a b\r\n", "idempotency-key: \"k\r\n", "idempotency-key: other\r\n"] {
        let (text, headers) = call("1", "export", IN_META);
        client.post(&text, &format!("{headers}{header}")).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (400, -32602), "{body}");
        assert!(body.contains(r#""id":1"#) && server.is_untouched(), "{body}");
    }
    // On all else it means nothing, whatever it is.
    let (text, headers) = request("2", "tools/list", "", "", "idempotency-key: a b\r\n");
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    assert!(asked.call.caller.key.is_none());
    asked.sender.done(result(r#"{"tools":[]}"#));
    assert_eq!(client.response().await.0.status, 200);
}

#[tokio::test]
async fn a_legacy_client_has_keys_too() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let session = Session::open(&mut server, &mut client, "2025-06-18").await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"export"META}}"#;
    let meta = r#","_meta":{"dev.raincheck/idempotency-key":"k-1"}"#;
    for (meta, header, expected) in
        [("", "idempotency-key: \"k-1\"\r\n", Some("k-1")), (meta, "", Some("k-1")), ("", "", None)]
    {
        client.post(&call.replace("META", meta), &format!("{}{header}", session.header())).await;
        let asked = server.asked().await;
        assert_eq!(asked.call.caller.key.as_ref().map(raincheck::protocol::CallKey::as_str), expected, "{header}");
        asked.sender.done(result("{}"));
        assert!(answer(&mut client).await.contains("result"));
    }
    client.post(&call.replace("META", meta), &format!("{}idempotency-key: other\r\n", session.header())).await;
    assert_eq!(code(&answer(&mut client).await), -32602);
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_page_may_send_the_header() {
    let server = Setup::new().start().await;
    let mut client = server.connect().await;
    let headers = "origin: http://localhost:3000\r\naccess-control-request-method: POST\r\n\
                   access-control-request-headers: idempotency-key\r\n";
    client.send(format!("OPTIONS /mcp HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")).await;
    let head = client.head().await;
    let allowed = head.get("access-control-allow-headers").unwrap();
    assert!(allowed.split(", ").any(|name| name == "idempotency-key"), "{allowed}");
}
