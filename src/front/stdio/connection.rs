//! The one connection: reads lines, tells eras apart, starts what is asked.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::call::{self, Answering};
use super::in_flight::InFlight;
use super::outbox::Outbox;
use super::refused::{self, Refused};
use super::{StdioFront, listen};
use crate::config::Limits;
use crate::front::asked::{self, Request};
use crate::front::refusal::Refusal;
use crate::jobs::Jobs;
use crate::protocol::{Call, Caller, Credentials, Json, Message, Method, Principal, Reply, RequestId};
use crate::upstream::lines::{Line, Lines};

/// The connection to the client.
pub(super) struct Connection<S> {
    server: Arc<str>,
    service: S,
    limits: Limits,
    outbox: Outbox,
    in_flight: InFlight,
    /// Requests that were read and have not reached the service yet.
    on_their_way: TaskTracker,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Requests about tasks, which are never refused; more of them wait unread.
    asks: Arc<Semaphore>,
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

impl<S> Connection<S> {
    pub(super) fn new(front: StdioFront<S>, outbox: Outbox, jobs: Jobs) -> Self {
        let places = |limit: usize| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        Self {
            calls: places(front.limits.calls),
            streams: places(front.limits.streams),
            asks: places(ASKS_AT_ONCE),
            server: front.server,
            service: front.service,
            limits: front.limits,
            outbox,
            in_flight: InFlight::default(),
            on_their_way: TaskTracker::new(),
            jobs,
        }
    }

    /// Resolves when every request that was read has reached the service.
    pub(super) async fn handed_over(&self) {
        self.on_their_way.close();
        tokio::select! {
            () = self.on_their_way.wait() => {}
            () = self.outbox.closed() => {}
        }
    }

    /// Lets `calls` end within `grace`. Without a reader they are told to end at once.
    pub(super) async fn finish(&self, calls: &Jobs, grace: Duration) {
        let within = async {
            tokio::select! {
                () = calls.idle() => {}
                () = self.outbox.closed() => {}
                () = tokio::time::sleep(grace) => tracing::info!("some calls did not end within the grace time"),
            }
        };
        within.await;
        self.in_flight.cancel_all();
        calls.idle().await;
    }
}

impl<S> Connection<S>
where
    S: Service<Call, Response = Reply, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
    /// Takes lines until there are no more, or nobody is there for the answers, or the proxy stops.
    pub(super) async fn read<R: AsyncRead + Unpin>(&self, mut lines: Lines<R>) -> Ended {
        let read = async {
            loop {
                match lines.next().await {
                    Line::Whole(line) => self.take(line).await,
                    Line::TooLong(whom) => self.refuse(refused::too_long(whom, self.limits.body)).await,
                    Line::End => return Ended::Input,
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

    async fn take(&self, line: Bytes) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match Message::parse(&line, self.limits.depth) {
            Ok(Message::Request { id, method, params }) => {
                if let Err(refusal) = self.request(&id, &method, params).await {
                    self.outbox.send(refusal.to(Some(&id)).into_message()).await;
                }
            }
            Ok(Message::Notification { method, params }) => self.notification(&method, params.as_ref()),
            // Nobody was asked anything.
            Ok(Message::Result { .. } | Message::Error { .. }) => tracing::debug!("an answer to no question"),
            Err(fault) => self.refuse(refused::unreadable(&line, &fault)).await,
        }
    }

    async fn refuse(&self, refused: Refused) {
        match refused {
            Refused::Answer(answer) => {
                tracing::info!("a line was refused");
                self.outbox.send(answer).await;
            }
            Refused::OfAnswer(_) | Refused::Ignored => tracing::info!("a line was ignored: it is too long"),
        }
    }

    fn notification(&self, method: &str, params: Option<&Json>) {
        let cancelled = params.filter(|_| method == "notifications/cancelled").and_then(|it| it.member("requestId"));
        if let Some(id) = cancelled {
            self.in_flight.cancel(id);
        }
    }

    async fn request(&self, id: &RequestId, name: &str, params: Option<Json>) -> Result<(), Refusal> {
        let request = asked::read_request(id, name, params, None)?;
        let Some(ticket) = self.in_flight.begin(id) else {
            self.outbox.send(refused::repeated_id(id)).await;
            return Ok(());
        };
        let caller = Caller::of_modern(&request.params, Principal::Local, Credentials::default());
        if request.method == Method::Listen {
            let place = listen::check(&request, &caller, &self.streams)?;
            let subscription = listen::run(ticket, place, request.id, self.outbox.clone(), self.jobs.clone());
            self.jobs.spawn("subscription", subscription);
            return Ok(());
        }
        let place = self.place(&request).await?;
        let progress = caller.progress_token.clone();
        let on_its_way = self.on_their_way.token();
        let reply = call::ask(self.service.clone(), &request, caller, on_its_way);
        let answering = Answering::new(&self.server, request, progress, reply, place, ticket);
        self.jobs.spawn("call", answering.run(self.outbox.clone()));
        Ok(())
    }

    /// A place among the calls at the same time. A client must always be able to ask after its tasks.
    async fn place(&self, request: &Request) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if matches!(request.method, Method::GetTask | Method::UpdateTask | Method::CancelTask) {
            return Ok(Arc::clone(&self.asks).acquire_owned().await.ok());
        }
        let place = Arc::clone(&self.calls).try_acquire_owned().map_err(|_| {
            let limit = self.limits.calls;
            Refusal::busy(format!("too many calls at once (limits.calls = {limit}); nothing was sent"))
        })?;
        Ok(Some(place))
    }
}
