//! A client that can be asked, and a server that asks.

use raincheck::config::{AskPolicy, Mode, ToolPolicy};
use raincheck::protocol::{Answer, Ask, Asking, Call, ClientSession, Event, Json, Question, QuestionKind, ReplySender};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

use crate::support::calls::{call_declaring, text};
use crate::support::layer::{PATIENCE, Proxy};

pub(crate) const SLOW: Duration = Duration::from_hours(1);

/// A call of Ann's client, which declares Tasks and all that it can be asked.
pub(crate) fn call(method: &str, params: Value) -> Call {
    call_of("ann", true, method, params)
}

/// A call of a client that can be asked anything.
pub(crate) fn call_of(who: &str, declares_tasks: bool, method: &str, params: Value) -> Call {
    let everything = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    call_declaring(everything, who, declares_tasks, method, params)
}

/// A call of Ann's client that declares these capabilities.
pub(crate) fn call_with(capabilities: &Value, method: &str, params: Value) -> Call {
    let mut call = call_of("ann", true, method, params);
    call.caller.abilities = raincheck::protocol::Abilities::of(Json::from_value(capabilities));
    call
}

/// The same call from a legacy session.
pub(crate) fn legacy(mut call: Call) -> Call {
    call.caller.session = ClientSession::Legacy(7);
    call.caller.tasks = raincheck::protocol::TaskSupport::Undeclared;
    call
}

pub(crate) fn export() -> Value {
    json!({ "name": "export", "arguments": { "n": 1 } })
}

/// The retry of a call.
pub(crate) fn retry_of(mut params: Value, asked: &Value, responses: &Value) -> Value {
    params["requestState"] = asked["requestState"].clone();
    if !responses.is_null() {
        params["inputResponses"] = responses.clone();
    }
    params
}

pub(crate) fn policy(mode: Mode) -> ToolPolicy {
    ToolPolicy { mode, after: SLOW, ..ToolPolicy::default() }
}

pub(crate) fn first(mode: Mode) -> ToolPolicy {
    ToolPolicy { ask: AskPolicy::First, ..policy(mode) }
}

/// A form with this message.
pub(crate) fn question(message: &str, key: Option<&str>) -> Question {
    let params = json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
    Question { kind: QuestionKind::Elicitation, params: Json::from_value(&params), key: key.map(str::to_owned) }
}

/// The server asks with a form.
pub(crate) fn ask(server: &ReplySender, message: &str) -> Asking {
    ask_as(server, question(message, None))
}

pub(crate) fn ask_as(server: &ReplySender, question: Question) -> Asking {
    let (ask, asking) = Ask::new(question);
    server.event(Event::Ask(ask));
    asking
}

/// What the server gets as the answer.
pub(crate) async fn answer(asking: &mut Asking) -> Result<Value, i64> {
    match timeout(PATIENCE, asking.answer()).await.expect("no answer") {
        Answer::Result(result) => Ok(result.read().unwrap()),
        Answer::Error(error) => Err(error.code()),
        // The upstream tells its server what it tells it of a client that never declared it.
        Answer::Undeclared(_) => Err(-32601),
    }
}

pub(crate) fn accepted(value: &Value) -> Value {
    json!({ "action": "accept", "content": value })
}

pub(crate) fn id_of(created: &Value) -> String {
    created["taskId"].as_str().unwrap_or_else(|| panic!("no handle: {created}")).to_owned()
}

pub(crate) fn keys(asked: &Value) -> Vec<String> {
    asked["inputRequests"].as_object().unwrap_or_else(|| panic!("no questions: {asked}")).keys().cloned().collect()
}

pub(crate) fn done() -> raincheck::protocol::Outcome {
    raincheck::protocol::Outcome::Result(text(r#"{"content":[]}"#))
}

/// Answers questions of a task.
pub(crate) async fn update(proxy: &Proxy, id: &str, responses: Value) -> Value {
    proxy.value(call("tasks/update", json!({ "taskId": id, "inputResponses": responses }))).await
}

/// Polls Ann's task until `wanted` says yes.
pub(crate) async fn until(proxy: &Proxy, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let polling = async {
        loop {
            let task = proxy.get(id).await;
            if wanted(&task) {
                return task;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, polling).await.expect("the task does not get there")
}

/// Polls Ann's task until it has that many questions.
pub(crate) async fn asks(proxy: &Proxy, id: &str, open: usize) -> Value {
    until(proxy, id, |task| task["inputRequests"].as_object().map_or(0, serde_json::Map::len) == open).await
}
