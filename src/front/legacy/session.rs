//! The session of one legacy client, apart from any transport: messages of the client go in, messages to the client
//! come out on an [`Outflow`] for each request and one for the session itself.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::in_flight::{InFlight, SameId};
use super::outflow::{Outflow, Request, Subject};
use super::questions::{Given, QuestionIds, Questions};
use super::revision::Revision;
use crate::front::call_key;
use crate::front::refusal;
use crate::front::running::{self, Running, Wanted};
use crate::protocol::error::code;
use crate::protocol::{
    Abilities, Answer, Call, Caller, Challenge, ClientSession, Credentials, Event, Failure, Json, McpService, Message,
    Method, Outcome, Params, Principal, Reason, Reply, RequestId, Retry, Rope, RpcError, TaskSupport, message,
    meta_key, reshape,
};
use crate::share::Places;

/// Passes a call to the layers behind.
pub(in crate::front) type Calls = Arc<dyn Fn(Call) -> BoxFuture<'static, Reply> + Send + Sync>;

/// What a session is made of.
#[derive(Clone)]
pub(in crate::front) struct Seed {
    /// Where its calls go.
    pub(in crate::front) calls: Calls,
    /// The name of the server behind, for the log.
    pub(in crate::front) server: String,
    /// The number of the session: no other of this process has it.
    pub(in crate::front) number: u64,
    /// Who opens it.
    pub(in crate::front) principal: Principal,
    /// What is done with ids that are used twice.
    pub(in crate::front) same_id: SameId,
    /// Ids for what the server asks.
    pub(in crate::front) question_ids: QuestionIds,
    /// Places for calls (`limits.calls` and `limits.queue`).
    pub(in crate::front) places: Places,
}

/// An open session. Clones are the same session; it ends when the [`Outflow`] of the session is dropped.
#[derive(Clone, Debug)]
pub(in crate::front) struct Session(Arc<Core>);

/// A session that has just been opened.
#[derive(Debug)]
pub(in crate::front) struct Opened {
    /// Takes the client's messages.
    pub(in crate::front) session: Session,
    /// What belongs to no request. It ends when the session upstream is lost; dropping it ends the session.
    pub(in crate::front) own: Outflow,
    /// The answer to `initialize`.
    pub(in crate::front) answer: Rope,
}

