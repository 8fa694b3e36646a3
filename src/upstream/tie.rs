//! The tie of a message to a task of the server (2025-11-25, tasks, related task metadata). Such tasks are used on the way to
//! the server only: their handles never reach a client.

use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Json, meta_key};

/// The handle of the task that a message with these `params` belongs to, as it was spelled.
pub(super) fn task(params: &Json) -> Option<Json> {
    params.member("_meta")?.member(meta_key::RELATED_TASK)?.member("taskId")
}

/// An object without the tie; `None` if it has none, or cannot be read.
pub(super) fn cut(object: &Json) -> Option<Json> {
    let meta = object.member("_meta").filter(|meta| meta.member(meta_key::RELATED_TASK).is_some())?;
    let only_the_tie = meta.members().ok()?.len() == 1;
    let mut writer = ObjectWriter::new();
    writer.members_of(object, |name| name != "_meta").ok()?;
    if !only_the_tie {
        let mut rest = ObjectWriter::new();
        rest.members_of(&meta, |name| name != meta_key::RELATED_TASK).ok()?;
        writer.raw("_meta", &rest.finish_json());
    }
    Some(writer.finish_json())
}
