//! Why a run is given up.

use std::time::Duration;

use crate::protocol::{Failure, Reason, Retry};

pub(super) fn timed_out(limit: Duration) -> Failure {
    let limit = humantime::format_duration(limit);
    Failure::new(
        Reason::Timeout,
        format!(
            "the server did not finish within {limit} (timeout) and was told to stop; \
             it may have done part of its work, check before calling it again"
        ),
        Retry::Unknown,
    )
}

pub(super) fn idle(limit: Duration) -> Failure {
    let limit = humantime::format_duration(limit);
    Failure::new(
        Reason::IdleTimeout,
        format!(
            "the tool reported no progress for {limit} (idle_timeout), and the server was told to stop; \
             it may have done part of its work, check before calling it again"
        ),
        Retry::Unknown,
    )
}

/// An operator has stopped a held call that the server has.
pub(super) fn stopped_by_operator() -> Failure {
    let message = "the operator has cancelled the call; the tool may have done part of its work, check before calling it \
                   again";
    Failure::new(Reason::OutcomeUnknown, message, Retry::Unknown)
}

/// An operator has stopped a held call that was not sent yet.
pub(super) fn not_begun_for_operator() -> Failure {
    let message = "the operator has cancelled the call before it was sent; the tool has not run";
    Failure::new(Reason::NotStarted, message, Retry::No)
}
