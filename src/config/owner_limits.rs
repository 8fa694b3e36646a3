//! `[owner.limits]` and `[[owner.limit]]`: what each owner may use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeValue;

use super::policy::{Cost, Rate, ToolPolicy};
use super::reader::{Reader, Section};
use super::run::{OwnerConfig, OwnerSource};
use super::setting::{Setting, expected};
use super::tool::bytes;

/// What owners may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerRules {
    /// Each owner whom nothing else is said of.
    pub all: OwnerLimits,
    /// Owners with a name: of a listed token, of a gateway's header, or the subject of a signed token.
    pub named: BTreeMap<String, OwnerLimits>,
    /// Names that listed tokens stand for.
    pub tokens: BTreeSet<String>,
    /// Whose subjects the named may be, if signed tokens of an issuer are taken.
    pub issuer: Option<String>,
}

/// What one owner may use. All but `max_tasks` hold for calls of tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Runs at the same time; `None` for no limit but the common one.
    pub max_running: Option<usize>,
    /// Calls that wait for a slot; `None` for no limit but the common one.
    pub max_queued: Option<usize>,
    /// Tasks in the store, ended ones too; `None` for no limit but the common one.
    pub max_tasks: Option<usize>,
    /// How often runs may be started; `None` for as often as one likes.
    pub rate: Option<Rate>,
    /// What may be spent; `None` for no limit.
    pub budget: Option<Budget>,
    /// What each of its runs may take at most.
    pub run: Ceilings,
}

/// What a run of an owner may take at most, whatever its tool may; `None` for what the tool may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Hard limit of the run.
    pub timeout: Option<Duration>,
    /// How long it may go on without a sign of life of the tool.
    pub idle_timeout: Option<Duration>,
    /// How long its call may wait for a slot.
    pub queue_timeout: Option<Duration>,
    /// How long a question may wait for its answer.
    pub ask_timeout: Option<Duration>,
    /// The largest result in bytes.
    pub max_result: Option<usize>,
}

/// How much may be spent in any period of that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How much.
    pub amount: Cost,
    /// In which time.
    pub per: Duration,
}

/// A limit, or `"none"`.
struct Bound<T>(Option<T>);

impl OwnerRules {
    /// What an owner with this name, or without one, may use.
    pub fn of(&self, name: Option<&str>) -> &OwnerLimits {
        match name {
            Some(name) if !self.named.is_empty() => self.named.get(name).unwrap_or(&self.all),
            _ => &self.all,
        }
    }

    /// Whether any owner has a budget.
    pub fn any_budget(&self) -> bool {
        self.longest_budget().is_some()
    }

    /// The longest time that any budget is for; `None` if no owner has one.
    pub fn longest_budget(&self) -> Option<Duration> {
        std::iter::once(&self.all).chain(self.named.values()).filter_map(|limits| Some(limits.budget?.per)).max()
    }
}

