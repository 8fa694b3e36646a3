//! What is written and means nothing beside the rest of the configuration, or cannot work with it.

use toml::de::{DeTable, DeValue};

use super::owner_limits::OwnerLimits;
use super::policy::{AskPolicy, Cost, Fallback, Mode, ToolPolicy};
use super::reader::Reader;
use super::run::{Config, Transport};

/// A table with settings of tools, `[defaults]` or a rule.
struct Part<'a> {
    path: String,
    table: &'a DeTable<'a>,
    policy: &'a ToolPolicy,
    /// All whom it reaches: itself, and for the defaults every rule.
    reaches: Vec<&'a ToolPolicy>,
}

/// Notes the keys that mean nothing. `table` is what `config` was read from.
pub(super) fn add<'a>(reader: &mut Reader<'_>, table: &'a DeTable<'a>, config: &'a Config) {
    for part in parts(table, config) {
        idle_keys(reader, &part, config);
        unaffordable(reader, &part, config);
    }
    budgets(reader, table, config);
    companions(reader, table, config);
    too_short(reader, table, config);
    loops(reader, table, config);
}

fn parts<'a>(table: &'a DeTable<'a>, config: &'a Config) -> Vec<Part<'a>> {
    let rules = || config.tools.iter().map(|rule| &rule.policy);
    let defaults = table_of(table, "defaults").map(|table| Part {
        path: "defaults".to_owned(),
        table,
        policy: &config.defaults,
        reaches: std::iter::once(&config.defaults).chain(rules()).collect(),
    });
    let written = tables_of(table, "tool").enumerate().zip(rules());
    let rules =
        written.map(|((at, table), policy)| Part { path: format!("tool[{at}]"), table, policy, reaches: vec![policy] });
    defaults.into_iter().chain(rules).collect()
}

fn idle_keys(reader: &mut Reader<'_>, part: &Part<'_>, config: &Config) {
    let any = |uses: fn(&ToolPolicy) -> bool| part.reaches.iter().any(|policy| uses(policy));
    let mode = match part.policy.mode {
        Mode::Sync => "sync",
        Mode::Auto => "auto",
        Mode::Task => "task",
    };
    let fallback = match part.policy.fallback {
        Fallback::Wait => "wait",
        Fallback::Handle => "handle",
        Fallback::LegacyTasks => "legacy_tasks",
        Fallback::Refuse => "refuse",
    };
    if !any(|policy| policy.mode == Mode::Auto) {
        let message = format!("means nothing beside mode = \"{mode}\"; it is for mode = \"auto\"");
        note(reader, &part.path, part.table, "after", message);
    }
    if !any(|policy| policy.fallback == Fallback::Handle) {
        let message = format!("means nothing beside fallback = \"{fallback}\"; it is for fallback = \"handle\"");
        note(reader, &part.path, part.table, "hold", message);
    }
    if part.policy.ask == AskPolicy::First && !any(|policy| policy.mode != Mode::Sync) {
        let message = "means nothing beside mode = \"sync\", where no call becomes a task".to_owned();
        note(reader, &part.path, part.table, "ask", message);
    }
    if !config.owner_rules.any_budget() {
        let prices = [("price", part.policy.price), ("price_per_minute", part.policy.price_per_minute)];
        for (key, _) in prices.into_iter().filter(|(_, price)| *price != Cost::ZERO) {
            let message =
                "limits nothing without a budget in [owner.limits] or [[owner.limit]]; tasks show what they cost";
            note(reader, &part.path, part.table, key, message.to_owned());
        }
    }
}

/// A price that is more than there ever is to spend.
fn unaffordable(reader: &mut Reader<'_>, part: &Part<'_>, config: &Config) {
    let rules = &config.owner_rules;
    let price = part.policy.price;
    let is_over = |limits: &OwnerLimits| limits.budget.filter(|budget| price > budget.amount);
    if let Some(budget) = is_over(&rules.all) {
        let message = format!("is more than the whole budget of an owner ({budget}): such a call is refused for ever");
        note(reader, &part.path, part.table, "price", message);
        return;
    }
    let named = rules.named.iter().find_map(|(name, limits)| Some((name, is_over(limits)?)));
    if let Some((name, budget)) = named {
        let name = name.escape_debug();
        let message = format!(
            "is more than the whole budget of \"{name}\" ({budget}): such a call of theirs is refused for ever"
        );
        note(reader, &part.path, part.table, "price", message);
    }
}

