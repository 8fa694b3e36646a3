//! Arguments that a modern server wants in headers, for clients that put none there.

use std::collections::BTreeMap;

use raincheck::config::{Limits, UpstreamEra};
use raincheck::protocol::{Call, ClientSession, Credentials, Principal};
use serde_json::{Value, json};

use crate::client::{Client, all, call_of, caller, client_with, config};
use crate::http_server::{Seen, Server, Wire};

/// A server that lists its tools on two pages and minds its headers.
async fn strict() -> Server {
    Server::start(|seen: Seen, wire: Wire| async move {
        match seen.method() {
            "server/discover" => {
                let result = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
                });
                wire.json(&seen.result(&result)).await
            }
            "tools/list" => {
                let schema = json!({ "type": "object", "properties": {
                    "region": { "type": "string", "x-mcp-header": "Region" },
                    "at": { "type": "object", "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
                    "sure": { "type": "boolean", "x-mcp-header": "Sure" },
                    "plain": { "type": "string" },
                } });
                let page = match seen.body["params"]["cursor"].as_str() {
                    None => json!({ "resultType": "complete", "tools": [{ "name": "plain", "inputSchema": {} }], "nextCursor": "2" }),
                    Some(_) => json!({ "resultType": "complete", "tools": [{ "name": "query", "inputSchema": schema }] }),
                };
                wire.json(&seen.result(&page)).await
            }
            "tools/call" if seen.tool() == "never" || (seen.tool() == "query" && !is_mirrored(&seen)) => {
                let error = json!({ "code": -32020, "message": "Header mismatch: mcp-param-region is missing" });
                let body = json!({ "jsonrpc": "2.0", "id": seen.id(), "error": error }).to_string();
                wire.respond("400 Bad Request", &[("Content-Type", "application/json")], &body).await
            }
            _ => wire.json(&seen.says("done")).await,
        }
    })
    .await
}

fn is_mirrored(seen: &Seen) -> bool {
    let arguments = &seen.body["params"]["arguments"];
    seen.header("mcp-param-region").is_some() == arguments["region"].is_string()
}

fn client(server: &Server) -> Client {
    let mut config = config(server);
    config.era = UpstreamEra::Modern;
    client_with(config, &Limits::default())
}

fn call(tool: &str, arguments: &str) -> Call {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    call_of("tools/call", &params, caller(Principal::Local, None))
}

/// The headers that mirror arguments of one request.
fn mirrored(seen: &Seen) -> Value {
    let params = seen.headers.iter().filter_map(|(name, value)| Some((name.strip_prefix("mcp-param-")?, value)));
    json!(params.collect::<BTreeMap<_, _>>())
}

const ARGUMENTS: &str = r#"{"region":"Köln","at":{"n":7.0},"sure":true,"plain":"x"}"#;

fn expected() -> Value {
    json!({ "region": "=?base64?S8O2bG4=?=", "n": "7", "sure": "true" })
}

#[tokio::test]
async fn arguments_are_put_into_headers_by_the_list_that_came_by() {
    let server = strict().await;
    let client = client(&server);
    for page in ["{}", r#"{"cursor":"2"}"#] {
        all(client.send(call_of("tools/list", page, caller(Principal::Local, None))).await).await;
    }
    all(client.send(call("query", ARGUMENTS)).await).await.says("done");
    all(client.send(call("query", r#"{"region":null}"#)).await).await.says("done");
    all(client.send(call("plain", ARGUMENTS)).await).await.says("done");
    let calls = server.seen_of("tools/call");
    assert_eq!(calls.iter().map(mirrored).collect::<Vec<_>>(), [expected(), json!({}), json!({})]);
    assert_eq!(server.seen_of("tools/list").len(), 2);
    client.close().await;
}

#[tokio::test]
async fn a_call_that_was_refused_for_want_of_headers_is_sent_again_with_them() {
    let server = strict().await;
    let client = client(&server);
    for _ in 0..2 {
        all(client.send(call("query", ARGUMENTS)).await).await.says("done");
    }
    let calls = server.seen_of("tools/call");
    assert_eq!(calls.iter().map(mirrored).collect::<Vec<_>>(), [json!({}), expected(), expected()]);
    assert_eq!(server.seen_of("tools/list").len(), 2, "every page, once");
    client.close().await;
}

#[tokio::test]
async fn a_refusal_that_no_list_explains_is_the_end_of_the_call() {
    let server = strict().await;
    let client = client(&server);
    assert_eq!(all(client.send(call("never", "{}")).await).await.error().code(), -32020);
    assert_eq!(server.seen_of("tools/call").len(), 1);
    client.close().await;
}

#[tokio::test]
async fn the_list_of_one_caller_says_nothing_of_anothers_tools() {
    let server = strict().await;
    let client = client(&server);
    all(client.send(call("query", ARGUMENTS)).await).await.says("done");
    let bob = Principal::Named("bob".into());
    let mut of_bob = call("query", ARGUMENTS);
    of_bob.caller = caller(bob, None);
    all(client.send(of_bob).await).await.says("done");
    let calls = server.seen_of("tools/call");
    assert_eq!(mirrored(&calls[2]), json!({}), "bob has listed nothing");
    assert_eq!((calls.len(), mirrored(&calls[3])), (4, expected()));
    client.close().await;
}

#[tokio::test]
async fn headers_that_a_client_sent_go_on_and_what_they_say_of_known_arguments_is_ours() {
    let server = strict().await;
    let client = client(&server);
    all(client.send(call("query", ARGUMENTS)).await).await.says("done");
    let mut given = call("query", ARGUMENTS);
    let mut headers = http::HeaderMap::new();
    headers.insert("mcp-param-region", http::HeaderValue::from_static("us"));
    headers.insert("mcp-param-other", http::HeaderValue::from_static("1"));
    given.caller.credentials = Credentials::new(headers);
    all(client.send(given).await).await.says("done");
    let mut expected = expected();
    expected["other"] = json!("1");
    assert_eq!(mirrored(&server.seen_of("tools/call")[2]), expected);
    client.close().await;
}

#[tokio::test]
async fn a_legacy_client_gets_its_arguments_mirrored_too() {
    let server = strict().await;
    let client = client(&server);
    let of = |method: &str, params: &str| {
        let mut caller = caller(Principal::Local, None);
        caller.session = ClientSession::Legacy(3);
        call_of(method, params, caller)
    };
    let mut attach = of("tools/list", r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#);
    attach.method = raincheck::protocol::Method::Attach;
    let mut session = client.send(attach).await;
    session.next().await.expect("a session");
    let params = format!(r#"{{"name":"query","arguments":{ARGUMENTS}}}"#);
    all(client.send(of("tools/call", &params)).await).await.says("done");
    assert_eq!(server.seen_of("tools/call").iter().map(mirrored).collect::<Vec<_>>(), [json!({}), expected()]);
    drop(session);
    client.close().await;
}
