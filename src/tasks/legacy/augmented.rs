//! `tools/call` with `params.task`: a call that the client wants to be a task.

use std::sync::Arc;
use std::time::Duration;

use super::follow::{Follow, Sessions};
use super::{offers, seen};
use crate::config::ToolPolicy;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, JsonError, Method, Params, Rope, RpcError, TaskSupport};
use crate::runner::{Form, Handed, Promotion, Questions, Runner, Way, WriteHandle};

/// What a call says of tasks.
pub(in crate::tasks) enum Asked {
    /// Nothing that counts: it is held, or becomes what others get.
    Nothing(Call),
    /// It is to be a task: the call as the server is to see it, and how it goes on.
    Task(Call, Way),
    /// It must not be one.
    Refused(RpcError),
}

/// Writes `CreateTaskResult` of 2025-11-25.
#[derive(Debug)]
struct Created {
    ttl: Option<Duration>,
    /// How its client is told of it from then on.
    follow: Follow,
}

/// Reads whether a call is to be a task.
pub(in crate::tasks) fn asked(
    call: Call,
    tool: &str,
    policy: &ToolPolicy,
    runner: &Runner,
    sessions: &Sessions,
) -> Asked {
    if call.caller.tasks != TaskSupport::Augmenting {
        return Asked::Nothing(call);
    }
    let Some(task) = call.params.raw().member("task").filter(|task| !task.is_null()) else {
        return Asked::Nothing(call);
    };
    if !offers(policy) {
        // As the revision has it (2025-11-25, tasks, tool-level negotiation).
        let text = format!("Method not found: the tool \"{}\" cannot be called as a task", tool.escape_debug());
        return Asked::Refused(RpcError::new(code::METHOD_NOT_FOUND, text));
    }
    let invalid = |what: &str| Asked::Refused(RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {what}")));
    if !task.is_object() {
        return invalid("task must be an object");
    }
    let ttl = match task.member("ttl").filter(|ttl| !ttl.is_null()).map(|ttl| ttl.read::<f64>()) {
        None => None,
        Some(Ok(ttl)) if ttl >= 0.0 => Some(Duration::try_from_secs_f64(ttl / 1000.0).unwrap_or(Duration::MAX)),
        Some(_) => return invalid("task.ttl must be a number of milliseconds"),
    };
    let params = match without_task(&call.params) {
        Ok(params) => params,
        Err(error) => return Asked::Refused(error),
    };
    let follow = Follow::new(runner, sessions, &call.caller);
    let way = Way {
        promotion: Promotion::AtOnce,
        questions: Questions::Promote,
        abilities: call.caller.abilities.clone(),
        form: Form::Other(Arc::new(Created { ttl, follow })),
        session: call.caller.session.clone(),
    };
    Asked::Task(Call { params, ..call }, way)
}

fn without_task(params: &Params) -> Result<Params, RpcError> {
    let unreadable =
        |error: JsonError| RpcError::new(code::INVALID_REQUEST, format!("Invalid request: params: {error}"));
    let mut without = ObjectWriter::new();
    without.members_of(params.raw(), |name| name != "task").map_err(unreadable)?;
    Params::read(&Method::CallTool, Some(without.finish_json()))
}

impl WriteHandle for Created {
    fn write(&self, handed: &Handed<'_>) -> Rope {
        self.follow.begin(handed);
        let mut created = ObjectWriter::new();
        created.rope("task", seen::object(handed.task, handed.live, &seen::Verdict::AsRecorded, handed.now));
        created.finish()
    }

    fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// The client reads nothing else as the answer to such a call.
    fn is_for_ended(&self) -> bool {
        true
    }
}
