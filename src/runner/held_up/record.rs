//! The record of a call that waits for its server: it says Queued until the call is let go.

use std::time::Duration;

use tokio::time::timeout;

use super::super::Promotion;
use super::super::live::Phase;
use super::super::promote::{Seed, Why};
use super::super::run::Run;
use super::super::seat::{Held, Seat, Standing};
use crate::protocol::{Failure, Reason, Retry, WaitsFor};
use crate::store::Dispatch;
use crate::task::State;

/// How long the record waits for the store before the call is attended again.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same, where it is what another process can send the call by. A stop waits a little longer for its last words.
const LAST_PATIENCE: Duration = Duration::from_secs(4);

impl Run {
    /// Records that a call waits that could not be sent when it was let go: its server had ended by then, or has not read
    /// it. With `dispatch` another process can send it.
    pub(super) async fn is_recorded_as_waiting(&self, seat: &Seat, dispatch: Option<Dispatch>) {
        let Some(id) = seat.record() else { return };
        // If it is not written, the next process takes the run for a lost one: that is safe.
        let patience = if dispatch.is_some() { LAST_PATIENCE } else { PATIENCE };
        match timeout(patience, self.shared.store.wait(&id, dispatch)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(task = ?id, %error, "that a call waits for its server is not recorded");
            }
            Err(_) => tracing::debug!(task = ?id, "that a call waits for its server is not recorded in time"),
        }
    }

    /// Gives the handle of a call that is to be a task at once and waits for its server; `None` if it was refused.
    pub(super) async fn hands_out_waiting(&self, seat: Seat, what: WaitsFor) -> Option<Seat> {
        match (seat, self.plan.way.promotion) {
            (Seat::Held(held), Promotion::AtOnce) => {
                self.make_at_once(held, Seed::silent(State::Queued, Phase::Waits(what), Why::Mode)).await
            }
            (seat, _) => Some(seat),
        }
    }

    /// Makes sure that the record of a call whose caller is held says that it runs.
    pub(in crate::runner) async fn start_held(&self, mut held: Held) -> Option<Seat> {
        let Some(recorded) = held.take_record() else { return Some(Seat::Held(held)) };
        match self.start(recorded.without_caller()).await {
            Some(Seat::Task(owned)) => {
                let standing = Standing::Recorded(Box::new(owned.into_record()));
                Some(Seat::Held(Held { standing, ..held }))
            }
            Some(Seat::Held(_) | Seat::Parked(_)) | None => {
                held.done(self.not_sent(not_recorded()));
                None
            }
        }
    }
}

fn not_recorded() -> Failure {
    Failure::new(Reason::NotStarted, "the call could not be recorded in time, and was not sent", Retry::SOON)
}
