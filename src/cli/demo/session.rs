//! One client on a pair of pipes: handshake, dispatch, cancels, questions.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::sync::CancellationToken;

use super::tools::{self, Outcome};
use crate::jobs::Jobs;
use crate::protocol::error::code;
use crate::protocol::message::{self, Message, RequestId};
use crate::protocol::{Json, Rope, RpcError};

/// The newest revision that this server speaks, and the older ones.
const REVISIONS: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const LONGEST_LINE: usize = 16 << 20;
const DEEPEST: usize = 128;
/// Calls at the same time; one more is answered with an error.
const MOST_CALLS: usize = 64;

/// What a tool sends while it runs, and when it is done.
pub(super) enum Event {
    /// A notification to the client.
    Notify(&'static str, Value),
    /// A question to the client.
    Ask(Value, oneshot::Sender<Answer>),
    /// The end of a call.
    Done(RequestId, Outcome),
}

/// What the client says to a question.
pub(super) type Answer = Result<Value, RpcError>;

/// What a tool sees of its call.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) progress_token: Option<Value>,
    /// Whether the client said that it can be asked.
    pub(super) can_ask: bool,
    events: mpsc::Sender<Event>,
}

struct Session<W> {
    output: W,
    jobs: Jobs,
    events: mpsc::Sender<Event>,
    running: HashMap<RequestId, CancellationToken>,
    /// Questions that wait for an answer, by the id that they were asked under.
    asked: HashMap<u64, oneshot::Sender<Answer>>,
    next_question: u64,
    client: Client,
}

/// How far the handshake is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Unknown,
    Known { can_ask: bool },
}

/// Serves one client until `input` ends; what still runs then is dropped.
pub(super) async fn serve(input: impl AsyncRead + Unpin, output: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut lines = FramedRead::new(input, LinesCodec::new_with_max_length(LONGEST_LINE));
    let (events, mut from_tools) = mpsc::channel(64);
    let mut session = Session {
        output,
        jobs: Jobs::new(),
        events,
        running: HashMap::new(),
        asked: HashMap::new(),
        next_question: 1,
        client: Client::Unknown,
    };
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Some(Ok(line)) if line.trim().is_empty() => {}
                Some(Ok(line)) => session.read(line).await?,
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                    session.fail(None, code::INVALID_REQUEST, "the line is too long").await?;
                }
                Some(Err(LinesCodecError::Io(error))) => return Err(error),
                None => break,
            },
            Some(event) = from_tools.recv() => session.act(event).await?,
        }
    }
    session.jobs.stop();
    Ok(())
}

impl Context {
    /// Tells the client how far the call is, if it wants to know.
    pub(super) async fn progress(&self, done: u64, total: u64, message: &str) {
        if let Some(token) = &self.progress_token {
            let params = json!({ "progressToken": token, "progress": done, "total": total, "message": message });
            // The session outlives its tools, or ends with them.
            let _ = self.events.send(Event::Notify("notifications/progress", params)).await;
        }
    }

    /// Asks the client a question (`elicitation/create`).
    pub(super) async fn ask(&self, params: Value) -> Answer {
        let (sender, answer) = oneshot::channel();
        let _ = self.events.send(Event::Ask(params, sender)).await;
        answer.await.unwrap_or_else(|_| Err(RpcError::new(code::INTERNAL, "the session has ended")))
    }
}

