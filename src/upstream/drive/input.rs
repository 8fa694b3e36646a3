//! What a modern server asks in a result or in a task of its own: a map of questions, each under a key.

use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Abilities, Answer, Ask, Asking, Event, Json, Question, QuestionKind, ReplySender, RpcError};
use crate::task::MOST_QUESTIONS;

/// Questions, in the order in which they were asked.
#[derive(Debug)]
pub(super) struct Questions(pub(super) Vec<(String, Question)>);

impl Questions {
    /// Reads `inputRequests` (2026-07-28, multi round-trip requests). `None` if that is malformed, or too much.
    pub(super) fn read(requests: &Json) -> Option<Self> {
        let members = requests.members().ok().filter(|members| members.len() <= MOST_QUESTIONS)?;
        let mut questions = Vec::with_capacity(members.len());
        for (key, raw) in members.iter() {
            let request = Json::of(requests.bytes(), raw);
            let kind = QuestionKind::of(&request.member("method")?.read::<String>().ok()?)?;
            let params = request.member("params").unwrap_or_else(Json::empty_object);
            if !params.is_object() {
                return None;
            }
            questions.push((key.to_owned(), Question { kind, params, key: Some(key.to_owned()) }));
        }
        Some(Self(questions))
    }

    /// An error if one of them is nothing that this client can be asked.
    pub(super) fn check(&self, abilities: &Abilities) -> Result<(), RpcError> {
        let stranger = self.0.iter().find(|(_, question)| !abilities.covers(question));
        stranger.map_or(Ok(()), |(_, question)| Err(RpcError::cannot_be_asked(question)))
    }
}

/// Puts a question to the caller.
pub(super) fn put(question: Question, sender: &ReplySender) -> (QuestionKind, Asking) {
    let kind = question.kind;
    let (ask, asking) = Ask::new(question);
    sender.event(Event::Ask(ask));
    (kind, asking)
}

/// The response for the server. There is none that says "the client cannot": an elicitation is cancelled, for the
/// others the call has to end.
pub(super) fn response(kind: QuestionKind, answer: Answer) -> Result<Json, RpcError> {
    match (answer, kind) {
        (Answer::Result(response), _) => Ok(response),
        (Answer::Error(_), QuestionKind::Elicitation) => {
            let mut cancelled = ObjectWriter::new();
            cancelled.string("action", "cancel");
            Ok(cancelled.finish_json())
        }
        (Answer::Undeclared(error), _) | (Answer::Error(error), QuestionKind::Sampling | QuestionKind::Roots) => {
            Err(error)
        }
    }
}
