//! One session with a legacy server: what all its requests share, and whether it still takes any.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::answer::{ReadLimits, Refusal};
use super::client::{RopeBody, SendError, ServerBody};
use super::endpoint::Endpoint;
use super::ids;
use super::resume::Place;
use super::telling::Repeats;
use super::turns::Turns;
use super::unwritten;
use crate::jobs::Jobs;
use crate::protocol::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::protocol::{Call, Event, EventSender, Json, Progress, Reply, ReplySender, Rope};
use crate::shared_map::SharedMap;
use crate::upstream::questions::{Fate, Floor, Seat};
use crate::upstream::sessions;

/// A session with a legacy server. Clones are the same session.
#[derive(Clone)]
pub(super) struct HttpSession(Arc<Inner>);

/// What makes a session.
pub(super) struct Parts {
    /// The server.
    pub(super) endpoint: Arc<Endpoint>,
    /// How much is read of what it sends.
    pub(super) limits: ReadLimits,
    /// The id that it gave the session, if any.
    pub(super) id: Option<HeaderValue>,
    /// The revision that it chose.
    pub(super) version: HeaderValue,
    /// The order of types that it takes.
    pub(super) accept: HeaderValue,
    /// The headers of who opened it, for what belongs to no call.
    pub(super) forwarded: OwnHeaders,
    /// Who runs on it, and can be asked.
    pub(super) floor: Floor,
    /// Where its jobs run.
    pub(super) jobs: Jobs,
}

/// With which headers goes what belongs to no call.
pub(super) enum OwnHeaders {
    /// Principals share the session, so with none of theirs.
    None,
    /// With those of its one principal, the newest: tokens are renewed.
    Newest(Mutex<HeaderMap>),
}

struct Inner {
    parts: Parts,
    next_id: AtomicU64,
    /// Where progress that comes on the listen stream goes.
    progress: SharedMap<u64, ReplySender>,
    life: Mutex<Life>,
    /// It takes no calls any more.
    over: CancellationToken,
    /// Nothing of it may go on.
    ended: CancellationToken,
    /// What was on its way then has had its last moment.
    past: CancellationToken,
    /// What is on its way to the server beside calls.
    tellings: TaskTracker,
}

/// How it is with a session.
#[derive(Debug)]
pub(super) struct Life {
    trust: Trust,
    calls: usize,
    /// Of them: cancelled, and not answered.
    cancelled: usize,
    /// Of them: such that another process could find again.
    anchored: usize,
    /// One of those was let go of, for another process.
    left: bool,
    /// Another session has taken its place.
    replaced: bool,
    /// What the server is told beside calls, until it has it.
    pub(super) repeats: Repeats,
    /// Answers that are on their way.
    turns: Turns,
}

/// Whether the server is believed to know the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Nothing was asked yet.
    New,
    /// It answered.
    Worked,
    /// A stream of it broke, so the server may have been started anew.
    Doubtful,
    /// It said that it does not know it.
    Gone,
}

/// What a refusal says of the session that the request was sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgotten {
    /// Nothing.
    No,
    /// It may be about the request as well: the server is to be asked.
    Perhaps,
    /// The server does not know it.
    Yes,
}

/// One call on a session, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    session: HttpSession,
    /// Its id upstream, which is its progress token too.
    pub(super) id: u64,
    seat: Seat,
    cancelled: bool,
    answered: bool,
    /// Another process could find it again.
    anchored: bool,
}

/// How long the server may take to acknowledge what needs no answer.
pub(super) const ACKNOWLEDGE: Duration = Duration::from_secs(10);

/// How long a close may take.
pub(super) const CLOSE: Duration = Duration::from_secs(2);

