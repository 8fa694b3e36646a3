//! A call while it runs: what the client is told of it, and what is logged.

use std::fmt;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;
use tracing::Span;

use super::body::Parcel;
use super::log_level::LogLevel;
use super::socket::Outbox;
use crate::protocol::error::code;
use crate::protocol::reply::Delivery;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Event, Failure, Json, Method, Outcome, Progress, Reason, Reply, RequestId, Retry, Rope, RpcError, message, reshape,
};
use crate::share::Place;

/// A call that a server works on. Dropping it before its end tells the server to stop: to leave is to cancel
/// (2026-07-28, cancellation).
pub(super) struct Running {
    source: Source,
    attendance: Attendance,
    wanted: Wanted,
    /// Who else wants to know how it ended.
    witness: Option<Witness>,
    /// The place among the calls at the same time.
    place: Option<Place>,
    record: Record,
}

type Witness = Box<dyn FnOnce(&Outcome) + Send>;

/// Where events come from.
enum Source {
    /// The server is being asked.
    Starting(BoxFuture<'static, Reply>),
    /// It works on it.
    Open(Reply),
}

/// Whether the call needs to be polled to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attendance {
    /// It does, as far as its reply holds its job.
    Needed,
    /// It goes on by itself.
    Spared,
}

/// Which events the client asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The client's own token for progress; no progress without.
    pub(super) progress: Option<Json>,
    /// The least level of log notifications; none without.
    pub(super) log: Option<LogLevel>,
}

/// What happens next in a call.
#[derive(Debug)]
pub(super) enum Step {
    /// The client is to be told this.
    Notification(Rope),
    /// The end.
    Done(Outcome),
}

/// The text of an answer, whatever it is sent over.
pub(super) struct Written {
    /// The HTTP status, where there is one that can still be chosen.
    pub(super) status: StatusCode,
    /// The JSON-RPC answer.
    pub(super) text: Rope,
    /// `WWW-Authenticate`, beside a status that wants it.
    pub(super) challenge: Vec<HeaderValue>,
    /// To be told when the handle in the text is out.
    pub(super) handle: Option<Delivery>,
}

/// The answer to a call over HTTP.
pub(super) struct Answer {
    /// The HTTP status, where it can still be chosen.
    pub(super) status: StatusCode,
    /// The JSON-RPC answer.
    pub(super) text: Rope,
    /// `WWW-Authenticate`, beside a status that wants it.
    pub(super) challenge: Vec<HeaderValue>,
    /// The handle in it, if there is one.
    pub(super) parcel: Parcel,
}

/// What is logged of a call: never a body, a credential or a task's id.
struct Record {
    span: Span,
    started: Instant,
    level: tracing::Level,
    is_over: bool,
}

/// Bytes of a tool's or prompt's name that are logged.
const LOGGED: usize = 64;
/// Answers of more bytes keep the place of their call until they are out.
const LARGE: usize = 16 << 10;

impl Running {
    /// The call for `method` that `reply` will answer. It is logged under `span`: calls of tools always, the rest
    /// for those who look closer.
    pub(super) fn new(
        reply: impl Future<Output = Reply> + Send + 'static,
        method: &Method,
        wanted: Wanted,
        place: Option<Place>,
        span: Span,
    ) -> Self {
        let always = *method == Method::CallTool;
        let level = if always { tracing::Level::INFO } else { tracing::Level::DEBUG };
        // A panic in a layer below is the end of this call, not of the connection it came on.
        let reply = std::panic::AssertUnwindSafe(reply).catch_unwind();
        let reply = reply.map(|reply| reply.unwrap_or_else(|_panic| after_panic()));
        let record = Record { span, started: Instant::now(), level, is_over: false };
        let (source, attendance) = (Source::Starting(reply.boxed()), Attendance::Needed);
        Self { source, attendance, wanted, witness: None, place, record }
    }

    /// Shows the outcome to `witness` when it comes.
    pub(super) fn on_outcome(&mut self, witness: impl FnOnce(&Outcome) + Send + 'static) {
        self.witness = Some(Box::new(witness));
    }

