//! Keys that nobody asks for: where they belong, or what may have been meant.

use std::collections::BTreeSet;

use toml::de::{DeTable, DeValue};

use super::environment::Environment;
use super::fault::{Fault, alias, did_you_mean};
use super::reader::{LISTS, Reader};

/// A key that nobody has asked for where it stands. Once all is read, it is said where it belongs.
pub(super) struct Stranger {
    pub(super) path: String,
    pub(super) line: Option<usize>,
    pub(super) key: String,
    /// The table that it is in, without a number; empty for the root.
    pub(super) table: String,
    /// Whether it is a table, or several.
    pub(super) is_table: bool,
    /// What the table around it is called, where it has a `name`.
    pub(super) within: Option<String>,
}

/// Every key that there is.
struct Known(BTreeSet<String>);

/// With each of the tables that are read only where they are written.
const EVERY_TABLE: &str =
    "[admin]\ntoken = \"x\"\n[owner.jwt]\n[[owner.token]]\n[[owner.limit]]\n[[server]]\n[[tool]]\n";

/// Names of versions to come.
const LATER: &[&str] = &["server.roots", "server.health", "trace"];

/// Whether a value is a table, or a list of them.
pub(super) fn is_table(value: &DeValue<'_>) -> bool {
    let is_list = |list: &toml::de::DeArray<'_>| !list.is_empty() && list.iter().all(|it| it.get_ref().is_table());
    value.is_table() || value.as_array().is_some_and(is_list)
}

/// What is wrong with each of them.
pub(super) fn faults(strangers: Vec<Stranger>) -> Vec<Fault> {
    if strangers.is_empty() {
        return Vec::new();
    }
    let known = Known::new();
    strangers.into_iter().map(|it| Fault { message: known.message(&it), path: it.path, line: it.line }).collect()
}

/// As in a sentence: `a, b and c`.
fn listed(words: impl IntoIterator<Item = String>, last: &str) -> String {
    let mut words: Vec<String> = words.into_iter().collect();
    match words.pop() {
        Some(end) if !words.is_empty() => format!("{} {last} {end}", words.join(", ")),
        end => end.unwrap_or_default(),
    }
}

/// The head of a table.
fn shown(table: &str) -> String {
    if LISTS.contains(&table) { format!("[[{table}]]") } else { format!("[{table}]") }
}

fn path_of(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

impl Known {
    fn new() -> Self {
        let environment = Environment::of([]);
        let mut reader = Reader::new(EVERY_TABLE, &environment);
        let (table, _) = DeTable::parse_recoverable(EVERY_TABLE);
        super::read(&mut reader, table.get_ref());
        Self(reader.asked().clone())
    }

    fn message(&self, stranger: &Stranger) -> String {
        let Stranger { key, table, is_table, .. } = stranger;
        let what = if *is_table { "unknown table" } else { "unknown key" };
        let here = self.keys_of(table);
        if let Some(meant) = alias(key, &here) {
            return format!("{what}; did you mean \"{meant}\"?");
        }
        if let Some(home) = self.home_of_table(stranger) {
            return format!("{what} here; {home}");
        }
        let homes = self.homes_of_key(key);
        if !homes.is_empty() {
            let homes = listed(homes.into_iter().map(shown), "or");
            let more = match (table.as_str(), key.as_str()) {
                ("server", "max_running") => "; how many sessions or processes there may be is max_sessions",
                _ => "",
            };
            return format!("{what} here; it belongs to {homes}{more}");
        }
        if LATER.contains(&path_of(table, key).as_str()) {
            return "is not in this version yet; take it out".to_owned();
        }
        let guess = did_you_mean(key, here.iter().copied());
        if !guess.is_empty() {
            return format!("{what}{guess}");
        }
        if table.is_empty() {
            let tables = here.into_iter().filter(|key| self.is_table(key));
            return format!("{what}; there are {}", listed(tables.map(shown), "and"));
        }
        format!("{what}; {} has {}", shown(table), listed(here.into_iter().map(str::to_owned), "and"))
    }

    /// Where a table stands that was written into another one.
    fn home_of_table(&self, stranger: &Stranger) -> Option<String> {
        let Stranger { key, table, within, .. } = stranger;
        if !stranger.is_table {
            return None;
        }
        let mut homes = self.0.iter().filter(|path| path.rsplit('.').next() == Some(key) && self.is_table(path));
        let home = homes.next()?;
        if table == "server" && home == "tool" {
            let name = within.as_deref().unwrap_or("NAME").escape_debug();
            return Some(format!("rules stand beside the servers: [[tool]] with server = \"{name}\""));
        }
        Some(format!("it is {}", shown(home)))
    }

    /// The tables that have a plain setting of this name.
    fn homes_of_key(&self, key: &str) -> Vec<&str> {
        let split = self.0.iter().filter(|path| !self.is_table(path)).filter_map(|path| path.rsplit_once('.'));
        split.filter(|(_, last)| *last == key).map(|(table, _)| table).collect()
    }

    /// Whether there are keys below this one.
    fn is_table(&self, path: &str) -> bool {
        let below = |known: &String| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.0.iter().any(below)
    }

    /// What a table may have.
    fn keys_of(&self, table: &str) -> Vec<&str> {
        let key = |path: &'_ String| -> Option<usize> {
            let rest = if table.is_empty() { path } else { path.strip_prefix(table)?.strip_prefix('.')? };
            (!rest.contains('.')).then_some(path.len() - rest.len())
        };
        self.0.iter().filter_map(|path| path.get(key(path)?..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_to_be_missing_in_this_version_is_nowhere() {
        let known = Known::new();
        for name in LATER {
            let key = name.rsplit('.').next().unwrap_or_default();
            assert!(!known.0.contains(*name) && known.homes_of_key(key).is_empty(), "{name}");
        }
    }

    #[test]
    fn every_key_that_is_known_elsewhere_is_told_where_it_belongs() {
        let known = Known::new();
        let tables: BTreeSet<_> = known.0.iter().filter(|path| known.is_table(path)).cloned().collect();
        let keys: BTreeSet<_> = known.0.iter().filter(|path| !known.is_table(path)).cloned().collect();
        assert!(tables.len() > 12 && keys.len() > 80, "{tables:?} {keys:?}");
        for table in &tables {
            for path in &keys {
                let (home, key) = path.rsplit_once('.').unwrap();
                if known.0.contains(&path_of(table, key)) || alias(key, &known.keys_of(table)).is_some() {
                    continue;
                }
                let (key, within) = (key.to_owned(), None);
                let table = table.clone();
                let stranger = Stranger { path: path.clone(), line: None, key, table, is_table: false, within };
                let message = known.message(&stranger);
                assert!(message.contains(&shown(home)) && !message.contains("did you mean"), "{path}: {message}");
            }
        }
    }
}
