//! The one connection: reads lines, tells eras apart, starts what is asked.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ahead::Ahead;
use super::batch::Batch;
use super::call::{self, Answering};
use super::in_flight::InFlight;
use super::legacy::{Found, Legacy, Sessions, pump};
use super::outbox::Outbox;
use super::{StdioFront, UNREAD, listen, refused};
use crate::config::Limits;
use crate::front::asked::{self, Request};
use crate::front::batch;
use crate::front::call_key;
use crate::front::legacy::{Session, Taken};
use crate::front::refusal::{self, Refusal};
use crate::jobs::Jobs;
use crate::protocol::message::MessageFault;
use crate::protocol::{
    Call, Caller, Credentials, Json, McpService, Message, Method, Params, Principal, RequestId, message,
};
use crate::share::{Place, Places};
use crate::upstream::lines::{Line, Lines};
use crate::upstream::scan::Addressee;

/// The connection to the client.
pub(super) struct Connection<S> {
    server: Arc<str>,
    service: S,
    limits: Limits,
    outbox: Outbox,
    in_flight: InFlight,
    /// Requests that were read and have not reached the service yet.
    on_their_way: TaskTracker,
    calls: Places,
    streams: Places,
    /// Requests about tasks, which are never refused; more of them wait unread.
    asks: Places,
    /// Cancelled when nobody waits for answers any more.
    cut: CancellationToken,
    sessions: Sessions,
    jobs: Jobs,
}

/// Why nothing more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The input ended: the client wants no more, or is gone.
    Input,
    /// Nobody reads the output.
    Output,
    /// The proxy stops.
    Stopped,
}

/// Requests about tasks that are answered at the same time.
const ASKS_AT_ONCE: usize = 64;

impl<S: McpService + Sync> Connection<S> {
    pub(super) fn new(front: StdioFront<S>, outbox: Outbox, jobs: Jobs) -> Self {
        let StdioFront { server, service, limits, left: _ } = front;
        let (calls, cut, on_their_way) = (Places::new(limits.held()), outbox.cut().clone(), TaskTracker::new());
        let tracked = {
            let (service, on_their_way) = (service.clone(), on_their_way.clone());
            move |call| call::ask(service.clone(), call, on_their_way.token()).boxed()
        };
        let sessions = Sessions::new(Arc::new(tracked), server.to_string(), calls.clone(), outbox.clone(), Jobs::new());
        let in_flight = InFlight::new(cut.clone());
        let (streams, asks) = (Places::new(limits.streams), Places::new(ASKS_AT_ONCE));
        Self { server, service, limits, outbox, in_flight, on_their_way, calls, streams, asks, cut, sessions, jobs }
    }

    /// Ends all within `grace`: first what was read comes to the service, then running calls may end; without a reader
    /// they are told to end at once. `stop` is called in between. When `settled` says that nothing runs any more, the client
    /// is waited for as long as it reads.
    pub(super) async fn finish(
        &self,
        calls: &Jobs,
        grace: Duration,
        settled: impl Future<Output = ()>,
        stop: impl FnOnce(),
    ) {
        self.on_their_way.close();
        let patience = tokio::time::sleep(grace);
        let patience = async {
            tokio::select! {
                () = patience => tracing::info!("some calls did not end within the grace time"),
                () = async { settled.await; self.outbox.progress().stalled(UNREAD).await } => {
                    tracing::info!("the client does not read its answers");
                }
                () = self.outbox.closed() => {}
            }
        };
        tokio::pin!(patience);
        let in_time = tokio::select! {
            () = self.on_their_way.wait() => true,
            () = patience.as_mut() => false,
        };
        stop();
        if in_time {
            tokio::select! {
                () = calls.idle() => {}
                () = patience => {}
            }
        }
        self.cut.cancel();
        calls.idle().await;
        self.sessions.close().await;
    }

