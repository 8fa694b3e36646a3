//! What the one who waits for a call wants of it.

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::protocol::ReplySender;

/// What the one who waits for a call wants.
#[derive(Debug)]
pub(super) enum Wish {
    /// The outcome.
    Outcome,
    /// That the server stops. The answer is waited for until then; `None` for as long as somebody listens.
    Stop {
        /// The end of waiting.
        until: Option<Instant>,
        _place: Option<OwnedSemaphorePermit>,
    },
}

/// What happens while a call runs.
#[derive(Debug)]
pub(super) enum Change {
    /// It is to be stopped.
    Cancelled,
    /// An answer is not waited for any more.
    GivenUp,
}

impl Wish {
    /// The next change. Cancel safe.
    pub(super) async fn changes(&self, sender: &mut ReplySender) -> Change {
        match self {
            Self::Outcome => {
                sender.cancelled().await;
                Change::Cancelled
            }
            Self::Stop { until: Some(until), .. } => {
                tokio::time::sleep_until(*until).await;
                Change::GivenUp
            }
            Self::Stop { until: None, .. } => {
                sender.abandoned().await;
                Change::GivenUp
            }
        }
    }
}
