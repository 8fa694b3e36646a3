//! Questions of servers for clients of the other era.

use super::without;
use crate::protocol::Question;
use crate::protocol::ask::QuestionKind;
use crate::protocol::json::Json;
use crate::protocol::rope::ObjectWriter;

/// What tells an elicitation by URL from others: 2025-11-25 demands it, 2026-07-28 has taken it away (changelog).
const ELICITATION_ID: &str = "elicitationId";

/// The `params` of a question as a client of 2026-07-28 is to see them.
pub fn question(kind: QuestionKind, params: &Json) -> Json {
    if is_by_url(kind, params) && params.member(ELICITATION_ID).is_some() {
        return without(params, ELICITATION_ID).unwrap_or_else(|_| params.clone());
    }
    params.clone()
}

/// The `params` of a question as a client of 2025-11-25 or older is to see them. `id` is what an elicitation by URL gets as
/// `elicitationId` if it has none; servers of 2026-07-28 send none.
pub fn legacy_question(kind: QuestionKind, params: &Json, id: &str) -> Json {
    let mut writer = ObjectWriter::new();
    if !is_by_url(kind, params)
        || params.member(ELICITATION_ID).is_some()
        || writer.members_of(params, |_| true).is_err()
    {
        return params.clone();
    }
    writer.string(ELICITATION_ID, id);
    writer.finish_json()
}

fn is_by_url(kind: QuestionKind, params: &Json) -> bool {
    kind == QuestionKind::Elicitation && Question { kind, params: params.clone(), key: None }.is_by_url()
}
