//! What the one who waits for a call wants of it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::{ForwardCancel, ServerConfig};
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
    /// For a call that was cancelled: its answer is waited for, but many servers never send one. `places` bound how many
    /// are waited for.
    pub(super) fn stop(places: &Arc<Semaphore>, server: &ServerConfig) -> Self {
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            return Self::Stop { until: Some(Instant::now()), _place: None };
        };
        let until = match server.cancel {
            ForwardCancel::Forward | ForwardCancel::Never => Some(Instant::now() + server.cancel_grace),
            ForwardCancel::Ignored => None,
        };
        Self::Stop { until, _place: Some(place) }
    }

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
