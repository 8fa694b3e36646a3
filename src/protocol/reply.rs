//! What comes back from a call: a short stream of events that ends in one outcome.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::{Notify, oneshot};

use super::error::RpcError;
use super::failure::Failure;
use super::json::Json;
use super::progress::Progress;
use super::rope::Rope;
use crate::jobs::{HeldJob, Jobs};

/// What happens in the course of a call.
#[derive(Debug)]
pub enum Event {
    /// The server got on with it. May be dropped when nobody reads.
    Progress(Progress),
    /// The server logged something for this call: the `params` of `notifications/message`. May be dropped.
    Log(Json),
    /// The end. Nothing comes after it.
    Done(Outcome),
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
///
/// It may hold the job of the call (see [`Reply::driven`]): whoever does not poll it steadily calls
/// [`Reply::send_to_background`].
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
    line: Arc<Line>,
    /// What brings the outcome about, if nobody else drives it.
    job: Option<HeldJob>,
}

/// The end of a [`Reply`] that the server's side holds. Dropping it without an outcome ends the call
/// as outcome unknown.
#[derive(Debug)]
pub struct ReplySender(Arc<Line>);

/// Whether a call is to be stopped, apart from its [`ReplySender`].
#[derive(Clone, Debug)]
pub struct Cancellation(Arc<Line>);

/// What both ends share.
#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    /// The reader cancelled or left.
    wish: Notify,
}

#[derive(Debug)]
struct State {
    events: VecDeque<Event>,
    end: End,
    reader: Reader,
    cancelled: bool,
}

/// To `Sent` or `Lost`, once, and to `Taken`.
#[derive(Debug)]
enum End {
    Open,
    Sent(Outcome),
    /// The sender was dropped.
    Lost,
    Taken,
}

#[derive(Debug)]
enum Reader {
    /// To be woken, if it waits.
    Here(Option<Waker>),
    Gone,
}

/// Events that may wait in a reply that nobody reads; more are dropped.
const WAITING_EVENTS: usize = 16;

/// Bytes of a log line that is passed on: more of them wait than one reply may take memory for.
const LOG_LINE: usize = 1 << 20;

impl Reply {
    /// A reply whose outcome is known.
    pub fn ready(outcome: Outcome) -> Self {
        Self(Source::Ready(Some(outcome)))
    }

    /// A reply whose events are still to come, and the end that sends them.
    pub fn channel() -> (ReplySender, Self) {
        let state = State { events: VecDeque::new(), end: End::Open, reader: Reader::Here(None), cancelled: false };
        let line = Arc::new(Line { state: Mutex::new(state), wish: Notify::new() });
        (ReplySender(Arc::clone(&line)), Self(Source::Open(OpenReply { line, job: None })))
    }

    /// A reply to a call that the job which `make` makes sees through. The job is one of `jobs`; if those are driven
    /// by who waits for them, it goes on while the reply is polled, and in the background once the reply was
    /// dropped or has given the outcome out.
    pub fn driven<F>(jobs: &Jobs, name: &'static str, make: impl FnOnce(ReplySender) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, mut reply) = Self::channel();
        let job = jobs.hold(name, make(sender));
        if let Source::Open(open) = &mut reply.0 {
            open.job = job;
        }
        reply
    }

    /// Asks the server to stop, and goes on listening: the answer may still win.
    pub fn cancel(&self) {
        if let Source::Open(open) = &self.0 {
            open.line.state().cancelled = true;
            open.line.wish.notify_waiters();
        }
    }

    /// From now on the call goes on although this is not polled.
    pub fn send_to_background(&mut self) {
        if let Source::Open(open) = &mut self.0 {
            open.send_to_background();
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
            Source::Open(open) => Some(std::task::ready!(open.poll_next(context))),
        };
        if matches!(event, None | Some(Event::Done(_))) {
            self.0 = Source::Over;
        }
        Poll::Ready(event)
    }
}