impl HttpSession {
    /// A session after its handshake.
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(Inner {
            parts,
            // Never 0, which confused servers send for anything; 1 was the handshake.
            next_id: AtomicU64::new(2),
            progress: SharedMap::default(),
            life: Mutex::new(Life {
                trust: Trust::New,
                calls: 0,
                cancelled: 0,
                anchored: 0,
                left: false,
                replaced: false,
                repeats: Repeats::default(),
                turns: Turns::default(),
            }),
            over: CancellationToken::new(),
            ended: CancellationToken::new(),
            past: CancellationToken::new(),
            tellings: TaskTracker::new(),
        }))
    }

    /// An id for a request of ours.
    pub(super) fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// How much is read of what the server sends.
    pub(super) fn limits(&self) -> ReadLimits {
        self.0.parts.limits
    }

    /// The place of the request `request` behind an event.
    pub(super) fn place(&self, request: u64, event: &str) -> Option<Place> {
        Place::new(self.0.parts.id.as_ref(), &self.0.parts.version, request, event)
    }

    /// Whether the server gave the session an id; without one it cannot forget it.
    pub(super) fn has_id(&self) -> bool {
        self.0.parts.id.is_some()
    }

    /// Resolves when nothing of the session may go on.
    pub(super) async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    /// Resolves when what was on its way at the end of the session has had its last moment.
    pub(super) async fn past(&self) {
        self.0.past.cancelled().await;
    }

    /// Whether that is so.
    pub(super) fn is_past(&self) -> bool {
        self.0.past.is_cancelled()
    }

    /// Whether the server is believed to know the session.
    pub(super) fn trust(&self) -> Trust {
        self.life().trust
    }

    /// The server answered on it.
    pub(super) fn worked(&self) {
        let mut life = self.life();
        if life.trust != Trust::Gone {
            life.trust = Trust::Worked;
        }
    }

    /// A stream of it broke.
    pub(super) fn doubt(&self) {
        let mut life = self.life();
        if life.trust != Trust::Gone && self.has_id() {
            life.trust = Trust::Doubtful;
        }
    }

    /// The server does not know it any more.
    pub(super) fn gone(&self) {
        self.life().trust = Trust::Gone;
        self.0.over.cancel();
    }

    /// Whether a refusal of the request `id` says that the server does not know the session any more: a 404 that does not
    /// answer it does, and a 400 (field case 13) may.
    pub(super) fn forgotten(&self, refusal: &Refusal, id: u64) -> Forgotten {
        if !self.has_id() || refusal.answers(id).is_some() {
            return Forgotten::No;
        }
        match (refusal.status, self.trust()) {
            (StatusCode::NOT_FOUND, _) | (StatusCode::BAD_REQUEST, Trust::Gone) => Forgotten::Yes,
            (StatusCode::BAD_REQUEST, _) => Forgotten::Perhaps,
            _ => Forgotten::No,
        }
    }

    /// Begins a call with these headers. Progress that comes on the listen stream comes out of the reply; what the
    /// server asks in its course goes to `events`.
    pub(super) fn begin(&self, forwarded: &HeaderMap, call: &Call, events: EventSender) -> (InFlight, Reply) {
        self.begin_as(self.next_id(), forwarded, call, events)
    }

    /// The same under an id that the call has already.
    pub(super) fn begin_as(
        &self,
        id: u64,
        forwarded: &HeaderMap,
        call: &Call,
        events: EventSender,
    ) -> (InFlight, Reply) {
        if let OwnHeaders::Newest(newest) = &self.0.parts.forwarded {
            let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
            if *newest != *forwarded {
                newest.clone_from(forwarded);
            }
        }
        let (progress, progress_out) = Reply::channel();
        self.0.progress.insert(id, progress);
        self.life().calls += 1;
        let seat = self.0.parts.floor.enter(id, call, events);
        let session = self.clone();
        (InFlight { session, id, seat, cancelled: false, answered: false, anchored: false }, progress_out)
    }

    /// Sends one request of a call, which is told when it is written.
    pub(super) async fn post(
        &self,
        forwarded: &HeaderMap,
        message: Rope,
        call: Option<&EventSender>,
    ) -> Result<Response<ServerBody>, SendError> {
        let (parts, message) = (&self.0.parts, message.shared());
        let make = || {
            let message = unwritten::watched(message.clone(), call);
            self.mark(parts.endpoint.post(forwarded, parts.accept.clone(), message))
        };
        parts.endpoint.send(make).await
    }

    /// Opens an event stream: the one for what belongs to no call, or behind `last_id` that of a call.
    pub(super) async fn get(
        &self,
        forwarded: &HeaderMap,
        last_id: Option<HeaderValue>,
    ) -> Result<Response<ServerBody>, SendError> {
        let endpoint = &self.0.parts.endpoint;
        let make = || {
            let mut request = self.mark(endpoint.get(forwarded));
            if let Some(last_id) = &last_id {
                request.headers_mut().insert(LAST_EVENT_ID, last_id.clone());
            }
            request
        };
        endpoint.send(make).await
    }

    /// The headers for what belongs to no call.
    pub(super) fn forwarded(&self) -> HeaderMap {
        match &self.0.parts.forwarded {
            OwnHeaders::None => HeaderMap::new(),
            OwnHeaders::Newest(newest) => newest.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Who runs on it, and can be asked.
    pub(super) fn floor(&self) -> &Floor {
        &self.0.parts.floor
    }

    /// Takes a notification in that is neither progress nor a log line of a call.
    pub(super) fn said(&self, method: String, params: Option<Json>) {
        match (method.as_str(), &params) {
            ("notifications/cancelled", Some(params)) => {
                self.floor().withdraw(params);
                if let Some(id) = params.member("requestId") {
                    self.life().repeats.withdraw(&id);
                }
            }
            _ => self.floor().notification(method, params),
        }
    }

    /// Where its jobs run.
    pub(super) fn jobs(&self) -> &Jobs {
        &self.0.parts.jobs
    }

    /// A place among the answers to what came on the stream of this call, or on the server's own; `None` if it is too late.
    pub(super) async fn turn_to_answer(&self, call: Option<u64>) -> Option<OwnedSemaphorePermit> {
        let turns = self.life().turns.of(call);
        tokio::select! {
            biased;
            // Each of those that wait would have a last moment of its own.
            () = self.past() => None,
            turn = turns.acquire_owned() => turn.ok(),
        }
    }

    /// For what the end of the session must not overtake: until this is dropped, or for as long as a close may take.
    pub(super) fn on_its_way(&self) -> TaskTrackerToken {
        self.0.tellings.token()
    }

    /// Whether an answer that the call `id` waits for is on its way, perhaps again.
    pub(super) fn is_answering(&self, id: u64) -> bool {
        self.life().repeats.has_answer_of(id)
    }

    /// Takes progress in that came on the listen stream.
    pub(super) fn progress(&self, params: &Json) {
        let id = params.member("progressToken").as_ref().and_then(ids::token);
        if let (Some(id), Some(progress)) = (id, Progress::read(params)) {
            // The call of a task has its answer: then this is for whoever watches the task.
            if self.0.progress.with(&id, |call| call.event(Event::Progress(progress.clone()))).is_none() {
                self.floor().later().progress(id, progress);
            }
        }
    }

    fn mark(&self, mut request: Request<RopeBody>) -> Request<RopeBody> {
        let headers = request.headers_mut();
        headers.insert(PROTOCOL_VERSION, self.0.parts.version.clone());
        if let Some(id) = &self.0.parts.id {
            headers.insert(SESSION_ID, id.clone());
        }
        request
    }

    pub(super) fn life(&self) -> MutexGuard<'_, Life> {
        self.0.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl sessions::Session for HttpSession {
    fn is_over(&self) -> bool {
        self.0.over.is_cancelled()
    }

    /// A cancelled call that was not answered may go on, and what it does on the session could be taken
    /// for the doing of the next one.
    fn is_resting(&self) -> bool {
        self.life().cancelled > 0
    }

    fn replaced(&self) {
        let mut life = self.life();
        life.replaced = true;
        if life.calls == 0 {
            self.0.over.cancel();
        }
    }

    async fn over(&self) {
        self.0.over.cancelled().await;
    }

    /// Ends it, behind what is on its way, with a DELETE, which the server may refuse (2025-11-25, session management). Not if another process may find
    /// a run on it again.
    async fn close(&self) {
        self.0.over.cancel();
        self.0.ended.cancel();
        self.0.tellings.close();
        let _ = tokio::time::timeout(CLOSE, self.0.tellings.wait()).await;
        self.0.past.cancel();
        let is_needed = {
            let life = self.life();
            life.left || life.anchored > 0
        };
        if self.trust() == Trust::Gone || !self.has_id() || is_needed {
            return;
        }
        let (endpoint, forwarded) = (&self.0.parts.endpoint, self.forwarded());
        let delete = || self.mark(endpoint.delete(&forwarded));
        let sent = tokio::time::timeout(CLOSE, endpoint.send(delete)).await;
        if !matches!(sent, Ok(Ok(_))) {
            tracing::debug!("a server was not told that a session has ended");
        }
    }
}

impl fmt::Debug for HttpSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpSession").field(&*self.life()).finish()
    }
}

