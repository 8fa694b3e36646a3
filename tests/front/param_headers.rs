//! Headers that mirror arguments of a tool.

use raincheck::protocol::{Method, Outcome, Reply, RpcError};

use crate::support::*;

const LIST: &str = r#"{"tools":[{"name":"query","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},
    {"name":"broken","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}},{"name":"plain","inputSchema":{}}]}"#;

fn query(region: &str, header: Option<&str>, who: &str) -> (String, String) {
    let header = header.map(|value| format!("mcp-param-region: {value}\r\n")).unwrap_or_default();
    let params = format!(r#""name":"query","arguments":{{"region":{region}}},"#);
    request("7", "tools/call", &params, "", &format!("mcp-name: query\r\nauthorization: Bearer {who}\r\n{header}"))
}

async fn list(server: &mut Server, client: &mut Client, who: &str) -> String {
    let (text, headers) = request("1", "tools/list", "", "", &format!("authorization: Bearer {who}\r\n"));
    client.post(&text, &headers).await;
    server.asked().await.sender.done(result(LIST));
    client.response().await.1
}

#[tokio::test]
async fn headers_are_compared_with_the_body_once_the_tools_are_known() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    let listed = list(&mut server, &mut client, "ann").await;
    assert!(listed.contains("query") && listed.contains("plain") && !listed.contains("broken"), "{listed}");
    let cases = [
        ("\"eu\"", Some("eu"), true),
        ("\"eu\"", Some("=?base64?ZXU=?="), true),
        ("null", None, true),
        ("\"eu\"", None, false),
        ("\"eu\"", Some("us"), false),
        ("\"eu\"", Some("=?base64?ZXU?="), false),
        ("null", Some("eu"), false),
    ];
    for (region, header, good) in cases {
        let (text, headers) = query(region, header, "ann");
        client.post(&text, &headers).await;
        if good {
            let asked = server.asked().await;
            assert_eq!(asked.call.method, Method::CallTool);
            let passed = asked.call.caller.credentials.headers().get("mcp-param-region");
            assert_eq!(passed.map(|value| value.to_str().unwrap()), header);
            asked.sender.done(result("{}"));
            assert_eq!(client.response().await.0.status, 200, "{region} {header:?}");
        } else {
            let (head, body) = client.response().await;
            assert_eq!((head.status, code(&body)), (400, -32020), "{region} {header:?}");
            assert!(body.contains("mcp-param-region"), "{body}");
            assert!(server.is_untouched());
        }
    }
}

#[tokio::test]
async fn what_one_caller_was_shown_binds_no_other() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    list(&mut server, &mut client, "ann").await;
    let (text, headers) = query("\"eu\"", None, "bob");
    client.post(&text, &headers).await;
    server.asked().await.sender.done(result("{}"));
    assert_eq!(client.response().await.0.status, 200);
}

#[tokio::test]
async fn a_caller_that_lists_nothing_has_its_headers_compared_with_a_list_of_every_page() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    for (header, status) in [("us", 400), ("eu", 200)] {
        let (text, headers) = query("\"eu\"", Some(header), "ann");
        client.post(&text, &headers).await;
        if status == 400 {
            let first = server.asked().await;
            assert_eq!((first.call.method, first.call.params.raw().member("cursor")), (Method::ListTools, None));
            first.sender.done(result(r#"{"tools":[],"nextCursor":"two"}"#));
            let second = server.asked().await;
            assert_eq!(second.call.params.raw().member("cursor"), Some(json("\"two\"")));
            second.sender.done(result(LIST));
        } else {
            server.asked().await.sender.done(result("{}"));
        }
        assert_eq!(client.response().await.0.status, status);
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_had_holds_no_call_back() {
    let mut server = Setup::new().start().await;
    let mut client = server.connect().await;
    for round in 0..2 {
        let (text, headers) = query("\"eu\"", Some("us"), "ann");
        client.post(&text, &headers).await;
        if round == 0 {
            server.asked().await.sender.done(Outcome::Error(RpcError::method_not_found("tools/list")));
        }
        let asked = server.asked().await;
        assert_eq!(asked.call.method, Method::CallTool);
        asked.sender.done(result("{}"));
        assert_eq!(client.response().await.0.status, 200);
    }
}

#[tokio::test]
async fn calls_without_such_headers_cost_the_server_nothing() {
    let server = Setup::new().start_answering(|call| {
        assert_eq!(call.method, Method::CallTool);
        Reply::ready(result("{}"))
    });
    let server = server.await;
    let mut client = server.connect().await;
    let (text, headers) = call("1", "query", "");
    client.post(&text, &headers).await;
    assert!(client.response().await.1.contains("result"));
}
