//! Notes to a server, which are sent again where they were lost on the way: an answer carries the server's own id, and a
//! call can be cancelled twice.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::super::answer;
use super::super::client::SendError;
use super::super::delivery::{Backoff, is_before_the_server, is_for_now, unanswered};
use super::super::failures;
use super::post::{NOTE, Posts, drain};
use crate::protocol::Rope;
use crate::upstream::stdio::connection::Connection;
use crate::upstream::stdio::notes::{About, Note};

/// How a note went.
#[derive(Debug)]
enum Sent {
    /// The server has it.
    Taken,
    /// The server, or whoever guards it, has it and does not want it.
    Refused(StatusCode),
    /// Nobody took it, or nobody knows. It may be sent again.
    Lost(Lost),
}

/// How a note was lost.
#[derive(Debug)]
enum Lost {
    /// Not now, says this status. It may be sent again after this wait, if one was named.
    NotNow(StatusCode, Option<Duration>),
    /// Nobody knows whether it came to the server.
    OnTheWay(String),
}

impl Posts {
    /// Sends a note, and waits until it is acknowledged or lost. What is lost is sent again in the background.
    pub(super) async fn note(&self, connection: &Connection, mut note: Note) {
        let until = Instant::now() + connection.repeated_for(note.about());
        let lost = match self.try_note(note.line()).await {
            Sent::Taken => return,
            Sent::Refused(status) => return refused(connection, note, status),
            Sent::Lost(lost) => lost,
        };
        let Ok(place) = Arc::clone(&self.repeats).try_acquire_owned() else {
            return give_up(connection, note, &lost, 1);
        };
        let (posts, of) = (self.clone(), connection.clone());
        self.in_background(connection, async move {
            posts.insist(&of, note, lost, until).await;
            drop(place);
        });
    }

    async fn try_note(&self, line: Rope) -> Sent {
        let sent = tokio::time::timeout(NOTE, async {
            let response = self.post(line).await?;
            let (status, wait) = (response.status(), answer::retry_after(response.headers()));
            drain(response).await;
            Ok::<_, SendError>((status, wait))
        });
        match sent.await {
            Ok(Ok((status, _))) if status.is_success() => Sent::Taken,
            Ok(Ok((status, wait))) if is_for_now(status) => Sent::Lost(Lost::NotNow(status, wait)),
            Ok(Ok((status, _))) => Sent::Refused(status),
            Ok(Err(error)) => Sent::Lost(Lost::OnTheWay(format!("{error} ({})", error.why()))),
            Err(_) => Sent::Lost(Lost::OnTheWay(format!("the server did not acknowledge it within {NOTE:?}"))),
        }
    }

    /// Sends a note that was lost until the server takes it, for as long as anybody needs it.
    async fn insist(&self, connection: &Connection, mut note: Note, mut lost: Lost, until: Instant) {
        let (mut backoff, mut attempts) = (Backoff::new(), 1_u32);
        loop {
            let wait = backoff.next(lost.asked());
            if Instant::now() + wait > until {
                return give_up(connection, note, &lost, attempts);
            }
            tokio::time::sleep(wait).await;
            if !connection.note_goes_out(note.about()) {
                return;
            }
            tracing::debug!(?lost, "a message to a server is sent again");
            attempts += 1;
            lost = match self.try_note(note.line()).await {
                Sent::Taken => return,
                Sent::Refused(status) => return refused(connection, note, status),
                Sent::Lost(lost) => lost,
            };
        }
    }
}

impl Lost {
    fn asked(&self) -> Option<Duration> {
        match self {
            Self::NotNow(_, asked) => *asked,
            Self::OnTheWay(_) => None,
        }
    }
}

/// A note was lost, however often it was sent.
fn give_up(connection: &Connection, note: Note, lost: &Lost, attempts: u32) {
    tracing::debug!(?lost, attempts, "a message to a server was lost");
    let how = match lost {
        // The server itself says so.
        Lost::NotNow(status, _) if status.is_server_error() && !failures::is_of_gateway(*status) => {
            return goes_on(&note, *status);
        }
        Lost::NotNow(status, _) => format!("the server answered with status {status}"),
        Lost::OnTheWay(how) => how.clone(),
    };
    end(connection, note, &format!("{how}, in attempt {attempts}"));
}

/// A server does not want a note.
fn refused(connection: &Connection, note: Note, status: StatusCode) {
    if is_before_the_server(status) {
        end(connection, note, &format!("the server answered with status {status}"));
    } else {
        goes_on(&note, status);
    }
}

/// What a server does not take it may not need.
fn goes_on(note: &Note, status: StatusCode) {
    match note.about() {
        About::Question(_) | About::Request => {
            tracing::warn!(%status, "a server does not take the answer to what it asked; its call goes on");
        }
        About::Cancel(_) | About::Nothing => tracing::debug!(%status, "a server did not take a message"),
    }
}

/// Ends the call that hangs on an answer, unless the server does not wait for that any more.
fn end(connection: &Connection, note: Note, how: &str) {
    if connection.needs(note.about()) {
        note.lost(unanswered(how));
    }
}
