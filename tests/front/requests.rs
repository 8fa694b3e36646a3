use std::time::Duration;

use raincheck::config::{NamedToken, OwnerSource};
use raincheck::protocol::{Principal, Reply};

use crate::support::*;

fn post_to(path: &str) -> String {
    let (text, headers) = call("7", "add", "");
    post(&text, &headers).replacen("/mcp", path, 1)
}

#[tokio::test]
async fn broken_bytes_get_a_clear_error_and_never_a_hang() {
    let mut setup = Setup::new();
    setup.limits.read_timeout = Duration::from_millis(300);
    setup.limits.body = 4096;
    let mut server = setup.start().await;
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#, "[".repeat(500), "]".repeat(500));
    let good = |text: &str| post(text, "connection: close\r\n");
    let bytes: Vec<(Vec<u8>, &str)> = vec![
        (b"\r\n\r\n\r\n".to_vec(), ""),
        (b"GARBAGE\r\n\r\n".to_vec(), "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc".to_vec(), "400"),
        (b"POST /mcp\r\n\r\n".to_vec(), "400"),
        (b"POST /mcp HTTP/9.9\r\nhost: localhost\r\n\r\n".to_vec(), "400"),
        (b"POST /mcp HTTP/1.1\r\n\r\n".to_vec(), "400"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}".to_vec(), "400"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_vec(), "400"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n".to_vec(), "400"),
        (b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: \x00\r\n\r\n".to_vec(), "400"),
        (format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200_000)).into_bytes(), "431"),
        (format!("POST /mcp HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(5000)).into_bytes(), "431"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage that is no frame".to_vec(), ""),
        (b"PRI * HT".to_vec(), ""),
        (b"POST /mcp HTTP/1.1\r\nhost: local".to_vec(), ""),
        (
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n".to_vec(),
            "400",
        ),
        (
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"json".to_vec(),
            "408",
        ),
        (good("").into_bytes(), "400"),
        (good("{").into_bytes(), "400"),
        (good("\u{feff}{}").into_bytes(), "400"),
        (good("null").into_bytes(), "400"),
        (good("[]").into_bytes(), "400"),
        (good("{}{}").into_bytes(), "400"),
        (good(&deep).into_bytes(), "400"),
        (good(&" ".repeat(5000)).into_bytes(), "413"),
        (good(r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#).into_bytes(), "400"),
        (good(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#).into_bytes(), "400"),
        ([good("{\"a\":\"\"}").into_bytes(), vec![0xff; 100]].concat(), "400"),
    ];
    for (bytes, expected) in bytes {
        let mut client = server.connect().await;
        client.send(&bytes).await;
        let answer = client.rest().await;
        let status = answer.strip_prefix("HTTP/1.1 ").map_or("", |rest| &rest[..3]);
        assert_eq!(status, expected, "{:?} -> {answer}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
        if let Some((_, body)) = answer.split_once("\r\n\r\n").filter(|(_, body)| !body.is_empty()) {
            assert!(code(body) == -32600 || code(body) == -32700, "{body}");
        }
    }
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_body_that_is_not_utf8_is_a_parse_error() {
    let server = Setup::new().start().await;
    let mut client = server.connect().await;
    let mut bytes = post("{\"a\":\"xx\"}", "").into_bytes();
    let at = bytes.len() - 3;
    bytes[at] = 0xff;
    client.send(bytes).await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, code(&body)), (400, -32700));
}

#[tokio::test]
async fn a_body_over_the_limit_names_the_setting_and_one_at_the_limit_is_read() {
    let mut setup = Setup::new();
    setup.limits.body = 300_000;
    let server = setup.start_answering(|_| Reply::ready(result("{}"))).await;
    let (text, headers) = call("7", "add", "");
    for (extra, expected) in [(300_000 - text.len(), 200), (300_001 - text.len(), 413), (900_000, 413)] {
        let text = format!("{text}{}", " ".repeat(extra));
        let mut client = server.connect().await;
        client.post(&text, &headers).await;
        let (head, body) = client.response().await;
        assert_eq!(head.status, expected);
        assert!(expected == 200 || body.contains("limits.body"), "{body}");
    }
    // Far more than the buffers of the sockets hold: the client must come to read the answer.
    let mut setup = Setup::new();
    setup.limits.body = 12 << 20;
    let other = setup.start_answering(|_| Reply::ready(result("{}"))).await;
    let mut client = other.connect().await;
    client.post(&" ".repeat(20 << 20), &headers).await;
    assert_eq!(client.response().await.0.status, 413);
    // The same without a length.
    let chunk = format!("{:x}\r\n{}\r\n", 100_000, " ".repeat(100_000));
    for (chunks, expected) in [(2, 200), (4, 413)] {
        let mut client = server.connect().await;
        let head = post("", &headers).replace("content-length: 0", "transfer-encoding: chunked");
        let body = format!("{:x}\r\n{text}\r\n{}0\r\n\r\n", text.len(), chunk.repeat(chunks));
        client.send(format!("{head}{body}")).await;
        assert_eq!(client.response().await.0.status, expected);
    }
}

#[tokio::test]
async fn a_client_that_asks_nothing_is_let_go() {
    let mut setup = Setup::new();
    setup.limits.read_timeout = Duration::from_millis(200);
    let server = setup.start().await;
    let mut client = server.connect().await;
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn without_a_session_only_post_is_taken_and_other_paths_name_the_endpoints() {
    let mut setup = Setup::new();
    setup.names = vec!["ann", "bo"];
    let server = setup.start_answering(|_| Reply::ready(result("{}"))).await;
    let mut client = server.connect().await;
    for method in ["GET", "DELETE", "PUT", "PATCH"] {
        let more = "accept: text/event-stream\r\n";
        client.send(format!("{method} /bo/mcp HTTP/1.1\r\nhost: localhost\r\n{more}\r\n")).await;
        let (head, body) = client.response().await;
        assert_eq!((head.status, code(&body)), (405, -32600), "{method}");
        assert!(body.contains("HTTP+SSE (2024-11-05) are not served"), "{body}");
        assert!(head.get("allow").unwrap().starts_with("POST"));
    }
    for (path, expected) in [
        ("/ann/mcp", 200),
        ("/bo/mcp/", 200),
        ("/bo/mcp?x=1", 200),
        ("/mcp", 404),
        ("/", 404),
        ("/bo", 404),
        ("/x/mcp", 404),
        ("/sse", 404),
        ("//mcp", 404),
        ("/.well-known/oauth-protected-resource", 404),
    ] {
        client.send(post_to(path)).await;
        let (head, body) = client.response().await;
        assert_eq!(head.status, expected, "{path}");
        assert!(expected == 200 || body.contains("/ann/mcp, /bo/mcp"), "{body}");
        assert_eq!(body.contains("HTTP+SSE"), path == "/sse", "{body}");
    }
}

#[tokio::test]
async fn a_notification_is_accepted_without_a_word() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    client.post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#, "").await;
    let (head, body) = client.response().await;
    assert_eq!((head.status, body.as_str()), (202, ""));
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_page_that_rebinds_a_name_is_refused_before_anything_else() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let port = server.address.port();
    for (host, origin, expected) in [
        (format!("localhost:{port}"), Some(format!("http://localhost:{port}")), 200),
        (format!("127.0.0.1:{port}"), Some("http://127.0.0.1:6274".to_owned()), 200),
        ("localhost".to_owned(), None, 200),
        ("evil.example".to_owned(), Some("http://evil.example".to_owned()), 403),
        (format!("localhost:{port}"), Some("http://evil.example".to_owned()), 403),
        ("evil.example".to_owned(), None, 403),
        (format!("localhost:{port}"), Some("null".to_owned()), 403),
    ] {
        let (text, headers) = call("7", "add", "");
        let origin_line = origin.as_ref().map_or_else(String::new, |origin| format!("origin: {origin}\r\n"));
        let request =
            post(&text, &format!("{origin_line}{headers}")).replacen("host: localhost", &format!("host: {host}"), 1);
        client.send(request).await;
        if expected == 200 {
            server.asked().await.sender.done(result("{}"));
        }
        let (head, body) = client.response().await;
        assert_eq!(head.status, expected, "{host} {origin:?} {body}");
        let shown = origin.as_deref().filter(|_| expected == 200);
        assert_eq!(head.get("access-control-allow-origin"), shown);
        assert!(expected == 200 || code(&body) == -32600);
    }
    assert!(server.is_untouched());
}

#[tokio::test]
async fn a_preflight_needs_no_credentials_and_errors_can_be_read_by_the_page() {
    let mut setup = Setup::new();
    setup.owner.tokens =
        vec![NamedToken { name: "ann".to_owned(), token: raincheck::config::TokenProof::Plain("secret".to_owned()) }];
    setup.listen.allowed_origins = vec!["https://app.example".to_owned()];
    let server = setup.start().await;
    let mut client = server.connect().await;
    let preflight = |origin: &str| {
        format!(
            "OPTIONS /mcp HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\
             access-control-request-headers: content-type,mcp-protocol-version,mcp-param-region\r\n\r\n"
        )
    };
    client.send(preflight("https://app.example")).await;
    let (head, _) = client.response().await;
    assert_eq!((head.status, head.get("access-control-allow-origin")), (204, Some("https://app.example")));
    let allowed = head.get("access-control-allow-headers").unwrap();
    for name in [
        "authorization",
        "content-type",
        "accept",
        "mcp-protocol-version",
        "mcp-session-id",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
    ] {
        assert!(allowed.contains(name), "{name}");
    }
    assert_eq!(head.get("access-control-allow-credentials"), None);
    let (text, headers) = call("7", "add", "");
    client.post(&text, &format!("origin: https://app.example\r\ncontent-type: text/plain\r\n{headers}")).await;
    let (head, _) = client.response().await;
    assert_eq!((head.status, head.get("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(head.get("access-control-allow-origin"), Some("https://app.example"));
    assert!(head.get("access-control-expose-headers").unwrap().contains("www-authenticate"));
    client.send(preflight("https://evil.example")).await;
    let (head, _) = client.response().await;
    assert_eq!((head.status, head.get("access-control-allow-origin")), (403, None));
}

#[tokio::test]
async fn credentials_are_those_of_the_very_request() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    for token in ["a", "b", "a"] {
        let (text, headers) = call("7", "add", "");
        client.post(&text, &format!("authorization: Bearer {token}\r\nx-tenant: t\r\n{headers}")).await;
        let asked = server.asked().await;
        let caller = &asked.call.caller;
        assert_eq!(caller.principal, Principal::Credential(format!("Bearer {token}").into()));
        assert_eq!(caller.credentials.headers()["authorization"], format!("Bearer {token}"));
        let mut names: Vec<_> = caller.credentials.headers().keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "x-tenant"]);
        asked.sender.done(result("{}"));
        client.response().await;
    }
    let (text, headers) = call("7", "add", "");
    client.post(&text, &headers).await;
    let asked = server.asked().await;
    assert_eq!(asked.call.caller.principal, Principal::Local);
}

#[tokio::test]
async fn the_header_of_a_gateway_is_believed_from_it_only() {
    for (trusted, expected) in [("127.0.0.1", 200), ("10.0.0.1", 403)] {
        let mut setup = Setup::new();
        let trusted = raincheck::config::Network { address: trusted.parse().unwrap(), prefix: 32 };
        setup.owner.from = OwnerSource::Header { name: "x-user".parse().unwrap(), trusted: vec![trusted] };
        let server = setup.start_answering(|call| {
            assert_eq!(call.caller.principal, Principal::Named("ann".into()));
            Reply::ready(result("{}"))
        });
        let server = server.await;
        let mut client = server.connect().await;
        let (text, headers) = call("7", "add", "");
        client.post(&text, &format!("x-user: ann\r\n{headers}")).await;
        assert_eq!(client.response().await.0.status, expected);
        client.post(&text, &headers).await;
        assert_eq!(client.response().await.0.status, 401);
    }
}

#[tokio::test]
async fn a_signed_token_that_proves_nothing_is_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, r#"{"keys":[]}"#).unwrap();
    let mut setup = Setup::new();
    setup.owner.jwt = Some(raincheck::config::JwtConfig {
        issuer: "https://issuer/".to_owned(),
        audience: vec!["raincheck".to_owned()],
        keys: raincheck::config::KeySource::File(keys),
        skew: Duration::from_mins(1),
    });
    let mut server = setup.start().await;
    let (text, headers) = call("7", "add", "");
    let mut client = server.connect().await;
    let metadata = format!("resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp\"", server.address);
    for (authorization, challenge) in [
        ("", "Bearer "),
        ("authorization: Basic dTpw\r\n", "Bearer "),
        (
            "authorization: Bearer abc\r\n",
            "Bearer error=\"invalid_token\", error_description=\"the token is no signed JWT\", ",
        ),
    ] {
        client.send(post(&text, &format!("{headers}{authorization}"))).await;
        let (head, _) = client.response().await;
        let expected = format!("{challenge}{metadata}");
        assert_eq!((head.status, head.get("www-authenticate")), (401, Some(expected.as_str())));
    }
    assert!(server.is_untouched());
}

/// hyper goes by `Transfer-Encoding`, hides the other length from us, and lets the connection end after the answer
/// (RFC 9112, 6.1): a request that a gateway takes for a part of this body is never read.
#[tokio::test]
async fn a_request_with_two_lengths_is_the_last_of_its_connection() {
    let mut server = Setup::new().start().await;
    for te_first in [true, false] {
        let (text, headers) = call("1", "add", "");
        let te = "transfer-encoding: chunked\r\n";
        let smuggled = post(&text, &headers);
        let request = post("", &headers);
        let request = if te_first {
            request.replace("content-length: 0", &format!("{te}content-length: 5"))
        } else {
            request.replace("content-length: 0", &format!("content-length: 5\r\n{}", te.trim_end()))
        };
        let mut client = server.connect().await;
        client.send(format!("{request}{:x}\r\n{text}\r\n0\r\n\r\n{smuggled}", text.len())).await;
        server.asked().await.sender.done(result("{}"));
        let (head, body) = client.response().await;
        assert_eq!((head.status, head.get("connection")), (200, Some("close")), "{body}");
        assert_eq!(client.rest().await, "");
        assert!(server.is_untouched());
    }
}
