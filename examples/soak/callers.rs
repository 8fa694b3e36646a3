//! What clients do, each in its own way, and what they may be told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::random_range;
use rand::seq::IndexedRandom;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::book::{Book, End, Fate, Kind};
use crate::client::{Answer, Client, Declares, Trouble};
use crate::faults::Faults;
use crate::server::is_result;

/// What all callers share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) book: Book,
    pub(crate) faults: Faults,
    pub(crate) address: String,
    /// Tasks that ended not long ago: the handle, when, and what was read then.
    ended: Mutex<Vec<(String, Instant, String)>>,
}

/// One caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    world: Arc<World>,
    client: Client,
}

/// One call as it is sent.
#[derive(Clone, Copy, Debug)]
struct Call {
    n: u64,
    kind: Kind,
    tool: &'static str,
    ms: u64,
    bytes: u64,
    declares: Declares,
}

#[derive(Deserialize)]
struct Shown<'a> {
    status: &'a str,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Value>,
    #[serde(rename = "inputRequests", default)]
    questions: serde_json::Map<String, Value>,
}

/// How long an outcome is surely readable: less than `keep` of the config.
const KEPT: Duration = Duration::from_secs(15);
/// Nothing takes this long, whatever happens.
const PATIENCE: Duration = Duration::from_mins(4);

const KINDS: [Kind; 13] = [
    Kind::Plain,
    Kind::Slow,
    Kind::Task,
    Kind::Queued,
    Kind::Again,
    Kind::Keyed,
    Kind::Asks,
    Kind::Cancelled,
    Kind::Left,
    Kind::Broken,
    Kind::Held,
    Kind::Legacy,
    Kind::Deaf,
];

impl World {
    pub(crate) fn new(address: String) -> Self {
        Self { book: Book::default(), faults: Faults::default(), address, ended: Mutex::default() }
    }

    /// An error of something that began at `from`: expected, or it does not hold.
    fn classify(&self, who: &str, reason: &str, from: Instant) {
        if self.faults.explain(reason, from) {
            self.book.saw(reason);
        } else {
            let since = from.elapsed();
            self.book.wrong(format!("an error that no fault explains: {reason}, {who}, {since:?} after its start"));
        }
    }
}

