//! Batches, which exist in 2025-03-26 only (JSON-RPC 2.0, batch): many messages on one line, their answers on one.

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::legacy;
use super::outbox::Outbox;
use crate::front::batch::{self, Element};
use crate::front::legacy::{Outflow, Session, Taken};
use crate::protocol::{Credentials, Rope};

/// The messages of one batch that want an answer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    running: Vec<Outflow>,
    /// The answers to what was none that a batch may have.
    refused: Vec<Rope>,
}

impl Batch {
    /// Gives every message of a batch to the session, in order.
    pub(super) async fn take(session: &Session, elements: Vec<Element>) -> Self {
        let mut batch = Self::default();
        for element in elements {
            let message = match element {
                Element::Message(message) => message,
                Element::Refused(answer) => {
                    batch.refused.push(answer);
                    continue;
                }
                Element::Broken(message, answer) => {
                    batch.refused.push(answer);
                    message
                }
            };
            match session.take(message, Credentials::default()) {
                Taken::Runs(outflow) => batch.running.push(*outflow),
                Taken::Passes(passing) => passing.await,
                Taken::Done => {}
                Taken::Refused(error) => tracing::debug!(%error, "a message was ignored"),
            }
        }
        batch
    }

    /// Waits for all answers and sends them, unless `cut` is cancelled.
    pub(super) async fn run(self, outbox: Outbox, cut: CancellationToken) {
        let pumped = join_all(self.running.into_iter().map(|outflow| legacy::pump(outflow, &outbox)));
        let answers = tokio::select! {
            () = cut.cancelled() => return,
            answers = pumped => answers,
        };
        let answers: Vec<_> = answers.into_iter().flatten().chain(self.refused).collect();
        if !answers.is_empty() {
            outbox.send(batch::answers(answers)).await;
        }
    }
}
