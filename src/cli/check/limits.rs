//! What `raincheck check` shows of tools and owners: what becomes of a call, and whatever else is set.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use bytesize::ByteSize;

use crate::config::{AskPolicy, Ceilings, Dedupe, Fallback, Limits, Mode, OnLost, OwnerLimits, OwnerRules, ToolPolicy};

/// What becomes of a call.
pub(super) fn of_tool(policy: &ToolPolicy) -> String {
    let default = ToolPolicy::default();
    let mut text = match policy.mode {
        Mode::Sync => "mode sync".to_owned(),
        Mode::Auto => format!("mode auto, after {}", time(policy.after)),
        Mode::Task => "mode task".to_owned(),
    };
    let keep = policy.keep.map_or_else(|| "forever".to_owned(), time);
    let _ = write!(text, ", timeout {}, keep {keep}", time(policy.timeout));
    match policy.fallback {
        Fallback::Wait => {}
        Fallback::Handle if policy.mode == Mode::Auto => {
            let _ = write!(text, ", fallback handle after {}", time(policy.hold));
        }
        Fallback::Handle => text.push_str(", fallback handle"),
        Fallback::LegacyTasks => text.push_str(", fallback legacy_tasks"),
        Fallback::Refuse => text.push_str(", fallback refuse"),
    }
    let changed = |time: Duration, default: Duration| (time != default).then_some(time);
    let dedupe = match policy.dedupe {
        Dedupe::Off => None,
        Dedupe::Running => Some("running".to_owned()),
        Dedupe::Window(window) => Some(time(window)),
    };
    let cost = |cost| (cost != default.price).then_some(cost);
    let set = [
        shown("idle_timeout", policy.idle_timeout.map(time)),
        shown("queue_timeout", changed(policy.queue_timeout, default.queue_timeout).map(time)),
        shown("max_running", policy.max_running),
        shown("max_queued", policy.max_queued),
        shown("rate", policy.rate),
        shown("max_result", policy.max_result.map(size)),
        shown("price", cost(policy.price)),
        shown("price_per_minute", cost(policy.price_per_minute)),
        shown("ask", (policy.ask == AskPolicy::First).then_some("first")),
        shown("ask_timeout", changed(policy.ask_timeout, default.ask_timeout).map(time)),
        shown("on_lost", (policy.on_lost == OnLost::Rerun).then_some("rerun")),
        shown("dedupe", dedupe),
        shown("key_window", changed(policy.key_window, default.key_window).map(time)),
    ];
    for set in set.into_iter().flatten() {
        text.push_str(", ");
        text.push_str(&set);
    }
    text
}

/// What owners may use, a line for each of whom something is said: who, and what.
pub(super) fn of_owners(rules: &OwnerRules) -> Vec<(String, String)> {
    let all = (rules.all != OwnerLimits::default()).then(|| ("each".to_owned(), of_owner(&rules.all)));
    let named = rules.named.iter().map(|(name, limits)| (name.escape_debug().to_string(), of_owner(limits)));
    all.into_iter().chain(named).collect()
}

fn of_owner(limits: &OwnerLimits) -> String {
    let Ceilings { timeout, idle_timeout, queue_timeout, ask_timeout, max_result } = &limits.run;
    let set = [
        shown("max_running", limits.max_running),
        shown("max_queued", limits.max_queued),
        shown("max_tasks", limits.max_tasks),
        shown("rate", limits.rate),
        shown("budget", limits.budget),
        shown("timeout", timeout.map(time)),
        shown("idle_timeout", idle_timeout.map(time)),
        shown("queue_timeout", queue_timeout.map(time)),
        shown("ask_timeout", ask_timeout.map(time)),
        shown("max_result", max_result.map(size)),
    ];
    let set: Vec<String> = set.into_iter().flatten().collect();
    if set.is_empty() { "no limits".to_owned() } else { set.join(", ") }
}

/// What holds for everybody together, where it is not what it is by default.
pub(super) fn of_all(limits: &Limits) -> Option<String> {
    let default = Limits::default();
    let changed = |count: usize, default: usize| (count != default).then_some(count);
    let set = [
        shown("calls", changed(limits.calls, default.calls)),
        shown("queue", changed(limits.queue, default.queue)),
        shown("rate", limits.rate),
        shown("connections", changed(limits.connections, default.connections)),
        shown("streams", changed(limits.streams, default.streams)),
        shown("sessions", changed(limits.sessions, default.sessions)),
        shown("depth", changed(limits.depth, default.depth)),
        shown("body", changed(limits.body, default.body).map(size)),
        shown("message", changed(limits.message, default.message).map(size)),
        shown("line", changed(limits.line, default.line).map(size)),
    ];
    let set: Vec<String> = set.into_iter().flatten().collect();
    (!set.is_empty()).then(|| set.join(", "))
}

fn shown(key: &str, value: Option<impl Display>) -> Option<String> {
    value.map(|value| format!("{key} {value}"))
}

fn time(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn size(bytes: usize) -> String {
    ByteSize::b(bytes as u64).to_string()
}
