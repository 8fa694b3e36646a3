//! The whole life of a call: finding a session, the exchange, being cancelled, being sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::HeaderMap;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::HttpConnect;
use super::endpoint::{self, Endpoint};
use super::exchange::{Exchange, Link, Step};
use super::leg::HttpLeg;
use super::param_headers;
use super::resume::OldSessions;
use super::session::{HttpSession, InFlight};
use super::sse::SseUpstream;
use super::wish::{Change, Wish};
use crate::config::ForwardCancel;
use crate::jobs::Jobs;
use crate::protocol::{
    Call, Caller, ClientSession, Event, EventSender, Failure, Method, Outcome, Reason, Reply, ReplySender,
};
use crate::upstream::beside::{self, Seen};
use crate::upstream::drive::{self, Manners};
use crate::upstream::questions::{Fate, Verdict};
use crate::upstream::sessions::{Sessions, Want};
use crate::upstream::wire::{self, ServerEra};
use crate::upstream::{Setup, log_level, outcome};

/// Runs calls. Clones share sessions.
#[derive(Clone, Debug)]
pub(super) struct Runner(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) server: String,
    pub(super) endpoint: Arc<Endpoint>,
    forward_cancel: ForwardCancel,
    cancel_grace: Duration,
    pub(super) connect: HttpConnect,
    pub(super) sessions: Sessions<HttpConnect>,
    /// Those of another process.
    pub(super) old_sessions: OldSessions,
    pub(super) setup: Setup,
    /// For a server that turns out to speak nothing newer.
    pub(super) sse: SseUpstream,
    /// Ids of modern requests, which belong to no session.
    next_id: AtomicU64,
    /// Places for calls whose answer is still waited for after they were cancelled.
    stopping: Arc<Semaphore>,
    pub(super) closing: CancellationToken,
}

/// Calls that may be waited for after they were cancelled; a loop of cancels piles them up.
const STOPPING: usize = 256;

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// With this outcome.
    Done(Outcome),
    /// The request may be sent again; otherwise this is its outcome.
    Again(Outcome),
    /// On a session that the server does not know; if the request may not be sent again, this is its outcome.
    SessionGone(Outcome),
}

/// How a server is asked to stop.
pub(super) enum Leave<'a> {
    /// By a notification on the session (2025-11-25, cancellation).
    Tell {
        /// The call.
        in_flight: InFlight,
        /// The caller's headers.
        forwarded: &'a HeaderMap,
    },
    /// By closing the response (2026-07-28, Streamable HTTP, cancellation).
    Close,
}

impl Runner {
    /// Nothing is connected yet. Calls end when `closing` says so.
    pub(super) fn new(setup: &Setup, endpoint: Arc<Endpoint>, closing: CancellationToken) -> Self {
        let connect = HttpConnect::new(setup, Arc::clone(&endpoint));
        let config = &setup.config;
        Self(Arc::new(Inner {
            server: config.name.clone(),
            forward_cancel: config.cancel,
            cancel_grace: config.cancel_grace,
            sessions: Sessions::new(Arc::clone(config), connect.clone(), setup.jobs.clone()),
            sse: SseUpstream::new(setup, Arc::clone(&endpoint), connect.clone()),
            old_sessions: OldSessions::default(),
            endpoint,
            connect,
            setup: setup.clone(),
            next_id: AtomicU64::new(1),
            stopping: Arc::new(Semaphore::new(STOPPING)),
            closing,
        }))
    }

    /// Connects for `caller`, if that has not been done.
    pub(super) async fn prepare(&self, caller: &Caller) {
        if self.is_modern() {
            self.0.connect.discover(caller).await;
        } else if !self.0.connect.is_sse() {
            drop(self.0.sessions.get(caller, Want::Presence).await);
        }
        if self.0.connect.is_sse() {
            self.0.sse.prepare(caller).await;
        }
    }

    /// Ends all sessions.
    pub(super) async fn close(&self) {
        tokio::join!(self.0.sessions.close(), self.0.sse.close());
    }

    /// Runs one call to its outcome.
    ///
    /// All but the plain way of a plain call is boxed: what this future takes is set aside and moved for each call.
    #[expect(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice")]
    pub(super) fn run(self, call: Call, sender: ReplySender) -> impl Future<Output = ()> + Send {
        async move {
            if let Method::Resume(anchor) = &call.method {
                let anchor = anchor.clone();
                return Box::pin(self.resume(call, &anchor, sender)).await;
            }
            if self.0.connect.is_sse() {
                return Box::pin(self.0.sse.run(call, sender)).await;
            }
            if self.is_modern() {
                return Box::pin(self.stands_alone(call, sender)).await;
            }
            if beside::is_plain(&call) {
                return self.plain(&call, sender).await;
            }
            Box::pin(self.beside(call, sender)).await;
        }
    }

