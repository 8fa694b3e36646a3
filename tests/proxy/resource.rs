//! Where clients learn how to log in: the metadata of the server behind, under the URL of the proxy (field case 57).

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::bounded;
use crate::http_server::{Seen, Server, Wire};
use crate::process::{Ground, Proxy};

/// A server that wants a login, and says so with a name that only it knows.
async fn server() -> Server {
    Server::start(|seen: Seen, wire: Wire| async move {
        match (seen.verb.as_str(), seen.path.as_str()) {
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                let metadata = r#"{"resource":"http://inner:8000/mcp","authorization_servers":["https://login.example/"],"scopes_supported":["a b"],"signed_metadata":"x.y.z","n":1E2}"#;
                wire.json(metadata).await
            }
            ("POST", _) => {
                let host = seen.header("host").unwrap();
                let challenge = format!(
                    r#"Bearer error="invalid_token", resource_metadata="http://{host}/.well-known/oauth-protected-resource/mcp", scope="a""#
                );
                wire.respond("401 Unauthorized", &[("WWW-Authenticate", &challenge)], "").await
            }
            _ => wire.status("404 Not Found").await,
        }
    })
    .await
}

/// Status, challenge and body of what is at a path.
async fn at(proxy: &Proxy, method: Method, path: &str, host: &str) -> (u16, Option<String>, String) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let body = if method == Method::POST { body } else { "" };
    let request = Request::builder()
        .method(method)
        .uri(format!("{}{path}", proxy.base))
        .header("host", host)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let response = bounded(client.request(request)).await.unwrap();
    let status = response.status().as_u16();
    let challenge = response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
    let body = bounded(response.into_body().collect()).await.unwrap().to_bytes();
    (status, challenge, String::from_utf8(body.to_vec()).unwrap())
}

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// How often the server was asked how to log in.
fn asked_for_metadata(server: &Server) -> usize {
    server.seen().iter().filter(|seen| seen.path.starts_with(WELL_KNOWN)).count()
}

#[tokio::test]
async fn a_client_finds_the_login_of_the_server_under_the_url_that_it_knows() {
    let server = server().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ground = Ground::public("https://mcp.example.com/t/a", free, &format!("url = \"{}\"", server.url()));
    let mut proxy = ground.start().await;
    // It says where it is for others.
    proxy.base = format!("http://127.0.0.1:{free}");
    // Under the path that the balancer takes off, and at the root of the host, where it cannot.
    for (path, metadata, resource) in [
        ("/mcp", "/t/a/mcp", "https://mcp.example.com/t/a/mcp"),
        ("/mcp/", "/t/a/mcp/", "https://mcp.example.com/t/a/mcp/"),
        ("/behind/mcp", "/behind/mcp", "https://mcp.example.com/t/a/behind/mcp"),
        ("/mcp", "/mcp", "https://mcp.example.com/t/a/mcp"),
        ("/mcp", "", "https://mcp.example.com/t/a/mcp"),
    ] {
        let (status, challenge, _) = at(&proxy, Method::POST, path, "mcp.example.com").await;
        let told = format!("https://mcp.example.com/t/a{WELL_KNOWN}{path}");
        let expected = format!(r#"Bearer error="invalid_token", resource_metadata="{told}", scope="a""#);
        assert_eq!((status, challenge.as_deref()), (401, Some(expected.as_str())), "{path}");
        // Whatever the request itself calls us, the configured URL decides.
        let (status, _, body) = at(&proxy, Method::GET, &format!("{WELL_KNOWN}{metadata}"), "127.0.0.1").await;
        assert_eq!(status, 200, "{metadata}: {body}");
        let expected = format!(
            r#"{{"resource":"{resource}","authorization_servers":["https://login.example/"],"scopes_supported":["a b"],"n":1E2}}"#
        );
        assert_eq!(body, expected, "{metadata}");
    }
    for path in ["/x/mcp", "/t/b/mcp", "x"] {
        assert_eq!(at(&proxy, Method::GET, &format!("{WELL_KNOWN}{path}"), "127.0.0.1").await.0, 404, "{path}");
    }
    assert_eq!(at(&proxy, Method::POST, WELL_KNOWN, "127.0.0.1").await.0, 405);
    // Pages ask with a header of their own, so they ask whether they may first.
    assert_eq!(at(&proxy, Method::OPTIONS, WELL_KNOWN, "127.0.0.1").await.0, 204);
    assert_eq!(asked_for_metadata(&server), 1, "strangers cannot make us ask the server each time");
}

#[tokio::test]
async fn on_this_machine_the_url_is_where_raincheck_listens() {
    let server = server().await;
    let ground = Ground::before(&format!("url = \"{}\"", server.url()), "");
    let proxy = ground.start().await;
    let (_, challenge, _) = at(&proxy, Method::POST, "/mcp", "localhost").await;
    let metadata = format!("resource_metadata=\"{}{WELL_KNOWN}/mcp\"", proxy.base);
    assert!(challenge.as_ref().unwrap().contains(&metadata), "{challenge:?}");
    let (_, _, body) = at(&proxy, Method::GET, &format!("{WELL_KNOWN}/mcp"), "localhost").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["resource"], json!(format!("{}/mcp", proxy.base)));
}

/// Tokens that Raincheck checks are for Raincheck: how to get one is its own to say.
#[tokio::test]
async fn where_raincheck_checks_tokens_it_names_the_issuer_itself() {
    let server = server().await;
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), r#"{"keys":[]}"#).unwrap();
    let jwt = "[owner.jwt]\nissuer = \"https://issuer.example/\"\naudience = [\"raincheck\"]";
    let ground = Ground::before(&format!("url = \"{}\"", server.url()), &format!("{jwt}\njwks = {:?}\n", keys.path()));
    let proxy = ground.start().await;
    let (status, challenge, _) = at(&proxy, Method::POST, "/mcp", "localhost").await;
    let metadata = format!("{}{WELL_KNOWN}/mcp", proxy.base);
    assert_eq!((status, challenge), (401, Some(format!("Bearer resource_metadata=\"{metadata}\""))));
    let (_, _, body) = at(&proxy, Method::GET, &format!("{WELL_KNOWN}/mcp"), "localhost").await;
    let expected = json!({
        "resource": format!("{}/mcp", proxy.base), "authorization_servers": ["https://issuer.example/"],
        "bearer_methods_supported": ["header"],
    });
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
    assert_eq!(asked_for_metadata(&server), 0);
}

#[tokio::test]
async fn a_server_without_a_login_or_whose_login_is_ours_has_no_metadata() {
    let upstream = crate::upstream::Upstream::http().await;
    let server = server().await;
    let fixed = format!("url = \"{}\"\nheaders = {{ authorization = \"Bearer ours\" }}", server.url());
    for ground in [Ground::new(&upstream, ""), Ground::before(&fixed, "")] {
        let proxy = ground.start().await;
        for path in ["", "/mcp", "/behind/mcp"] {
            let (status, _, body) = at(&proxy, Method::GET, &format!("{WELL_KNOWN}{path}"), "localhost").await;
            assert_eq!(status, 404, "{path}: {body}");
        }
    }
}