/// What becomes of a message of the client.
pub(in crate::front) enum Taken {
    /// A request: here are its messages, up to its answer.
    Runs(Box<Outflow>),
    /// A notification: to be awaited before the next message is taken, so that the server sees them in order.
    Passes(BoxFuture<'static, ()>),
    /// It was for us.
    Done,
    /// It makes no sense, and there is no request to answer.
    Refused(RpcError),
}

/// What the parts of a session share.
pub(super) struct Core {
    seed: Seed,
    revision: Revision,
    abilities: Abilities,
    /// Whether calls may be tasks of 2025-11-25.
    pub(super) tasks: TaskSupport,
    /// Cancelled when the client has said that it is ready, or has asked for something.
    pub(super) initialized: CancellationToken,
    in_flight: InFlight,
    pub(super) questions: Questions,
}

/// How long a notification may take to reach the server before the next message is taken.
const NOTIFY_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Passes calls to `service`.
pub(in crate::front) fn calls_to<S: McpService + Sync>(service: S) -> Calls {
    Arc::new(move |call| {
        let reply = crate::front::exchange::ask(service.clone(), call);
        // A call goes on although its client does not read, or has left.
        reply.map(Reply::in_background).boxed()
    })
}

/// Why there is no session.
#[derive(Debug)]
pub(in crate::front) struct NotOpened {
    /// The answer to `initialize`.
    pub(in crate::front) answer: Rope,
    /// What the server wants in the place of the caller's credentials, if that is why.
    pub(in crate::front) challenge: Option<Box<Challenge>>,
    /// Why, if that was a failure of our own.
    pub(in crate::front) reason: Option<Reason>,
}

/// Opens a session with the server for an `initialize` request with these `params`. An error is the answer to it.
/// Dropping the future gives the session up.
pub(in crate::front) async fn open(
    seed: Seed,
    id: &RequestId,
    params: Params,
    credentials: Credentials,
) -> Result<Opened, NotOpened> {
    let refused =
        |error: &RpcError| NotOpened { answer: message::error(Some(id), error), challenge: None, reason: None };
    let text = |json: Json| json.read::<String>().ok();
    let Some(requested) = params.raw().member("protocolVersion").and_then(text) else {
        let error = RpcError::new(code::INVALID_PARAMS, "Invalid params: initialize needs protocolVersion, a string");
        return Err(refused(&error));
    };
    let abilities = params.raw().member("capabilities").map_or_else(Abilities::none, Abilities::of);
    let caller = seed.caller(&abilities, TaskSupport::Undeclared, None, credentials);
    let call = Call { method: Method::Attach, params, caller, arrived: Instant::now() };
    let wanted = Wanted { progress: None, log: None };
    let span = running::span(&seed.server, &Method::Attach, None);
    let mut running = Running::new((seed.calls)(call), &Method::Attach, wanted, None, span);
    let result = loop {
        match std::future::poll_fn(|context| running.poll_event(context)).await {
            Event::Attached(result) => break result,
            Event::Done(Outcome::Failed(failure)) => {
                let NotOpened { answer, .. } = refused(&RpcError::from(&failure));
                return Err(NotOpened { answer, challenge: failure.challenge, reason: Some(failure.reason) });
            }
            Event::Done(outcome) => return Err(refused(&not_opened(outcome))),
            // Nothing is for the client before its session is open; a question is refused by this.
            Event::Progress(_)
            | Event::Log(_)
            | Event::Ask(_)
            | Event::Notification(_)
            | Event::Paused
            | Event::Anchored(_)
            | Event::Waits(_)
            | Event::Began => {}
        }
    };
    let offered = result.member(reshape::OFFERED_TASKS);
    // The tasks are ours: a client that knows their revision gets it, whatever the server behind settled on. All that an
    // older server says is right in it too.
    let gets_tasks = offered.is_some() && Revision::of(&requested).is_some_and(Revision::has_tasks);
    let settled = result.member("protocolVersion").and_then(text).filter(|_| !gets_tasks);
    let revision = Revision::negotiated(&requested, settled.as_deref());
    let offered = offered.filter(|_| revision.has_tasks());
    let tasks = if offered.is_some() { TaskSupport::Augmenting } else { TaskSupport::Undeclared };
    let answer = reshape::legacy_initialize(&result, revision.name(), offered.as_ref())
        .map_err(|error| refused(&RpcError::from(&running::no_result(&error))))?;
    let (in_flight, questions) = (InFlight::default(), Questions::new(seed.question_ids.clone()));
    let initialized = CancellationToken::new();
    let core = Arc::new(Core { seed, revision, abilities, tasks, initialized, in_flight, questions });
    let own = Outflow::new(Arc::clone(&core), running, Subject::Session);
    Ok(Opened { session: Session(core), own, answer: message::result(id, answer) })
}

/// Whether the request is answered from the store at once.
fn asks_after_tasks(method: &Method) -> bool {
    match method {
        Method::GetTask | Method::CancelTask => true,
        Method::Other(name) => name == "tasks/list",
        _ => false,
    }
}

fn not_opened(outcome: Outcome) -> RpcError {
    match outcome {
        Outcome::Error(error) => error,
        Outcome::Failed(failure) => RpcError::from(&failure),
        Outcome::Result(_) | Outcome::Shaped(_) | Outcome::Task(_) => {
            let message = "the session with the server ended while it was opened; nothing was run";
            RpcError::from(&Failure::new(Reason::NotStarted, message, Retry::Yes))
        }
    }
}

impl Seed {
    fn caller(
        &self,
        abilities: &Abilities,
        tasks: TaskSupport,
        progress_token: Option<Json>,
        credentials: Credentials,
    ) -> Caller {
        Caller {
            principal: self.principal.clone(),
            session: ClientSession::Legacy(self.number),
            abilities: abilities.clone(),
            tasks,
            progress_token,
            key: None,
            credentials,
        }
    }
}

impl Core {
    /// An id for the elicitation that this question is: no other of this process has it.
    pub(super) fn elicitation_id(&self, question: u64) -> String {
        format!("raincheck-{}-{question}", self.seed.number)
    }
}

impl Session {
    /// What is spoken in it.
    pub(in crate::front) fn revision(&self) -> Revision {
        self.0.revision
    }