    /// Runs a call that is no plain one.
    async fn beside(&self, call: Call, sender: ReplySender) {
        match beside::see_to(&self.0.sessions, &self.0.setup, call, sender).await {
            Seen::Through => {}
            Seen::Plain(call, sender) => self.plain(&call, sender).await,
            // That was found out just now.
            Seen::NotOpened(call, sender, _) if self.0.connect.is_sse() => self.0.sse.run(call, sender).await,
            Seen::NotOpened(call, sender, _) if self.is_modern() => self.stands_alone(call, sender).await,
            Seen::NotOpened(_, sender, failure) => sender.done(Outcome::Failed(failure)),
        }
    }

    /// Runs a call of a server that knows no sessions.
    async fn stands_alone(&self, call: Call, sender: ReplySender) {
        match call.method {
            Method::Attach => self.host(&call, sender).await,
            _ => self.plain(&call, sender).await,
        }
    }

    async fn plain(&self, call: &Call, mut sender: ReplySender) {
        let ended = tokio::select! {
            ended = self.attempts(call, &mut sender) => ended,
            // The sender's end makes the outcome unknown.
            () = self.0.closing.cancelled() => return,
        };
        match ended.outcome() {
            // That was found out just now, and nothing of the call was sent.
            Outcome::Failed(failure) if failure.reason == Reason::NotStarted && self.0.connect.is_sse() => {
                Box::pin(self.0.sse.run(call.clone(), sender)).await;
            }
            outcome => sender.done(outcome),
        }
    }

    /// Sends the call, and once more where that is safe.
    async fn attempts(&self, call: &Call, sender: &mut ReplySender) -> Ended {
        let first = self.attempt(call, sender).await;
        let repeat = match &first {
            Ended::Again(_) => true,
            // A tool may have run in the moment in which its session was lost (field case 13). Where the policy
            // allows a second run, the layers above send the call again.
            Ended::SessionGone(_) => call.method != Method::CallTool,
            Ended::Done(_) => false,
        };
        // Rare, so its state is not part of every call's.
        if repeat && !sender.is_cancelled() { Box::pin(self.attempt(call, sender)).await } else { first }
    }

    async fn attempt(&self, call: &Call, sender: &mut ReplySender) -> Ended {
        let forwarded = self.0.endpoint.forwarded(&call.caller.credentials);
        if !self.is_modern() {
            let session = tokio::select! {
                biased;
                session = self.session(call, &forwarded, sender) => session,
                () = sender.cancelled() => return Ended::Done(Outcome::Failed(outcome::never_sent())),
            };
            if (session.is_ok() || self.is_modern()) && !sender.begins().await {
                return Ended::Done(Outcome::Failed(outcome::never_sent()));
            }
            match session {
                Ok(session) => {
                    log_level::ask(&*session, call).await;
                    return match session.floor().needs().filter(|needs| drive::may_be_task(call, needs)) {
                        None => {
                            // Nobody could listen on with a caller's credentials, which are kept in memory only.
                            let anchors = call.method == Method::CallTool && !endpoint::is_personal(&forwarded);
                            self.legacy(&session, call, &forwarded, sender, None, anchors).await
                        }
                        Some(needs) => {
                            let leg = HttpLeg { runner: self.clone(), session: Some(HttpSession::clone(&session)) };
                            let driven = drive::legacy(&leg, needs, self.manners(), call.clone(), sender);
                            Ended::Done(Box::pin(driven).await)
                        }
                    };
                }
                Err(_) if self.is_modern() => {}
                Err(failure) => return Ended::Done(Outcome::Failed(failure)),
            }
        }
        // At once, if that was asked above.
        if !sender.begins().await {
            return Ended::Done(Outcome::Failed(outcome::never_sent()));
        }
        let leg = || HttpLeg { runner: self.clone(), session: None };
        match call.caller.session {
            ClientSession::Legacy(_) => {
                let guests = &self.0.setup.shared.guests;
                Ended::Done(Box::pin(guests.call(&leg(), &self.0.server, self.manners(), call, sender)).await)
            }
            ClientSession::Stateless if drive::must_be_driven(&call.method) => {
                Ended::Done(Box::pin(drive::modern(&leg(), self.manners(), call.clone(), sender)).await)
            }
            ClientSession::Stateless => Box::pin(self.modern(call, &forwarded, sender)).await,
        }
    }

