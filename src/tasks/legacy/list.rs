//! `tasks/list`: all tasks of the caller, the newest first, whichever client made them.

use super::seen::{self, Verdict};
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, Outcome, Principal, Rope, RpcError};
use crate::runner::Runner;
use crate::store::Filter;
use crate::task::TaskId;
use crate::tasks::handle;

/// Tasks on one page.
const PAGE: usize = 50;

/// One page. A cursor is where the last one ended.
pub(super) async fn list(runner: &Runner, call: &Call) -> Result<Outcome, Outcome> {
    let principal = &call.caller.principal;
    if *principal == Principal::Anonymous {
        return Err(Outcome::Error(RpcError::method_not_found(call.method.name())));
    }
    let invalid = || Outcome::Error(RpcError::new(code::INVALID_PARAMS, "Invalid params: there is no such cursor"));
    let before = match call.params.raw().member("cursor").filter(|cursor| !cursor.is_null()) {
        None => None,
        Some(cursor) => {
            let cursor = cursor.read::<String>().map_err(|_| invalid())?;
            Some(cursor.parse::<TaskId>().map_err(|_| invalid())?)
        }
    };
    let filter = Filter::of(runner.store().owner(principal));
    let page = runner.store().list(filter, before, PAGE).await.map_err(|error| handle::unreadable(&error))?;
    let mut tasks = Vec::with_capacity(page.tasks.len());
    for task in &page.tasks {
        let live = runner.live().get(&task.id);
        // One whose result cannot be read now is not left out: it can still be asked after.
        let object = seen::task(runner, task).await.unwrap_or_else(|_| {
            seen::object(task, live.as_deref(), &Verdict::AsRecorded, runner.store().clock().now())
        });
        tasks.push(object);
    }
    let mut result = ObjectWriter::new();
    result.rope("tasks", array(tasks));
    if let Some(next) = page.next {
        result.string("nextCursor", next.as_str());
    }
    Ok(Outcome::Shaped(result.finish()))
}

fn array(elements: Vec<Rope>) -> Rope {
    let mut array = Rope::from(bytes::Bytes::from_static(b"["));
    for (at, element) in elements.into_iter().enumerate() {
        if at > 0 {
            array.push(bytes::Bytes::from_static(b","));
        }
        array.append(element);
    }
    array.push(bytes::Bytes::from_static(b"]"));
    array
}
