//! Arguments that a tool wants mirrored into headers (2026-07-28, Streamable HTTP, `x-mcp-header`).
//!
//! Only a server that minds their absence is asked for its tools; it answers -32020 then.

use http::{HeaderMap, HeaderName};
use serde_json::Value;

use super::endpoint::{Ask, Endpoint};
use super::error::ClientError;
use crate::protocol::{Json, headers};

/// Pages of tools that are looked through.
const MOST_PAGES: usize = 100;
const DEEPEST: usize = 16;

impl Endpoint {
    /// The headers that mirror `arguments`, as the tool's input schema wants them.
    pub(crate) async fn mirrored(&self, tool: &str, arguments: &Json) -> Result<HeaderMap, ClientError> {
        let arguments: Value = arguments.read().unwrap_or_default();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let ask = Ask::Tools { cursor: cursor.as_deref() };
            let page = self.ask(&ask, &HeaderMap::new(), &mut |_| {}).await?;
            let page: Value = page.read().map_err(|error| ClientError::NotMcp(error.to_string()))?;
            let tools = page.get("tools").and_then(Value::as_array).into_iter().flatten();
            let mut named = tools.filter(|candidate| candidate.get("name").and_then(Value::as_str) == Some(tool));
            if let Some(found) = named.next() {
                let mut mirrored = HeaderMap::new();
                collect(found.get("inputSchema").unwrap_or(&Value::Null), &arguments, DEEPEST, &mut mirrored);
                return Ok(mirrored);
            }
            cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(HeaderMap::new())
    }
}

/// Follows `properties` through the schema and the arguments at the same time.
fn collect(schema: &Value, arguments: &Value, deeper: usize, into: &mut HeaderMap) {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, schema) in properties {
        let Some(value) = arguments.get(name) else { continue };
        if let Some(header) = schema.get("x-mcp-header").and_then(Value::as_str)
            && let Some(text) = spelled(value)
            && let Ok(header) = format!("{}{}", headers::PARAM_PREFIX, header.to_lowercase()).parse::<HeaderName>()
        {
            into.insert(header, headers::encode(&text));
        }
        if deeper > 0 {
            collect(schema, value, deeper - 1, into);
        }
    }
}

/// Only strings, whole numbers and truth values are mirrored.
fn spelled(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
