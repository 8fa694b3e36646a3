//! Tasks of 2025-11-25, which are experimental in that revision, for its clients (`fallback = "legacy_tasks"`).
//!
//! They are the same tasks: made by the same runner, kept in the same store, read by whoever owns them in any other way.
//! Here are the shapes of that revision (2025-11-25, tasks), and what it does otherwise: the client says which calls are
//! tasks, `tasks/result` waits for the end, and on its stream the client is asked what the tool asks. Of progress and changes
//! of its tasks the client is told on the stream of its session, or where it waits for the result.

mod advert;
mod answers;
mod augmented;
mod follow;
mod list;
mod questions;
mod result;
mod seen;

pub(super) use self::advert::{offer, offers_any, with_support};
pub(super) use self::answers::{answer, is_ours};
pub(super) use self::augmented::{Asked, asked};
pub(super) use self::follow::Sessions;

use crate::config::{Fallback, Mode, ToolPolicy};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Json, JsonError, Rope, meta_key};
use crate::task::TaskId;

/// Whether calls of a tool may be tasks of 2025-11-25.
fn offers(policy: &ToolPolicy) -> bool {
    policy.fallback == Fallback::LegacyTasks && policy.mode != Mode::Sync
}

/// The object with the tie to its task in `_meta` (2025-11-25, tasks, related task metadata).
fn tied(object: &Json, id: TaskId) -> Result<Rope, JsonError> {
    tied_of(object, id, |_| true, |_| true)
}

/// The same, of those members and that of `_meta` which are to be kept.
fn tied_of(
    object: &Json,
    id: TaskId,
    keep: impl Fn(&str) -> bool,
    keep_meta: impl Fn(&str) -> bool,
) -> Result<Rope, JsonError> {
    let mut task = ObjectWriter::new();
    task.string("taskId", id.as_str());
    let mut meta = ObjectWriter::new();
    if let Some(given) = object.member("_meta").filter(Json::is_object) {
        meta.members_of(&given, |name| name != meta_key::RELATED_TASK && keep_meta(name))?;
    }
    meta.rope(meta_key::RELATED_TASK, task.finish());
    let mut whole = ObjectWriter::new();
    whole.members_of(object, |name| name != "_meta" && keep(name))?.rope("_meta", meta.finish());
    Ok(whole.finish())
}