    /// Who opened it.
    pub(in crate::front) fn principal(&self) -> &Principal {
        &self.0.seed.principal
    }

    /// Whether a request has no answer yet.
    #[cfg(test)]
    pub(in crate::front) fn is_busy(&self) -> bool {
        !self.0.in_flight.is_empty()
    }

    /// Nothing more comes from the client: nobody answers what the server asks.
    pub(in crate::front) fn hang_up(&self) {
        self.0.questions.hang_up();
    }

    /// Takes a message of the client, with the headers that it came with.
    pub(in crate::front) fn take(&self, message: Message, credentials: Credentials) -> Taken {
        match message {
            Message::Request { id, method, params } => {
                Taken::Runs(Box::new(self.request(id, &method, params, credentials)))
            }
            Message::Notification { method, params } => self.notification(&method, params, credentials),
            Message::Result { id, result } if result.is_object() => self.answer(Some(&id), Answer::Result(result)),
            Message::Result { id, .. } => {
                let why = "the client's answer cannot be read: its result is no object";
                match self.answer(Some(&id), Answer::Error(RpcError::new(code::INTERNAL, why))) {
                    Taken::Done => Taken::Refused(RpcError::new(
                        code::INVALID_REQUEST,
                        "Invalid request: the result of an answer must be an object",
                    )),
                    other => other,
                }
            }
            Message::Error { id, error } => self.answer(id.as_ref(), Answer::Error(error)),
        }
    }

    fn request(&self, id: RequestId, name: &str, params: Option<Json>, credentials: Credentials) -> Outflow {
        let method = Method::of(name);
        if name != "ping" {
            self.0.initialized.cancel();
        }
        let params = Params::read(&method, params);
        let token = params.as_ref().ok().and_then(|params| params.meta_member(meta_key::PROGRESS_TOKEN));
        let token = token.filter(|token| RequestId::read(token.clone()).is_some());
        let flight = self.0.in_flight.take_off(&id, self.0.seed.same_id);
        let wanted = Wanted { progress: None, log: None };
        let named = params.as_ref().ok().and_then(|params| params.name().map(str::to_owned));
        let span = running::span(&self.0.seed.server, &method, named.as_deref());
        // A client must always be able to ask after its tasks.
        let needs_place = !(self.0.tasks == TaskSupport::Augmenting && asks_after_tasks(&method));
        let seed = &self.0.seed;
        let place = needs_place.then(|| seed.places.take(&seed.principal)).transpose();
        let at_once = match (&flight, &place, params) {
            (None, _, _) => Err(Outcome::Error(RpcError::new(
                code::INVALID_REQUEST,
                "Invalid request: a request with this id has no answer yet",
            ))),
            (_, _, Err(error)) => Err(Outcome::Error(error)),
            (Some(_), place, Ok(params)) => match (self.without_server(&method), place) {
                (Some(outcome), _) => Err(outcome),
                (None, Err(why)) => Err(Outcome::Failed(refusal::too_many_calls(*why, seed.places.most()))),
                (None, Ok(_)) => match call_key::read(&method, &params, &credentials) {
                    Ok(key) => Ok((params, key)),
                    Err(error) => Err(Outcome::Error(error)),
                },
            },
        };
        let running = match at_once {
            Ok((params, key)) => {
                let mut caller = self.0.seed.caller(&self.0.abilities, self.0.tasks, token.clone(), credentials);
                caller.key = key;
                let call = Call { method: method.clone(), params, caller, arrived: Instant::now() };
                let place = place.ok().flatten();
                Running::new((self.0.seed.calls)(call), &method, wanted, place, span)
            }
            Err(outcome) => Running::new(std::future::ready(Reply::ready(outcome)), &method, wanted, None, span),
        };
        Outflow::new(Arc::clone(&self.0), running, Subject::Request(Request { id, method, token, flight }))
    }

