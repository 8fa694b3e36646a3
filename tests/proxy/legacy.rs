//! Legacy clients through the whole proxy, in front of servers over stdio and HTTP.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::bounded;
use crate::process::{Ground, Proxy};
use crate::upstream::{Transport, Upstream};

/// A client of 2025-11-25.
pub(crate) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    url: String,
    session: String,
}

/// A stream of events.
pub(crate) struct Events {
    body: Incoming,
    unread: String,
}

const BOTH: [Transport; 2] = [Transport::Stdio, Transport::Http];

impl Client {
    /// Opens a session.
    pub(crate) async fn open(proxy: &Proxy) -> Self {
        Self::open_as(proxy, &json!({ "elicitation": {} })).await
    }

    /// Opens a session of a client that declares these capabilities.
    async fn open_as(proxy: &Proxy, capabilities: &Value) -> Self {
        Self::open_at(proxy.base.clone(), capabilities).await
    }

    /// The same, where calls may be tasks of that revision.
    pub(crate) async fn open_with_tasks(proxy: &Proxy) -> Self {
        let tasks = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        let told = json!({ "tools": {}, "tasks": tasks });
        Self::told(proxy.base.clone(), &json!({ "elicitation": {} }), &told).await
    }

    /// The same, at another address.
    pub(crate) async fn open_at(base: String, declared: &Value) -> Self {
        Self::told(base, declared, &json!({ "tools": {} })).await
    }

    /// The same, told of these capabilities.
    async fn told(base: String, declared: &Value, capabilities: &Value) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new()).build_http();
        let mut client = Self { http, url: format!("{base}/mcp"), session: String::new() };
        let params = json!({ "protocolVersion": "2025-11-25", "clientInfo": { "name": "c", "version": "1" },
            "capabilities": declared });
        let text = json!({ "jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params });
        let response = client.post(&text.to_string()).await;
        let session = response.headers().get("mcp-session-id").cloned();
        let body: Value = serde_json::from_str(&whole(response).await).unwrap();
        assert_eq!(body["result"]["serverInfo"]["name"], "scripted", "{body}");
        assert_eq!(body["result"]["capabilities"], *capabilities);
        session.unwrap().to_str().unwrap().clone_into(&mut client.session);
        let ready = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        assert_eq!(ready.status(), 202);
        client
    }

    pub(crate) async fn send(&self, method: Method, more: (&str, &str), body: &str) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if !self.session.is_empty() {
            request = request.header("mcp-session-id", &self.session);
        }
        if !more.0.is_empty() {
            request = request.header(more.0, more.1);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        bounded(self.http.request(request)).await.unwrap()
    }

    pub(crate) async fn post(&self, text: &str) -> Response<Incoming> {
        self.send(Method::POST, ("", ""), text).await
    }

    /// Calls a tool; the events of the call.
    pub(crate) async fn call(&self, id: &str, tool: &str) -> Events {
        self.request(
            id,
            "tools/call",
            &format!(r#"{{"name":"{tool}","arguments":{{}},"_meta":{{"progressToken":"p"}}}}"#),
        )
        .await
    }

    /// Sends a request; its events.
    pub(crate) async fn request(&self, id: &str, method: &str, params: &str) -> Events {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let response = self.post(&text).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events::of(response)
    }
}

impl Events {
    /// Those of a response.
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), unread: String::new() }
    }

    /// Waits until so many comments have come, and nothing else; false if the connection breaks before.
    pub(crate) async fn comments(&mut self, count: usize) -> bool {
        let mut seen = self.unread.matches(":\n\n").count();
        while seen < count {
            let Some(Ok(frame)) = bounded(self.body.frame()).await else { return false };
            seen += std::str::from_utf8(frame.data_ref().unwrap()).unwrap().matches(":\n\n").count();
        }
        true
    }

    /// The next event that has data: its id, and the message as it is spelled.
    pub(crate) async fn next(&mut self) -> Option<(String, String)> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let found = field("id: ").zip(field("data: ").filter(|data| !data.is_empty()));
                let rest = rest.to_owned();
                self.unread = rest;
                if found.is_some() {
                    return found;
                }
            }
            let frame = bounded(self.body.frame()).await?.unwrap();
            self.unread.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    pub(crate) async fn message(&mut self) -> Value {
        serde_json::from_str(&self.next().await.expect("a message").1).unwrap()
    }
}

