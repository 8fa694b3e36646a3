//! Requests of our own on a session.

use http::StatusCode;
use http::header::HeaderMap;

use super::answer::{self, Answer};
use super::client::SendError;
use super::events::Item;
use super::failures;
use super::ids::{self, Named};
use super::session::{ACKNOWLEDGE, HttpSession};
use crate::protocol::message::{self, MessageError, RequestId};
use crate::protocol::{Failure, Message, Outcome, Rope};
use crate::upstream::outcome;
use crate::upstream::questions::Floor;
use crate::upstream::sessions::Speak;
use crate::upstream::wire::{self, ServerEra};

/// What a server says of a session that is asked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It knows it, or does not say.
    Known,
    /// It does not.
    Gone,
}

/// Whether a server speaks the revision of a session that it has taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// It answers.
    Yes,
    /// It refuses a ping with that reason.
    No,
    /// Neither: nobody knows whether it took a call, and the session is not used any more.
    Unknown,
}

impl HttpSession {
    /// Asks the server whether it knows the session, by a `ping`.
    pub(super) async fn check(&self, forwarded: &HeaderMap) -> Result<Health, SendError> {
        let (id, ping) = self.ping();
        let asked = async {
            let response = self.post(forwarded, ping, None).await?;
            let unknown = matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST);
            if !unknown {
                return Ok(Health::Known);
            }
            Ok(match Answer::read(response, self.limits()).await {
                Ok(Answer::Refused(refusal)) if refusal.answers(id).is_some() => Health::Known,
                _ => Health::Gone,
            })
        };
        // A server that is slow to answer a ping may be busy; the call will tell.
        let health = tokio::time::timeout(ACKNOWLEDGE / 2, asked).await.unwrap_or(Ok(Health::Known))?;
        match health {
            Health::Known => self.worked(),
            Health::Gone => self.gone(),
        }
        Ok(health)
    }

    /// Whether the server speaks the revision of the session, asked by a ping.
    pub(super) async fn is_spoken(&self, forwarded: &HeaderMap) -> Spoken {
        let (_, ping) = self.ping();
        let asked = async { Answer::read(self.post(forwarded, ping, None).await.ok()?, self.limits()).await.ok() };
        match tokio::time::timeout(ACKNOWLEDGE / 2, asked).await {
            Ok(Some(Answer::Refused(refusal))) if failures::of_revision(&refusal).is_some() => Spoken::No,
            Ok(Some(Answer::Messages(_) | Answer::Events(_))) => Spoken::Yes,
            Ok(Some(Answer::Refused(_) | Answer::Nothing(_)) | None) | Err(_) => Spoken::Unknown,
        }
    }

    /// A ping, and its id.
    fn ping(&self) -> (u64, Rope) {
        let id = self.next_id();
        (id, wire::own_request("ping", ServerEra::Legacy, id))
    }

    /// The answer to the request `id`; `None` if there is none.
    async fn exchange(&self, id: u64, request: Rope) -> Option<Outcome> {
        let response = self.post(&self.forwarded(), request, None).await.ok()?;
        match Answer::read(response, self.limits()).await.ok()? {
            Answer::Messages(messages) => messages.into_iter().find_map(|message| answer_in(message, id)),
            Answer::Refused(refusal) => refusal.answers(id).cloned().map(Outcome::Error),
            Answer::Nothing(_) => None,
            Answer::Events(mut stream) => loop {
                let data = match stream.next().await {
                    Item::Event(data) | Item::Unfinished(data) => data,
                    Item::Mark => continue,
                    Item::End(_) => return None,
                };
                let messages = answer::messages(&data, self.limits().depth).unwrap_or_default();
                if let Some(outcome) = messages.into_iter().find_map(|message| answer_in(message, id)) {
                    return Some(outcome);
                }
            },
        }
    }
}

impl Speak for HttpSession {
    fn floor(&self) -> &Floor {
        Self::floor(self)
    }

    async fn notify(&self, note: Rope) {
        self.tell(&self.forwarded(), note).await;
    }

    async fn request(&self, method: &'static str, params: Rope) -> Outcome {
        let id = self.next_id();
        let request = message::request(&RequestId::from_number(id), method, Some(params));
        let answered = tokio::time::timeout(ACKNOWLEDGE, self.exchange(id, request)).await;
        let silent = || Outcome::Failed(Failure::outcome_unknown("the server did not answer"));
        answered.ok().flatten().unwrap_or_else(silent)
    }
}

fn answer_in(message: Result<Message, MessageError>, id: u64) -> Option<Outcome> {
    let (named, outcome) = match message.ok()? {
        Message::Result { id, result } => (Some(id), outcome::of_result(result, ServerEra::Legacy)),
        Message::Error { id, error } => (id, Outcome::Error(error)),
        Message::Request { .. } | Message::Notification { .. } => return None,
    };
    (ids::named(named.as_ref(), id) != Named::Other).then_some(outcome)
}
