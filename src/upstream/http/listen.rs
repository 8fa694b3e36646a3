//! The stream that a legacy server may send what belongs to no call on. It is held open for as long as the
//! session lives: servers ask on it, and wait for the answer (field case 48).

use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::answer::{self, Media};
use super::client::ServerBody;
use super::events::{EventStream, Item};
use super::session::HttpSession;
use crate::protocol::Message;
use crate::upstream::questions::{Origin, Request};

/// A stream that stood this long was a good one.
const GOOD: Duration = Duration::from_secs(10);
/// Attempts without a good stream in between.
const ATTEMPTS: u32 = 8;
/// The wait before the first attempt, where the server names none; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// The wait where a server says "too many requests" and no more.
const TOO_MANY: Duration = Duration::from_secs(30);

/// What is to be done behind one attempt.
#[derive(Debug)]
enum Next {
    /// Another one, after this wait if the server named one.
    Again(Option<Duration>),
    /// None: the server has no such stream.
    Never,
}

/// Listens until the session ends, or the server says that there is nothing to listen to.
pub(super) async fn listen(session: HttpSession) {
    tokio::select! {
        () = attempts(&session) => {}
        () = session.ended() => {}
    }
}

async fn attempts(session: &HttpSession) {
    let (mut failures, mut last_id) = (0, None);
    while failures < ATTEMPTS {
        let began = Instant::now();
        let next = attempt(session, &mut last_id).await;
        if began.elapsed() >= GOOD {
            failures = 0;
        }
        let Next::Again(asked) = next else { return };
        let backoff = FIRST_WAIT * 2_u32.saturating_pow(failures);
        failures += 1;
        tokio::time::sleep(asked.unwrap_or(backoff).min(LONGEST_WAIT)).await;
    }
    tracing::debug!("a server keeps ending its listen stream; it is not opened again in this session");
}

async fn attempt(session: &HttpSession, last_id: &mut Option<String>) -> Next {
    let behind = last_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok());
    let response = match session.get(&session.forwarded(), behind).await {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(%error, "the listen stream could not be opened");
            session.doubt();
            return Next::Again(None);
        }
    };
    let status = response.status();
    if status.is_success() && Media::of(response.headers()) == Media::Events {
        return stream(session, response, last_id).await;
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Next::Again(Some(answer::retry_after(response.headers()).unwrap_or(TOO_MANY)));
    }
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        return Next::Again(answer::retry_after(response.headers()));
    }
    // 405 is the right way to say that there is no such stream; servers find many others (field case 24).
    Next::Never
}

async fn stream(session: &HttpSession, response: Response<ServerBody>, last_id: &mut Option<String>) -> Next {
    let mut events = EventStream::new(response.into_body(), session.limits().message).behind(last_id.as_deref());
    loop {
        let item = events.next().await;
        if last_id.as_deref() != events.last_id() {
            *last_id = events.last_id().map(str::to_owned);
        }
        match item {
            Item::Event(data) => event(session, &data).await,
            Item::Mark | Item::Unfinished(_) => {}
            Item::End(_) => {
                session.doubt();
                return Next::Again(events.retry());
            }
        }
    }
}

async fn event(session: &HttpSession, data: &Bytes) {
    let Ok(messages) = answer::messages(data, session.limits().depth) else { return };
    for message in messages {
        match message {
            Ok(Message::Request { id, method, params }) => {
                session.asked(&session.forwarded(), Request { id, method, params }, Origin::Session).await;
            }
            Ok(Message::Notification { method, params }) => match (method.as_str(), &params) {
                ("notifications/progress", Some(params)) => session.progress(params),
                _ => session.said(method, params),
            },
            Ok(Message::Result { .. } | Message::Error { .. }) => {
                tracing::debug!("an answer on the listen stream was passed over");
            }
            Err(error) => {
                tracing::debug!(%error, "a message that cannot be read");
                if let Some(answer) = error.to_refusal() {
                    session.reply(&session.forwarded(), answer, None).await;
                }
            }
        }
    }
}
