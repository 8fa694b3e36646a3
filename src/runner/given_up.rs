//! Why a run is given up.

use std::time::Duration;

use super::Linger;
use crate::config::Budget;
use crate::protocol::{Failure, Reason, Retry};

/// What the server was told, and what that leaves open.
pub(super) fn server_hears(linger: Linger) -> &'static str {
    match linger {
        Linger::AtMost(_) | Linger::UntilTimeout => {
            "the server was told to stop; it may have done part of its work, check before calling it again"
        }
        Linger::Untold(_) => {
            "the server is not told to stop (cancel = \"never\") and may go on to its end, check before calling it again"
        }
    }
}

pub(super) fn timed_out(limit: Duration, linger: Linger) -> Failure {
    let (limit, hears) = (humantime::format_duration(limit), server_hears(linger));
    let message = format!("the server did not finish within {limit} (timeout), and {hears}");
    Failure::new(Reason::Timeout, message, Retry::Unknown)
}

pub(super) fn idle(limit: Duration, linger: Linger) -> Failure {
    let (limit, hears) = (humantime::format_duration(limit), server_hears(linger));
    let message = format!("the tool reported no progress for {limit} (idle_timeout), and {hears}");
    Failure::new(Reason::IdleTimeout, message, Retry::Unknown)
}

pub(super) fn unanswered(limit: Duration, linger: Linger) -> Failure {
    let (limit, hears) = (humantime::format_duration(limit), server_hears(linger));
    let message = format!("the tool asked and got no answer within {limit} (ask_timeout); {hears}");
    Failure::new(Reason::InputTimeout, message, Retry::Unknown)
}

/// The budget was used up during the run.
pub(super) fn budget_used_up(budget: Budget, linger: Linger) -> Failure {
    let message = format!("your budget of {budget} was used up during the run, and {}", server_hears(linger));
    Failure::new(Reason::OverBudget, message, Retry::Unknown)
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