/// A budget that nothing is ever taken from.
fn budgets(reader: &mut Reader<'_>, table: &DeTable<'_>, config: &Config) {
    let costs = |policy: &ToolPolicy| policy.price != Cost::ZERO || policy.price_per_minute != Cost::ZERO;
    if costs(&config.defaults) || config.tools.iter().any(|rule| costs(&rule.policy)) {
        return;
    }
    let Some(owner) = table_of(table, "owner") else { return };
    let limits = table_of(owner, "limits").map(|limits| ("owner.limits".to_owned(), limits));
    let named = tables_of(owner, "limit").enumerate().map(|(at, limit)| (format!("owner.limit[{at}]"), limit));
    for (path, limits) in limits.into_iter().chain(named) {
        if value_of(limits, "budget").and_then(DeValue::as_str) != Some("none") {
            let message = "nothing is spent, since no tool has a price or a price_per_minute";
            note(reader, &path, limits, "budget", message.to_owned());
        }
    }
}

/// Names for tools that are nowhere listed.
fn companions(reader: &mut Reader<'_>, table: &DeTable<'_>, config: &Config) {
    for (at, (table, server)) in tables_of(table, "server").zip(&config.servers).enumerate() {
        let rules = config.tools.iter().filter(|rule| rule.server.as_ref().is_none_or(|name| *name == server.name));
        let mut policies = rules.map(|rule| &rule.policy).chain([&config.defaults]);
        if !policies.any(|policy| policy.fallback == Fallback::Handle) {
            let message = "means nothing, since no tool of it has fallback = \"handle\"";
            note(reader, &format!("server[{at}]"), table, "companion_tools", message.to_owned());
        }
    }
}

/// Faults of owners whose runs end before they could become tasks, as it is one of a tool.
fn too_short(reader: &mut Reader<'_>, table: &DeTable<'_>, config: &Config) {
    let rules = config.tools.iter().map(|rule| (format!("the tool \"{}\"", rule.pattern.escape_debug()), &rule.policy));
    let policies: Vec<_> = std::iter::once(("[defaults]".to_owned(), &config.defaults)).chain(rules).collect();
    let Some(owner) = table_of(table, "owner") else { return };
    let limits =
        table_of(owner, "limits").map(|limits| ("owner.limits".to_owned(), limits, &config.owner_rules.all, ""));
    let named = tables_of(owner, "limit").enumerate().filter_map(|(at, limit)| {
        let name = value_of(limit, "name").and_then(DeValue::as_str)?;
        Some((format!("owner.limit[{at}]"), limit, config.owner_rules.named.get(name)?, " of theirs"))
    });
    for (path, table, limits, whose) in limits.into_iter().chain(named) {
        let Some(timeout) = limits.run.timeout else { continue };
        let short = policies.iter().find(|(_, policy)| policy.mode == Mode::Auto && policy.after >= timeout);
        // What a name takes from [owner.limits] as it is was said there.
        if let (Some((what, policy)), Some(line)) = (short, line_of(reader, table, "timeout")) {
            let shown = |duration| humantime::format_duration(duration).to_string();
            let message = format!(
                "timeout ({}) must be longer than after of {what} ({}), or no call would ever become a task{whose}; for that use \
                 mode = \"sync\"",
                shown(timeout),
                shown(policy.after)
            );
            reader.fault(format!("{path}.timeout"), Some(line), message);
        }
    }
}

/// Servers that are this proxy itself.
fn loops(reader: &mut Reader<'_>, table: &DeTable<'_>, config: &Config) {
    for (at, (table, server)) in tables_of(table, "server").zip(&config.servers).enumerate() {
        let url = match &server.transport {
            Transport::Http { url, .. } | Transport::Sse { url, .. } => url,
            Transport::Stdio { .. } => continue,
        };
        if config.is_own(url) {
            let message = "leads back to this proxy itself, so every call would go round until it is refused; name the \
                           server behind, or let the proxy listen elsewhere (listen.http)";
            note(reader, &format!("server[{at}]"), table, "url", message.to_owned());
        }
    }
}

/// Where a key is written, if it is.
fn line_of(reader: &Reader<'_>, table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (written, _) = table.iter().find(|(written, _)| written.get_ref() == key)?;
    Some(reader.line_of(written.span().start))
}

/// Notes something of a key, if it is written there.
fn note(reader: &mut Reader<'_>, path: &str, table: &DeTable<'_>, key: &str, message: String) {
    let Some(line) = line_of(reader, table, key) else { return };
    reader.note(format!("{path}.{key}"), Some(line), message);
}

fn value_of<'a>(table: &'a DeTable<'a>, key: &str) -> Option<&'a DeValue<'a>> {
    table.iter().find(|(written, _)| written.get_ref() == key).map(|(_, value)| value.get_ref())
}

fn table_of<'a>(table: &'a DeTable<'a>, key: &str) -> Option<&'a DeTable<'a>> {
    value_of(table, key).and_then(DeValue::as_table)
}

fn tables_of<'a>(table: &'a DeTable<'a>, key: &str) -> impl Iterator<Item = &'a DeTable<'a>> {
    let list = value_of(table, key).and_then(DeValue::as_array);
    list.into_iter().flat_map(|list| list.iter()).filter_map(|element| element.get_ref().as_table())
}
