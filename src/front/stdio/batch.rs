//! Batches, which exist in 2025-03-26 only (JSON-RPC 2.0, batch): many messages on one line, their answers on one.

use bytes::Bytes;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::legacy;
use super::outbox::Outbox;
use crate::front::legacy::{Outflow, Session, Taken};
use crate::protocol::{Credentials, Message, Rope};

/// The messages of one batch that want an answer.
#[derive(Debug, Default)]
pub(super) struct Batch(Vec<Outflow>);

impl Batch {
    /// Gives every message of a batch to the session, in order.
    pub(super) async fn take(session: &Session, messages: Vec<Message>) -> Self {
        let mut batch = Self::default();
        for message in messages {
            match session.take(message, Credentials::default()) {
                Taken::Runs(outflow) => batch.0.push(*outflow),
                Taken::Passes(passing) => passing.await,
                Taken::Done => {}
                Taken::Refused(error) => tracing::debug!(%error, "a message was ignored"),
            }
        }
        batch
    }

    /// Waits for all answers and sends them, unless `cut` is cancelled.
    pub(super) async fn run(self, outbox: Outbox, cut: CancellationToken) {
        let pumped = join_all(self.0.into_iter().map(|outflow| legacy::pump(outflow, &outbox)));
        let answers = tokio::select! {
            () = cut.cancelled() => return,
            answers = pumped => answers,
        };
        let mut answers = answers.into_iter().flatten();
        let Some(first) = answers.next() else { return };
        let mut text = Rope::from(Bytes::from_static(b"["));
        text.append(first);
        for answer in answers {
            text.push(Bytes::from_static(b","));
            text.append(answer);
        }
        text.push(Bytes::from_static(b"]"));
        outbox.send(text).await;
    }
}
