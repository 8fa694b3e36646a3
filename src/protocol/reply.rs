//! What comes back from a call: a short stream of events that ends in one outcome.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::ask::Ask;
use super::error::RpcError;
use super::failure::Failure;
use super::json::Json;
use super::progress::Progress;
use super::rope::Rope;

/// What happens in the course of a call.
#[derive(Debug)]
pub enum Event {
    /// The server got on with it. May be dropped when nobody reads.
    Progress(Progress),
    /// The server logged something for this call: the `params` of `notifications/message`. May be dropped.
    Log(Json),
    /// The server asks the client. Never dropped silently: dropping the [`Ask`] refuses it.
    Ask(Ask),
    /// The server said something else, outside of the call ([`Method::Attach`](super::Method::Attach), `Listen`).
    /// May be dropped when nobody reads.
    Notification(Notification),
    /// The upstream session of a legacy client is open: the server's result of `initialize`, word for word.
    Attached(Json),
    /// The end. Nothing comes after it.
    Done(Outcome),
}

/// A notification of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The method, `notifications/...`.
    pub method: String,
    /// Its parameters, as the server spelled them.
    pub params: Option<Json>,
}

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    /// With a result, as the server spelled it.
    Result(Json),
    /// With a result that is put together from pieces, in the shape the client wants.
    Shaped(Rope),
    /// With a JSON-RPC error of the server (word for word) or of the protocol.
    Error(RpcError),
    /// It failed on our side of the server.
    Failed(Failure),
    /// It goes on as a task; this is the handle.
    Task(Handle),
}

/// The handle of a task on its way to the client.
#[derive(Debug)]
pub struct Handle {
    /// The `CreateTaskResult` object.
    pub created: Rope,
    /// To be told when the last byte of it was given to the socket. Dropped before that, the
    /// client never had the handle.
    pub delivery: Delivery,
}

/// Tells the run whether its handle went out.
#[derive(Debug)]
pub struct Delivery(oneshot::Sender<()>);

/// The events of one call. Dropping it before the outcome abandons the call: the server is told to
/// stop, as its era wants that, and a later answer is dropped.
#[derive(Debug)]
pub struct Reply(Source);

#[derive(Debug)]
enum Source {
    /// The outcome was known at once. To `Over` once it was taken.
    Ready(Option<Outcome>),
    /// Events are still to come. To `Over` with the outcome.
    Open(OpenReply),
    /// The outcome was taken.
    Over,
}

#[derive(Debug)]
struct OpenReply {
    events: mpsc::Receiver<Event>,
    outcome: oneshot::Receiver<Outcome>,
    /// The outcome, while events that came before it are still to be taken.
    ended: Option<Outcome>,
    cancel: CancellationToken,
}

/// The end of a [`Reply`] that the server's side holds. Dropping it without an outcome ends the call
/// as outcome unknown.
#[derive(Debug)]
pub struct ReplySender {
    events: EventSender,
    outcome: oneshot::Sender<Outcome>,
    cancel: CancellationToken,
}

/// Sends events of a call, apart from its [`ReplySender`]: a server asks at times on another stream than the call's.
#[derive(Clone, Debug)]
pub struct EventSender(mpsc::Sender<Event>);

/// Events that may wait in a reply that nobody reads; more are dropped.
const WAITING_EVENTS: usize = 32;

/// Places among them that progress and logs leave free for all else.
const RESERVED: usize = 16;

/// Bytes of a log line that is passed on: more of them wait than one reply may take memory for.
const LOG_LINE: usize = 1 << 20;

impl Reply {
    /// A reply whose outcome is known.
    pub fn ready(outcome: Outcome) -> Self {
        Self(Source::Ready(Some(outcome)))
    }

    /// A reply whose events are still to come, and the end that sends them.
    pub fn channel() -> (ReplySender, Self) {
        let (events, events_out) = mpsc::channel(WAITING_EVENTS);
        let (outcome, outcome_out) = oneshot::channel();
        let cancel = CancellationToken::new();
        let open = OpenReply { events: events_out, outcome: outcome_out, ended: None, cancel: cancel.clone() };
        (ReplySender { events: EventSender(events), outcome, cancel }, Self(Source::Open(open)))
    }

    /// Asks the server to stop, and goes on listening: the answer may still win.
    pub fn cancel(&self) {
        if let Source::Open(open) = &self.0 {
            open.cancel.cancel();
        }
    }

    /// The next event; `None` after the outcome. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The outcome; other events are dropped.
    pub async fn outcome(mut self) -> Outcome {
        while let Some(event) = self.next().await {
            if let Event::Done(outcome) = event {
                return outcome;
            }
        }
        Outcome::Failed(Failure::outcome_unknown("the reply was read twice"))
    }

    /// Polls for the next event.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let event = match &mut self.0 {
            Source::Over => return Poll::Ready(None),
            Source::Ready(outcome) => outcome.take().map(Event::Done),
            Source::Open(open) => std::task::ready!(open.poll_next(context)),
        };
        if matches!(event, None | Some(Event::Done(_))) {
            self.0 = Source::Over;
        }
        Poll::Ready(event)
    }
}

