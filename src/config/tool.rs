//! `[defaults]` and `[[tool]]`: what holds for tools.

use std::collections::BTreeSet;
use std::time::Duration;

use toml::de::DeValue;

use super::fault::did_you_mean;
use super::policy::{AskPolicy, Cost, Dedupe, Fallback, Mode, OnLost, Rate, ToolPolicy, ToolRule};
use super::reader::{Reader, Section};
use super::run::ServerConfig;
use super::setting::{Keep, Setting, Size, choice, expected};

/// The defaults with what `section` changes.
pub(super) fn policy<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, default: &ToolPolicy) -> ToolPolicy {
    let policy = ToolPolicy {
        mode: section.get(reader, "mode").unwrap_or(default.mode),
        after: section.get(reader, "after").unwrap_or(default.after),
        timeout: section.get(reader, "timeout").unwrap_or(default.timeout),
        idle_timeout: section.get(reader, "idle_timeout").or(default.idle_timeout),
        queue_timeout: section.get(reader, "queue_timeout").unwrap_or(default.queue_timeout),
        keep: section.get(reader, "keep").map_or(default.keep, |Keep(keep)| keep),
        max_running: section.get(reader, "max_running").or(default.max_running),
        max_queued: section.get(reader, "max_queued").or(default.max_queued),
        rate: section.get(reader, "rate").or(default.rate),
        max_result: section.get(reader, "max_result").map(bytes).or(default.max_result),
        price: section.get(reader, "price").unwrap_or(default.price),
        price_per_minute: section.get(reader, "price_per_minute").unwrap_or(default.price_per_minute),
        fallback: section.get(reader, "fallback").unwrap_or(default.fallback),
        hold: section.get(reader, "hold").unwrap_or(default.hold),
        ask: section.get(reader, "ask").unwrap_or(default.ask),
        ask_timeout: section.get(reader, "ask_timeout").unwrap_or(default.ask_timeout),
        on_lost: section.get(reader, "on_lost").unwrap_or(default.on_lost),
        dedupe: section.get(reader, "dedupe").unwrap_or(default.dedupe),
        key_window: section.get(reader, "key_window").unwrap_or(default.key_window),
    };
    // What a rule takes from the defaults as it is was said there.
    let has = |keys: &[&str]| keys.iter().any(|key| section.has(reader, key));
    let (sets_after, sets_hold) = (has(&["after", "timeout", "mode"]), has(&["hold", "timeout", "mode", "fallback"]));
    let is_own = default == &ToolPolicy::default();
    if policy.mode == Mode::Auto && policy.after >= policy.timeout && (is_own || sets_after) {
        let shown = |duration: Duration| humantime::format_duration(duration).to_string();
        let key = if section.has(reader, "after") || !section.has(reader, "timeout") { "after" } else { "timeout" };
        let unsaid = |key: &str| if section.has(reader, key) { "" } else { ", which is not set here" };
        let message = format!(
            "after ({}{}) must be shorter than timeout ({}{}), or no call would ever become a task; for that use mode = \"sync\"",
            shown(policy.after),
            unsaid("after"),
            shown(policy.timeout),
            unsaid("timeout")
        );
        section.fault(reader, key, message);
    }
    if policy.mode == Mode::Auto
        && policy.fallback == Fallback::Handle
        && policy.hold >= policy.timeout
        && (is_own || sets_hold)
    {
        let key = if section.has(reader, "hold") || !section.has(reader, "timeout") { "hold" } else { "timeout" };
        section.fault(reader, key, "hold must be shorter than timeout, or no call would ever get a handle");
    }
    note_idle_limit(reader, section, &policy);
    policy
}

/// Notes a limit that another one makes idle.
fn note_idle_limit<'a>(reader: &mut Reader<'a>, section: &Section<'a>, policy: &ToolPolicy) {
    let is_here = section.has(reader, "idle_timeout") || section.has(reader, "timeout");
    if is_here && policy.idle_timeout.is_some_and(|idle| idle >= policy.timeout) {
        let key = if section.has(reader, "idle_timeout") { "idle_timeout" } else { "timeout" };
        section.note(reader, key, "idle_timeout is not shorter than timeout, so it never ends a run");
    }
}