impl Caller {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), client: Client::new(world.address.clone()) }
    }

    /// One call of any kind, to the end of all that comes of it.
    pub(crate) async fn once(&self) {
        let kind = KINDS[random_range(0..KINDS.len())];
        let done = self.one(kind);
        if timeout(PATIENCE, done).await.is_err() {
            self.world.book.wrong(format!("a call of kind {kind:?} never came to an end"));
        }
        self.look_back().await;
    }

    async fn one(&self, kind: Kind) {
        let bytes = [10, 1000, 5000, 300_000][random_range(0..4)];
        let of = |tool, ms, declares| Call { n: self.world.book.call(kind), kind, tool, ms, bytes, declares };
        let tasks = Declares::Tasks;
        match kind {
            Kind::Plain => self.follow(of("plain", random_range(0..50), Declares::Nothing)).await,
            Kind::Held => self.follow(of("auto", random_range(0..1500), Declares::Nothing)).await,
            Kind::Slow => self.follow(of("auto", random_range(60..3000), tasks)).await,
            Kind::Task => self.follow(of("task", random_range(0..1000), tasks)).await,
            Kind::Queued => self.follow(of("queued", random_range(10..200), tasks)).await,
            Kind::Again => self.follow(of("again", random_range(10..1000), tasks)).await,
            Kind::Broken => self.follow(of("broken", 0, tasks)).await,
            Kind::Asks => self.follow(of("ask", random_range(0..100), Declares::TasksAndForms)).await,
            Kind::Cancelled => {
                self.follow(of(["auto", "task"][random_range(0..2)], random_range(100..3000), tasks)).await;
            }
            Kind::Keyed => self.twice(of("auto", random_range(0..500), tasks)).await,
            Kind::Left => self.leave(of(["plain", "auto"][random_range(0..2)], random_range(0..500), tasks)).await,
            Kind::Legacy => self.legacy(of("plain", random_range(0..300), Declares::Nothing)).await,
            Kind::Deaf => {
                let call = Call { bytes: 4_000_000, ..of("plain", 0, Declares::Nothing) };
                self.deaf(call).await;
            }
        }
    }

    async fn send(&self, call: Call, key: Option<&str>) -> Result<Answer, Trouble> {
        self.client.ask(call.declares, "tools/call", call.tool, key, call.params()).await
    }

    /// Calls, and follows a handle to the end of its task.
    async fn follow(&self, call: Call) {
        let answer = self.send(call, None).await;
        let fate = self.fate(call, answer).await;
        self.world.book.became(call.n, fate);
    }

    /// What an answer makes of a call.
    async fn fate(&self, call: Call, answer: Result<Answer, Trouble>) -> Fate {
        let began = self.world.book.began(call.n);
        let who = format!("call {call:?}");
        let answer = match answer {
            Ok(answer) => answer,
            Err(Trouble::Connection) => {
                self.world.classify(&who, "connection", began);
                return Fate::CutOff;
            }
            Err(Trouble::Status(status)) => {
                self.world.classify(&who, &format!("status {status}"), began);
                return Fate::CutOff;
            }
        };
        if let Some(reason) = answer.reason() {
            if !(reason == "server" && call.kind == Kind::Broken) {
                self.world.classify(&who, &reason, began);
            }
            return Fate::Error(reason);
        }
        let result = answer.result.unwrap();
        if is_result(&result, call.n, call.bytes) {
            return Fate::Result;
        }
        let created: Value = serde_json::from_str(result.get()).unwrap();
        if created["resultType"] == "input_required" && created["taskId"].is_null() && call.kind == Kind::Asks {
            // Without a store there are no tasks, and it asks all the same.
            self.world.classify(&who, "store", began);
            let mut params = call.params();
            params["requestState"] = created["requestState"].clone();
            params["inputResponses"] = answers(created["inputRequests"].as_object().unwrap());
            let answer = self.client.ask(call.declares, "tools/call", call.tool, None, params).await;
            return Box::pin(self.fate(call, answer)).await;
        }
        let Some(id) = created["taskId"].as_str() else {
            self.world.book.wrong(format!("{who} got another result: {:.200}", result.get()));
            return Fate::Result;
        };
        self.world.book.saw("handles seen");
        self.world.book.became(call.n, Fate::Task(End::Open));
        let end = self.end_of(call, id).await;
        self.world.book.saw("handles found at their end");
        Fate::Task(end)
    }

    /// Follows a task to its end.
    async fn end_of(&self, call: Call, id: &str) -> End {
        if call.kind == Kind::Cancelled {
            sleep(Duration::from_millis(random_range(0..500))).await;
            self.of_task("tasks/cancel", id, json!({})).await;
        }
        loop {
            if let Some(answer) = self.of_task("tasks/get", id, json!({})).await {
                let text = answer.result.unwrap();
                let shown: Shown<'_> = serde_json::from_str(text.get()).unwrap();
                if shown.status == "input_required" && call.kind == Kind::Asks {
                    let answers = answers(&shown.questions);
                    self.of_task("tasks/update", id, json!({ "inputResponses": answers })).await;
                } else if let Some(end) = self.ended(call, &shown) {
                    let mut ended = self.world.ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.retain(|(_, at, _)| at.elapsed() < KEPT);
                    ended.push((id.to_owned(), Instant::now(), outcome(&shown)));
                    return end;
                }
            }
            sleep(Duration::from_millis(random_range(50..200))).await;
        }
    }

    fn ended(&self, call: Call, shown: &Shown<'_>) -> Option<End> {
        let (book, began) = (&self.world.book, self.world.book.began(call.n));
        Some(match shown.status {
            "completed" => {
                if !shown.result.is_some_and(|result| is_result(result, call.n, call.bytes)) {
                    book.wrong(format!("the result of {call:?} has changed"));
                }
                End::Completed
            }
            "cancelled" => {
                if call.kind != Kind::Cancelled {
                    book.wrong(format!("nobody has cancelled {call:?}"));
                }
                End::Cancelled
            }
            "failed" => {
                let answer = Answer { result: None, error: shown.error.clone() };
                let reason = answer.reason().unwrap_or_default();
                if !(reason == "server" && call.kind == Kind::Broken) {
                    self.world.classify(&format!("the task of {call:?}"), &reason, began);
                }
                End::Failed(reason)
            }
            _ => return None,
        })
    }

    /// A request about a task; `None` if a fault is in the way.
    async fn of_task(&self, method: &str, id: &str, mut params: Value) -> Option<Answer> {
        params["taskId"] = id.into();
        let began = Instant::now();
        let reason = match self.client.ask(Declares::Tasks, method, id, None, params).await {
            Ok(answer) => match answer.reason() {
                None => return Some(answer),
                Some(reason) => reason,
            },
            Err(Trouble::Connection) => "connection".to_owned(),
            Err(Trouble::Status(status)) => format!("status {status}"),
        };
        self.world.classify(&format!("{method} {id}"), &reason, began);
        sleep(Duration::from_millis(100)).await;
        None
    }

    /// A task that ended not long ago reads as it did then.
    async fn look_back(&self) {
        let found = {
            let ended = self.world.ended.lock().unwrap_or_else(PoisonError::into_inner);
            match ended.choose(&mut rand::rng()) {
                Some(one) => one.clone(),
                None => return,
            }
        };
        let (id, at, before) = found;
        if let Some(answer) = self.of_task("tasks/get", &id, json!({})).await {
            let text = answer.result.unwrap();
            if outcome(&serde_json::from_str(text.get()).unwrap()) != before {
                self.world.book.wrong(format!("the end of {id} has changed: {:.200}", text.get()));
            }
            self.world.book.saw("looked back at an end");
        } else if at.elapsed() > KEPT {
            self.world.book.saw("looked back too late");
        }
    }

    /// The same call twice at the same time, and again for as long as the connection breaks: one run.
    async fn twice(&self, call: Call) {
        let key = format!("\"key-{}\"", call.n);
        let again = async || {
            loop {
                let answer = self.send(call, Some(&key)).await;
                let retry = match &answer {
                    Err(_) => true,
                    Ok(answer) => matches!(answer.reason().as_deref(), Some("stopping" | "store")),
                };
                if !retry {
                    return self.fate(call, answer).await;
                }
                let reason = answer.map_or("connection".to_owned(), |answer| answer.reason().unwrap_or_default());
                self.world.classify(&format!("a repeat of {call:?}"), &reason, self.world.book.began(call.n));
                sleep(Duration::from_millis(200)).await;
            }
        };
        let (one, other) = tokio::join!(again(), again());
        // A result below the threshold and the end of its task are the same; a server that did not start may have by now.
        let class = |fate: &Fate| match fate {
            Fate::Result | Fate::Task(End::Completed) => Some("completed".to_owned()),
            Fate::Error(reason) | Fate::Task(End::Failed(reason)) if reason != "not_started" => Some(reason.clone()),
            _ => None,
        };
        if let (Some(a), Some(b)) = (class(&one), class(&other))
            && a != b
        {
            self.world.book.wrong(format!("one key has two ends: {one:?} and {other:?}, {call:?}"));
        }
        self.world.book.became(call.n, if matches!(one, Fate::Error(_)) { other } else { one });
    }

    async fn leave(&self, call: Call) {
        let patience = Duration::from_millis(random_range(0..100));
        let fate = match timeout(patience, self.send(call, None)).await {
            Err(_) => Fate::Left,
            Ok(answer) => self.fate(call, answer).await,
        };
        self.world.book.became(call.n, fate);
    }

    async fn legacy(&self, call: Call) {
        let began = self.world.book.began(call.n);
        let answer = match self.client.open().await {
            Err(trouble) => Err(trouble),
            Ok(session) => {
                let answer = self.client.legacy_call(&session, call.params()).await;
                self.client.close(session).await;
                answer
            }
        };
        let fate = match answer {
            // Its server could not be started.
            Err(Trouble::Status(503)) => {
                self.world.classify("a session", "not_started", began);
                Fate::CutOff
            }
            answer => self.fate(call, answer).await,
        };
        self.world.book.became(call.n, fate);
    }

    /// Reads nothing of a large answer for a while, then closes or resets the connection; half of them send half a request.
    async fn deaf(&self, call: Call) {
        self.world.book.became(call.n, Fate::Left);
        let Ok(mut socket) = TcpStream::connect(&self.world.address).await else {
            return self.world.classify("a deaf client", "connection", self.world.book.began(call.n));
        };
        let body = Client::text(call.declares, "tools/call", call.params());
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, \
             text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {}\r\n\
             content-length: {}\r\n\r\n{body}",
            call.tool,
            body.len()
        );
        let kind = random_range(0..4);
        let sent = if kind == 0 { &request[..request.len() / 2] } else { &request[..] };
        let _ = socket.write_all(sent.as_bytes()).await;
        sleep(Duration::from_millis([300, 300, 1000, 5000][kind])).await;
        if kind == 1 {
            let _ = socket.set_zero_linger();
        }
    }
}

impl Call {
    fn params(self) -> Value {
        json!({ "name": self.tool, "arguments": { "n": self.n, "ms": self.ms, "bytes": self.bytes } })
    }
}

/// An answer to every question.
fn answers(questions: &serde_json::Map<String, Value>) -> Value {
    let answer = json!({ "action": "accept", "content": { "name": "x" } });
    questions.keys().map(|key| (key.clone(), answer.clone())).collect::<serde_json::Map<_, _>>().into()
}

/// What must stay as it is once a task has ended.
fn outcome(shown: &Shown<'_>) -> String {
    let text = shown.result.map_or_else(|| json!(shown.error).to_string(), |result| result.get().to_owned());
    let sum = text.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("{} {} {sum}", shown.status, text.len())
}
