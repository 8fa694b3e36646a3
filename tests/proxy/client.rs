//! A small client of 2026-07-28 that keeps every byte.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
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

/// How often a client looks whether a task has ended.
const LOOK: Duration = Duration::from_millis(15);

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
        let response = self.http.request(request).await.map_err(|error| error.to_string())?;
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

    /// Looks at a task until it is as wanted.
    pub(crate) async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Answer {
        let looked = async {
            loop {
                let answer = self.get(id).await;
                if wanted(&answer.result()) {
                    return answer;
                }
                tokio::time::sleep(LOOK).await;
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