pub(super) fn bytes(Size(bytes): Size) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The rules.
pub(super) fn rules<'a>(
    reader: &mut Reader<'a>,
    sections: Vec<Section<'a>>,
    default: &ToolPolicy,
    servers: &[ServerConfig],
) -> Vec<ToolRule> {
    let mut rules = Vec::new();
    let mut seen = BTreeSet::new();
    for mut section in sections {
        let pattern = section.get(reader, "match").map(|Pattern(pattern)| pattern);
        let server: Option<String> = section.get(reader, "server");
        let policy = policy(reader, &mut section, default);
        if pattern.is_none() && !section.has(reader, "match") {
            section.fault(reader, "match", "is missing: the name of a tool, or a pattern with *");
        }
        if let Some(name) = &server
            && !servers.iter().any(|server| server.name == *name)
        {
            let guess = did_you_mean(name, servers.iter().map(|server| server.name.as_str()));
            let message = format!("there is no [[server]] with the name \"{}\"{guess}", name.escape_debug());
            section.fault(reader, "server", message);
        }
        if let Some(pattern) = &pattern
            && !seen.insert((pattern.clone(), server.clone()))
        {
            section.fault(reader, "match", "an earlier rule has the same match and server; make them one");
        }
        section.finish(reader);
        rules.extend(pattern.map(|pattern| ToolRule { pattern, server, policy }));
    }
    rules
}

/// An exact name, or a pattern with `*`.
struct Pattern(String);

impl Setting for Pattern {
    const EXPECTED: &'static str = "the name of a tool, or a pattern such as \"export_*\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.chars().any(char::is_control) || text.trim() != text {
            return Err(format!("expected {}", Self::EXPECTED));
        }
        if text.contains("**") {
            return Err("one * matches any text already; write it once".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl Setting for Mode {
    const EXPECTED: &'static str = "\"sync\", \"auto\" or \"task\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("sync", Self::Sync), ("auto", Self::Auto), ("task", Self::Task)], &[])
    }
}

impl Setting for AskPolicy {
    const EXPECTED: &'static str = "\"task\" or \"first\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("task", Self::Task), ("first", Self::First)], &[])
    }
}

impl Setting for Fallback {
    const EXPECTED: &'static str = "\"wait\", \"handle\", \"legacy_tasks\" or \"refuse\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let choices = [
            ("wait", Self::Wait),
            ("handle", Self::Handle),
            ("legacy_tasks", Self::LegacyTasks),
            ("refuse", Self::Refuse),
        ];
        choice(text, &choices, &[])
    }
}

impl Setting for OnLost {
    const EXPECTED: &'static str = "\"unknown\" or \"rerun\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("unknown", Self::Unknown), ("rerun", Self::Rerun)], &[])
    }
}

impl Setting for Dedupe {
    const EXPECTED: &'static str = "\"off\", \"running\", or a duration such as \"10m\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return Duration::from_text(text).map(Self::Window);
        }
        choice(text, &[("off", Self::Off), ("running", Self::Running)], &[])
            .map_err(|error| format!("{error}; a duration such as \"10m\" is a window"))
    }
}

impl Setting for Rate {
    const EXPECTED: &'static str = "a number and a period, such as \"30/1m\", \"30/m\" or \"1000/1d\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug());
        let (count, per) = text.split_once('/').ok_or_else(wrong)?;
        let count = count.trim().parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
        let per = per.trim();
        let per =
            if per.starts_with(|first: char| first.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
        let per = Duration::from_text(&per).map_err(|_| wrong())?;
        Ok(Self { count, per })
    }
}

impl Setting for Cost {
    const EXPECTED: &'static str = "an amount, such as 0.25, with six decimals at most";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug());
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 {
            return Err(wrong());
        }
        let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(1_000_000)).ok_or_else(wrong)?;
        let part = format!("{part:0<6}").parse::<u64>().map_err(|_| wrong())?;
        whole.checked_add(part).map(Self::from_millionths).ok_or_else(wrong)
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            DeValue::Integer(number) => Self::from_text(number.as_str()),
            DeValue::Float(number) => Self::from_text(number.as_str()),
            other => Err(expected::<Self>(other)),
        }
    }
}
