//! `subscriptions/listen` (2026-07-28, subscriptions): a stream that stays open until the client leaves, the proxy
//! stops, or the server ends it.
//!
//! The service below is asked as for any call. What it says comes in at the server's speed, and goes out at the
//! client's: in between is a [`mailbox`], which keeps only the newest state of each thing.

mod filter;
mod mailbox;

use std::future::Future;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::filter::ACKNOWLEDGED;
use self::mailbox::{Mail, Mailbox, Postman};
use super::body::Pieces;
use super::refusal::Refusal;
use super::running;
use super::sse::{self, KeepAlive};
use crate::jobs::Jobs;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Event, Json, JsonError, Method, Notification, Outcome, Reply, RequestId, Rope, message, meta_key,
};

pub(super) use self::filter::Filter;

/// An open subscription.
pub(super) struct Subscription {
    id: RequestId,
    pieces: Pieces,
    keep_alive: KeepAlive,
    state: State,
    /// The place among the open streams.
    _place: OwnedSemaphorePermit,
}

/// Where a subscription is.
enum State {
    /// Open.
    Open {
        /// What comes from the server.
        source: Source,
        /// Resolves when the proxy stops.
        stopping: BoxFuture<'static, ()>,
    },
    /// The last message is among the pieces.
    Over,
}

/// Where notifications come from.
enum Source {
    /// The server, through a job that ends with the guard.
    Server {
        /// What it said.
        mailbox: Mailbox,
        _guard: DropGuard,
    },
    /// Nowhere: the server has nothing to tell.
    Nowhere,
}

/// What every subscription needs.
pub(super) struct Terms {
    /// The place among the open streams.
    pub(super) place: OwnedSemaphorePermit,
    /// How long the stream may be silent.
    pub(super) keep_alive: Duration,
    /// Where its job runs; a stop of these ends the subscription gracefully.
    pub(super) jobs: Jobs,
}

/// How long the service may take to say what it honours. After that the acknowledgment says: nothing. What the
/// server tells later is passed on all the same.
const PATIENCE: Duration = Duration::from_secs(2);

impl Subscription {
    /// The subscription of the request `id`, which begins with its acknowledgment. Refused if the service refuses it.
    pub(super) async fn open(
        id: RequestId,
        filter: Filter,
        reply: impl Future<Output = Reply> + Send + 'static,
        terms: Terms,
    ) -> Result<Self, Refusal> {
        let (postman, mut mailbox) = mailbox::mailbox();
        let left = CancellationToken::new();
        let guard = left.clone().drop_guard();
        terms.jobs.spawn("subscription", async move {
            tokio::select! {
                () = left.cancelled() => {}
                () = deliver(reply, filter, postman) => {}
            }
        });
        let mut pieces = Pieces::default();
        let mut acknowledge = |honoured| sse::push(&mut pieces, acknowledgment(&id, honoured));
        let mut ended = None;
        match tokio::time::timeout(PATIENCE, mailbox.next()).await {
            Ok(Mail::Notification(notification)) if notification.method == ACKNOWLEDGED => {
                acknowledge(notification.params.and_then(|params| params.member("notifications")));
            }
            Ok(Mail::Notification(notification)) => {
                acknowledge(None);
                push(&mut pieces, &id, &notification);
            }
            Ok(Mail::End(outcome)) => match running::refusal(&Method::Listen, &outcome) {
                // A server without subscriptions has nothing to tell, ever; the client need not ask again.
                Some((_, error)) if error.code() == code::METHOD_NOT_FOUND => {
                    acknowledge(None);
                    ended = Some(None);
                }
                Some((status, error)) => return Err(Refusal::rpc(status, error)),
                None => {
                    acknowledge(None);
                    ended = Some(Some(outcome));
                }
            },
            Err(_) => acknowledge(None),
        }
        let source = if ended.is_some() { Source::Nowhere } else { Source::Server { mailbox, _guard: guard } };
        let jobs = terms.jobs;
        let stopping = Box::pin(async move { jobs.stopping().await });
        let mut subscription = Self {
            id,
            pieces,
            keep_alive: KeepAlive::new(terms.keep_alive),
            state: State::Open { source, stopping },
            _place: terms.place,
        };
        if let Some(Some(outcome)) = ended {
            subscription.end(&outcome);
        }
        Ok(subscription)
    }