    /// Keeps the session of a legacy client with a modern server, which knows none.
    async fn host(&self, call: &Call, mut sender: ReplySender) {
        if self.0.setup.last_seen.get().is_none() {
            tokio::select! {
                () = self.0.connect.discover(&call.caller) => {}
                () = sender.abandoned() => return,
            }
        }
        let Some(info) = self.0.setup.last_seen.get() else {
            let why = "it does not say what it is (server/discover)";
            return sender.done(Outcome::Failed(outcome::not_started(&self.0.server, why)));
        };
        let leg = HttpLeg { runner: self.clone(), session: None };
        tokio::select! {
            () = self.0.setup.shared.guests.host(&leg, &info, call, &sender) => {}
            () = self.0.closing.cancelled() => {}
        }
    }

    /// Where jobs of calls run.
    pub(super) fn jobs(&self) -> &Jobs {
        &self.0.setup.jobs
    }

    /// Makes one request of a call that takes several. Progress that comes after its answer goes to `later`.
    pub(super) async fn request(
        self,
        session: Option<HttpSession>,
        call: Call,
        mut sender: ReplySender,
        later: Option<EventSender>,
    ) {
        let forwarded = self.0.endpoint.forwarded(&call.caller.credentials);
        let closing = self.0.closing.clone();
        let anchors = call.method == Method::CallTool && later.is_none() && !endpoint::is_personal(&forwarded);
        let once = async |sender: &mut ReplySender| match &session {
            Some(session) => self.legacy(session, &call, &forwarded, sender, later.as_ref(), anchors).await,
            None => self.modern(&call, &forwarded, sender).await,
        };
        let ended = async {
            let first = once(&mut sender).await;
            let again = matches!(first, Ended::Again(_)) && !sender.is_cancelled();
            if again { once(&mut sender).await } else { first }
        };
        tokio::select! {
            ended = ended => sender.done(ended.outcome()),
            () = closing.cancelled() => {}
        }
    }

    fn manners(&self) -> Manners {
        Manners::of(&self.0.setup.config)
    }

    async fn legacy(
        &self,
        session: &HttpSession,
        call: &Call,
        forwarded: &HeaderMap,
        sender: &mut ReplySender,
        later: Option<&EventSender>,
        anchors: bool,
    ) -> Ended {
        let (in_flight, elsewhere) = session.begin(forwarded, call, sender.events());
        if let Some(later) = later {
            session.floor().later().add(in_flight.id, later.clone());
        }
        let message = wire::request(call, ServerEra::Legacy, in_flight.id);
        let link = Link::Session(session.clone());
        let exchange = Exchange::new(link, &self.0.server, call, (in_flight.id, message), forwarded, Some(elsewhere));
        let exchange = exchange.watched_by(sender.events());
        let exchange = if anchors { exchange.with_anchors() } else { exchange };
        self.drive(exchange, Leave::Tell { in_flight, forwarded }, sender).await
    }

    async fn modern(&self, call: &Call, forwarded: &HeaderMap, sender: &mut ReplySender) -> Ended {
        if sender.is_cancelled() {
            return Ended::Done(Outcome::Failed(outcome::never_sent()));
        }
        let ended = self.modern_once(call, forwarded, sender).await;
        let Ended::Done(outcome) = &ended else { return ended };
        self.0.connect.tools().learn(call, outcome);
        if !param_headers::is_mismatch(call, outcome) {
            return ended;
        }
        // Rare, so its state is not part of every call's.
        Box::pin(self.mirrored(call, ended, forwarded, sender)).await
    }