impl OpenReply {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.ended.is_none() {
            if let Poll::Ready(Some(event)) = self.events.poll_recv(context) {
                return Poll::Ready(Some(event));
            }
            let outcome = std::task::ready!(std::pin::Pin::new(&mut self.outcome).poll(context));
            let lost = || Outcome::Failed(Failure::outcome_unknown("the connection to the server ended"));
            self.ended = Some(outcome.unwrap_or_else(|_| lost()));
        }
        // Events that were sent before the outcome come out before it.
        match self.events.try_recv() {
            Ok(event) => Poll::Ready(Some(event)),
            Err(_) => Poll::Ready(self.ended.take().map(Event::Done)),
        }
    }
}

impl Drop for OpenReply {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl ReplySender {
    /// Sends an event; dropped if the reader is behind, or if it is a log line that is huge. A question that is dropped
    /// is refused. An outcome is sent with [`ReplySender::done`].
    pub fn event(&self, event: Event) {
        self.events.event(event);
    }

    /// The way for events, to be used apart from this sender.
    pub fn events(&self) -> EventSender {
        self.events.clone()
    }

    /// Ends the reply.
    pub fn done(self, outcome: Outcome) {
        // The reader may have gone; then nobody wants the outcome.
        let _ = self.outcome.send(outcome);
    }

    /// Resolves when the call is to be stopped: it was cancelled or abandoned. An answer that comes
    /// later is still wanted unless [`ReplySender::is_abandoned`].
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether the call is to be stopped.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// The token behind [`ReplySender::cancelled`], to be watched apart from this sender.
    pub fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Resolves when nobody waits for the outcome any more.
    pub async fn abandoned(&mut self) {
        self.outcome.closed().await;
    }

    /// Whether nobody waits for the outcome any more.
    pub fn is_abandoned(&self) -> bool {
        self.outcome.is_closed()
    }
}

impl EventSender {
    /// As [`ReplySender::event`].
    pub fn event(&self, event: Event) {
        let log_line = match &event {
            Event::Log(line) => Some(line.len()),
            Event::Notification(said) => Some(said.params.as_ref().map_or(0, Json::len)),
            Event::Progress(_) => Some(0),
            Event::Ask(_) | Event::Attached(_) | Event::Done(_) => None,
        };
        let is_chatter = match &event {
            Event::Progress(_) | Event::Log(_) => true,
            Event::Notification(said) => said.method == "notifications/message",
            Event::Ask(_) | Event::Attached(_) | Event::Done(_) => false,
        };
        if log_line.is_some_and(|len| len > LOG_LINE) || (is_chatter && self.0.capacity() <= RESERVED) {
            return;
        }
        let _ = self.0.try_send(event);
    }

    /// Whether nobody reads the events any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Delivery {
    /// A delivery, and the end that learns of it: `Ok` when the handle went out, `Err` when it was lost.
    pub fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// The last byte of the handle was given to the socket.
    pub fn delivered(self) {
        let _ = self.0.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Answer, Question, QuestionKind};
    use super::*;

    fn text(json: &'static str) -> Json {
        Json::parse(bytes::Bytes::from_static(json.as_bytes())).unwrap()
    }

    fn progress() -> Event {
        Event::Progress(Progress { progress: text("1"), total: None, message: None })
    }

    #[tokio::test]
    async fn events_come_before_the_outcome_and_nothing_after() {
        let (sender, mut reply) = Reply::channel();
        sender.event(progress());
        sender.done(Outcome::Result(text("{}")));
        assert!(matches!(reply.next().await, Some(Event::Progress(_))));
        assert!(matches!(reply.next().await, Some(Event::Done(Outcome::Result(_)))));
        assert!(reply.next().await.is_none());
    }

    #[tokio::test]
    async fn a_reader_that_is_behind_loses_progress_but_not_the_outcome() {
        let (sender, mut reply) = Reply::channel();
        for _ in 0..1000 {
            sender.event(progress());
        }
        sender.done(Outcome::Result(text("{}")));
        let mut seen = 0;
        while let Some(Event::Progress(_)) = reply.next().await {
            seen += 1;
        }
        assert_eq!(seen, WAITING_EVENTS - RESERVED);
    }

    #[tokio::test]
    async fn a_flood_of_progress_leaves_room_for_a_question() {
        let (sender, mut reply) = Reply::channel();
        for _ in 0..1000 {
            sender.event(progress());
        }
        let question = Question { kind: QuestionKind::Roots, params: text("{}"), key: None };
        let (ask, mut asking) = Ask::new(question);
        sender.event(Event::Ask(ask));
        while let Some(event) = reply.next().await {
            if let Event::Ask(ask) = event {
                ask.answer(Answer::Result(text("{}")));
                break;
            }
        }
        assert_eq!(asking.answer().await, Answer::Result(text("{}")));
    }

    #[tokio::test]
    async fn a_sender_that_vanishes_leaves_the_outcome_unknown() {
        let (sender, reply) = Reply::channel();
        drop(sender);
        let Outcome::Failed(failure) = reply.outcome().await else { panic!() };
        assert_eq!(failure.reason, super::super::failure::Reason::OutcomeUnknown);
    }

    #[tokio::test]
    async fn cancelling_keeps_listening_and_dropping_abandons() {
        let (sender, reply) = Reply::channel();
        reply.cancel();
        sender.cancelled().await;
        assert!(!sender.is_abandoned());
        drop(reply);
        assert!(sender.is_abandoned());
    }
}
