//! What a server is told on a connection beside requests.

use std::time::Duration;

use super::Connection;
use crate::config::ForwardCancel;
use crate::protocol::{Failure, Json, Rope, StopCause};
use crate::upstream::stdio::notes::{About, Note};
use crate::upstream::wire;

/// For how long an answer is sent again.
const ANSWER: Duration = Duration::from_mins(1);

impl Connection {
    /// Tells the server to stop its work on a call, if it is to be told.
    pub(super) fn tell_to_stop(&self, id: u64, cause: StopCause) {
        match self.0.setup.config.cancel {
            ForwardCancel::Forward | ForwardCancel::Ignored => {
                self.offer(wire::cancelled(id, cause), About::Cancel(id));
            }
            ForwardCancel::Never => {}
        }
    }

    /// Answers a request of the server for which nobody was asked.
    pub(super) fn reply(&self, answer: Rope) {
        self.offer(answer, About::Request);
    }

    fn offer(&self, note: Rope, about: About) {
        if self.0.notes.try_send(Note::new(wire::line(note), about)).is_err() {
            tracing::debug!(server = %self.0.setup.config.name, "the server does not read; a note to it was dropped");
        }
    }

    /// Sends a notification that must not be dropped.
    pub(in crate::upstream) async fn notify(&self, note: Rope) {
        // If the writer has ended, so will the connection.
        let _ = self.0.notes.send(Note::new(wire::line(note), About::Nothing)).await;
    }

    /// Sends the answer to the server's request `question`, and waits until it is sent. An error if that was lost, however
    /// often it was sent.
    pub(super) async fn answer(&self, question: Option<Json>, answer: Rope) -> Result<(), Failure> {
        let about = question.map_or(About::Request, About::Question);
        let (note, fate) = Note::with_fate(wire::line(answer), about);
        // If the writer has ended, so will the connection.
        let _ = self.0.notes.send(note).await;
        fate.known().await
    }

    /// Whether anybody still needs a note that was lost.
    pub(in crate::upstream) fn needs(&self, about: &About) -> bool {
        match about {
            About::Nothing => false,
            About::Request => true,
            About::Question(id) => self.0.floor.wants_answer(id),
            About::Cancel(call) => self.0.pending.is_unanswered(*call),
        }
    }

    /// A note that was lost is about to go out again; `false` if nobody needs it any more.
    pub(in crate::upstream) fn note_goes_out(&self, about: &About) -> bool {
        let is_needed = self.needs(about);
        if is_needed {
            self.0.pending.note();
        }
        is_needed
    }

    /// For how long a note may be sent again.
    pub(in crate::upstream) fn repeated_for(&self, about: &About) -> Duration {
        match about {
            About::Nothing => Duration::ZERO,
            About::Request | About::Question(_) => ANSWER,
            About::Cancel(_) => self.0.setup.config.cancel_grace,
        }
    }
}
