//! What goes out to a legacy client: the messages of one request, or of the session itself.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::in_flight::Flight;
use super::session::Core;
use crate::front::running::{self, Running};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Ask, Challenge, Event, Json, Method, Notification, Outcome, RequestId, Rope, RpcError, TaskSupport, message,
    reshape,
};

/// The messages of one stream, made as they are asked for: while nobody asks, what may be dropped is dropped below.
/// Dropping it before its end abandons the call, or ends the session.
pub(in crate::front) struct Outflow {
    core: Arc<Core>,
    running: Running,
    subject: Subject,
    /// Resolve with the id of a question that the server took back.
    withdrawals: FuturesUnordered<BoxFuture<'static, u64>>,
    /// Ids of the questions that went out here.
    asked: Vec<u64>,
    ready: VecDeque<Outgoing>,
    door: Door,
    state: State,
}

/// Whether messages go out yet. What belongs to no request waits until the client has said that it is ready (2025-11-25,
/// lifecycle, initialization): a server would wait for that too, but ours was told so by the session upstream.
enum Door {
    Closed(Pin<Box<WaitForCancellationFutureOwned>>),
    Open,
}

/// One message to the client.
#[derive(Debug)]
pub(in crate::front) enum Outgoing {
    /// A notification. It may be dropped if the client is behind.
    Notice(Rope),
    /// A question of the server, or word that it is not wanted any more. The client has to get it.
    Message(Rope),
    /// The server has ended its stream for now: a client that can come back is to do so.
    Pause,
    /// The answer to the request. Nothing comes after it.
    Answer(Rope),
    /// The answer to a request whose credentials the server refused, and what it wants in their place.
    Challenge(Rope, Box<Challenge>),
    /// The client cancelled the request: nothing more goes out. The rest is still to be waited for, until `None`.
    Cancelled,
}

/// Whose messages these are.
pub(super) enum Subject {
    /// The session's own: what belongs to no request.
    Session,
    /// Those of a request.
    Request(Request),
}

/// The request that is answered.
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) method: Method,
    /// The client's own token for progress; no progress without.
    pub(super) token: Option<Json>,
    /// Its entry among the requests in flight; `None` if it never went off.
    pub(super) flight: Option<Flight>,
}

enum State {
    /// The client waits.
    Open,
    /// The client waits, and may cancel.
    Cancellable(Pin<Box<WaitForCancellationFutureOwned>>),
    /// The client cancelled: the server is told to stop, what it still says is dropped.
    Cancelled,
    /// There is nothing more.
    Over,
}

/// Messages that wait for the client to be ready; more wait below.
const BEHIND_THE_DOOR: usize = 64;

impl Outflow {
    pub(super) fn new(core: Arc<Core>, running: Running, subject: Subject) -> Self {
        let state = match &subject {
            Subject::Request(Request { flight: Some(flight), .. }) => {
                State::Cancellable(Box::pin(flight.cancellation().clone().cancelled_owned()))
            }
            _ => State::Open,
        };
        let door = match &subject {
            Subject::Session => Door::Closed(Box::pin(core.initialized.clone().cancelled_owned())),
            Subject::Request(_) => Door::Open,
        };
        Self {
            core,
            running,
            subject,
            withdrawals: FuturesUnordered::new(),
            asked: Vec::new(),
            ready: VecDeque::new(),
            door,
            state,
        }
    }

    /// The next message; `None` after the last. Cancel safe.
    pub(in crate::front) async fn next(&mut self) -> Option<Outgoing> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Outgoing>> {
        loop {
            if let Door::Closed(opens) = &mut self.door
                && opens.as_mut().poll(context).is_ready()
            {
                self.door = Door::Open;
            }
            match &self.door {
                Door::Open => {
                    if let Some(outgoing) = self.ready.pop_front() {
                        return Poll::Ready(Some(outgoing));
                    }
                }
                Door::Closed(_) if self.ready.len() >= BEHIND_THE_DOOR => return Poll::Pending,
                Door::Closed(_) => {}
            }
            match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Open | State::Cancelled => {}
                State::Cancellable(cancelled) => {
                    if cancelled.as_mut().poll(context).is_ready() {
                        self.cancel();
                        continue;
                    }
                }
            }
            if let Poll::Ready(Some(id)) = self.withdrawals.poll_next_unpin(context) {
                self.withdraw(id);
                continue;
            }
            let event = self.running.poll_event(context);
            let State::Cancelled = self.state else {
                self.take(ready!(event));
                continue;
            };
            // The cancel may have come before there was anything to cancel.
            self.running.cancel();
            if let Event::Done(_) = ready!(event) {
                self.state = State::Over;
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Progress(progress) => {
                if let Subject::Request(Request { token: Some(token), .. }) = &self.subject {
                    self.ready.push_back(Outgoing::Notice(running::progress_notification(token, &progress)));
                }
            }
            Event::Log(params) => self.notice("notifications/message", Some(params)),
            Event::Notification(Notification { method, params }) => self.notice(&method, params),
            Event::Ask(ask) => self.ask(ask),
            Event::Paused => self.ready.push_back(Outgoing::Pause),
            // It was opened before; and where a run is concerns no client.
            Event::Attached(_) | Event::Anchored(_) | Event::Waits(_) | Event::Began => {}
            Event::Done(outcome) => self.end(outcome),
        }
    }

