//! The tools as `tools/list` shows them.

use serde_json::json;

use super::Kind;
use crate::config::CompanionNames;
use crate::protocol::Json;

/// All three.
pub(super) fn all(names: &CompanionNames) -> [Json; 3] {
    [Kind::Check, Kind::Cancel, Kind::Answer].map(|kind| definition(kind, names))
}

/// What is added to the description of a tool that may answer with a handle.
pub(super) fn sentence(names: &CompanionNames) -> String {
    format!(
        "If this takes long it answers with a job handle in the place of its result: then call {} with that handle, \
         and do not call this again.",
        names.check
    )
}

fn definition(kind: Kind, names: &CompanionNames) -> Json {
    let CompanionNames { check, cancel, answer } = names;
    let job = json!({ "type": "string", "description": "The job handle, as the tool that was called gave it." });
    let definition = match kind {
        Kind::Check => json!({
            "name": check,
            "title": "Check a job",
            "description": format!(
                "Gives the result of a job that another tool has started and that goes on in the background, as soon as \
                 it has ended; until then says how far it is, or what it asks (see {answer})."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "job": job,
                    "wait_seconds": {
                        "type": "number", "minimum": 0, "default": 20,
                        "description": "How long to wait for the end of the job. It may be less than this.",
                    },
                },
                "required": ["job"],
            },
            "annotations": { "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false },
        }),
        Kind::Cancel => json!({
            "name": cancel,
            "title": "Cancel a job",
            "description": "Stops a job that goes on in the background. Part of its work may be done by then.",
            "inputSchema": { "type": "object", "properties": { "job": job }, "required": ["job"] },
            "annotations": {
                "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false,
            },
        }),
        Kind::Answer => json!({
            "name": answer,
            "title": "Answer a job",
            "description": format!(
                "Answers a question of a job that goes on in the background. {check} shows the questions, and what \
                 each wants."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "job": job,
                    "question": { "type": "string", "description": "The question; may be left out if there is only one." },
                    "action": { "type": "string", "enum": ["accept", "decline", "cancel"], "default": "accept" },
                    "content": {
                        "type": "object",
                        "description": "The answer itself, where the action is accept, as the question wants it.",
                    },
                },
                "required": ["job"],
            },
            "annotations": { "readOnlyHint": false, "destructiveHint": false, "openWorldHint": false },
        }),
    };
    Json::from_value(&definition)
}
