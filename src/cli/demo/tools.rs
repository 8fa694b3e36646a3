//! The tools of the demo server.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::session::Context;
use crate::protocol::RpcError;
use crate::protocol::error::code;

/// How a call ends.
pub(super) enum Outcome {
    Result(Value),
    Error(RpcError),
}

/// Nobody needs a demo that runs longer.
const LONGEST: f64 = 3600.0;
const MOST_ITEMS: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Report {
    seconds: f64,
    rows: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    items: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Default for Report {
    fn default() -> Self {
        Self { seconds: 20.0, rows: 1000 }
    }
}

impl Default for Text {
    fn default() -> Self {
        Self { text: "It is raining.".to_owned() }
    }
}

/// What `tools/list` says.
pub(super) fn list() -> Value {
    json!([
        {
            "name": "slow_report",
            "title": "Slow report",
            "description": "Writes a report, row by row, and takes its time. Reports progress.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "seconds": {
                        "type": "number", "minimum": 0, "maximum": LONGEST, "default": 20,
                        "description": "How long it takes.",
                    },
                    "rows": {
                        "type": "integer", "minimum": 1, "maximum": u32::MAX, "default": 1000,
                        "description": "How many rows the report has.",
                    },
                },
                "additionalProperties": false,
            },
            "outputSchema": {
                "type": "object",
                "properties": { "rows": { "type": "integer" }, "seconds": { "type": "number" } },
                "required": ["rows", "seconds"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "batch",
            "title": "Batch",
            "description": "Works on a list of items, half a second each. Reports progress; an empty item fails alone.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "items": {
                        "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": MOST_ITEMS,
                        "description": "What to work on.",
                    },
                },
                "required": ["items"],
                "additionalProperties": false,
            },
            "outputSchema": {
                "type": "object",
                "properties": {
                    "done": { "type": "integer" },
                    "failed": { "type": "integer" },
                    "results": { "type": "array", "items": { "type": "string" } },
                },
                "required": ["done", "failed", "results"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "failing",
            "title": "Failing tool",
            "description": "Fails after a second, the way tools do: a result with isError.",
            "inputSchema": { "type": "object", "properties": {}, "additionalProperties": false },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "broken",
            "title": "Broken tool",
            "description": "Fails after a second, the way servers do: a JSON-RPC error instead of a result.",
            "inputSchema": { "type": "object", "properties": {}, "additionalProperties": false },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "ask",
            "title": "Tool that asks",
            "description": "Asks the user for a name (elicitation) and greets. Says so if the client cannot be asked.",
            "inputSchema": { "type": "object", "properties": {}, "additionalProperties": false },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "quick",
            "title": "Quick tool",
            "description": "Gives its text back at once.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "text": { "type": "string", "default": "It is raining.", "description": "What to give back." },
                },
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false },
        },
    ])
}

/// Runs a tool to its end.
pub(super) async fn call(name: &str, arguments: Value, context: Context) -> Outcome {
    match name {
        "slow_report" => with(arguments, |report| slow_report(report, context)).await,
        "batch" => with(arguments, |items| batch(items, context)).await,
        "failing" => with(arguments, |Nothing {}| failing()).await,
        "broken" => with(arguments, |Nothing {}| broken()).await,
        "ask" => with(arguments, |Nothing {}| ask(context)).await,
        "quick" => with(arguments, |Text { text }| async move { Outcome::Result(said(&text)) }).await,
        other => {
            let message = format!("Unknown tool: {}", other.escape_debug());
            Outcome::Error(RpcError::new(code::INVALID_PARAMS, message))
        }
    }
}

/// Wrong arguments are an error of the tool, so that a model can mend them (2025-11-25, tools, error handling).
async fn with<A: DeserializeOwned, F: Future<Output = Outcome>>(arguments: Value, run: impl FnOnce(A) -> F) -> Outcome {
    let arguments = if arguments.is_null() { json!({}) } else { arguments };
    match serde_json::from_value(arguments) {
        Ok(arguments) => run(arguments).await,
        Err(error) => Outcome::Result(failed(&format!("wrong arguments: {error}"))),
    }
}

async fn slow_report(Report { seconds, rows }: Report, context: Context) -> Outcome {
    if !(0.0..=LONGEST).contains(&seconds) || rows == 0 {
        return Outcome::Result(failed("wrong arguments: seconds must be 0 to 3600, rows 1 at least"));
    }
    // Twice a second, so that a bar moves; a short one in one step.
    let whole = Duration::from_secs_f64(seconds);
    let steps = u32::try_from(whole.as_millis() / 500).unwrap_or(u32::MAX).max(1);
    let total = u64::from(rows);
    for step in 1..=steps {
        tokio::time::sleep(whole / steps).await;
        context.progress(total * u64::from(step) / u64::from(steps), total, "writing rows").await;
    }
    let text = format!("The report is ready: {rows} rows in {seconds} seconds.");
    Outcome::Result(structured(&text, json!({ "rows": rows, "seconds": seconds })))
}

async fn batch(Batch { items }: Batch, context: Context) -> Outcome {
    if items.is_empty() || items.len() > MOST_ITEMS {
        return Outcome::Result(failed("wrong arguments: items must have 1 to 1000 elements"));
    }
    let total = items.len() as u64;
    let mut results = Vec::new();
    let mut failed = 0;
    for (item, done) in items.iter().zip(1..) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if item.is_empty() {
            failed += 1;
            results.push("failed: the item is empty".to_owned());
        } else {
            results.push(format!("{item}: done"));
        }
        context.progress(done, total, item).await;
    }
    let text = results.join("\n");
    Outcome::Result(structured(&text, json!({ "done": total - failed, "failed": failed, "results": results })))
}

async fn failing() -> Outcome {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Outcome::Result(failed("The roof leaks. This tool always fails."))
}

async fn broken() -> Outcome {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let message = "The server slipped. This tool always ends with a JSON-RPC error.";
    Outcome::Error(RpcError::new(code::INTERNAL, message))
}

async fn ask(context: Context) -> Outcome {
    if !context.can_ask {
        return Outcome::Result(failed(
            "This tool has to ask for your name, but the client cannot be asked: it did not offer elicitation \
             when it connected.",
        ));
    }
    let answer = context.ask(json!({
        "message": "Please enter your name.",
        "requestedSchema": {
            "type": "object",
            "properties": { "name": { "type": "string", "title": "Your name" } },
            "required": ["name"],
        },
    }));
    let answer = match answer.await {
        Ok(answer) => answer,
        Err(error) => return Outcome::Result(failed(&format!("The client could not be asked: {error}."))),
    };
    let action = answer.get("action").and_then(Value::as_str).unwrap_or_default();
    Outcome::Result(match (action, answer.pointer("/content/name").and_then(Value::as_str)) {
        ("accept", Some(name)) => said(&format!("Hello, {name}!")),
        ("accept", None) => failed("The answer has no name in it."),
        ("decline", _) => said("You would rather not say. Hello, stranger!"),
        _ => failed("The question was closed without an answer."),
    })
}

fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": false })
}

fn structured(text: &str, content: Value) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "structuredContent": content, "isError": false })
}

fn failed(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}
