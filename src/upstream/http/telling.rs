//! What a server is told: notifications and answers, each a POST of its own. What its call hangs on is sent again where
//! it was lost on the way: an answer carries the server's own id, and a call can be cancelled twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::delivery::{ANSWER, Backoff, REPEATS, is_before_the_server, is_for_now, unanswered};
use super::failures;
use super::own::Health;
use super::session::{ACKNOWLEDGE, CLOSE, HttpSession};
use crate::protocol::{Failure, Json, Rope, StopCause};
use crate::upstream::questions::{Origin, Request as Asked};
use crate::upstream::wire;

/// How a message went.
#[derive(Debug)]
enum Sent {
    /// The server has it.
    Taken,
    /// The server, or whoever guards it, has it and does not want it.
    Refused(StatusCode),
    /// Not now, says this status. It may be sent again, after this wait if one was named.
    NotNow(StatusCode, Option<Duration>),
    /// Nobody knows whether it came to the server. It may be sent again.
    Lost(String),
}

/// Why a message was not taken.
#[derive(Debug)]
enum Untold {
    /// The server does not want it.
    Refused(StatusCode),
    /// It was lost, however often it was sent.
    Lost(String),
    /// Nobody needs it any more.
    Unwanted,
    /// Its session ended before it could be sent again.
    Ended,
}

/// What a message is about.
#[derive(Clone, Debug)]
enum About {
    /// It answers the server's request with this id, which came there. `call` is whose it was taken for.
    Question { origin: Origin, call: Option<u64>, id: Json },
    /// It asks to stop the work on this call.
    Cancel { call: u64 },
}

/// Messages of a session that are on their way, some of them again.
#[derive(Debug)]
pub(super) struct Repeats {
    of: BTreeMap<u64, Repeat>,
    next: u64,
    /// Places for those that are sent again.
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Repeat {
    about: About,
    unwanted: CancellationToken,
}

/// A message among the [`Repeats`], until it is dropped.
struct Telling {
    session: HttpSession,
    forwarded: HeaderMap,
    number: u64,
    unwanted: CancellationToken,
    /// Whether some work waits for it.
    is_needed: bool,
}

/// The way of an answer to a request of the server.
#[derive(Clone)]
struct Answering {
    session: HttpSession,
    forwarded: HeaderMap,
    origin: Origin,
    id: Json,
}

/// Of them: such as nobody waits for.
const NEEDLESS: usize = 16;
/// Messages of a session that may be on their way when another waits until it may be sent again.
const LINE: usize = 128;

impl HttpSession {
    /// Sends a notification, once, and waits until the server has acknowledged it.
    pub(super) async fn tell(&self, forwarded: &HeaderMap, message: Rope) {
        match self.try_to_tell(forwarded, message).await {
            Sent::Taken => {}
            Sent::Refused(status) | Sent::NotNow(status, _) => {
                tracing::debug!(%status, "a server did not take a message");
            }
            Sent::Lost(how) => tracing::debug!(%how, "a message could not be sent to a server"),
        }
    }

    async fn try_to_tell(&self, forwarded: &HeaderMap, message: Rope) -> Sent {
        let _on_its_way = self.on_its_way();
        // What begins behind the end, a cancel on a session that its server forgot, is sent too.
        let is_late = self.is_past();
        let limit = if is_late { CLOSE } else { ACKNOWLEDGE };
        let acknowledged = tokio::select! {
            biased;
            () = self.past(), if !is_late => return Sent::Lost("the session has ended".to_owned()),
            acknowledged = tokio::time::timeout(limit, self.post(forwarded, message, None)) => acknowledged,
        };
        match acknowledged {
            Ok(Ok(response)) if response.status().is_success() => Sent::Taken,
            Ok(Ok(response)) if is_for_now(response.status()) => {
                Sent::NotNow(response.status(), answer::retry_after(response.headers()))
            }
            Ok(Ok(response)) => Sent::Refused(response.status()),
            Ok(Err(error)) => Sent::Lost(format!("{error} ({})", error.why())),
            Err(_) => Sent::Lost(format!("the server did not acknowledge it within {limit:?}")),
        }
    }

    /// A message begins its way.
    fn telling(&self, forwarded: HeaderMap, about: About, is_needed: bool) -> Telling {
        let (mut life, unwanted) = (self.life(), CancellationToken::new());
        let repeats = &mut life.repeats;
        let number = repeats.next;
        repeats.next += 1;
        repeats.of.insert(number, Repeat { about, unwanted: unwanted.clone() });
        Telling { session: self.clone(), forwarded, number, unwanted, is_needed }
    }