    fn notice(&mut self, method: &str, params: Option<Json>) {
        let text = message::notification(method, params.map(Rope::from));
        self.ready.push_back(Outgoing::Notice(text));
    }

    fn ask(&mut self, ask: Ask) {
        let withdrawal = ask.withdrawal();
        let (kind, params) = (ask.question().kind, ask.question().params.clone());
        let Some(id) = self.core.questions.ask(ask) else {
            tracing::warn!(question = %kind, "a question was refused: too many are open in this session, or its client is gone");
            return;
        };
        self.asked.push(id);
        self.withdrawals.push(async move { withdrawal.cancelled().await }.map(move |()| id).boxed());
        let params = reshape::legacy_question(kind, &params, &self.core.elicitation_id(id));
        let text = message::request(&RequestId::from_number(id), kind.method(), Some(params.into()));
        self.ready.push_back(Outgoing::Message(text));
    }

    /// Tells the client that an answer is not wanted any more, unless it has been given.
    fn withdraw(&mut self, id: u64) {
        self.asked.retain(|asked| *asked != id);
        if self.core.questions.withdraw(id) && !matches!(self.state, State::Cancelled) {
            let mut params = ObjectWriter::new();
            params.raw("requestId", RequestId::from_number(id).token()).string("reason", "the server withdrew it");
            let text = message::notification("notifications/cancelled", Some(params.finish()));
            self.ready.push_back(Outgoing::Message(text));
        }
    }

    fn end(&mut self, outcome: Outcome) {
        for id in std::mem::take(&mut self.asked) {
            self.withdraw(id);
        }
        self.state = State::Over;
        if let Subject::Request(request) = &mut self.subject {
            // The id is free before its answer is out: a client may use it again as soon as it has that.
            request.flight = None;
            let challenge = match &outcome {
                Outcome::Failed(failure) => failure.challenge.clone(),
                _ => None,
            };
            let answer = answer(request, outcome, self.core.tasks);
            self.ready.push_back(match challenge {
                Some(challenge) => Outgoing::Challenge(answer, challenge),
                None => Outgoing::Answer(answer),
            });
        }
    }

    fn cancel(&mut self) {
        self.state = State::Cancelled;
        self.running.cancel();
        for id in std::mem::take(&mut self.asked) {
            self.core.questions.withdraw(id);
        }
        if let Subject::Request(request) = &mut self.subject {
            request.flight = None;
        }
        self.ready.push_back(Outgoing::Cancelled);
    }
}

impl Drop for Outflow {
    fn drop(&mut self) {
        for id in &self.asked {
            self.core.questions.withdraw(*id);
        }
    }
}

/// The answer: what servers say goes out as they said it. The session of a server of 2026-07-28 speaks like a legacy one.
pub(super) fn answer(request: &Request, outcome: Outcome, tasks: TaskSupport) -> Rope {
    let id = &request.id;
    let result = match outcome {
        // It says of tools whether they may be tasks here, and nothing of those of the server.
        Outcome::Result(result) if tasks == TaskSupport::Augmenting => Ok(result.into()),
        Outcome::Result(result) => reshape::legacy_server_result(&request.method, &result),
        Outcome::Shaped(result) => Ok(result),
        Outcome::Error(error) => return message::error(Some(id), &reshape::legacy_error(error)),
        Outcome::Failed(failure) => return message::error(Some(id), &RpcError::from(&failure)),
        // In a form that this client can take. A call of a legacy client goes on whether it reads the answer or not.
        Outcome::Task(task) => {
            task.delivery.delivered();
            Ok(task.created)
        }
    };
    match result {
        Ok(result) => message::result(id, result),
        Err(error) => message::error(Some(id), &RpcError::from(&running::no_result(&error))),
    }
}

impl fmt::Debug for Outflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outflow").field("asked", &self.asked.len()).finish_non_exhaustive()
    }
}
