//! Batches, which exist in 2025-03-26 only (JSON-RPC 2.0, batch): many messages on one line, their answers on one.

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use super::{legacy, refused};
use crate::front::legacy::{Outflow, Session, Taken};
use crate::protocol::json::{self, Json};
use crate::protocol::{Credentials, Message, Rope};

/// The messages of one batch that want an answer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    answers: Vec<Rope>,
    running: Vec<Outflow>,
}

/// What the client sent: a batch, and the depth to which it may be nested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'a> {
    pub(super) line: &'a Bytes,
    pub(super) depth: usize,
}

impl Batch {
    /// Gives every message of a batch to the session, in order.
    pub(super) async fn take(session: &Session, sent: Sent<'_>) -> Self {
        let mut batch = Self::default();
        let elements = json::elements(sent.line).unwrap_or_default();
        for element in elements.iter() {
            let text = Json::of(sent.line, element).bytes().clone();
            if let Some(passing) = batch.take_one(session, &text, sent.depth) {
                passing.await;
            }
        }
        if batch.answers.is_empty() && elements.iter().next().is_none() {
            batch.answers.push(refused::empty_batch());
        }
        batch
    }

    fn take_one(&mut self, session: &Session, text: &Bytes, depth: usize) -> Option<BoxFuture<'static, ()>> {
        let message = match Message::parse(text, depth) {
            Ok(message) => message,
            Err(fault) => {
                self.answers.push(refused::unreadable(text, &fault));
                return None;
            }
        };
        match session.take(message, Credentials::default()) {
            Taken::Runs(outflow) => self.running.push(*outflow),
            Taken::Passes(passing) => return Some(passing),
            Taken::Done => {}
            Taken::Refused(error) => tracing::debug!(%error, "a message was ignored"),
        }
        None
    }

    /// Waits for all answers and sends them, unless `cut` is cancelled.
    pub(super) async fn run(self, outbox: Outbox, cut: CancellationToken) {
        let Self { mut answers, running } = self;
        let pumped = join_all(running.into_iter().map(|outflow| legacy::pump(outflow, &outbox)));
        tokio::select! {
            () = cut.cancelled() => return,
            pumped = pumped => answers.extend(pumped.into_iter().flatten()),
        }
        let Some(first) = answers.first_mut().map(std::mem::take) else { return };
        let mut text = Rope::from(Bytes::from_static(b"["));
        text.append(first);
        for answer in answers.into_iter().skip(1) {
            text.push(Bytes::from_static(b","));
            text.append(answer);
        }
        text.push(Bytes::from_static(b"]"));
        outbox.send(text).await;
    }
}
