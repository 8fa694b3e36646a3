//! A small client of 2026-07-28 that keeps every byte.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::{PATIENCE, member, within};

/// A client, with connections of its own.
#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    url: String,
    bearer: Option<String>,
    extensions: &'static str,
    id: &'static str,
    key: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: String,
    /// The JSON-RPC answer in it.
    pub(crate) message: String,
}

impl Client {
    /// A client that declares Tasks.
    pub(crate) fn new(url: String) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new()).build_http();
        Self { http, url, bearer: None, extensions: r#"{"io.modelcontextprotocol/tasks":{}}"#, id: "1", key: None }
    }

    /// The same with credentials.
    pub(crate) fn bearer(&self, token: &str) -> Self {
        Self { bearer: Some(token.to_owned()), ..Self::new(self.url.clone()) }
    }

    /// The same, on the same connections, without Tasks.
    pub(crate) fn undeclared(&self) -> Self {
        Self { extensions: "{}", ..self.clone() }
    }

    /// The same, with a key on every call.
    pub(crate) fn keyed(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// The same, with forms that its user fills in.
    pub(crate) fn with_forms(&self) -> Self {
        let extensions = if self.extensions == "{}" {
            r#"{},"elicitation":{}"#
        } else {
            r#"{"io.modelcontextprotocol/tasks":{}},"elicitation":{}"#
        };
        Self { extensions, ..self.clone() }
    }

    /// The text of a request; `params` are members with no comma at either end.
    pub(crate) fn text(&self, method: &str, params: &str) -> String {
        let comma = if params.is_empty() { "" } else { "," };
        let (id, extensions) = (self.id, self.extensions);
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{comma}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"extensions":{extensions}}}}}}}}}"#
        )
    }

    /// Asks, and waits for the answer. Dropping the future closes the connection.
    pub(crate) async fn ask(&self, method: &str, name: &str, params: &str) -> Answer {
        self.send(method, name, self.text(method, params)).await
    }

    /// Sends any text.
    pub(crate) async fn send(&self, method: &str, name: &str, text: String) -> Answer {
        self.try_send(method, name, text).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends any text to a proxy that may be killed.
    pub(crate) async fn try_send(&self, method: &str, name: &str, text: String) -> Result<Answer, String> {
        let response = self.begin(method, name, text).await?;
        let status = response.status().as_u16();
        let is_stream = response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let body = String::from_utf8(body.into()).unwrap();
        let message = if is_stream {
            let last = body.lines().rev().find_map(|line| line.strip_prefix("data: "));
            last.ok_or("a stream without an answer")?.to_owned()
        } else {
            body.clone()
        };
        Ok(Answer { status, body, message })
    }

    /// Sends any text; the response, whose body was not read.
    async fn begin(&self, method: &str, name: &str, text: String) -> Result<Response<Incoming>, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if !name.is_empty() {
            request = request.header("mcp-name", name);
        }
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", format!("\"{key}\""));
        }
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", format!("Bearer {bearer}"));
        }
        let request = request.body(Full::new(Bytes::from(text))).unwrap();
        self.http.request(request).await.map_err(|error| error.to_string())
    }

    /// A stream of what `filter` wants to hear of, once it has begun.
    pub(crate) async fn listens(&self, filter: &str) -> Incoming {
        let params = format!(r#""notifications":{{{filter}}}"#);
        let listening = self.begin("subscriptions/listen", "", self.text("subscriptions/listen", &params)).await;
        let mut stream = listening.unwrap().into_body();
        let begun = async {
            loop {
                let part = stream.frame().await.expect("the stream ended").unwrap();
                if part.data_ref().is_some_and(|data| data.starts_with(b"event") || data.starts_with(b"data")) {
                    return;
                }
            }
        };
        within(PATIENCE, begun).await;
        stream
    }

    pub(crate) async fn call(&self, tool: &str, arguments: &str) -> Answer {
        self.ask("tools/call", tool, &format!(r#""name":"{tool}","arguments":{arguments}"#)).await
    }

    /// Calls a tool that is to become a task, and gives the handle.
    pub(crate) async fn handle(&self, tool: &str, arguments: &str) -> String {
        let answer = self.call(tool, arguments).await;
        assert_eq!(answer.result()["resultType"], "task", "{}", answer.message);
        answer.task_id()
    }

    pub(crate) async fn get(&self, id: &str) -> Answer {
        self.ask("tasks/get", id, &format!(r#""taskId":"{id}""#)).await
    }

    pub(crate) async fn cancel(&self, id: &str) -> Answer {
        self.ask("tasks/cancel", id, &format!(r#""taskId":"{id}""#)).await
    }

    pub(crate) async fn update(&self, id: &str) -> Answer {
        self.ask("tasks/update", id, &format!(r#""taskId":"{id}","inputResponses":{{}}"#)).await
    }

    /// Waits for the end of a task.
    pub(crate) async fn ended(&self, id: &str) -> Answer {
        self.until(id, |task| task["status"] != "working").await
    }

    /// Looks at a task whenever it has changed, until it is as wanted.
    pub(crate) async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Answer {
        self.until_spelled(id, |task| wanted(&serde_json::from_str(task).unwrap())).await
    }

    /// The same, for a task that no float can hold.
    pub(crate) async fn until_spelled(&self, id: &str, wanted: impl Fn(&str) -> bool) -> Answer {
        let looked = async {
            let answer = self.get(id).await;
            if wanted(answer.raw_result()) {
                return answer;
            }
            let params = format!(r#""notifications":{{"taskIds":["{id}"]}}"#);
            let listening = self.begin("subscriptions/listen", "", self.text("subscriptions/listen", &params)).await;
            let mut states = listening.unwrap().into_body();
            loop {
                let part = states.frame().await.expect("the stream of the task ended").unwrap();
                // Not for a comment. The stream begins with the state as it is.
                if !part.data_ref().is_some_and(|data| data.starts_with(b":")) {
                    let answer = self.get(id).await;
                    if wanted(answer.raw_result()) {
                        return answer;
                    }
                }
            }
        };
        within(PATIENCE, looked).await
    }

    /// Looks at a task until its message has these words: progress is shown to who looks, and told to nobody.
    pub(crate) async fn until_it_says(&self, id: &str, words: &str) -> Answer {
        let looked = async {
            loop {
                let answer = self.get(id).await;
                if answer.result()["statusMessage"].as_str().unwrap().contains(words) {
                    return answer;
                }
            }
        };
        within(PATIENCE, looked).await
    }
}

impl Answer {
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.message).unwrap_or_else(|error| panic!("{error}: {}", self.start()))
    }

    pub(crate) fn result(&self) -> Value {
        let mut value = self.value();
        assert!(value.get("result").is_some(), "no result: {}", self.start());
        value["result"].take()
    }

    pub(crate) fn error(&self) -> Value {
        let mut value = self.value();
        assert!(value.get("error").is_some(), "no error: {}", self.start());
        value["error"].take()
    }

    /// The result, as it is spelled.
    pub(crate) fn raw_result(&self) -> &str {
        member(&self.message, "result")
    }

    /// The result of the task in this answer, as it is spelled.
    pub(crate) fn outcome(&self) -> &str {
        member(self.raw_result(), "result")
    }

    pub(crate) fn task_id(&self) -> String {
        self.result()["taskId"].as_str().unwrap().to_owned()
    }

    fn start(&self) -> String {
        self.message.chars().take(600).collect()
    }
}
