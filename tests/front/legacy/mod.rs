//! Clients of 2025-03-26 to 2025-11-25 over HTTP: sessions, streams, resumption.

mod batches;
mod resume;
mod sessions;
mod streams;

use raincheck::protocol::{Ask, Asking, ClientSession, Event, Method, Question, QuestionKind};
use serde_json::Value;

use crate::support::*;

/// A session of a legacy client.
pub(crate) struct Session {
    /// What `Mcp-Session-Id` says.
    pub(crate) id: String,
    /// The session upstream.
    pub(crate) attached: Asked,
    /// The result of `initialize`.
    pub(crate) result: Value,
}

/// A server-sent event that is no comment.
#[derive(Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    /// `None` where `data` is empty.
    pub(crate) message: Option<Value>,
}

pub(crate) fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{"roots":{{}}}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
    )
}

pub(crate) fn tool(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":"p"}}}}}}"#
    )
}

impl Session {
    /// Opens a session of this revision.
    pub(crate) async fn open(server: &mut Server, client: &mut Client, version: &str) -> Self {
        Self::open_with(server, client, version, "").await
    }

    pub(crate) async fn open_with(server: &mut Server, client: &mut Client, version: &str, more: &str) -> Self {
        client.post(&initialize(version), more).await;
        let attached = server.asked().await;
        // As every server does that opens a session.
        attached.call.caller.principal.taken();
        assert_eq!(attached.call.method, Method::Attach);
        assert!(matches!(attached.call.caller.session, ClientSession::Legacy(_)));
        let settled = format!(r#"{{"protocolVersion":"{version}","capabilities":{{"tools":{{}},"tasks":{{}}}}}}"#);
        attached.sender.event(Event::Attached(json(&settled)));
        let (head, body) = client.response().await;
        assert_eq!(head.status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["id"], "i");
        let id = head.get("mcp-session-id").expect("a session").to_owned();
        let session = format!("mcp-session-id: {id}\r\n{more}");
        client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &session).await;
        assert_eq!(client.response().await.0.status, 202);
        Self { id, attached, result: body["result"].clone() }
    }

    /// The header that names it.
    pub(crate) fn header(&self) -> String {
        format!("mcp-session-id: {}\r\n", self.id)
    }

    /// Opens a GET stream, after this event if there is one.
    pub(crate) async fn get(&self, client: &mut Client, last: &str) -> Head {
        let last = if last.is_empty() { String::new() } else { format!("last-event-id: {last}\r\n") };
        client.send(bodiless("GET", &format!("{}accept: text/event-stream\r\n{last}", self.header()))).await;
        client.head().await
    }
}

/// A request without a body.
pub(crate) fn bodiless(method: &str, headers: &str) -> String {
    format!("{method} /mcp HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
}

/// The next event that is no comment; `None` at the end of the body.
pub(crate) async fn event(client: &mut Client) -> Option<Sent> {
    loop {
        let mut text = String::new();
        while !text.ends_with("\n\n") {
            text.push_str(std::str::from_utf8(&client.chunk().await?).unwrap());
        }
        if text == ":\n\n" {
            continue;
        }
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let data = field("data: ").filter(|data| !data.is_empty());
        let message = data.map(|data| serde_json::from_str(&data).unwrap());
        return Some(Sent { id: field("id: "), retry: field("retry: "), message });
    }
}

/// The answer to a request, as it was spelled: a stream in 2025-11-25, JSON before that.
pub(crate) async fn answer(client: &mut Client) -> String {
    let (head, body) = client.response().await;
    assert_eq!(head.status, 200, "{body}");
    if head.get("content-type") == Some("application/json") {
        return body;
    }
    let events = body.split("\n\n").filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: {")));
    format!("{{{}", events.last().expect("a message"))
}

/// The next event that carries a message.
pub(crate) async fn message(client: &mut Client) -> Value {
    loop {
        if let Some(message) = event(client).await.expect("an event").message {
            return message;
        }
    }
}

pub(crate) fn roots() -> (Ask, Asking) {
    Ask::new(Question { kind: QuestionKind::Roots, params: json("{}"), key: None })
}
