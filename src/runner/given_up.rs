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
    let limit = humantime::format_duration(limit);
    told(Reason::Timeout, &format!("the server did not finish within {limit} (timeout)"), linger)
}

pub(super) fn idle(limit: Duration, linger: Linger) -> Failure {
    let limit = humantime::format_duration(limit);
    told(Reason::IdleTimeout, &format!("the tool reported no progress for {limit} (idle_timeout)"), linger)
}

pub(super) fn unanswered(limit: Duration, linger: Linger) -> Failure {
    let (limit, hears) = (humantime::format_duration(limit), server_hears(linger));
    let message = format!("the tool asked and got no answer within {limit} (ask_timeout); {hears}");
    Failure::new(Reason::InputTimeout, message, Retry::Unknown)
}

/// The budget was used up during the run.
pub(super) fn budget_used_up(budget: Budget, linger: Linger) -> Failure {
    told(Reason::OverBudget, &format!("your budget of {budget} was used up during the run"), linger)
}

fn told(reason: Reason, how: &str, linger: Linger) -> Failure {
    Failure::new(reason, format!("{how}, and {}", server_hears(linger)), Retry::Unknown).for_how(how)
}

/// The same, of a call whose server never read its request; `how` says what ended it.
pub(super) fn never_read(how: &str) -> Failure {
    let message = format!(
        "{how}: the server has not read the request, which was withdrawn before all of it was out; the tool has not run, \
         so call it again later"
    );
    Failure::new(Reason::NotStarted, message, Retry::SOON)
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
