//! What a subscription says, message by message; the same over HTTP and over stdio.

use std::collections::VecDeque;
use std::future::Future;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::filter::{ACKNOWLEDGED, Filter};
use super::mailbox::{self, Mail, Mailbox, Postman};
use crate::front::refusal::Refusal;
use crate::front::running;
use crate::jobs::Jobs;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Event, Json, JsonError, Method, Notification, Outcome, Reply, RequestId, Rope, message, meta_key,
};

/// The messages of one subscription.
pub(in crate::front) struct Feed {
    id: RequestId,
    ready: VecDeque<Rope>,
    state: State,
}

/// Where a subscription is.
enum State {
    /// Open. To `Over` when the server ends it or the proxy stops.
    Open {
        /// What comes from the server.
        source: Source,
        /// Resolves when the proxy stops.
        stopping: BoxFuture<'static, ()>,
    },
    /// The last message is ready, or was taken.
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

/// How long the service may take to say what it honours. After that the acknowledgment says: nothing. What the
/// server tells later is passed on all the same.
const PATIENCE: Duration = Duration::from_secs(2);

impl Feed {
    /// The subscription of the request `id`, which begins with its acknowledgment. Refused if the service refuses it.
    pub(in crate::front) async fn open(
        id: RequestId,
        filter: Filter,
        reply: impl Future<Output = Reply> + Send + 'static,
        jobs: Jobs,
    ) -> Result<Self, Refusal> {
        let (postman, mut mailbox) = mailbox::mailbox();
        let left = CancellationToken::new();
        let guard = left.clone().drop_guard();
        jobs.spawn("subscription", async move {
            tokio::select! {
                () = left.cancelled() => {}
                () = deliver(reply, filter, postman) => {}
            }
        });
        let mut ready = VecDeque::new();
        let mut ended = None;
        match tokio::time::timeout(PATIENCE, mailbox.next()).await {
            Ok(Mail::Notification(notification)) if notification.method == ACKNOWLEDGED => {
                let honoured = notification.params.and_then(|params| params.member("notifications"));
                ready.push_back(acknowledgment(&id, honoured));
            }
            Ok(Mail::Notification(notification)) => {
                ready.push_back(acknowledgment(&id, None));
                ready.extend(told(&id, &notification));
            }
            Ok(Mail::End(outcome)) => match running::refusal(&Method::Listen, &outcome) {
                // A server without subscriptions has nothing to tell, ever; the client need not ask again.
                Some((_, error)) if error.code() == code::METHOD_NOT_FOUND => {
                    ready.push_back(acknowledgment(&id, None));
                    ended = Some(None);
                }
                Some((status, error)) => return Err(Refusal::rpc(status, error)),
                None => {
                    ready.push_back(acknowledgment(&id, None));
                    ended = Some(Some(outcome));
                }
            },
            Err(_) => ready.push_back(acknowledgment(&id, None)),
        }
        let source = if ended.is_some() { Source::Nowhere } else { Source::Server { mailbox, _guard: guard } };
        let stopping = Box::pin(async move { jobs.stopping().await });
        let mut feed = Self { id, ready, state: State::Open { source, stopping } };
        if let Some(Some(outcome)) = ended {
            feed.end(&outcome);
        }
        Ok(feed)
    }

    /// The next message; `None` after the last.
    pub(in crate::front) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Rope>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Poll::Ready(Some(message));
            }
            let State::Open { source, stopping } = &mut self.state else { return Poll::Ready(None) };
            if stopping.as_mut().poll(context).is_ready() {
                self.complete();
                continue;
            }
            match std::task::ready!(source.poll(context)) {
                Mail::Notification(notification) => self.ready.extend(told(&self.id, &notification)),
                Mail::End(outcome) => self.end(&outcome),
            }
        }
    }

    /// The next message; `None` after the last. Cancel safe.
    pub(in crate::front) async fn next(&mut self) -> Option<Rope> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Whether all messages were taken.
    pub(in crate::front) fn is_over(&self) -> bool {
        matches!(self.state, State::Over) && self.ready.is_empty()
    }

    /// Ends it as the service did: gracefully, or by an error that tells the client to subscribe again.
    fn end(&mut self, outcome: &Outcome) {
        match running::refusal(&Method::Listen, outcome) {
            None => self.complete(),
            Some((_, error)) => {
                self.ready.push_back(message::error(Some(&self.id), &error));
                self.state = State::Over;
            }
        }
    }

    /// Ends it gracefully.
    fn complete(&mut self) {
        self.ready.push_back(completion(&self.id));
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
            Event::Notification(_)
            | Event::Progress(_)
            | Event::Log(_)
            | Event::Ask(_)
            | Event::Attached(_)
            | Event::Paused
            | Event::Anchored(_)
            | Event::Began => {}
        }
    }
}

/// A notification, tied to its subscription; `None` if there is nothing to tell.
fn told(id: &RequestId, notification: &Notification) -> Option<Rope> {
    if notification.method == ACKNOWLEDGED {
        // It came too late, or twice: there is one, at the beginning.
        return None;
    }
    match tied(id, notification.params.as_ref()) {
        Ok(params) => Some(message::notification(&notification.method, Some(params))),
        Err(error) => {
            tracing::debug!(%error, "a notification of a server cannot be read and was dropped");
            None
        }
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