    /// Sends a call again with the headers that its server missed, if its tools tell which; else that was its end.
    async fn mirrored(&self, call: &Call, ended: Ended, forwarded: &HeaderMap, sender: &mut ReplySender) -> Ended {
        let list = |list: Call| -> BoxFuture<'_, Outcome> {
            Box::pin(async move {
                let (mut events, _reply) = Reply::channel();
                self.modern_once(&list, forwarded, &mut events).await.outcome()
            })
        };
        let is_other = tokio::select! {
            biased;
            () = sender.cancelled() => false,
            is_other = self.0.connect.tools().look(call, list) => is_other,
        };
        if is_other { self.modern_once(call, forwarded, sender).await } else { ended }
    }

    async fn modern_once(&self, call: &Call, forwarded: &HeaderMap, sender: &mut ReplySender) -> Ended {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let message = wire::request(call, ServerEra::Modern, id);
        let link = Link::Modern(self.0.connect.clone());
        let exchange = Exchange::new(link, &self.0.server, call, (id, message), forwarded, None);
        let exchange = exchange.watched_by(sender.events());
        self.drive(exchange, Leave::Close, sender).await
    }

    /// Takes the steps of an exchange until it ends, and stops it when that is wanted.
    pub(super) async fn drive(
        &self,
        mut exchange: Exchange<'_>,
        mut leave: Leave<'_>,
        sender: &mut ReplySender,
    ) -> Ended {
        let mut wish = Wish::Outcome;
        let fate = leave.fate();
        loop {
            let mut next = std::pin::pin!(exchange.next());
            let step = loop {
                // The wish comes first: a flood of events must not keep a cancel from being seen.
                let change = tokio::select! {
                    biased;
                    change = wish.changes(sender) => change,
                    verdict = verdict(fate.as_ref()) => return self.end(&leave, verdict),
                    step = &mut next => break step,
                };
                if sender.is_left_running() {
                    return unanswered("another process goes on with the call");
                }
                wish = match change {
                    Change::Cancelled if sender.is_unwritten() => return self.withdraw(&mut leave, sender),
                    Change::Cancelled => match self.stop(&mut leave, sender) {
                        Some(wish) => wish,
                        None => return unanswered("the call was cancelled and its response closed"),
                    },
                    Change::GivenUp => return unanswered("the server was asked to stop and did not answer in time"),
                };
            };
            match step {
                Step::Event(event) => {
                    if let (Event::Anchored(_), Leave::Tell { in_flight, .. }) = (&event, &mut leave) {
                        in_flight.anchored();
                    }
                    sender.event(event);
                }
                Step::Done(outcome) => {
                    leave.ended();
                    return Ended::Done(outcome);
                }
                Step::Again(outcome) => return Ended::Again(outcome),
                Step::SessionGone(outcome) => return Ended::SessionGone(outcome),
            }
        }
    }

    /// Ends a call that cannot go on: its server needs to ask what its client cannot be asked, or cannot be answered.
    fn end(&self, leave: &Leave<'_>, verdict: Verdict) -> Ended {
        if let Leave::Tell { in_flight, forwarded } = leave
            && self.0.forward_cancel != ForwardCancel::Never
        {
            let cause = verdict.cause();
            in_flight.session().cancel(HeaderMap::clone(forwarded), in_flight.id, cause, self.0.cancel_grace);
        }
        Ended::Done(verdict.outcome())
    }

    /// Asks the server to stop, as its era and the config want it. `None` if no answer can come any more.
    pub(super) fn stop(&self, leave: &mut Leave<'_>, sender: &ReplySender) -> Option<Wish> {
        let forward = self.0.forward_cancel != ForwardCancel::Never;
        match leave {
            Leave::Close if forward => return None,
            Leave::Close => {}
            Leave::Tell { in_flight, forwarded } => {
                in_flight.cancelled();
                if forward {
                    let cause = sender.stop_cause();
                    in_flight.session().cancel(HeaderMap::clone(forwarded), in_flight.id, cause, self.0.cancel_grace);
                }
                // A server without sessions cannot tell which call the notification means; some stop when the
                // response is closed.
                if forward && sender.is_abandoned() && !in_flight.session().has_id() {
                    return None;
                }
            }
        }
        Some(self.stopping())
    }

    /// A cancelled call: its answer is waited for, but many servers never send one.
    fn stopping(&self) -> Wish {
        let Ok(place) = Arc::clone(&self.0.stopping).try_acquire_owned() else {
            return Wish::Stop { until: Some(Instant::now()), _place: None };
        };
        let until = match self.0.forward_cancel {
            ForwardCancel::Forward | ForwardCancel::Never => Some(Instant::now() + self.0.cancel_grace),
            ForwardCancel::Ignored => None,
        };
        Wish::Stop { until, _place: Some(place) }
    }

    fn is_modern(&self) -> bool {
        self.0.connect.known() == Some(ServerEra::Modern)
    }
}

impl Ended {
    /// The outcome, if the request is not sent again.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Done(outcome) | Self::Again(outcome) | Self::SessionGone(outcome) => outcome,
        }
    }
}

impl Leave<'_> {
    /// The call has its outcome.
    pub(super) fn ended(&mut self) {
        if let Self::Tell { in_flight, .. } = self {
            in_flight.answered();
        }
    }

    /// Whether the call must end since its server asks in vain; never where the server does not ask.
    fn fate(&self) -> Option<Fate> {
        match self {
            Self::Tell { in_flight, .. } => Some(in_flight.fate()),
            Self::Close => None,
        }
    }
}

async fn verdict(fate: Option<&Fate>) -> Verdict {
    match fate {
        Some(fate) => fate.verdict().await,
        None => std::future::pending().await,
    }
}

pub(super) fn unanswered(how: &str) -> Ended {
    Ended::Done(Outcome::Failed(Failure::outcome_unknown(how)))
}
