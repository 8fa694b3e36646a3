//! `[defaults]` and `[[tool]]`: what holds for tools.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fault::did_you_mean;
use super::reader::{Reader, Section};
use super::run::{AskPolicy, Fallback, Mode, ServerConfig, ToolPolicy, ToolRule};
use super::setting::{Keep, Setting, choice};

/// Settings of tools that belong to versions to come.
pub(super) const LATER: &[&str] = &["on_lost", "dedupe", "idle_timeout", "max_queued", "rate", "budget"];

/// The defaults with what `section` changes.
pub(super) fn policy<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, default: &ToolPolicy) -> ToolPolicy {
    let policy = ToolPolicy {
        mode: section.get(reader, "mode").unwrap_or(default.mode),
        after: section.get(reader, "after").unwrap_or(default.after),
        timeout: section.get(reader, "timeout").unwrap_or(default.timeout),
        queue_timeout: section.get(reader, "queue_timeout").unwrap_or(default.queue_timeout),
        keep: section.get(reader, "keep").map_or(default.keep, |Keep(keep)| keep),
        max_running: section.get(reader, "max_running").or(default.max_running),
        fallback: section.get(reader, "fallback").unwrap_or(default.fallback),
        ask: section.get(reader, "ask").unwrap_or(default.ask),
        ask_timeout: section.get(reader, "ask_timeout").unwrap_or(default.ask_timeout),
    };
    if policy.mode == Mode::Auto && policy.after >= policy.timeout {
        let shown = |duration: Duration| humantime::format_duration(duration).to_string();
        let key = if section.has(reader, "after") || !section.has(reader, "timeout") { "after" } else { "timeout" };
        let message = format!(
            "after ({}) must be shorter than timeout ({}), or no call would ever become a task; for that use mode = \"sync\"",
            shown(policy.after),
            shown(policy.timeout)
        );
        section.fault(reader, key, message);
    }
    policy
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
        section.finish(reader, LATER);
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
    const EXPECTED: &'static str = "\"wait\" or \"refuse\"";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("wait", Self::Wait), ("refuse", Self::Refuse)], &["handle", "legacy_tasks"])
    }
}
