//! What comes back from a call: a short stream of events that ends in one outcome.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::anchor::Anchor;
use super::ask::Ask;
use super::error::RpcError;
use super::failure::Failure;
use super::json::Json;
use super::line::{self, Events};
use super::progress::Progress;
use super::rope::Rope;
use super::stop::StopCause;
use crate::jobs::{HeldJob, Jobs};

pub use super::line::{Cancellation, EventSender, ReplySender};

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
    /// The server ended the stream of the call for now, and goes on when it is asked again (2025-11-25, sending messages).
    /// May be dropped.
    Paused,
    /// Where the run is, as of now: it can be resumed from here by another process. May be dropped; a later one takes the
    /// place of those before it.
    Anchored(Anchor),
    /// The call waits: nothing of it is at the server. [`Event::Began`] ends the wait, if the outcome does not. Never dropped.
    Waits(WaitsFor),
    /// The call goes to the server only now, after a wait or since it was kept back. Never dropped.
    Began,
    /// The end. Nothing comes after it.
    Done(Outcome),
}

/// What a call has to wait for before its server can have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The server's process is being started.
    Start,
    /// There is no connection to the server yet.
    Connection,
    /// The server takes one call at a time (`serial`), and others come before.
    Turn,
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
    events: Events,
    /// What brings the outcome about, if nobody else drives it.
    job: Option<HeldJob>,
    /// What each event becomes on its way out.
    change: Option<Change>,
}

#[derive(Clone)]
struct Change(Arc<dyn Fn(Event) -> Event + Send + Sync>);

impl WaitsFor {
    /// What people are told.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Start => "waiting for the server to start",
            Self::Connection => "waiting for a connection to the server",
            Self::Turn => "waiting for the server to take its next call (serial)",
        }
    }
}

impl Reply {
    /// A reply whose outcome is known.
    pub fn ready(outcome: Outcome) -> Self {
        Self(Source::Ready(Some(outcome)))
    }

    /// A reply whose events are still to come, and the end that sends them.
    pub fn channel() -> (ReplySender, Self) {
        let (sender, events) = line::line();
        (sender, Self(Source::Open(OpenReply { events, job: None, change: None })))
    }

    /// The same, for a call whose server's side asks before it goes ([`ReplySender::begins`]): [`Reply::keep_back`] holds it
    /// back from the first, if it comes before the first look.
    pub fn gated() -> (ReplySender, Self) {
        let (sender, events) = line::gated();
        (sender, Self(Source::Open(OpenReply { events, job: None, change: None })))
    }

    /// A reply to a call that the job which `make` makes sees through. The job is one of `jobs`; if those are driven
    /// by who waits for them, it goes on while the reply is polled, and in the background once the reply was
    /// dropped or has given the outcome out.
    pub fn driven<F>(jobs: &Jobs, name: &'static str, make: impl FnOnce(ReplySender) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, reply) = Self::channel();
        reply.driven_by(jobs, name, make(sender))
    }

    /// The same, for a job that asks before it sends the call, as [`Reply::gated`] says.
    pub fn driven_gated<F>(jobs: &Jobs, name: &'static str, make: impl FnOnce(ReplySender) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, reply) = Self::gated();
        reply.driven_by(jobs, name, make(sender))
    }

    fn driven_by(mut self, jobs: &Jobs, name: &'static str, job: impl Future<Output = ()> + Send + 'static) -> Self {
        let job = jobs.hold(name, job);
        if let Source::Open(open) = &mut self.0 {
            open.job = job;
        }
        self
    }

    /// Asks the server to stop, and goes on listening: the answer may still win.
    pub fn cancel(&self) {
        self.cancel_for(StopCause::Caller);
    }

    /// The same, for another cause than the caller's wish.
    pub fn cancel_for(&self, cause: StopCause) {
        if let Source::Open(open) = &self.0 {
            open.events.cancel(cause);
        }
    }

    /// Whether nothing of the call has gone to the server: it waits, as [`Event::Waits`] said, or the reply is
    /// [gated](Reply::gated) and was not looked at. If so, it goes there only after [`Reply::let_go`], which
    /// [`Event::Began`] asks for: cancelled or dropped before that, it was never sent.
    pub fn keep_back(&self) -> bool {
        match &self.0 {
            Source::Open(open) => open.events.keep_back(),
            Source::Ready(_) | Source::Over => false,
        }
    }

    /// A call that was kept back may go to the server as soon as its wait is over.
    pub fn let_go(&self) {
        if let Source::Open(open) = &self.0 {
            open.events.let_go();
        }
    }

    /// Whether the request of the call waits until the server reads it ([`ReplySender::is_to_be_written`]). If the call is
    /// stopped then, its outcome soon says whether it was never sent.
    pub fn is_unwritten(&self) -> bool {
        match &self.0 {
            Source::Open(open) => open.events.is_unwritten(),
            Source::Ready(_) | Source::Over => false,
        }
    }

    /// Lets go of a call that another process will resume from its anchor: the server is not told to stop.
    pub fn leave_running(self) {
        if let Source::Open(open) = &self.0 {
            open.events.leave_running();
        }
    }

    /// A way for other events that are to come out here too; `None` if nothing is to come but the outcome.
    pub fn events(&self) -> Option<EventSender> {
        match &self.0 {
            Source::Open(open) => Some(open.events.sender()),
            Source::Ready(_) | Source::Over => None,
        }
    }

    /// From now on the call goes on although this is not polled.
    pub fn send_to_background(&mut self) {
        if let Source::Open(open) = &mut self.0 {
            open.events.is_to_go_on();
            open.send_to_background();
        }
    }

    /// The same reply, whose call goes on although it is not polled.
    #[must_use]
    pub fn in_background(mut self) -> Self {
        self.send_to_background();
        self
    }

    /// The same reply, with each event as `change` makes it. The outcome stays one.
    #[must_use]
    pub fn changed(mut self, change: impl Fn(Event) -> Event + Send + Sync + 'static) -> Self {
        match &mut self.0 {
            Source::Over => {}
            Source::Ready(outcome) => {
                if let Some(Event::Done(changed)) = outcome.take().map(|outcome| change(Event::Done(outcome))) {
                    *outcome = Some(changed);
                }
            }
            Source::Open(open) => {
                let before = open.change.take();
                open.change = Some(Change(Arc::new(move |event| match &before {
                    Some(Change(before)) => change(before(event)),
                    None => change(event),
                })));
            }
        }
        self
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
            Source::Open(open) => {
                let event = std::task::ready!(open.poll_next(context));
                Some(match &open.change {
                    Some(Change(change)) => change(event),
                    None => event,
                })
            }
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
            // What is there already comes out before more is made. A waker left there would have the job wake the very
            // task that drives it, to find nothing new.
            let waiting = self.events.take_awake();
            self.drive(waiting.as_ref(), context);
            if let Some(event) = waiting {
                return Poll::Ready(event);
            }
        }
        self.events.poll(context)
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

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change(..)")
    }
}

impl Drop for OpenReply {
    fn drop(&mut self) {
        self.events.leave();
        self.send_to_background();
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
#[path = "reply_tests.rs"]
mod tests;