    /// The next bytes; `None` after the last.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop() {
                self.keep_alive.reset();
                return Poll::Ready(Some(piece));
            }
            let State::Open { source, stopping } = &mut self.state else { return Poll::Ready(None) };
            if stopping.as_mut().poll(context).is_ready() {
                self.complete();
                continue;
            }
            match source.poll(context) {
                Poll::Ready(Mail::Notification(notification)) => push(&mut self.pieces, &self.id, &notification),
                Poll::Ready(Mail::End(outcome)) => self.end(&outcome),
                Poll::Pending => return Poll::Ready(Some(ready!(self.keep_alive.poll(context)))),
            }
        }
    }

    /// Whether all bytes were taken.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over) && self.pieces.is_empty()
    }

    /// Ends it as the service did: gracefully, or by an error that tells the client to subscribe again.
    fn end(&mut self, outcome: &Outcome) {
        match running::refusal(&Method::Listen, outcome) {
            None => self.complete(),
            Some((_, error)) => {
                sse::push(&mut self.pieces, message::error(Some(&self.id), &error));
                self.state = State::Over;
            }
        }
    }

    /// Ends it gracefully.
    fn complete(&mut self) {
        sse::push(&mut self.pieces, completion(&self.id));
        self.state = State::Over;
    }
}

impl Source {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Mail> {
        match self {
            Self::Server { mailbox, .. } => mailbox.poll(context),
            Self::Nowhere => Poll::Pending,
        }
    }
}

/// Takes what the service says, at its own speed.
async fn deliver(reply: impl Future<Output = Reply>, filter: Filter, postman: Postman) {
    let mut reply = reply.await;
    while let Some(event) = reply.next().await {
        match event {
            Event::Notification(notification) if filter.admits(&notification) => postman.post(notification),
            Event::Done(outcome) => return postman.end(outcome),
            // Whatever belongs to a call has no place here.
            Event::Notification(_) | Event::Progress(_) | Event::Log(_) | Event::Ask(_) | Event::Attached(_) => {}
        }
    }
}

/// Puts a notification behind the rest, tied to its subscription.
fn push(pieces: &mut Pieces, id: &RequestId, notification: &Notification) {
    if notification.method == ACKNOWLEDGED {
        // It came too late, or twice: there is one, at the beginning.
        return;
    }
    match tied(id, notification.params.as_ref()) {
        Ok(params) => sse::push(pieces, message::notification(&notification.method, Some(params))),
        Err(error) => tracing::debug!(%error, "a notification of a server cannot be read and was dropped"),
    }
}

/// The parameters, with the id of the subscription among their `_meta` and all else as it was.
fn tied(id: &RequestId, params: Option<&Json>) -> Result<Rope, JsonError> {
    let mut meta = ObjectWriter::new();
    meta.raw(meta_key::SUBSCRIPTION_ID, id.token());
    if let Some(theirs) = params.and_then(|params| params.member("_meta")).filter(Json::is_object) {
        meta.members_of(&theirs, |name| name != meta_key::SUBSCRIPTION_ID && name != meta_key::RELATED_TASK)?;
    }
    let mut writer = ObjectWriter::new();
    writer.rope("_meta", meta.finish());
    if let Some(params) = params {
        writer.members_of(params, |name| name != "_meta")?;
    }
    Ok(writer.finish())
}

fn subscription_meta(id: &RequestId) -> Rope {
    let mut meta = ObjectWriter::new();
    meta.raw(meta_key::SUBSCRIPTION_ID, id.token());
    meta.finish()
}

fn acknowledgment(id: &RequestId, honoured: Option<Json>) -> Rope {
    let honoured = honoured.filter(Json::is_object).unwrap_or_else(Json::empty_object);
    let mut params = ObjectWriter::new();
    params.rope("_meta", subscription_meta(id)).raw("notifications", &honoured);
    message::notification(ACKNOWLEDGED, Some(params.finish()))
}

/// Ends a subscription gracefully.
fn completion(id: &RequestId) -> Rope {
    let mut result = ObjectWriter::new();
    result.string("resultType", "complete").rope("_meta", subscription_meta(id));
    message::result(id, result.finish())
}