impl Ceilings {
    /// What the config says of a tool, where it is no more than this.
    pub fn bound(&self, policy: &Arc<ToolPolicy>) -> Arc<ToolPolicy> {
        if *self == Self::default() {
            return Arc::clone(policy);
        }
        Arc::new(ToolPolicy {
            timeout: least(Some(policy.timeout), self.timeout).unwrap_or(policy.timeout),
            idle_timeout: least(policy.idle_timeout, self.idle_timeout),
            queue_timeout: least(Some(policy.queue_timeout), self.queue_timeout).unwrap_or(policy.queue_timeout),
            ask_timeout: least(Some(policy.ask_timeout), self.ask_timeout).unwrap_or(policy.ask_timeout),
            max_result: least(policy.max_result, self.max_result),
            ..ToolPolicy::clone(policy)
        })
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

/// Reads both. To be called with the section `[owner]`, after the rest of it, which says `who` callers are.
/// `tokens` are the names that listed tokens stand for.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    owner: &mut Section<'a>,
    who: &OwnerConfig,
    tokens: BTreeSet<String>,
) -> OwnerRules {
    let issuer = who.jwt.as_ref().map(|jwt| jwt.issuer.clone());
    let mut section = owner.table(reader, "limits");
    let all = limits(reader, &mut section, &OwnerLimits::default());
    section.finish(reader);
    let mut named = BTreeMap::new();
    for mut section in owner.tables(reader, "limit") {
        let name: Option<String> = section.get(reader, "name");
        if name.is_none() && !section.has(reader, "name") {
            section.fault(reader, "name", "is missing: the name of the owner that it holds for");
        }
        let limits = limits(reader, &mut section, &all);
        // Of what is written wrongly it is not known which names it would have given.
        let is_known = !["owner.jwt", "owner.from"].iter().any(|path| reader.is_faulty(path));
        let is_known = is_known && !reader.is_faulty_below("owner.token", "name");
        if is_known && let Some(why) = name.as_ref().and_then(|name| unknown(name, &tokens, who)) {
            section.fault(reader, "name", why);
        }
        if name.is_some_and(|name| named.insert(name, limits).is_some()) {
            section.fault(reader, "name", "an earlier entry has the same name; make them one");
        }
        section.finish(reader);
    }
    OwnerRules { all, named, tokens, issuer }
}

/// Why no caller can have this name, if that is known.
fn unknown(name: &str, tokens: &BTreeSet<String>, who: &OwnerConfig) -> Option<String> {
    if who.jwt.is_some() || matches!(who.from, OwnerSource::Header { .. }) || tokens.contains(name) {
        return None;
    }
    if tokens.is_empty() {
        return Some(
            "no caller has a name: that takes [[owner.token]], [owner.jwt] or from = \"header:NAME\"".to_owned(),
        );
    }
    let known: Vec<_> = tokens.iter().take(8).map(|name| format!("\"{}\"", name.escape_debug())).collect();
    let more = if tokens.len() > known.len() { ", …" } else { "" };
    Some(format!("no [[owner.token]] has this name; there are {}{more}", known.join(", ")))
}

fn limits<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, default: &OwnerLimits) -> OwnerLimits {
    let bound = |limit: Option<Bound<usize>>, default| limit.map_or(default, |Bound(limit)| limit);
    OwnerLimits {
        max_running: bound(section.get(reader, "max_running"), default.max_running),
        max_queued: bound(section.get(reader, "max_queued"), default.max_queued),
        max_tasks: bound(section.get(reader, "max_tasks"), default.max_tasks),
        rate: section.get(reader, "rate").map_or(default.rate, |Bound(rate)| rate),
        budget: section.get(reader, "budget").map_or(default.budget, |Bound(budget)| budget),
        run: ceilings(reader, section, &default.run),
    }
}

fn ceilings<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>, default: &Ceilings) -> Ceilings {
    let mut time = |key, default| section.get(reader, key).map_or(default, |Bound(limit)| limit);
    let (timeout, idle_timeout) = (time("timeout", default.timeout), time("idle_timeout", default.idle_timeout));
    let queue_timeout = time("queue_timeout", default.queue_timeout);
    let ask_timeout = time("ask_timeout", default.ask_timeout);
    let size = section.get(reader, "max_result").map(|Bound(size)| size.map(bytes));
    Ceilings { timeout, idle_timeout, queue_timeout, ask_timeout, max_result: size.unwrap_or(default.max_result) }
}

impl<T: Setting> Setting for Bound<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { T::from_text(text).map(|limit| Self(Some(limit))) }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) if text == "none" => Ok(Self(None)),
            other => T::from_toml(other).map(|limit| Self(Some(limit))),
        }
    }
}

impl Setting for Budget {
    const EXPECTED: &'static str = "an amount and a period, such as \"100/1d\" or \"2.5/1h\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug());
        let (amount, per) = text.split_once('/').ok_or_else(wrong)?;
        let amount = Cost::from_text(amount.trim()).map_err(|_| wrong())?;
        let per = per.trim();
        let one = if per.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
        let per = Duration::from_text(&format!("{one}{per}")).map_err(|_| wrong())?;
        Ok(Self { amount, per })
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            other => Err(expected::<Self>(other)),
        }
    }
}

/// As in the config: `100/1day`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.amount, humantime::format_duration(self.per))
    }
}