impl InFlight {
    /// The session that the call runs on.
    pub(super) fn session(&self) -> &HttpSession {
        &self.session
    }

    /// Whether the call must end since its client cannot be asked.
    pub(super) fn fate(&self) -> Fate {
        self.seat.fate()
    }

    /// The call was cancelled. The session takes no other until it is answered. No answer that was lost on its way is to get
    /// to it any more.
    pub(super) fn cancelled(&mut self) {
        self.seat.cancelled();
        let id = self.id;
        self.ended().repeats.left(id);
        if !std::mem::replace(&mut self.cancelled, true) {
            self.session.life().cancelled += 1;
        }
    }

    /// Another process could find it again.
    pub(super) fn anchored(&mut self) {
        if !std::mem::replace(&mut self.anchored, true) {
            self.session.life().anchored += 1;
        }
    }

    /// It has its answer, so nobody needs to stop it any more.
    pub(super) fn answered(&mut self) {
        self.answered = true;
        let id = self.id;
        self.ended().repeats.answered(id);
    }

    /// Nobody needs to find it again: it has its outcome, or is to stop.
    fn ended(&mut self) -> MutexGuard<'_, Life> {
        let mut life = self.session.life();
        life.anchored -= usize::from(std::mem::replace(&mut self.anchored, false));
        life
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.session.0.progress.remove(&self.id);
        let mut life = self.session.life();
        life.calls -= 1;
        life.cancelled -= usize::from(self.cancelled);
        life.anchored -= usize::from(self.anchored);
        life.left |= self.anchored;
        if !self.answered {
            life.repeats.left(self.id);
        }
        let over = life.replaced && life.calls == 0;
        drop(life);
        if over {
            self.session.0.over.cancel();
        }
    }
}
