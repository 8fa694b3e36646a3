//! Copies of a retry that wait with it: the client, or the network, sent it again.

use super::form::Form;
use super::{Promotion, Way};
use crate::protocol::reply::Delivery;
use crate::protocol::{Abilities, Handle, Outcome, Question, ReplySender, Rope, RpcError};
use crate::task::OpenQuestion;

/// A copy of a retry. It gets the outcome of the same run, as far as its own request declares that it can take it.
#[derive(Debug)]
pub(super) struct Twin {
    pub(super) sender: ReplySender,
    /// How the call would go on for it alone.
    pub(super) way: Way,
}

impl Twin {
    /// Asks these questions in a round, or says that it cannot be asked.
    pub(super) fn asked(self, questions: &[OpenQuestion], round: &Rope) {
        self.sender.done(round_for(&self.way.abilities, questions, round));
    }

    /// Gives a handle out; the end that learns of its delivery is `None` if this request may not get one.
    pub(super) fn handed(self, write: &dyn Fn(&Form) -> Rope) -> Option<tokio::sync::oneshot::Receiver<()>> {
        match self.way.promotion {
            Promotion::Never => {
                self.sender.done(Outcome::Error(RpcError::tasks_not_declared()));
                None
            }
            Promotion::After(_) | Promotion::AtOnce => {
                let (delivery, delivered) = Delivery::new();
                self.sender.done(Outcome::Task(Handle { created: write(&self.way.form), delivery }));
                Some(delivered)
            }
        }
    }
}

/// What a request that declares these abilities gets when the run asks this: the round, or -32021, as only what the very
/// request declares may be asked of it (2026-07-28, multi round-trip requests, server requirements).
pub(super) fn round_for(abilities: &Abilities, questions: &[OpenQuestion], round: &Rope) -> Outcome {
    match questions.iter().map(question).find(|question| !abilities.covers(question)) {
        Some(undeclared) => Outcome::Error(RpcError::cannot_be_asked(&undeclared)),
        None => Outcome::Shaped(round.clone()),
    }
}

/// Whether a request that declares these abilities can be asked all this.
pub(super) fn covers_all(abilities: &Abilities, questions: &[OpenQuestion]) -> bool {
    questions.iter().all(|open| abilities.covers(&question(open)))
}

fn question(open: &OpenQuestion) -> Question {
    Question { kind: open.kind, params: open.params.clone(), key: None }
}