    /// Takes lines until there are no more, or nobody is there for the answers, or the proxy stops.
    /// `legacy` is the client's session, which must outlive the calls that are running then.
    pub(super) async fn read<R: AsyncRead + Unpin>(&self, lines: Lines<R>, legacy: &mut Legacy) -> Ended {
        let mut lines = Ahead::new(lines);
        let read = async {
            loop {
                let line = lines.next().await;
                if line == Line::End {
                    return Ended::Input;
                }
                let mut taken = pin!(self.line(line, legacy));
                tokio::select! {
                    biased;
                    () = taken.as_mut() => {}
                    // It may be for the client to read that the line waits, and nobody to do so.
                    () = lines.ended() => {
                        self.outbox.left().cancel();
                        taken.await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = self.jobs.stopping() => Ended::Stopped,
            () = self.outbox.closed() => Ended::Output,
            ended = read => ended,
        }
    }

    async fn line(&self, line: Line, legacy: &mut Legacy) {
        match line {
            Line::Whole(line) | Line::Rest(line) => self.take(line, legacy).await,
            Line::TooLong(whom) => self.too_long(whom, legacy).await,
            // Its end says more, or that there is none.
            Line::Growing | Line::End => {}
        }
    }

    async fn take(&self, line: Bytes, legacy: &mut Legacy) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match Message::of_client(&line, self.limits.depth) {
            Ok(Message::Request { id, method, params }) if asked::is_modern(params.as_ref()) => {
                if let Err(refusal) = self.request(&id, &method, params).await {
                    self.outbox.tell(refused::by_rule(refusal.to(Some(&id)))).await;
                }
            }
            Ok(message) if self.cancels(&message) => {}
            Ok(message) => self.legacy(message, legacy).await,
            Err(fault) => match (&fault.cause, self.sessions.find(legacy, None).await) {
                (MessageFault::Batch, Found::Live(session)) if session.revision().has_batches() => {
                    self.batch(session, &line).await;
                }
                (_, found) => {
                    if let (Found::Live(session), Some(answer)) = (found, fault.to_answer()) {
                        // Nobody waits for an answer to it.
                        drop(session.take(answer, Credentials::default()));
                    }
                    self.outbox.tell(refused::unreadable(&line, &fault)).await;
                }
            },
        }
    }

    async fn batch(&self, session: &Session, line: &Bytes) {
        match batch::read(line, self.limits.depth) {
            Ok(elements) => {
                let batch = Batch::take(session, elements).await;
                self.jobs.spawn("batch", batch.run(self.outbox.clone(), self.cut.clone()));
            }
            Err(refusal) => self.outbox.tell(refused::by_rule(refusal)).await,
        }
    }

    /// Whether the message cancels a modern request that runs.
    fn cancels(&self, message: &Message) -> bool {
        let Message::Notification { method, params: Some(params) } = message else { return false };
        method == "notifications/cancelled" && params.member("requestId").is_some_and(|id| self.in_flight.cancel(id))
    }

    async fn too_long(&self, whom: Addressee, legacy: &mut Legacy) {
        let limit = self.limits.body;
        tracing::warn!(limit, "a line of the client is longer than limits.body allows");
        match whom {
            Addressee::Us(Some(id)) => self.outbox.tell(refused::too_long(Some(id), limit)).await,
            Addressee::Us(None) => {}
            // The server's question is not left open.
            Addressee::Call(id) => {
                let error = refused::too_long_answer(limit);
                self.legacy(Message::Error { id: Some(id), error }, legacy).await;
            }
            Addressee::Unnamed | Addressee::Nobody => self.outbox.tell(refused::too_long(None, limit)).await,
        }
    }

    /// A message of a client that does not say with each that it is modern.
    async fn legacy(&self, message: Message, legacy: &mut Legacy) {
        let id = match &message {
            Message::Request { id, method, params } => {
                if method == "initialize" {
                    return self.initialize(id.clone(), params.clone(), legacy).await;
                }
                Some(id.clone())
            }
            _ => None,
        };
        let session = match self.sessions.find(legacy, id.as_ref()).await {
            Found::Live(session) => session,
            Found::Refused => return,
            Found::None => return self.without_session(&message).await,
        };
        match session.take(message, Credentials::default()) {
            Taken::Runs(outflow) => {
                let (outbox, cut) = (self.outbox.clone(), self.cut.clone());
                self.jobs.spawn("call", async move {
                    tokio::select! {
                        answer = pump(*outflow, &outbox) => if let (Some(answer), Some(id)) = (answer, id) {
                            outbox.send(outbox.fitting(&id, answer)).await;
                        },
                        () = cut.cancelled() => {}
                    }
                });
            }
            Taken::Passes(passing) => passing.await,
            Taken::Done => {}
            // Nobody waits for an answer to an answer, or to a notification.
            Taken::Refused(error) => tracing::debug!(%error, "a message was ignored"),
        }
    }

    async fn initialize(&self, id: RequestId, params: Option<Json>, legacy: &mut Legacy) {
        match Params::read(&Method::Attach, params) {
            Ok(params) => {
                // A client that begins anew gets a server that does.
                *legacy = Legacy::None;
                *legacy = self.sessions.initialize(id, params, self.on_their_way.token());
            }
            Err(error) => self.outbox.tell(message::error(Some(&id), &error)).await,
        }
    }

    async fn without_session(&self, message: &Message) {
        match message {
            // It may come before all else (2025-11-25, lifecycle).
            Message::Request { id, method, .. } if method == "ping" => {
                self.outbox.tell(message::result(id, Json::empty_object().into())).await;
            }
            Message::Request { id, .. } => self.outbox.tell(refused::not_initialized(id)).await,
            _ => tracing::debug!("a message was ignored: it belongs to no session"),
        }
    }

    async fn request(&self, id: &RequestId, name: &str, params: Option<Json>) -> Result<(), Refusal> {
        let method = Method::of(name);
        let params = Params::read(&method, params).map_err(|error| Refusal::rpc(StatusCode::BAD_REQUEST, error))?;
        let request = asked::read_modern(id, name, method, params, None)?;
        let Some(ticket) = self.in_flight.begin(id) else {
            self.outbox.tell(refused::repeated_id(id)).await;
            return Ok(());
        };
        let mut caller = Caller::of_modern(&request.params, Principal::Local, Credentials::default());
        caller.key = call_key::read(&request.method, &request.params, &caller.credentials)
            .map_err(|error| Refusal::rpc(StatusCode::BAD_REQUEST, error))?;
        if request.method == Method::Listen {
            let terms = listen::check(&request, &caller, &self.streams)?;
            let (method, params) = (request.method, request.params);
            let call = Call { method, params, caller, arrived: Instant::now() };
            let reply = call::ask(self.service.clone(), call, self.on_their_way.token());
            let (outbox, jobs) = (self.outbox.clone(), self.jobs.clone());
            let subscription = listen::run(ticket, terms, request.id, reply, outbox, jobs);
            self.jobs.spawn("subscription", subscription);
            return Ok(());
        }
        let place = self.place(&request).await?;
        let progress = caller.progress_token.clone();
        let (method, params) = (request.method.clone(), request.params.clone());
        let call = Call { method, params, caller, arrived: Instant::now() };
        let reply = call::ask(self.service.clone(), call, self.on_their_way.token());
        let answering = Answering::new(&self.server, request, progress, reply, place, ticket);
        self.jobs.spawn("call", answering.run(self.outbox.clone()));
        Ok(())
    }

    /// A place among the calls at the same time. A client must always be able to ask after its tasks.
    async fn place(&self, request: &Request) -> Result<Option<Place>, Refusal> {
        if matches!(request.method, Method::GetTask | Method::UpdateTask | Method::CancelTask) {
            return Ok(tokio::select! {
                biased;
                place = self.asks.wait(&Principal::Local) => Some(place),
                // There are not many more.
                () = self.outbox.left().cancelled() => None,
            });
        }
        let crowded = |why| Refusal::failed(&refusal::too_many_calls(why, self.calls.most()));
        Ok(Some(self.calls.take(&Principal::Local).map_err(crowded)?))
    }
}