    /// What happens next, as far as the client asked for it. Not to be polled after the end.
    pub(super) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        loop {
            match ready!(self.poll_event(context)) {
                Event::Done(outcome) => return Poll::Ready(Step::Done(outcome)),
                event => {
                    if let Some(notification) = self.wanted.notification(event) {
                        return Poll::Ready(Step::Notification(notification));
                    }
                }
            }
        }
    }

    /// Gives the place among the calls out, to be held for as long as its answer takes memory.
    pub(super) fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }

    /// What happens next. Not to be polled after the end.
    pub(super) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let span = self.record.span.clone();
        let _entered = span.enter();
        loop {
            let event = match &mut self.source {
                Source::Starting(reply) => {
                    let mut reply = ready!(reply.as_mut().poll(context));
                    if self.attendance == Attendance::Spared {
                        reply.send_to_background();
                    }
                    self.source = Source::Open(reply);
                    continue;
                }
                Source::Open(reply) => ready!(reply.poll_next(context)),
            };
            let lost = || Event::Done(Outcome::Failed(Failure::outcome_unknown("the reply ended without an outcome")));
            let event = event.unwrap_or_else(lost);
            if let Event::Done(outcome) = &event {
                self.record.end(outcome);
                if let Some(witness) = self.witness.take() {
                    witness(outcome);
                }
            }
            return Poll::Ready(event);
        }
    }

    /// Asks the server to stop, once it is being asked at all, and goes on listening.
    pub(super) fn cancel(&self) {
        if let Source::Open(reply) = &self.source {
            reply.cancel();
        }
    }

    /// From now on the call goes on although the client does not read, which keeps this from being polled.
    pub(super) fn send_to_background(&mut self) {
        self.attendance = Attendance::Spared;
        if let Source::Open(reply) = &mut self.source {
            reply.send_to_background();
        }
    }

    /// What happens next.
    pub(super) async fn step(&mut self) -> Step {
        std::future::poll_fn(|context| self.poll_step(context)).await
    }

    /// The end; notifications are dropped.
    pub(super) async fn outcome(&mut self) -> Outcome {
        loop {
            if let Step::Done(outcome) = self.step().await {
                return outcome;
            }
        }
    }
}

impl Wanted {
    /// The notification that tells the client of an event, if it asked for those.
    fn notification(&self, event: Event) -> Option<Rope> {
        match event {
            Event::Progress(progress) => Some(progress_notification(self.progress.as_ref()?, &progress)),
            Event::Log(params) if self.log?.admits(&params) => {
                Some(message::notification("notifications/message", Some(params.into())))
            }
            // A modern client is not asked by requests, and what belongs to no call is for those who listen.
            Event::Log(_)
            | Event::Ask(_)
            | Event::Notification(_)
            | Event::Attached(_)
            | Event::Paused
            | Event::Anchored(_)
            | Event::Waits(_)
            | Event::Began
            | Event::Done(_) => None,
        }
    }
}

/// The notification that the server got on with it, under the client's own token.
pub(super) fn progress_notification(token: &Json, progress: &Progress) -> Rope {
    let mut params = ObjectWriter::new();
    progress.write(token, &mut params);
    message::notification("notifications/progress", Some(params.finish()))
}

/// What the panic says is printed by the panic hook, on standard error.
fn after_panic() -> Reply {
    tracing::error!("a call panicked on its way to the server; its caller was told, the rest goes on");
    Reply::ready(Outcome::Failed(Failure::outcome_unknown("the call broke inside Raincheck")))
}

impl Answer {
    /// The answer that `outcome` is for the request `id` for `method`, with the handle in it bound to `outbox`.
    pub(super) fn new(id: &RequestId, method: &Method, outcome: Outcome, outbox: &Outbox) -> Self {
        let Written { status, text, challenge, handle } = Written::new(id, method, outcome);
        let parcel = handle.map_or_else(Parcel::default, |handle| Parcel::new(handle, outbox.clone()));
        Self { status, text, challenge, parcel }
    }