    /// Takes a request of the server in. It is answered in the background: at once, or when somebody has answered it.
    pub(super) async fn asked(&self, forwarded: &HeaderMap, asked: Asked, origin: Origin) {
        let (id, is_ping) = (asked.id.token().clone(), asked.method == "ping");
        let answering = Answering { session: self.clone(), forwarded: forwarded.clone(), origin, id };
        let later = answering.clone();
        // Its way begins before the question is closed: a process that ends now must not be resumed behind it.
        let way = move |answer, by| {
            let (whose, telling) = (later.call().or(by), later.of(by));
            async move { telling.send(answer, whose).await }
        };
        if let Some(answer) = self.floor().request(asked, origin, way) {
            // Waiting here holds the stream back on which the requests come.
            let Some(permit) = self.turn_to_answer(answering.call()).await else { return };
            // No work waits for the answer to a ping.
            let waiting = answering.call().filter(|_| !is_ping);
            let telling = answering.at_once(waiting.is_some());
            self.jobs().spawn("answer to a server", async move {
                let told = telling.send_first(answer, permit).await;
                if let (Err(failure), Some(call)) = (told, waiting) {
                    telling.session.floor().lose(call, failure);
                }
            });
        }
    }

    /// Tells the server in the background, once, that a request of its own cannot be read, which came on the stream of this
    /// call.
    pub(super) async fn reply(&self, forwarded: &HeaderMap, answer: Rope, call: Option<u64>) {
        // Waiting here holds the stream back on which the requests come.
        let Some(permit) = self.turn_to_answer(call).await else { return };
        let (session, headers) = (self.clone(), forwarded.clone());
        self.jobs().spawn("answer to a server", async move {
            session.tell(&headers, answer).await;
            drop(permit);
        });
    }

    /// Tells the server to stop working on the request `id`, in the background; again for up to `limit`, if that is lost.
    pub(super) fn cancel(&self, forwarded: HeaderMap, id: u64, cause: StopCause, limit: Duration) {
        let (telling, on_its_way) = (self.telling(forwarded, About::Cancel { call: id }, true), self.on_its_way());
        let note = wire::cancelled(id, cause).shared();
        self.jobs().spawn("cancel", async move {
            match telling.insist(note.clone(), limit, None).await {
                // The work may go on when the session has ended.
                Err(Untold::Ended) if !telling.session.is_past() => {
                    telling.session.tell(&telling.forwarded, note).await;
                }
                Ok(()) | Err(Untold::Unwanted | Untold::Ended) => {}
                Err(untold) => tracing::debug!(?untold, "a server was not told that a call was cancelled"),
            }
            drop(on_its_way);
        });
    }
}

impl Untold {
    /// What it means that a server never answered with another status than this one.
    fn of(status: StatusCode, attempts: u32) -> Self {
        if status.is_server_error() && !failures::is_of_gateway(status) {
            return Self::Refused(status);
        }
        Self::Lost(format!("the server answered with status {status}, in attempt {attempts}"))
    }

    /// It was not sent again, since no place was free.
    fn without_a_place(self) -> Self {
        match self {
            Self::Lost(how) => {
                let why = format!("it was not sent again, since {REPEATS} other messages of its session were");
                Self::Lost(format!("{how}; {why}"))
            }
            untold @ (Self::Refused(_) | Self::Unwanted | Self::Ended) => untold,
        }
    }
}

impl Answering {
    /// The call on whose stream the request came.
    fn call(&self) -> Option<u64> {
        match self.origin {
            Origin::Call(id) => Some(id),
            Origin::Session | Origin::Channel => None,
        }
    }

    /// The way of an answer that nobody had to be asked for.
    fn at_once(self, is_needed: bool) -> Telling {
        let (call, Self { session, forwarded, origin, id }) = (self.call(), self);
        session.telling(forwarded, About::Question { origin, call, id }, is_needed)
    }