async fn whole(response: Response<Incoming>) -> String {
    String::from_utf8(bounded(response.into_body().collect()).await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_call_with_progress_and_a_question_goes_through_as_without_a_proxy() {
    for transport in BOTH {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
        let proxy = ground.start().await;
        let client = Client::open(&proxy).await;
        let mut events = client.call("1e2", "slow").await;
        let mut run = upstream.run().await;
        run.progress(1, "first").await;
        let progress = events.message().await;
        assert_eq!(progress["params"], json!({ "progressToken": "p", "progress": 1, "message": "first" }));
        let params = r#"{"message":"Sure?","requestedSchema":{"type":"object","properties":{}},"n": 1.0}"#;
        run.message(&format!(r#"{{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{params}}}"#)).await;
        let (_, question) = events.next().await.unwrap();
        assert!(question.contains(params), "{question}");
        let question: Value = serde_json::from_str(&question).unwrap();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"accept","n": 1.0}}}}"#, question["id"]);
        assert_eq!(client.post(&answer).await.status(), 202);
        let answered = upstream.run().await.request;
        assert!(
            answered.contains(r#""id":"q1""#) && answered.contains(r#"{"action":"accept","n": 1.0}"#),
            "{answered}"
        );
        run.answer(r#"{"content": [], "n": 9007199254740995, "zzz":1E2}"#).await;
        let (_, answer) = events.next().await.unwrap();
        assert_eq!(answer, r#"{"jsonrpc":"2.0","id":1e2,"result":{"content": [], "n": 9007199254740995, "zzz":1E2}}"#);
        assert!(events.next().await.is_none());
    }
}

#[tokio::test]
async fn a_call_whose_client_left_goes_on_and_a_cancelled_one_is_cancelled() {
    for transport in BOTH {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "");
        let proxy = ground.start().await;
        let client = Client::open(&proxy).await;
        let mut events = client.call("1", "slow").await;
        let mut run = upstream.run().await;
        run.progress(1, "first").await;
        let (last, _) = events.next().await.unwrap();
        drop(events);
        run.says("done").await;
        let response = client.send(Method::GET, ("last-event-id", &last), "").await;
        let mut events = Events::of(response);
        assert_eq!(events.message().await["result"]["content"][0]["text"], "done");
        assert_eq!(upstream.cancelled(), 0);
        let mut events = client.call("2", "slow").await;
        let _run = upstream.run().await;
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
        assert_eq!(client.post(cancel).await.status(), 202);
        upstream.cancels(1).await;
        assert!(events.next().await.is_none());
    }
}

#[tokio::test]
async fn each_session_has_a_server_of_its_own_until_it_ends() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "");
    let proxy = ground.start().await;
    let (first, second) = (Client::open(&proxy).await, Client::open(&proxy).await);
    // Each child has a guard beside it.
    assert_eq!(upstream.processes(), 4);
    let (mut one, mut other) = (first.call("1", "slow").await, second.call("1", "slow").await);
    let (mut run, mut later) = (upstream.run().await, upstream.run().await);
    later.says("later").await;
    run.says("first").await;
    let texts = [one.message().await, other.message().await].map(|it| it["result"]["content"][0]["text"].clone());
    assert!(texts.contains(&json!("first")) && texts.contains(&json!("later")), "{texts:?}");
    assert_eq!(first.send(Method::DELETE, ("", ""), "").await.status(), 200);
    upstream.left(2).await;
    assert_eq!(upstream.processes(), 2, "one server is left");
    let gone = first.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert_eq!(gone.status(), 404);
    second.call("2", "slow").await;
    upstream.run().await;
}

#[tokio::test]
async fn a_server_that_dies_is_told_to_its_client_which_opens_a_new_session() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "");
    let proxy = ground.start().await;
    let client = Client::open(&proxy).await;
    let mut events = client.call("1", "slow").await;
    upstream.run().await.dies().await;
    let answer = events.message().await;
    assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-31001), &json!(1)));
    let response = loop {
        let response = client.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
        if response.status() != 200 {
            break response;
        }
        whole(response).await;
    };
    assert_eq!(response.status(), 404);
    let mut events = Client::open(&proxy).await.call("1", "slow").await;
    upstream.run().await.says("again").await;
    assert_eq!(events.message().await["result"]["content"][0]["text"], "again");
}

/// A session that ends is nothing to a task of the same user (field case 44).
#[tokio::test]
async fn the_end_of_a_session_is_nothing_to_a_task() {
    for transport in BOTH {
        let upstream = Upstream::start(transport).await;
        let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"job\"\nmode = \"task\"");
        let proxy = ground.start().await;
        let client = Client::open(&proxy).await;
        let mut events = client.call("1", "slow").await;
        let mut held = upstream.run().await;
        held.progress(1, "first").await;
        events.message().await;
        let id = proxy.client().handle("job", "{}").await;
        let mut run = upstream.run().await;
        assert_eq!(client.send(Method::DELETE, ("", ""), "").await.status(), 200);
        let end = bounded(events.next()).await;
        assert!(end.is_none(), "{transport:?}: the held call ends with its session");
        run.says("done").await;
        let task = proxy.client().ended(&id).await.result();
        assert_eq!(task["result"]["content"][0]["text"], "done", "{transport:?}");
    }
}

/// 2025-11-25 must not know the extension, and its own opt-in is for servers with tasks (traps 5 and 6).
#[tokio::test]
async fn nothing_that_a_legacy_client_declares_makes_a_task() {
    let upstream = Upstream::http().await;
    let ground = Ground::new(&upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
    let proxy = ground.start().await;
    let extension = json!({ "io.modelcontextprotocol/tasks": {} });
    let capabilities = json!({ "extensions": extension, "tasks": { "requests": { "tools": { "call": {} } } } });
    let client = Client::open_as(&proxy, &capabilities).await;
    let meta = json!({ "io.modelcontextprotocol/clientCapabilities": { "extensions": extension } });
    for params in [
        json!({ "name": "slow", "arguments": {}, "_meta": meta }),
        json!({ "name": "slow", "arguments": {}, "task": { "ttl": 60000 } }),
    ] {
        let text = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
        let (response, ()) = tokio::join!(client.post(&text), async {
            let mut run = upstream.run().await;
            assert!(!run.request.contains("\"ttl\""), "{}", run.request);
            run.answer(r#"{"content": [], "isError": false}"#).await;
        });
        let body = whole(response).await;
        assert!(body.contains(r#"{"jsonrpc":"2.0","id":7,"result":{"content": [], "isError": false}}"#), "{body}");
    }
    for method in ["tasks/get", "tasks/list", "tasks/result"] {
        let text = json!({ "jsonrpc": "2.0", "id": 8, "method": method, "params": { "taskId": "x" } }).to_string();
        let body = whole(client.post(&text).await).await;
        assert!(body.contains(r#""code":-32601"#), "{method}: {body}");
    }
}
