//! What a server is told whose question is refused, so that whoever reads its log knows what to do.

use crate::protocol::error::code;
use crate::protocol::{Question, RpcError};

/// The client did not declare that it can be asked this.
pub(super) fn undeclared(question: &Question) -> RpcError {
    let (kind, capability) = (question.kind, question.kind.capability());
    if question.is_by_url() {
        // 2025-11-25, elicitation, error handling: a mode that was not declared.
        let text = "the client did not declare the capability elicitation.url, so the user cannot be sent to a URL";
        return RpcError::new(code::INVALID_PARAMS, text);
    }
    if question.has_tools() {
        let text = "the client did not declare the capability sampling.tools, so its model cannot be given tools";
        return RpcError::new(code::INVALID_PARAMS, text);
    }
    let text = format!("{kind} is refused: the client did not declare the capability {capability} on its request");
    RpcError::new(code::METHOD_NOT_FOUND, text)
}

/// No call runs that could have asked.
pub(super) fn nobody(question: &Question) -> RpcError {
    let kind = question.kind;
    RpcError::new(code::INTERNAL, format!("{kind} is refused: no call runs whose client could be asked"))
}

/// The call that asked has ended.
pub(super) fn ended(question: &Question) -> RpcError {
    RpcError::new(code::INTERNAL, format!("{} is refused: the call that it came with has ended", question.kind))
}

/// The request that it came with has no way to ask its client.
pub(super) fn wrong_method(question: &Question) -> RpcError {
    let kind = question.kind;
    let text = format!("{kind} is refused: only tools/call, prompts/get and resources/read can ask the client");
    RpcError::new(code::INTERNAL, text)
}

/// It cannot be told which of several callers is asked.
pub(super) fn ambiguous(question: &Question) -> RpcError {
    let kind = question.kind;
    let text = format!(
        "{kind} is refused: several callers share this process or session, and it cannot be told which of them is \
         asked; set share = false for the server in Raincheck's config, or serial = true"
    );
    RpcError::new(code::INTERNAL, text)
}

/// Too many are open.
pub(super) fn too_many(question: &Question, most: usize) -> RpcError {
    let text = format!("{} is refused: {most} questions are open, the most that a call may have", question.kind);
    RpcError::new(code::INTERNAL, text)
}

/// It is too long.
pub(super) fn too_long(method: &str, most: usize) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("{method} is refused: its params have more than {most} bytes"))
}

/// Its parameters are no object.
pub(super) fn malformed(method: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("{method} is refused: its params are no object"))
}
