//! What goes to a server over HTTP+SSE: a POST for each message, whose response only says that it was taken. Some servers
//! answer a request there all the same.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::HeaderMap;
use http::{StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::super::answer::{Answer, Media, ReadLimits, Refusal, Unusable};
use super::super::client::{SendError, ServerBody, Taken};
use super::super::endpoint::{Endpoint, JSON_FIRST};
use super::super::failures;
use super::super::ids::{self, Named};
use crate::jobs::Jobs;
use crate::protocol::{Failure, Json, Message, Outcome, Rope};
use crate::upstream::outcome;
use crate::upstream::stdio::connection::Connection;
use crate::upstream::stdio::notes::About;
use crate::upstream::stdio::pipes::{Broken, Outbound, Outgoing};
use crate::upstream::wire::ServerEra;

/// The way to a server.
#[derive(Clone, Debug)]
pub(super) struct Posts {
    pub(super) endpoint: Arc<Endpoint>,
    /// Where messages go.
    pub(super) uri: Uri,
    /// The headers of its principal, the newest: tokens are renewed. None where principals share the connection.
    pub(super) forwarded: Arc<Mutex<HeaderMap>>,
    pub(super) server: Arc<str>,
    pub(super) limits: ReadLimits,
    pub(super) jobs: Jobs,
    /// How many requests may be on their way at a time: some servers answer a POST only when its call is done.
    pub(super) room: Arc<Semaphore>,
    /// How many notes, but for those that go in order, may be on their way for the first time.
    pub(super) notes: Arc<Semaphore>,
    /// How many notes may be sent again at a time.
    pub(super) repeats: Arc<Semaphore>,
}

/// Requests that may be on their way at a time, and so many notes.
pub(super) const ROOM: usize = 256;

/// How long the server may take to acknowledge a notification or an answer.
pub(super) const NOTE: Duration = Duration::from_secs(10);
/// How long it may take to acknowledge a request whose call is over.
const REQUEST: Duration = Duration::from_mins(1);
/// How long an answer may still come on the event stream for a request whose POST was lost on the way.
const LOST: Duration = Duration::from_secs(30);
/// How much of a response is read, so that its connection can be used again.
const DRAINED: usize = 64 << 10;

impl Posts {
    fn headers(&self) -> HeaderMap {
        self.forwarded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn post(&self, message: Rope) -> Result<http::Response<ServerBody>, SendError> {
        let mut request = self.endpoint.post(&self.headers(), JSON_FIRST, message);
        *request.uri_mut() = self.uri.clone();
        self.endpoint.send_once(request).await
    }

    async fn request(self, connection: Connection, id: u64, message: Rope, permit: OwnedSemaphorePermit) {
        let late = Instant::now() + REQUEST;
        let Some(sent) = for_call(&connection, id, Some(permit), self.post(message)).await else { return };
        match sent {
            Ok(response) if response.status().is_success() => match Media::of(response.headers()) {
                Media::Json(_) => self.body(&connection, id, response).await,
                Media::Events | Media::Other(_) => {
                    let _ = tokio::time::timeout(NOTE, drain(response)).await;
                }
            },
            // A gateway lost patience with a server that may well answer on the stream.
            Ok(_) | Err(SendError { taken: Taken::Unknown, .. }) if Instant::now() > late => {}
            Ok(response) => {
                if let Ok(Answer::Refused(refusal)) = Answer::read(response, self.limits).await {
                    self.refused(&connection, id, refusal);
                }
            }
            Err(error) => match error.taken {
                Taken::Never | Taken::GivenBack => connection.not_taken(id),
                Taken::Unknown => lost(&connection, id, &format!("{error} ({})", error.why())).await,
            },
        }
    }

    /// Takes the answer to the request `id` out of its response, if there is one.
    async fn body(&self, connection: &Connection, id: u64, response: http::Response<ServerBody>) {
        let media = Media::of(response.headers());
        let is_answer =
            response.status() == StatusCode::OK && matches!(media, Media::Json(Some(name)) if name.contains("json"));
        let Some(read) = for_call(connection, id, None, Answer::read(response, self.limits)).await else { return };
        let messages = match read {
            Ok(Answer::Messages(messages)) => messages,
            // It cannot come on the stream either.
            Err(fault @ Unusable::TooLarge(_)) => {
                return connection.settle(id, Outcome::Failed(failures::unusable(&fault)));
            }
            Err(fault @ Unusable::Broken(_)) if is_answer => {
                return lost(connection, id, &fault.to_string()).await;
            }
            Ok(Answer::Events(_) | Answer::Nothing(_) | Answer::Refused(_)) | Err(_) => return,
        };
        let is_ours = |named: &Json| ids::named(Some(named), id) == Named::Ours;
        for message in messages {
            let outcome = match message {
                Ok(Message::Result { id, result }) if is_ours(&id) => outcome::of_result(result, ServerEra::Legacy),
                Ok(Message::Error { id: Some(id), error }) if is_ours(&id) => {
                    outcome::of_error(&self.server, error, ServerEra::Legacy)
                }
                Err(error) if error.answers.as_ref().is_some_and(is_ours) => {
                    Outcome::Failed(failures::bad_answer(&format!("the server's answer cannot be read: {error}")))
                }
                Ok(_) | Err(_) => continue,
            };
            connection.answered(id, outcome);
        }
    }

    /// Does what belongs to a connection, as long as that lasts.
    pub(super) fn in_background(&self, connection: &Connection, work: impl Future<Output = ()> + Send + 'static) {
        let over = connection.clone();
        self.jobs.spawn("POST", async move {
            tokio::select! {
                () = work => {}
                () = over.read_to_end() => {}
            }
        });
    }

    fn refused(&self, connection: &Connection, id: u64, refusal: Refusal) {
        let unknown = matches!(refusal.status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::GONE);
        if unknown && refusal.answers(id).is_none() {
            connection.settle(id, Outcome::Failed(failures::session_gone(&refusal)));
            connection.end("the server no longer knows the session that the call was sent on");
        } else {
            connection.settle(id, failures::refused(&self.server, ServerEra::Legacy, refusal));
        }
    }
}

impl Outbound for Posts {
    async fn send(&mut self, connection: &Connection, message: Outgoing) -> Result<(), Broken> {
        match message {
            // In order: servers refuse calls before they have seen `notifications/initialized`.
            Outgoing::Note(note) if *note.about() == About::Nothing => self.note(connection, note).await,
            // One that is slow to be acknowledged must not hold back what others say.
            Outgoing::Note(note) => {
                let permit = place(&self.notes).await?;
                let (posts, of) = (self.clone(), connection.clone());
                self.in_background(connection, async move {
                    posts.note(&of, note).await;
                    drop(permit);
                });
            }
            Outgoing::Request(id, message) => {
                let permit = place(&self.room).await?;
                self.in_background(connection, self.clone().request(connection.clone(), id, message, permit));
            }
        }
        Ok(())
    }

    async fn close(&mut self) {}
}

/// A place for a message on its way. None is ever closed.
async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Broken> {
    Arc::clone(places).acquire_owned().await.map_err(|_| Broken::Untouched)
}

/// Does what belongs to the request `id` to its end, or until its call is over; `None` if that is long ago. The permit is
/// given back soon in any case.
async fn for_call<T>(
    connection: &Connection,
    id: u64,
    mut permit: Option<OwnedSemaphorePermit>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        match tokio::time::timeout(REQUEST, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if connection.awaits(id) => drop(permit.take()),
            Err(_) => return None,
        }
    }
}

/// The response to the request `id` was lost, for `how`. The answer may still come, since it does not need it.
async fn lost(connection: &Connection, id: u64, how: &str) {
    tokio::select! {
        () = tokio::time::sleep(LOST) => {}
        () = connection.read_to_end() => return,
    }
    let how = format!("{how}, and no answer came on the event stream");
    connection.settle(id, Outcome::Failed(Failure::outcome_unknown(&how)));
}

/// Reads what is left of a response.
pub(super) async fn drain(response: http::Response<ServerBody>) {
    let mut body = response.into_body();
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, bytes::Bytes::len);
        if read > DRAINED {
            break;
        }
    }
}
