//! Answers and notifications on their way to a server: what they are about, for transports on which one may be lost.

use tokio::sync::oneshot;

use crate::protocol::{Failure, Json, Rope};

/// An answer or a notification: one line.
#[derive(Debug)]
pub(in crate::upstream) struct Note {
    line: Rope,
    about: About,
    lost: Option<oneshot::Sender<Failure>>,
}

/// What hangs on a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum About {
    /// Nothing: it is sent once.
    Nothing,
    /// A request of the server that is answered without anybody who was asked.
    Request,
    /// The server's request with this id, which somebody has answered.
    Question(Json),
    /// This call, on which the server is to stop its work.
    Cancel(u64),
}

/// What became of a note, once it is dropped.
#[derive(Debug)]
pub(super) struct Fate(oneshot::Receiver<Failure>);

impl Note {
    /// A note of this one line.
    pub(super) fn new(line: Rope, about: About) -> Self {
        Self { line, about, lost: None }
    }

    /// The same, and what becomes of it.
    pub(super) fn with_fate(line: Rope, about: About) -> (Self, Fate) {
        let (lost, fate) = oneshot::channel();
        (Self { line, about, lost: Some(lost) }, Fate(fate))
    }

    /// What hangs on it.
    pub(in crate::upstream) fn about(&self) -> &About {
        &self.about
    }

    /// Its line, to be sent now and perhaps again.
    pub(in crate::upstream) fn line(&mut self) -> Rope {
        self.line = std::mem::take(&mut self.line).shared();
        self.line.clone()
    }

    /// Its line, to be sent once.
    pub(super) fn into_line(self) -> Rope {
        self.line
    }

    /// It did not get to the server, and the call that hangs on it must end so.
    pub(in crate::upstream) fn lost(self, failure: Failure) {
        if let Some(lost) = self.lost {
            // Whoever waited for it may have left.
            let _ = lost.send(failure);
        }
    }
}

impl Fate {
    /// Resolves when the note is sent, or not wanted any more; with an error if it was lost.
    pub(super) async fn known(self) -> Result<(), Failure> {
        self.0.await.map_or(Ok(()), Err)
    }
}