impl<W: AsyncWrite + Unpin> Session<W> {
    async fn read(&mut self, line: String) -> io::Result<()> {
        match Message::parse(&Bytes::from(line), DEEPEST) {
            Err(error) => self.send(message::error(error.id.as_ref(), &error.to_rpc())).await,
            Ok(Message::Request { id, method, params }) => self.request(id, &method, params).await,
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel(params.as_ref());
                }
                Ok(())
            }
            Ok(Message::Result { id, result }) => {
                self.answered(Some(&id), result.read().map_err(|_| RpcError::new(code::INTERNAL, "not JSON")));
                Ok(())
            }
            Ok(Message::Error { id, error }) => {
                self.answered(id.as_ref(), Err(error));
                Ok(())
            }
        }
    }

    async fn request(&mut self, id: RequestId, method: &str, params: Option<Json>) -> io::Result<()> {
        let params = match params.as_ref().map(Json::read).transpose() {
            Ok(params) => params.unwrap_or_else(|| json!({})),
            Err(_) => return self.fail(Some(&id), code::INVALID_PARAMS, "the parameters cannot be read").await,
        };
        match (method, self.client) {
            ("initialize", _) => {
                let can_ask = params.pointer("/capabilities/elicitation").is_some_and(Value::is_object);
                self.client = Client::Known { can_ask };
                self.succeed(&id, initialized(&params)).await
            }
            ("ping", _) => self.succeed(&id, json!({})).await,
            ("tools/list" | "tools/call", Client::Unknown) => {
                self.fail(Some(&id), code::INVALID_REQUEST, "the session is not initialized").await
            }
            ("tools/list", Client::Known { .. }) => self.succeed(&id, json!({ "tools": tools::list() })).await,
            ("tools/call", Client::Known { can_ask }) => self.call(id, params, can_ask).await,
            _ => self.send(message::error(Some(&id), &RpcError::method_not_found(method))).await,
        }
    }

    async fn call(&mut self, id: RequestId, mut params: Value, can_ask: bool) -> io::Result<()> {
        if self.running.contains_key(&id) {
            return self.fail(Some(&id), code::INVALID_REQUEST, "a call with this id is running").await;
        }
        if self.running.len() >= MOST_CALLS {
            return self.fail(Some(&id), code::INTERNAL, "too many calls at the same time").await;
        }
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let arguments = params.get_mut("arguments").map(Value::take).unwrap_or_default();
        let progress_token = params.pointer("/_meta/progressToken").cloned();
        let context = Context { progress_token, can_ask, events: self.events.clone() };
        let (events, cancelled) = (self.events.clone(), CancellationToken::new());
        self.running.insert(id.clone(), cancelled.clone());
        self.jobs.spawn("demo tool", async move {
            let tool = tools::call(&name, arguments, context);
            // A cancelled call is not answered (2025-11-25, cancellation).
            if let Some(outcome) = cancelled.run_until_cancelled(tool).await {
                let _ = events.send(Event::Done(id, outcome)).await;
            }
        });
        Ok(())
    }

    async fn act(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Notify(method, params) => {
                self.send(message::notification(method, Some(Json::from_value(&params).into()))).await
            }
            Event::Ask(params, answer) => {
                let id = self.next_question;
                self.next_question += 1;
                self.asked.insert(id, answer);
                let params = Json::from_value(&params).into();
                self.send(message::request(&RequestId::from_number(id), "elicitation/create", Some(params))).await
            }
            // A call that was cancelled in the meantime is not answered.
            Event::Done(id, _) if self.running.remove(&id).is_none() => Ok(()),
            Event::Done(id, Outcome::Result(result)) => self.succeed(&id, result).await,
            Event::Done(id, Outcome::Error(error)) => self.send(message::error(Some(&id), &error)).await,
        }
    }

    fn cancel(&mut self, params: Option<&Json>) {
        let id = params.and_then(|params| params.member("requestId")).and_then(RequestId::read);
        if let Some(call) = id.and_then(|id| self.running.remove(&id)) {
            call.cancel();
        }
    }

    fn answered(&mut self, id: Option<&Json>, answer: Answer) {
        let question = id.and_then(|id| id.read().ok()).and_then(|id: u64| self.asked.remove(&id));
        if let Some(question) = question {
            // The tool may have been cancelled.
            let _ = question.send(answer);
        }
    }

    async fn succeed(&mut self, id: &RequestId, result: Value) -> io::Result<()> {
        self.send(message::result(id, Json::from_value(&result).into())).await
    }

    async fn fail(&mut self, id: Option<&RequestId>, code: i64, why: &str) -> io::Result<()> {
        self.send(message::error(id, &RpcError::new(code, why))).await
    }

    async fn send(&mut self, text: Rope) -> io::Result<()> {
        let mut line = text.into_bytes().to_vec();
        line.push(b'\n');
        self.output.write_all(&line).await?;
        self.output.flush().await
    }
}

fn initialized(params: &Value) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let newest = REVISIONS.first().copied().unwrap_or_default();
    let revision = REVISIONS.iter().copied().find(|revision| *revision == asked).unwrap_or(newest);
    json!({
        "protocolVersion": revision,
        "capabilities": { "tools": {} },
        "serverInfo": {
            "name": "raincheck-demo",
            "title": "Raincheck's demo server",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "instructions": "A synchronous server to try Raincheck with. slow_report takes its time; quick does not.",
    })
}