    /// Keeps the place of the call until the answer has gone out, if it is so large that it matters.
    pub(super) fn hold(&mut self, place: Option<Place>, outbox: &Outbox) {
        if let Some(place) = place.filter(|_| self.text.len() > LARGE) {
            self.parcel.hold(place, outbox);
        }
    }
}

impl Written {
    /// The answer that `outcome` is for the request `id` for `method`.
    ///
    /// The status is 200 for all that servers say and for failures of our own, since clients read JSON-RPC errors
    /// best there; the protocol's own errors have the status that the specification gives them.
    pub(super) fn new(id: &RequestId, method: &Method, outcome: Outcome) -> Self {
        match outcome {
            Outcome::Result(result) => match reshape::result(method, &result) {
                Ok(result) => Self::ok(message::result(id, result)),
                Err(error) => Self::error(id, method, &RpcError::from(&no_result(&error))),
            },
            Outcome::Shaped(result) => Self::ok(message::result(id, result)),
            Outcome::Error(error) => Self::error(id, method, &reshape::error(error)),
            Outcome::Failed(failure) => {
                let written = Self::error(id, method, &RpcError::from(&failure));
                match failure.challenge {
                    Some(challenge) => Self { status: challenge.status, challenge: challenge.wanted, ..written },
                    None => written,
                }
            }
            Outcome::Task(task) => {
                let text = message::result(id, task.created);
                Self { status: StatusCode::OK, text, challenge: Vec::new(), handle: Some(task.delivery) }
            }
        }
    }

    fn ok(text: Rope) -> Self {
        Self { status: StatusCode::OK, text, challenge: Vec::new(), handle: None }
    }

    fn error(id: &RequestId, method: &Method, error: &RpcError) -> Self {
        let status = status_of(method, error);
        Self { status, text: message::error(Some(id), error), challenge: Vec::new(), handle: None }
    }
}

/// The error that `outcome` is, with the status that goes with it; `None` if it is a result.
pub(super) fn refusal(method: &Method, outcome: &Outcome) -> Option<(StatusCode, RpcError)> {
    let error = match outcome {
        Outcome::Result(_) | Outcome::Shaped(_) | Outcome::Task(_) => return None,
        Outcome::Error(error) => reshape::error(error.clone()),
        Outcome::Failed(failure) => RpcError::from(failure),
    };
    Some((status_of(method, &error), error))
}

fn status_of(method: &Method, error: &RpcError) -> StatusCode {
    match error.code() {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        // Servers also say this of a tool, and then the method is there.
        code::METHOD_NOT_FOUND if *method != Method::CallTool => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// The failure of a call whose result cannot be read.
pub(super) fn no_result(why: &dyn fmt::Display) -> Failure {
    Failure::new(
        Reason::BadAnswer,
        format!("the server answered with a result that is none ({why}); the tool may have run"),
        Retry::Unknown,
    )
}

impl Record {
    fn end(&mut self, outcome: &Outcome) {
        self.is_over = true;
        match outcome {
            Outcome::Result(_) | Outcome::Shaped(_) => self.log(&"result"),
            Outcome::Task(_) => self.log(&"task"),
            Outcome::Error(error) => self.log(&format_args!("error {}", error.code())),
            Outcome::Failed(failure) => self.log(&format_args!("failed: {}", failure.reason)),
        }
    }

    fn log(&self, outcome: &dyn fmt::Display) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if self.level == tracing::Level::INFO {
            tracing::info!(parent: &self.span, %outcome, ms, "answered");
        } else {
            tracing::debug!(parent: &self.span, %outcome, ms, "answered");
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.is_over {
            self.log(&"the client left");
        }
    }
}

/// The span of an exchange.
pub(super) fn span(server: &str, method: &Method, name: Option<&str>) -> Span {
    let name = match method {
        Method::CallTool | Method::GetPrompt => name.unwrap_or_default(),
        // The name of a task is the key to it, and the URI of a resource may hold one.
        _ => "",
    };
    // Shortened only if anybody listens.
    tracing::info_span!("exchange", server, method = ?shown(method.name()), name = ?shown(name))
}

fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LOGGED)).unwrap_or_default()
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}
