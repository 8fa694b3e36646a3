//! Which tools of a server must run as tasks of 2025-11-25.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use super::Leg;
use crate::protocol::json;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, Json, Method, Outcome, Params, TaskSupport};

/// What is known of the tools of one session. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in crate::upstream) struct Needs(Option<Arc<RwLock<Known>>>);

#[derive(Debug, Default)]
struct Known {
    /// How often the server has said that its tools have changed.
    changes: u64,
    /// The names of the tools that must, once they were read.
    tools: Option<Arc<HashSet<String>>>,
}

/// How long the list of tools may take.
const LIST: Duration = Duration::from_secs(10);
/// Pages of the list that are read.
const PAGES: usize = 64;
/// Names that are kept.
const NAMES: usize = 4096;

impl Needs {
    /// What the capabilities of a server say: without `tasks.requests.tools.call` no tool may be run as a task.
    pub(in crate::upstream) fn of(capabilities: &Json) -> Self {
        let requests = capabilities.member("tasks").and_then(|tasks| tasks.member("requests"));
        let call = requests.and_then(|requests| requests.member("tools")).and_then(|tools| tools.member("call"));
        Self(call.filter(Json::is_object).map(|_| Arc::default()))
    }

    /// Whether any tool of the server can run as a task.
    pub(in crate::upstream) fn any(&self) -> bool {
        self.0.is_some()
    }

    /// The tools have changed.
    pub(in crate::upstream) fn forget(&self) {
        if let Some(known) = &self.0 {
            let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
            known.changes += 1;
            known.tools = None;
        }
    }

    /// Whether `tool` must run as a task. A list that cannot be read means no; the call will tell.
    pub(super) async fn task_for(&self, leg: &impl Leg, call: &Call, tool: &str) -> bool {
        let Some(known) = &self.0 else { return false };
        let read = || known.read().unwrap_or_else(PoisonError::into_inner);
        let (changes, tools) = (read().changes, read().tools.clone());
        if let Some(tools) = tools {
            return tools.contains(tool);
        }
        let Ok(Some(tools)) = tokio::time::timeout(LIST, list(leg, call)).await else { return false };
        let must = tools.contains(tool);
        let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
        if known.changes == changes {
            known.tools = Some(Arc::new(tools));
        }
        must
    }
}

/// The tools that must run as tasks; `None` if the server does not say.
async fn list(leg: &impl Leg, call: &Call) -> Option<HashSet<String>> {
    let mut names = HashSet::new();
    let mut cursor = None;
    for _ in 0..PAGES {
        let Outcome::Result(page) = leg.send(request(call, cursor.as_ref())?).outcome().await else { return None };
        let tools = page.member("tools")?;
        for raw in json::elements(tools.bytes()).ok()?.iter() {
            let tool = Json::of(tools.bytes(), raw);
            let support = tool.member("execution").and_then(|execution| execution.member("taskSupport"));
            if support.is_some_and(|support| support.as_str() == "\"required\"")
                && let Some(name) = tool.member("name").and_then(|name| name.read::<String>().ok())
                && names.len() < NAMES
            {
                names.insert(name);
            }
        }
        cursor = page.member("nextCursor").filter(|cursor| !cursor.is_null());
        if cursor.is_none() {
            break;
        }
    }
    Some(names)
}

fn request(call: &Call, cursor: Option<&Json>) -> Option<Call> {
    let mut params = ObjectWriter::new();
    if let Some(cursor) = cursor {
        params.raw("cursor", cursor);
    }
    let params = Params::read(&Method::ListTools, Some(params.finish_json())).ok()?;
    let mut caller = call.caller.clone();
    caller.tasks = TaskSupport::Undeclared;
    caller.progress_token = None;
    Some(Call { method: Method::ListTools, params, caller, arrived: Instant::now() })
}