    /// The way of an answer. The client of the call `by` gave it, if it is no refusal.
    fn of(self, by: Option<u64>) -> Telling {
        let (call, Self { session, forwarded, origin, id }) = (self.call().or(by), self);
        let telling = session.telling(forwarded, About::Question { origin, call, id }, true);
        // Looked at last: who cancels the call now finds the answer on its way.
        if by.is_some_and(|call| !telling.session.floor().is_running(call)) {
            telling.unwanted.cancel();
        }
        telling
    }
}

impl Telling {
    /// Sends the message until the server takes it, for as long as it may be sent again. `first` is held for the first time
    /// only: what is lost must not hold back what is not.
    async fn insist(
        &self,
        message: Rope,
        limit: Duration,
        mut first: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Untold> {
        let (message, until) = (message.shared(), Instant::now() + limit);
        let (mut place, mut backoff, mut attempts) = (None, Backoff::new(), 1_u32);
        loop {
            if self.unwanted.is_cancelled() {
                return Err(Untold::Unwanted);
            }
            let sent = self.session.try_to_tell(&self.forwarded, message.clone()).await;
            drop(first.take());
            let (untold, asked) = match sent {
                Sent::Taken => return Ok(()),
                Sent::Refused(status) => return Err(Untold::Refused(status)),
                Sent::NotNow(status, asked) => (Untold::of(status, attempts), asked),
                Sent::Lost(how) => (Untold::Lost(format!("{how}, in attempt {attempts}")), None),
            };
            let next = Instant::now() + backoff.next(asked);
            if next > until {
                return Err(untold);
            }
            tracing::debug!(?untold, "a message to a server is to be sent again");
            let again = async {
                if place.is_none() {
                    place = self.place(until).await;
                }
                if place.is_some() {
                    tokio::time::sleep_until(next).await;
                }
            };
            tokio::select! {
                biased;
                () = self.unwanted.cancelled() => return Err(Untold::Unwanted),
                () = self.session.ended() => return Err(Untold::Ended),
                () = again => {}
            }
            if place.is_none() {
                return Err(untold.without_a_place());
            }
            attempts += 1;
        }
    }

    /// A place among those that are sent again. It is waited for where something waits for the message.
    async fn place(&self, until: Instant) -> Option<OwnedSemaphorePermit> {
        let (places, on_their_way) = {
            let life = self.session.life();
            (Arc::clone(&life.repeats.places), life.repeats.of.len())
        };
        if !self.is_needed && places.available_permits() <= REPEATS - NEEDLESS {
            return None;
        }
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) if !self.is_needed || on_their_way > LINE => None,
            Err(_) => tokio::time::timeout_at(until, places.acquire_owned()).await.ok()?.ok(),
        }
    }

    /// Sends an answer when it is its turn among those of `whose` call. The call that waits for it must end with the failure.
    async fn send(self, answer: Rope, whose: Option<u64>) -> Result<(), Failure> {
        match self.session.turn_to_answer(whose).await {
            Some(permit) => self.send_first(answer, permit).await,
            None => Ok(()),
        }
    }

    /// The same, when it is.
    async fn send_first(&self, answer: Rope, permit: OwnedSemaphorePermit) -> Result<(), Failure> {
        let told = self.insist(answer, ANSWER, Some(permit)).await;
        let how = match told {
            Ok(()) | Err(Untold::Unwanted | Untold::Ended) => return Ok(()),
            Err(Untold::Lost(how)) => how,
            Err(Untold::Refused(status)) if self.is_gone(status).await => {
                return Err(Failure::outcome_unknown(failures::SESSION_GONE));
            }
            Err(Untold::Refused(status)) if is_before_the_server(status) => {
                format!("the server answered with status {status}")
            }
            Err(Untold::Refused(status)) => {
                // It may not wait for it any more, and go on without.
                tracing::warn!(%status, "a server does not take the answer to what it asked; its call goes on");
                return Ok(());
            }
        };
        Err(unanswered(&how))
    }

    /// Whether that status means that the server does not know the session.
    async fn is_gone(&self, status: StatusCode) -> bool {
        if !self.session.has_id() || !matches!(status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST) {
            return false;
        }
        tokio::select! {
            health = self.session.check(&self.forwarded) => matches!(health, Ok(Health::Gone)),
            () = self.session.past() => false,
        }
    }
}

impl Repeats {
    /// Whether an answer on behalf of this call is on its way.
    pub(super) fn has_answer_of(&self, call: u64) -> bool {
        self.of.values().any(|repeat| matches!(repeat.about, About::Question { call: Some(id), .. } if id == call))
    }

    /// The server does not want the answer to its request `id` any more.
    pub(super) fn withdraw(&self, question: &Json) {
        self.stop(|about| matches!(about, About::Question { id, .. } if id == question));
    }

    /// Nobody waits for this call any more.
    pub(super) fn left(&self, call: u64) {
        self.stop(|about| matches!(about, About::Question { call: Some(id), .. } if *id == call));
    }

    /// This call has its answer. What the session asked and was taken for its own may be another's.
    pub(super) fn answered(&self, call: u64) {
        self.stop(|about| match about {
            About::Question { origin, .. } => *origin == Origin::Call(call),
            About::Cancel { call: id } => *id == call,
        });
    }

    fn stop(&self, unwanted: impl Fn(&About) -> bool) {
        for repeat in self.of.values().filter(|repeat| unwanted(&repeat.about)) {
            repeat.unwanted.cancel();
        }
    }
}

impl Default for Repeats {
    fn default() -> Self {
        Self { of: BTreeMap::new(), next: 0, places: Arc::new(Semaphore::new(REPEATS)) }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.session.life().repeats.of.remove(&self.number);
    }
}

#[cfg(test)]
#[path = "telling_tests.rs"]
mod tests;
