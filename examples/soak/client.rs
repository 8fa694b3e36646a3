//! A small client: what it was told, as it was spelled, or why it was not.

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;

/// A client with connections of its own.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    address: String,
}

/// What a client of 2026-07-28 says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declares {
    Nothing,
    Tasks,
    TasksAndForms,
}

/// The answer to a request.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) error: Option<Value>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is no connection, or it broke.
    Connection,
    /// An answer that is none.
    Status(u16),
}

/// A session of a client of 2025-11-25.
#[derive(Debug)]
pub(crate) struct Session(String);

impl Client {
    pub(crate) fn new(address: String) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        // Shorter than the proxy keeps idle connections, so that no request meets their end.
        builder.pool_idle_timeout(Duration::from_secs(5)).pool_timer(hyper_util::rt::TokioTimer::new());
        Self { http: builder.build_http(), address }
    }

    pub(crate) fn text(declares: Declares, method: &str, mut params: Value) -> String {
        let capabilities = match declares {
            Declares::Nothing => json!({}),
            Declares::Tasks => json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }),
            Declares::TasksAndForms => {
                json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": {} })
            }
        };
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "progressToken": "t",
        });
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    }

    /// A request of 2026-07-28. `name` is the tool or the task.
    pub(crate) async fn ask(
        &self,
        declares: Declares,
        method: &str,
        name: &str,
        key: Option<&str>,
        params: Value,
    ) -> Result<Answer, Trouble> {
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
        headers.extend(key.map(|key| ("idempotency-key", key)));
        Ok(self.post(&headers, Self::text(declares, method, params)).await?.1)
    }

    async fn post(&self, headers: &[(&str, &str)], body: String) -> Result<(HeaderMap, Answer), Trouble> {
        let mut request = Request::post(format!("http://{}/mcp", self.address))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = self.http.request(request).await.map_err(|_| Trouble::Connection)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.map_err(|_| Trouble::Connection)?.to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        if status == 202 {
            return Ok((headers, Answer { result: None, error: None }));
        }
        let is_stream = headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let message = if is_stream {
            // A stream that ends without an answer was cut off.
            text.lines().rev().find_map(|line| line.strip_prefix("data: ")).ok_or(Trouble::Connection)?
        } else {
            text
        };
        let answer: Answer = serde_json::from_str(message).map_err(|_| Trouble::Status(status))?;
        if answer.result.is_none() && answer.error.is_none() {
            return Err(if is_stream { Trouble::Connection } else { Trouble::Status(status) });
        }
        Ok((headers, answer))
    }

    pub(crate) async fn open(&self) -> Result<Session, Trouble> {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "soak", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let (headers, answer) = self.post(&[], body.to_string()).await?;
        let id = headers.get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let session = Session(match (id, answer.error) {
            (Some(id), None) => id,
            _ => return Err(Trouble::Status(503)),
        });
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.post(&session.headers(), ready.to_string()).await?;
        Ok(session)
    }

    pub(crate) async fn legacy_call(&self, session: &Session, params: Value) -> Result<Answer, Trouble> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        Ok(self.post(&session.headers(), body.to_string()).await?.1)
    }

    /// Ends the session; if it is gone already, so much the better.
    pub(crate) async fn close(&self, session: Session) {
        let mut request = Request::delete(format!("http://{}/mcp", self.address));
        for (name, value) in session.headers() {
            request = request.header(name, value);
        }
        let _ = self.http.request(request.body(Full::default()).unwrap()).await;
    }
}

impl Session {
    fn headers(&self) -> [(&'static str, &str); 2] {
        [("mcp-session-id", &self.0), ("mcp-protocol-version", "2025-11-25")]
    }
}

impl Answer {
    /// Why it is an error, in one word.
    pub(crate) fn reason(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(match (error["data"]["reason"].as_str(), error["code"].as_i64()) {
            (Some(reason), _) => reason.to_owned(),
            (None, Some(-32000)) => "server".to_owned(),
            (None, Some(-32600))
                if error["message"].as_str().is_some_and(|text| text.starts_with("Session not found")) =>
            {
                "session".to_owned()
            }
            (None, code) => format!("code {}: {}", code.unwrap_or_default(), error["message"]),
        })
    }
}
