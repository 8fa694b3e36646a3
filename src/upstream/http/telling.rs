//! What a server is told: notifications and answers, each a POST of its own. What its call hangs on is sent again where
//! it was lost on the way: an answer carries the server's own id, and a call can be cancelled twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderMap;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::failures;
use super::own::Health;
use super::session::{ACKNOWLEDGE, HttpSession};
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
}

/// What a message is about.
#[derive(Clone, Debug)]
enum About {
    /// It answers the server's request with this id, which came on the stream of this call.
    Question { call: Option<u64>, id: Json },
    /// It asks to stop the work on this call.
    Cancel { call: u64 },
}

/// Messages of a session that are sent again.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    of: BTreeMap<u64, Repeat>,
    next: u64,
}

#[derive(Debug)]
struct Repeat {
    about: About,
    unwanted: CancellationToken,
}

/// A message among the [`Repeats`], until it is dropped.
struct Repeating {
    session: HttpSession,
    number: u64,
    unwanted: CancellationToken,
}

/// The way of an answer to a request of the server.
#[derive(Clone)]
struct Answering {
    session: HttpSession,
    forwarded: HeaderMap,
    about: About,
}

/// Messages of a session that may be sent again at a time.
const REPEATS: usize = 64;
/// The wait before a message is sent again; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A wait that a server asks for is believed up to this.
const LONGEST_ASKED: Duration = Duration::from_secs(30);
/// For how long an answer is sent again.
const ANSWER: Duration = Duration::from_mins(1);

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
        match tokio::time::timeout(ACKNOWLEDGE, self.post(forwarded, message, None)).await {
            Ok(Ok(response)) if response.status().is_success() => Sent::Taken,
            Ok(Ok(response)) if is_for_now(response.status()) => {
                Sent::NotNow(response.status(), answer::retry_after(response.headers()))
            }
            Ok(Ok(response)) => Sent::Refused(response.status()),
            Ok(Err(error)) => Sent::Lost(format!("{error} ({})", error.why())),
            Err(_) => Sent::Lost(format!("the server did not acknowledge it within {ACKNOWLEDGE:?}")),
        }
    }

    /// Sends a message until the server takes it, for as long as it may be sent again. `first` is held for the first time
    /// only: what is lost must not hold back what is not.
    async fn insist(
        &self,
        forwarded: &HeaderMap,
        message: Rope,
        about: &About,
        limit: Duration,
        first: Option<OwnedSemaphorePermit>,
    ) -> Result<(), Untold> {
        let (message, until) = (message.shared(), Instant::now() + limit);
        // From the first time on: a process that ends now must not be resumed behind the question.
        let mut place = match about {
            About::Question { call: Some(_), .. } => self.repeating(about),
            About::Question { call: None, .. } | About::Cancel { .. } => None,
        };
        let mut sent = self.try_to_tell(forwarded, message.clone()).await;
        drop(first);
        let (mut backoff, mut attempts) = (FIRST_WAIT, 1_u32);
        loop {
            let (untold, asked) = match sent {
                Sent::Taken => return Ok(()),
                Sent::Refused(status) => return Err(Untold::Refused(status)),
                Sent::NotNow(status, asked) => (Untold::of(status, attempts), asked),
                Sent::Lost(how) => (Untold::Lost(format!("{how}, in attempt {attempts}")), None),
            };
            let wait = asked.map_or(backoff, |asked| asked.min(LONGEST_ASKED).max(backoff));
            if place.is_none() {
                place = self.repeating(about);
            }
            let Some(place) = place.as_ref().filter(|_| Instant::now() + wait <= until) else {
                return Err(untold);
            };
            tracing::debug!(?untold, "a message to a server is sent again");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = place.unwanted.cancelled() => return Err(Untold::Unwanted),
                () = self.ended() => return Err(Untold::Unwanted),
            }
            (backoff, attempts) = ((backoff * 2).min(LONGEST_WAIT), attempts + 1);
            sent = self.try_to_tell(forwarded, message.clone()).await;
        }
    }

    /// A place among those that are sent again, if there is one.
    fn repeating(&self, about: &About) -> Option<Repeating> {
        let mut life = self.life();
        let repeats = &mut life.repeats;
        if repeats.of.len() >= REPEATS {
            return None;
        }
        let (number, unwanted) = (repeats.next, CancellationToken::new());
        repeats.next += 1;
        repeats.of.insert(number, Repeat { about: about.clone(), unwanted: unwanted.clone() });
        Some(Repeating { session: self.clone(), number, unwanted })
    }

    /// Takes a request of the server in. It is answered in the background: at once, or when somebody has answered it.
    pub(super) async fn asked(&self, forwarded: &HeaderMap, asked: Asked, origin: Origin) {
        let call = match origin {
            Origin::Call(id) => Some(id),
            Origin::Session | Origin::Channel => None,
        };
        // No work waits for the answer to a ping.
        let waiting = call.filter(|_| asked.method != "ping");
        let about = About::Question { call, id: asked.id.token().clone() };
        let answering = Answering { session: self.clone(), forwarded: forwarded.clone(), about };
        let later = answering.clone();
        let way = move |answer| async move { later.send(answer).await };
        if let Some(answer) = self.floor().request(asked, origin, way) {
            // Waiting here holds the stream back on which the requests come.
            let Ok(permit) = self.answers().acquire_owned().await else { return };
            self.jobs().spawn("answer to a server", async move {
                let told = answering.send_first(answer, permit).await;
                if let (Err(failure), Some(call)) = (told, waiting) {
                    answering.session.floor().lose(call, failure);
                }
            });
        }
    }

    /// Tells the server in the background, once, that a request of its own cannot be read.
    pub(super) async fn reply(&self, forwarded: &HeaderMap, answer: Rope) {
        // Waiting here holds the stream back on which the requests come.
        let Ok(permit) = self.answers().acquire_owned().await else { return };
        let (session, headers) = (self.clone(), forwarded.clone());
        self.jobs().spawn("answer to a server", async move {
            session.tell(&headers, answer).await;
            drop(permit);
        });
    }

    /// Tells the server to stop working on the request `id`, in the background; again for up to `limit`, if that is lost.
    pub(super) fn cancel(&self, forwarded: HeaderMap, id: u64, cause: StopCause, limit: Duration) {
        let (session, about) = (self.clone(), About::Cancel { call: id });
        let note = wire::cancelled(id, cause);
        self.jobs().spawn("cancel", async move {
            match session.insist(&forwarded, note, &about, limit, None).await {
                Ok(()) | Err(Untold::Unwanted) => {}
                Err(untold) => tracing::debug!(?untold, "a server was not told that a call was cancelled"),
            }
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
}

impl Answering {
    async fn send(self, answer: Rope) -> Result<(), Failure> {
        match Arc::clone(&self.session.answers()).acquire_owned().await {
            Ok(permit) => self.send_first(answer, permit).await,
            Err(_) => Ok(()),
        }
    }

    /// Sends an answer, with a place among those that are on their way. The call that waits for it must end with the failure.
    async fn send_first(&self, answer: Rope, permit: OwnedSemaphorePermit) -> Result<(), Failure> {
        let told = self.session.insist(&self.forwarded, answer, &self.about, ANSWER, Some(permit)).await;
        let how = match told {
            Ok(()) | Err(Untold::Unwanted) => return Ok(()),
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
        let text = format!("the answer to what the server asked in its course could not be sent to it: {how}");
        Err(Failure::outcome_unknown(&text))
    }

    /// Whether that status means that the server does not know the session.
    async fn is_gone(&self, status: StatusCode) -> bool {
        self.session.has_id()
            && matches!(status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST)
            && matches!(self.session.check(&self.forwarded).await, Ok(Health::Gone))
    }
}

impl Repeats {
    /// Whether an answer on behalf of this call is sent again.
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

    /// This call has its answer.
    pub(super) fn answered(&self, call: u64) {
        self.stop(|about| matches!(about, About::Cancel { call: id } if *id == call));
    }

    fn stop(&self, unwanted: impl Fn(&About) -> bool) {
        for repeat in self.of.values().filter(|repeat| unwanted(&repeat.about)) {
            repeat.unwanted.cancel();
        }
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        self.session.life().repeats.of.remove(&self.number);
    }
}

/// Whether a status is about the moment, and not about the message.
fn is_for_now(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
        || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
}

/// Whether a status says that the message was kept from the server.
fn is_before_the_server(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::PAYLOAD_TOO_LARGE
    )
}

#[cfg(test)]
#[path = "telling_tests.rs"]
mod tests;
