//! Calls as a modern client sends them, and outcomes as it reads them.

use bytes::Bytes;
use raincheck::protocol::{
    Abilities, Call, Caller, ClientSession, Credentials, Json, Method, Outcome, Params, Principal, TaskSupport,
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// JSON text as the protocol carries it.
pub fn text(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

/// A call of Ann's client, which declares Tasks.
pub fn call(method: &str, params: Value) -> Call {
    call_of("ann", true, method, params)
}

/// A call of somebody's client.
pub fn call_of(who: &str, declares_tasks: bool, method: &str, params: Value) -> Call {
    call_declaring(json!({}), who, declares_tasks, method, params)
}

/// A call of somebody's client that can be asked so much.
pub fn call_declaring(
    mut capabilities: Value,
    who: &str,
    declares_tasks: bool,
    method: &str,
    mut params: Value,
) -> Call {
    capabilities["extensions"] =
        if declares_tasks { json!({ "io.modelcontextprotocol/tasks": {} }) } else { json!({}) };
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let method = Method::of(method);
    let params = Params::read(&method, Some(Json::from_value(&params))).unwrap();
    let caller = Caller::of_modern(&params, Principal::Named(who.into()), Credentials::default());
    Call { method, params, caller, arrived: Instant::now() }
}

/// A call of somebody's client of 2025-11-25, in its session.
pub fn legacy_call(who: &str, method: &str, params: Value, capabilities: Value) -> Call {
    let method = Method::of(method);
    let params = Params::read(&method, Some(Json::from_value(&params))).unwrap();
    let caller = Caller {
        principal: Principal::Named(who.into()),
        session: ClientSession::Legacy(7),
        abilities: Abilities::of(Json::from_value(&capabilities)),
        tasks: TaskSupport::Undeclared,
        progress_token: None,
        key: None,
        credentials: Credentials::default(),
    };
    Call { method, params, caller, arrived: Instant::now() }
}

/// What an outcome says on the wire: the result, or the error under `error`.
pub fn shown(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Result(result) => result.read().unwrap(),
        Outcome::Shaped(rope) => rope.into_json().read().unwrap(),
        Outcome::Error(error) => json!({ "error": error.raw().read::<Value>().unwrap() }),
        Outcome::Failed(failure) => json!({ "failed": failure.reason, "message": failure.message }),
        Outcome::Task(handle) => {
            let created = handle.created.clone().into_json().read().unwrap();
            handle.delivery.delivered();
            created
        }
    }
}
