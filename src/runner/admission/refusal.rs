//! Refusals by a limit: which one, and when it is worth trying again.

use std::time::Duration;

use crate::clock::{millis, rough};
use crate::config::{Budget, Cost, Rate};
use crate::protocol::{Failure, Reason, Retry};

pub(super) fn tool_queue_full(tool: &str, wait: Duration) -> Failure {
    let tool = shown(tool);
    let message = format!(
        "too many calls of {tool} wait for a free slot already (max_queued); nothing was sent, try again later"
    );
    Failure::new(Reason::QueueFull, message, after(wait))
}

pub(super) fn tool_queue_share_full(tool: &str, wait: Duration) -> Failure {
    let tool = shown(tool);
    let message = format!(
        "the line of calls of {tool} (max_queued) is nearly full, and you have your share of it; nothing was sent, try \
         again when some of your calls are done"
    );
    Failure::new(Reason::QueueFull, message, after(wait))
}

pub(super) fn owner_queue_full(wait: Duration) -> Failure {
    let message = "too many of your calls wait for a free slot already (max_queued of the owner); nothing was sent, \
                   try again when some of them are done";
    Failure::new(Reason::QueueFull, message, after(wait))
}

pub(super) fn queue_full(wait: Duration) -> Failure {
    let message = "too many calls wait for a free slot (limits.queue); nothing was sent, try again later";
    Failure::new(Reason::QueueFull, message, after(wait))
}

pub(super) fn queue_share_full(wait: Duration) -> Failure {
    let message = "the line for free slots (limits.queue) is nearly full, and you have your share of it; nothing was \
                   sent, try again when some of your calls are done";
    Failure::new(Reason::QueueFull, message, after(wait))
}

/// Of the tool with this name, or of all. `whose` is what is to be said of the starts that there are.
pub(super) fn shared_rate(tool: Option<&str>, rate: Rate, whose: &str, wait: Duration) -> Failure {
    let shown_wait = rough(wait);
    let what = match tool {
        Some(tool) => format!("{} may be started {rate} times (rate)", shown(tool)),
        None => format!("calls of tools may be started {rate} times, all together (limits.rate)"),
    };
    let message = format!("{what}{whose}; nothing was sent, try again in {shown_wait}");
    Failure::new(Reason::RateLimited, message, after(wait))
}

pub(super) fn owner_rate(rate: Rate, wait: Duration) -> Failure {
    let shown_wait = rough(wait);
    let message =
        format!("you may start {rate} calls of tools (rate of the owner); nothing was sent, try again in {shown_wait}");
    Failure::new(Reason::RateLimited, message, after(wait))
}

/// The budget does not cover the start. `wait` is when it will; `None` for never.
pub(super) fn over_budget(price: Cost, left: Cost, budget: Budget, wait: Option<Duration>) -> Failure {
    let Some(wait) = wait else {
        let message = format!("the call costs {price}, more than your whole budget of {budget}; nothing was sent");
        return Failure::new(Reason::OverBudget, message, Retry::No);
    };
    let (price, shown_wait) = (if price == Cost::ZERO { String::new() } else { format!(" of {price}") }, rough(wait));
    let message = format!(
        "your budget of {budget} has {left} left, too little for this call{price}; nothing was sent, try again in {shown_wait}"
    );
    Failure::new(Reason::OverBudget, message, after(wait))
}

/// Rounded up to what the wire can say, so that it is never too early.
fn after(wait: Duration) -> Retry {
    Retry::After(whole_millis(wait))
}

fn whole_millis(wait: Duration) -> Duration {
    let whole = Duration::from_millis(millis(wait));
    if whole < wait { whole + Duration::from_millis(1) } else { whole }
}

/// The name of a tool, as a caller chose it, in a sentence.
fn shown(tool: &str) -> String {
    const LONGEST: usize = 64;
    let mut shown: String = tool.chars().take(LONGEST).collect();
    if shown.len() < tool.len() {
        shown.push('…');
    }
    format!("\"{}\"", shown.escape_debug())
}
