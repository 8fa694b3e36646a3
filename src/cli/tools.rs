//! `raincheck tools`: what can be called at an endpoint, and with which arguments.

use std::fmt::Write as _;

use clap::Args;
use http::HeaderMap;

use super::call::{Common, Stop, finish, print};
use super::client::{self, Ask, ClientError, Endpoint};
use super::{exit, terminal};
use crate::protocol::Json;
use crate::protocol::form::fields;
use crate::protocol::json::Elements;
use crate::protocol::rope::ObjectWriter;

/// Where the tools are.
#[derive(Debug, Args)]
pub(super) struct Tools {
    #[arg(help = "The MCP endpoint, such as http://127.0.0.1:8080/mcp")]
    url: String,
    #[command(flatten)]
    common: Common,
}

/// Pages that are read.
const MOST_PAGES: usize = 100;
/// Characters of what is said of a tool, and of an argument.
const LONGEST: usize = 300;

impl Tools {
    pub(super) async fn run(self) -> u8 {
        let json = self.common.json;
        finish(self.list().await, json)
    }

    async fn list(self) -> Result<u8, Stop> {
        let endpoint = self.common.endpoint(&self.url)?;
        let mut any = false;
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let page = page(&endpoint, cursor.as_deref()).await.map_err(Stop::client)?;
            let tools = page.member("tools").unwrap_or_else(Json::empty_object);
            for tool in tools.elements().iter().flat_map(Elements::iter) {
                any = true;
                let tool = Json::of(tools.bytes(), tool);
                let text = if self.common.json { tool.as_str().to_owned() } else { terminal::plain(&shown(&tool)) };
                print(&text)?;
            }
            cursor = page.member("nextCursor").and_then(|cursor| cursor.read().ok());
            if cursor.is_none() {
                break;
            }
        }
        if !any {
            terminal::say("The server has no tools.");
        }
        Ok(exit::OK)
    }
}

async fn page(endpoint: &Endpoint, cursor: Option<&str>) -> Result<Json, ClientError> {
    endpoint.ask(&Ask::Tools { cursor }, &HeaderMap::new(), &mut |_| {}).await.map_err(client::explain)
}

/// The name, what it is for, and a line for each argument.
fn shown(tool: &Json) -> String {
    let text = |name: &str| tool.member(name).and_then(|value| value.read::<String>().ok()).unwrap_or_default();
    let mut shown = terminal::one_line(&text("name"), 128);
    let about = terminal::one_line(text("description").trim(), LONGEST);
    // Writing into a string cannot fail.
    if !about.is_empty() {
        let _ = write!(shown, "  {about}");
    }
    let mut form = ObjectWriter::new();
    if let Some(schema) = tool.member("inputSchema") {
        form.raw("requestedSchema", &schema);
    }
    let fields = fields(&form.finish_json());
    let widest = fields.iter().map(|field| field.name.chars().count()).max().unwrap_or_default().min(40);
    for field in &fields {
        let name = terminal::one_line(&field.name, 64);
        let _ = write!(shown, "\n    {name:widest$}  {}", terminal::one_line(&field.describe(), LONGEST));
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_shown_with_its_arguments_and_cannot_steer_the_terminal() {
        let tool = json!({
            "name": "slow_report", "description": "Writes a report.\nSlowly.\u{1b}[2J",
            "inputSchema": { "type": "object", "required": ["rows"], "properties": {
                "rows": { "type": "integer", "minimum": 1, "description": "How many" },
                "to": { "type": "object" },
            } },
        });
        let found = shown(&Json::from_value(&tool));
        let expected = "slow_report  Writes a report. Slowly. [2J\n    \
                        rows  a whole number, 1 or more, required: How many\n    to    as its schema says";
        assert_eq!(found, expected);
        assert_eq!(shown(&Json::from_value(&json!({ "name": "quick" }))), "quick");
    }
}
