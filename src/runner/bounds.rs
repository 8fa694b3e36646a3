//! What a plan says of how long a run may be silent and how large its result may be: limits of tools.

use std::time::Duration;

use super::{Plan, What};
use crate::protocol::{Failure, Outcome, Reason, Retry};

impl Plan {
    /// How long the run may go on without a sign of life.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        match self.what {
            What::Tool(_) => self.policy.idle_timeout,
            What::Other(_) => None,
        }
    }

    /// The outcome, unless it is a result that is too large.
    pub(super) fn fitting(&self, outcome: Outcome) -> Outcome {
        let (What::Tool(_), Some(limit)) = (&self.what, self.policy.max_result) else { return outcome };
        let bytes = match &outcome {
            Outcome::Result(result) => result.len(),
            Outcome::Shaped(result) => result.len(),
            Outcome::Error(_) | Outcome::Failed(_) | Outcome::Task(_) => return outcome,
        };
        if bytes <= limit { outcome } else { Outcome::Failed(too_large(bytes, limit)) }
    }
}

fn too_large(bytes: usize, limit: usize) -> Failure {
    Failure::new(
        Reason::TooLarge,
        format!(
            "the tool has run, but its result of {bytes} bytes is larger than {limit} (max_result) and was dropped; the \
             same call would end the same way, ask for less"
        ),
        Retry::No,
    )
}