impl OpenReply {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if self.job.is_some() {
            // What is there already comes out before more is made.
            let waiting = self.line.state().take();
            self.drive(waiting.as_ref(), context);
            if let Some(event) = waiting {
                return Poll::Ready(event);
            }
        }
        let mut state = self.line.state();
        if let Some(event) = state.take() {
            return Poll::Ready(event);
        }
        match &mut state.reader {
            Reader::Here(Some(waker)) => waker.clone_from(context.waker()),
            reader => *reader = Reader::Here(Some(context.waker().clone())),
        }
        Poll::Pending
    }

    /// Gets on with the job, unless there is an event that was made before the end: a job that has given the outcome
    /// out has often nothing left to do.
    fn drive(&mut self, waiting: Option<&Event>, context: &mut Context<'_>) {
        let wanted = matches!(waiting, None | Some(Event::Done(_)));
        if let Some(job) = self.job.as_mut().filter(|_| wanted)
            && job.poll(context).is_ready()
        {
            self.job = None;
        }
    }

    fn send_to_background(&mut self) {
        if let Some(job) = self.job.take() {
            job.send_to_background();
        }
    }
}

impl Drop for OpenReply {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.reader = Reader::Gone;
        state.cancelled = true;
        // They may hold replies of their own.
        let unread = (std::mem::take(&mut state.events), std::mem::replace(&mut state.end, End::Taken));
        drop(state);
        drop(unread);
        self.line.wish.notify_waiters();
        self.send_to_background();
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics with the lock held, so a poisoned state is still in order.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            // A wish that comes between the look and the wait is not missed.
            let wish = self.wish.notified();
            if reached(&self.state()) {
                return;
            }
            wish.await;
        }
    }

    fn end(&self, end: End) {
        let mut state = self.state();
        let Reader::Here(waker) = &mut state.reader else {
            // Nobody wants it.
            drop(state);
            return;
        };
        let waker = waker.take();
        state.end = end;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// The next event; those that were sent before the outcome come out before it.
    fn take(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let outcome = match std::mem::replace(&mut self.end, End::Taken) {
            End::Open => {
                self.end = End::Open;
                return None;
            }
            End::Sent(outcome) => outcome,
            End::Lost | End::Taken => Outcome::Failed(Failure::outcome_unknown("the connection to the server ended")),
        };
        Some(Event::Done(outcome))
    }
}

impl ReplySender {
    /// Sends progress or a log line; dropped if the reader is behind, or if it is huge. An outcome is sent with
    /// [`ReplySender::done`].
    pub fn event(&self, event: Event) {
        if matches!(&event, Event::Log(line) if line.len() > LOG_LINE) {
            return;
        }
        let mut state = self.0.state();
        if state.events.len() >= WAITING_EVENTS {
            return;
        }
        let Reader::Here(waker) = &mut state.reader else { return };
        let waker = waker.take();
        state.events.push_back(event);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the reply.
    pub fn done(self, outcome: Outcome) {
        self.0.end(End::Sent(outcome));
    }

    /// Resolves when the call is to be stopped: it was cancelled or abandoned. An answer that comes
    /// later is still wanted unless [`ReplySender::is_abandoned`].
    pub async fn cancelled(&self) {
        self.0.until(|state| state.cancelled).await;
    }

    /// Whether the call is to be stopped.
    pub fn is_cancelled(&self) -> bool {
        self.0.state().cancelled
    }

    /// What is behind [`ReplySender::cancelled`], to be watched apart from this sender.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation(Arc::clone(&self.0))
    }

    /// Resolves when nobody waits for the outcome any more.
    pub async fn abandoned(&mut self) {
        self.0.until(State::is_abandoned).await;
    }

    /// Whether nobody waits for the outcome any more.
    pub fn is_abandoned(&self) -> bool {
        self.0.state().is_abandoned()
    }
}

impl State {
    fn is_abandoned(&self) -> bool {
        matches!(self.reader, Reader::Gone)
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        let open = matches!(self.0.state().end, End::Open);
        if open {
            self.0.end(End::Lost);
        }
    }
}

impl Cancellation {
    /// Resolves when the call is to be stopped.
    pub async fn cancelled(&self) {
        self.0.until(|state| state.cancelled).await;
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
        assert_eq!(seen, WAITING_EVENTS);
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
