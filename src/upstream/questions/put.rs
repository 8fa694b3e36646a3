//! Putting a question to whoever can answer it, until it is answered or not wanted any more.

use std::future::Future;

use tokio_util::sync::CancellationToken;

use super::call::Addressee;
use super::floor::{Floor, Origin};
use super::refusal;
use crate::protocol::message::{self, RequestId};
use crate::protocol::{Answer, Ask, Asking, Event, Failure, Question, Rope};

/// A question in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) floor: Floor,
    pub(super) number: u64,
}

/// A question that is to be put to somebody.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) entry: Entry,
    pub(super) addressee: Addressee,
    /// Whether the session asks it, and no call.
    pub(super) is_of_session: bool,
    /// The server does not want an answer any more.
    pub(super) withdrawn: CancellationToken,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.floor.close(self.number);
    }
}

/// Sees a question through that was put. The answer goes out by `way`, with the call whose client gave it, if it is no refusal.
pub(super) async fn see_through<W, F>(
    mut opened: Opened,
    asking: Asking,
    question: Question,
    id: RequestId,
    origin: Origin,
    way: W,
) where
    W: FnOnce(Rope, Option<u64>) -> F,
    F: Future<Output = Result<(), Failure>>,
{
    let answer = match opened.answer(asking, &question, origin).await {
        Some(Answer::Undeclared(error)) => {
            opened.entry.floor.undeclared(&opened.addressee, question.kind, error);
            Some(Answer::Error(refusal::undeclared(&question)))
        }
        answer => answer,
    };
    let Opened { entry, withdrawn, .. } = opened;
    let call = entry.floor.call_asked(entry.number);
    let told = match answer {
        Some(Answer::Result(result)) => way(message::result(&id, Rope::from(result)), call),
        Some(Answer::Error(error) | Answer::Undeclared(error)) => way(message::error(Some(&id), &error), None),
        None => return tracing::debug!(kind = %question.kind, "the server withdrew a question"),
    };
    if withdrawn.is_cancelled() {
        // Before the answer was on its way, where it could have been found.
        return tracing::debug!(kind = %question.kind, "the server withdrew a question that was just answered");
    }
    // It stays in the table until the server has the answer: it may withdraw the question up to then.
    entry.floor.is_answered(entry.number);
    if let (Err(failure), Some(call)) = (told.await, call) {
        entry.floor.lose(call, failure);
    }
}

impl Opened {
    /// Puts the question to whoever can answer it now.
    pub(super) fn put(&self, question: &Question) -> Asking {
        let question = question.clone();
        let (ask, asking) = if self.is_of_session { Ask::of_session(question) } else { Ask::new(question) };
        self.addressee.events.event(Event::Ask(ask));
        asking
    }

    /// The answer; `None` if it is not wanted any more.
    async fn answer(&mut self, mut asking: Asking, question: &Question, origin: Origin) -> Option<Answer> {
        loop {
            let answer = tokio::select! {
                biased;
                () = self.withdrawn.cancelled() => return None,
                answer = asking.answer() => Some(answer),
                () = self.addressee.fate.over() => None,
            };
            // Another process goes on with the call, and is asked again.
            if self.addressee.events.is_left_running() && !matches!(answer, Some(Answer::Result(_))) {
                return None;
            }
            match answer {
                Some(answer @ Answer::Result(_)) => return Some(answer),
                // A caller that leaves drops what it was asked.
                Some(answer @ (Answer::Error(_) | Answer::Undeclared(_))) if self.addressee.is_there() => {
                    return Some(answer);
                }
                Some(Answer::Error(_) | Answer::Undeclared(_)) | None => {}
            }
            drop(asking);
            let next = match origin {
                Origin::Call(_) => None,
                Origin::Session | Origin::Channel => self.entry.floor.move_on(self.entry.number, question, origin),
            };
            match next {
                Some(next) => {
                    self.addressee = next;
                    asking = self.put(question);
                }
                None => return Some(Answer::Error(refusal::ended(question))),
            }
        }
    }
}