    /// The outcome of requests that the server is not asked.
    fn without_server(&self, method: &Method) -> Option<Outcome> {
        let not_found = || Some(Outcome::Error(RpcError::method_not_found(method.name())));
        let has_tasks = self.0.tasks == TaskSupport::Augmenting;
        match method {
            Method::GetTask | Method::CancelTask if has_tasks => None,
            // Tasks of 2025-11-25 are not offered, the rest came with 2026-07-28.
            Method::GetTask | Method::UpdateTask | Method::CancelTask | Method::Listen | Method::Discover => {
                not_found()
            }
            Method::Other(name) => match name.as_str() {
                "tasks/result" | "tasks/list" if has_tasks => None,
                "tasks/result" | "tasks/list" => not_found(),
                "initialize" => {
                    let message = "Invalid request: this session is initialized already";
                    Some(Outcome::Error(RpcError::new(code::INVALID_REQUEST, message)))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn notification(&self, name: &str, params: Option<Json>, credentials: Credentials) -> Taken {
        match name {
            // The upstream session made its own handshake before this one was answered.
            "notifications/initialized" => {
                self.0.initialized.cancel();
                Taken::Done
            }
            "notifications/cancelled" => {
                let id = params.and_then(|params| params.member("requestId")).and_then(RequestId::read);
                if !id.is_some_and(|id| self.0.in_flight.cancel(&id)) {
                    tracing::debug!("a cancel names no single request that runs");
                }
                Taken::Done
            }
            name if name.starts_with("notifications/") => {
                let method = Method::Notify(name.to_owned());
                match Params::read(&method, params) {
                    Ok(params) => Taken::Passes(self.notify(method, params, credentials).boxed()),
                    Err(error) => Taken::Refused(error),
                }
            }
            _ => Taken::Refused(RpcError::new(code::INVALID_REQUEST, "Invalid request: a request needs an \"id\"")),
        }
    }

    fn notify(&self, method: Method, params: Params, credentials: Credentials) -> impl Future<Output = ()> + use<> {
        let caller = self.0.seed.caller(&self.0.abilities, self.0.tasks, None, credentials);
        let call = Call { method, params, caller, arrived: Instant::now() };
        let reply = (self.0.seed.calls)(call);
        async move {
            match tokio::time::timeout(NOTIFY_PATIENCE, async { reply.await.outcome().await }).await {
                Ok(Outcome::Result(_) | Outcome::Shaped(_) | Outcome::Task(_)) => {}
                Ok(Outcome::Error(error)) => tracing::debug!(%error, "a notification did not reach the server"),
                Ok(Outcome::Failed(failure)) => {
                    tracing::debug!(reason = %failure.reason, "a notification did not reach the server");
                }
                Err(_) => tracing::debug!("a notification did not reach the server in time"),
            }
        }
    }

    fn answer(&self, id: Option<&Json>, answer: Answer) -> Taken {
        let given = id.map_or(Given::NeverAsked, |id| self.0.questions.answer(id, answer));
        match given {
            Given::Taken | Given::Late => Taken::Done,
            Given::NeverAsked => Taken::Refused(RpcError::new(
                code::INVALID_REQUEST,
                "Invalid request: this answers no question that was asked in this session",
            )),
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("number", &self.seed.number)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Runs(_) => "Runs",
            Self::Passes(_) => "Passes",
            Self::Done => "Done",
            Self::Refused(_) => "Refused",
        })
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
