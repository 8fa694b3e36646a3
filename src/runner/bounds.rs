//! What a plan says of how long a run may be silent and how large its result may be: limits of tools.

use std::time::Duration;

use super::{Plan, What};
use crate::protocol::{Failure, Outcome, Reason, Retry, RpcError};

impl Plan {
    /// How long the run may go on without a sign of life.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        match self.what {
            What::Tool(_) => self.policy.idle_timeout,
            What::Other(_) => None,
        }
    }

    /// The outcome, unless it is a result, or an error of the server, that is too large.
    pub(super) fn fitting(&self, outcome: Outcome) -> Outcome {
        let (What::Tool(_), Some(limit)) = (&self.what, self.policy.max_result) else { return outcome };
        let failure = match &outcome {
            Outcome::Result(result) if result.len() > limit => too_large(result.len(), limit),
            Outcome::Shaped(result) if result.len() > limit => too_large(result.len(), limit),
            Outcome::Error(error) if error.raw().len() > limit => error_too_large(error, limit),
            Outcome::Result(_) | Outcome::Shaped(_) | Outcome::Error(_) | Outcome::Failed(_) | Outcome::Task(_) => {
                return outcome;
            }
        };
        Outcome::Failed(failure)
    }
}

/// Characters of a server's message that are told of an error that is too large.
const TOLD: usize = 128;

fn error_too_large(error: &RpcError, limit: usize) -> Failure {
    let (code, bytes) = (error.code(), error.raw().len());
    let message: String = error.message().chars().take(TOLD).collect();
    Failure::new(
        Reason::TooLarge,
        format!(
            "the server answered with error {code} (\"{}\"), whose {bytes} bytes are more than {limit} (max_result), so \
             that it was dropped; the same call would end the same way",
            message.escape_debug()
        ),
        Retry::No,
    )
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
