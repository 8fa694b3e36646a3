//! What goes to a server over HTTP+SSE: a POST for each message, whose response only says that it was taken.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::HeaderMap;
use http::{StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::answer::{Answer, ReadLimits, Refusal};
use super::super::client::{SendError, ServerBody, Taken};
use super::super::endpoint::{Endpoint, JSON_FIRST};
use super::super::failures;
use crate::jobs::Jobs;
use crate::protocol::{Failure, Outcome, Rope};
use crate::upstream::stdio::connection::Connection;
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
    /// How many notes may be sent again at a time.
    pub(super) repeats: Arc<Semaphore>,
}

/// Requests that may be on their way at a time.
pub(super) const ROOM: usize = 256;

/// How long the server may take to acknowledge a notification or an answer, which hold back what comes after them.
pub(super) const NOTE: Duration = Duration::from_secs(10);
/// How long it may take to acknowledge a request. The answer does not come on the response.
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
        let Ok(sent) = tokio::time::timeout(REQUEST, self.post(message)).await else { return };
        drop(permit);
        match sent {
            Ok(response) if response.status().is_success() => {
                let _ = tokio::time::timeout(NOTE, drain(response)).await;
            }
            Ok(response) => {
                if let Ok(Answer::Refused(refusal)) = Answer::read(response, self.limits).await {
                    self.refused(&connection, id, refusal);
                }
            }
            Err(error) => match error.taken {
                Taken::Never | Taken::GivenBack => connection.not_taken(id),
                Taken::Unknown => {
                    // The answer does not need this response, so it may still come.
                    tokio::select! {
                        () = tokio::time::sleep(LOST) => {}
                        () = connection.read_to_end() => return,
                    }
                    let how = format!("{error} ({}), and no answer came on the event stream", error.why());
                    connection.settle(id, Outcome::Failed(Failure::outcome_unknown(&how)));
                }
            },
        }
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
            Outgoing::Note(note) => self.note(connection, note).await,
            Outgoing::Request(id, message) => {
                let permit = Arc::clone(&self.room).acquire_owned().await.map_err(|_| Broken::Untouched)?;
                let (posts, connection) = (self.clone(), connection.clone());
                self.jobs.spawn("POST", async move {
                    let over = connection.clone();
                    tokio::select! {
                        () = posts.request(connection, id, message, permit) => {}
                        () = over.read_to_end() => {}
                    }
                });
            }
        }
        Ok(())
    }

    async fn close(&mut self) {}
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
