//! The configuration as written: tables whose keys are asked for one by one, so that every fault has a path and
//! a key that nobody asked for is known to be unknown.

use std::collections::BTreeSet;

use toml::de::{DeTable, DeValue};

use super::environment::{Environment, PREFIX};
use super::fault::{ConfigFaults, Fault};
use super::setting::{Setting, expected, kind};
use super::strangers::{self, Stranger};

/// A text that is being read, and what has been found wrong with it so far.
pub(super) struct Reader<'a> {
    text: &'a str,
    pub(super) environment: &'a Environment,
    faults: Vec<Fault>,
    /// What is odd without being wrong.
    notes: Vec<Fault>,
    /// Every key that was asked for: `listen.http`, `tool.match`.
    asked: BTreeSet<String>,
    /// Every variable that was asked for.
    variables: BTreeSet<String>,
    /// Those of them that the configuration names, for secrets.
    secrets: BTreeSet<String>,
    strangers: Vec<Stranger>,
}

/// One table.
pub(super) struct Section<'a> {
    path: String,
    line: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
    /// Whether variables and flags come before what is written.
    overridable: bool,
}

/// Variables of ours that are no settings.
const OTHERS: &[&str] = &["RAINCHECK_HANDLES"];

/// Tables that there may be several of.
pub(super) const LISTS: &[&str] = &["server", "tool", "owner.token", "owner.limit"];

/// What was wrong was reported already.
struct Reported;

/// One value as written, and where.
pub(super) struct Entry<'a> {
    pub(super) path: String,
    pub(super) line: Option<usize>,
    pub(super) value: &'a DeValue<'a>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, environment: &'a Environment) -> Self {
        Self {
            text,
            environment,
            faults: Vec::new(),
            notes: Vec::new(),
            asked: BTreeSet::new(),
            variables: BTreeSet::new(),
            secrets: BTreeSet::new(),
            strangers: Vec::new(),
        }
    }

    pub(super) fn fault(&mut self, path: impl Into<String>, line: Option<usize>, message: impl Into<String>) {
        self.faults.push(Fault { path: path.into(), line, message: message.into() });
    }

    /// Says what is odd without being wrong.
    pub(super) fn note(&mut self, path: impl Into<String>, line: Option<usize>, message: impl Into<String>) {
        self.notes.push(Fault { path: path.into(), line, message: message.into() });
    }

    /// Whether anything at `path` or below it is wrong.
    pub(super) fn is_faulty(&self, path: &str) -> bool {
        let below =
            |at: &str| at.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        let strangers = self.strangers.iter().map(|stranger| &stranger.path);
        self.faults.iter().map(|fault| &fault.path).chain(strangers).any(|at| below(at))
    }

    /// Whether this key is wrong in any of the tables of a list, or the list is.
    pub(super) fn is_faulty_below(&self, list: &str, key: &str) -> bool {
        self.faults.iter().any(|fault| match fault.path.strip_prefix(list) {
            Some("") => true,
            Some(rest) => rest.starts_with('[') && rest.rsplit_once('.').is_none_or(|(_, last)| last == key),
            None => false,
        })
    }

    /// What is odd without being wrong, in the order of the file.
    pub(super) fn take_notes(&mut self) -> Vec<Fault> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.sort_by_key(|note| note.line.unwrap_or(usize::MAX));
        notes
    }

    pub(super) fn line_of(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    /// A variable that the configuration names, for a secret.
    pub(super) fn variable(&mut self, name: &str) -> Option<&'a str> {
        self.secrets.insert(name.to_owned());
        self.variables.insert(name.to_owned());
        self.environment.variable(name)
    }

    /// The variables that hold secrets.
    pub(super) fn secret_variables(&self) -> Vec<String> {
        self.secrets.iter().cloned().collect()
    }

    /// Every key that was asked for, without the numbers of list elements.
    pub(super) fn asked(&self) -> &BTreeSet<String> {
        &self.asked
    }

    /// Reports variables that look like overrides but are none: `RAINCHECK_LISTEN_HTPP`, `RAINCHECK_DEFAULT_AFTER`. Any
    /// other that begins like ours may be somebody's own, so it is noted only.
    pub(super) fn unknown_variables(&mut self, sections: &[&str]) {
        let environment = self.environment;
        for name in environment.ours() {
            let rest = name.strip_prefix(PREFIX).unwrap_or_default();
            let section = rest.split('_').next().unwrap_or_default().to_lowercase();
            // What Kubernetes sets for a service called raincheck, or raincheck-store.
            let orchestrated = name.contains("_SERVICE_") || name.contains("_PORT_") || name.ends_with("_PORT");
            if self.variables.contains(name) || orchestrated || OTHERS.contains(&name) {
                continue;
            }
            let known = || self.variables.iter().map(String::as_str);
            let near = nearest(name, known());
            let guess = match near.or_else(|| known().find(|known| is_part(rest, known))) {
                Some(guess) => format!("; did you mean {guess}?"),
                None => String::new(),
            };
            let message = format!("no setting has this variable{guess}");
            if near.is_some() || sections.contains(&section.as_str()) {
                self.fault(name, None, message);
            } else {
                self.note(name, None, message);
            }
        }
    }

    /// The end: what `config` is worth to whom these faults concern.
    pub(super) fn finish<T>(mut self, config: Option<T>, concerns: impl Fn(&Fault) -> bool) -> Result<T, ConfigFaults> {
        let strangers = std::mem::take(&mut self.strangers);
        self.faults.extend(strangers::faults(strangers));
        self.faults.retain(concerns);
        match config {
            Some(config) if self.faults.is_empty() => Ok(config),
            _ => {
                self.faults.sort_by_key(|fault| fault.line.unwrap_or(usize::MAX));
                self.faults.dedup();
                Err(ConfigFaults(self.faults))
            }
        }
    }
}

/// The variable that comes before the setting at `path`.
fn variable_of(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "_").to_uppercase())
}

/// The variable that is spelled nearly like this.
fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (strsim::damerau_levenshtein(written, name), name))
        .filter(|(far, _)| *far <= 3)
        .min()
        .map(|it| it.1)
}

/// Whether `known` is a variable of which `rest` (without the prefix) is the table or the key: `AFTER`, `LOG`.
fn is_part(rest: &str, known: &str) -> bool {
    let known = known.strip_prefix(PREFIX).unwrap_or(known);
    let is_key = known.strip_suffix(rest).is_some_and(|table| table.ends_with('_'));
    let is_table = known.strip_prefix(rest).is_some_and(|key| key.starts_with('_'));
    !rest.is_empty() && (is_key || is_table)
}

impl<'a> Section<'a> {
    pub(super) fn root(table: &'a DeTable<'a>) -> Self {
        Self { path: String::new(), line: None, table: Some(table), known: Vec::new(), overridable: false }
    }

    /// The path of a key in this table.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The line of the key, or of the table.
    pub(super) fn line_of(&self, reader: &Reader<'a>, key: &str) -> Option<usize> {
        self.raw(reader, key).map_or(self.line, |entry| entry.line)
    }

    /// The line of the key, if it is written here and no variable or flag comes before it.
    pub(super) fn own_line_of(&self, reader: &Reader<'a>, key: &str) -> Option<usize> {
        let path = self.path_of(key);
        let is_overridden = self.overridable && reader.environment.overriding(&path, &variable_of(&path)).is_some();
        self.raw(reader, key).filter(|_| !is_overridden).and_then(|entry| entry.line)
    }

    /// Reports a fault at a key of this table.
    pub(super) fn fault(&self, reader: &mut Reader<'a>, key: &str, message: impl Into<String>) {
        let line = self.line_of(reader, key);
        reader.fault(self.path_of(key), line, message);
    }

    /// Notes what is odd about a key of this table.
    pub(super) fn note(&self, reader: &mut Reader<'a>, key: &str, message: impl Into<String>) {
        let (path, line) = (self.path_of(key), self.line_of(reader, key));
        reader.note(path, line, message);
    }

    fn raw(&self, reader: &Reader<'a>, key: &str) -> Option<Entry<'a>> {
        let (written, value) = self.table?.iter().find(|(written, _)| written.get_ref() == key)?;
        let line = Some(reader.line_of(written.span().start));
        Some(Entry { path: self.path_of(key), line, value: value.get_ref() })
    }

    /// The value of a key as it is written.
    pub(super) fn entry(&mut self, reader: &mut Reader<'a>, key: &'static str) -> Option<Entry<'a>> {
        self.known.push(key);
        let plain = self.plain_path();
        let path = if plain.is_empty() { key.to_owned() } else { format!("{plain}.{key}") };
        reader.asked.insert(path);
        self.raw(reader, key)
    }

    /// Whether the key is written here.
    pub(super) fn has(&self, reader: &Reader<'a>, key: &str) -> bool {
        self.raw(reader, key).is_some()
    }

    /// Whether the key is written here with this value.
    pub(super) fn says(&self, reader: &Reader<'a>, key: &str, value: bool) -> bool {
        self.raw(reader, key).is_some_and(|entry| entry.value.as_bool() == Some(value))
    }

    /// The value of a key; `None` if it is not set, or wrong and reported.
    pub(super) fn get<T: Setting>(&mut self, reader: &mut Reader<'a>, key: &'static str) -> Option<T> {
        let entry = self.entry(reader, key);
        if let Some(read) = self.overridden(reader, key, T::from_text) {
            return read.ok();
        }
        let entry = entry?;
        match T::from_toml(entry.value) {
            Ok(value) => Some(value),
            Err(message) => {
                reader.fault(entry.path, entry.line, message);
                None
            }
        }
    }

    /// The elements of a list; each wrong one is reported. `None` if it is not set.
    pub(super) fn list<T: Setting>(&mut self, reader: &mut Reader<'a>, key: &'static str) -> Option<Vec<T>> {
        let entry = self.entry(reader, key);
        let split = |text: &str| -> Result<Vec<T>, String> {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(T::from_text).collect()
        };
        if let Some(read) = self.overridden(reader, key, split) {
            return read.ok();
        }
        let entry = entry?;
        let Some(elements) = entry.value.as_array() else {
            reader.fault(entry.path, entry.line, format!("expected {}, found {}", T::LIST, kind(entry.value)));
            return None;
        };
        let mut list = Vec::new();
        for (at, element) in elements.iter().enumerate() {
            match T::from_toml(element.get_ref()) {
                Ok(value) => list.push(value),
                Err(message) => {
                    let line = reader.line_of(element.span().start);
                    reader.fault(format!("{}[{at}]", entry.path), Some(line), message);
                }
            }
        }
        Some(list)
    }

    /// The members of a table of strings, with the path of each.
    pub(super) fn strings(
        &mut self,
        reader: &mut Reader<'a>,
        key: &'static str,
    ) -> Vec<(String, String, Option<usize>)> {
        let Some(entry) = self.entry(reader, key) else { return Vec::new() };
        let Some(table) = entry.value.as_table() else {
            reader.fault(
                entry.path,
                entry.line,
                format!("expected a table of strings, such as {{ name = \"value\" }}, found {}", kind(entry.value)),
            );
            return Vec::new();
        };
        let mut strings = Vec::new();
        for (name, value) in table {
            let line = Some(reader.line_of(name.span().start));
            if let Some(text) = value.get_ref().as_str() {
                strings.push((name.get_ref().to_string(), text.to_owned(), line));
            } else {
                let path = format!("{}.{}", entry.path, name.get_ref());
                reader.fault(path, line, expected::<String>(value.get_ref()));
            }
        }
        strings
    }

    /// The table under a key, absent or not, whose plain settings variables and flags may override.
    pub(super) fn table(&mut self, reader: &mut Reader<'a>, key: &'static str) -> Section<'a> {
        let entry = self.entry(reader, key);
        let path = self.path_of(key);
        let line = entry.as_ref().and_then(|entry| entry.line);
        let table = entry.as_ref().and_then(|entry| entry.value.as_table());
        if let (Some(entry), None) = (entry, table) {
            let message = format!("expected a table [{path}], found {}", kind(entry.value));
            reader.fault(entry.path, entry.line, message);
        }
        Section { path, line, table, known: Vec::new(), overridable: true }
    }

    /// The tables of a list of tables, such as `[[tool]]`.
    pub(super) fn tables(&mut self, reader: &mut Reader<'a>, key: &'static str) -> Vec<Section<'a>> {
        let Some(entry) = self.entry(reader, key) else { return Vec::new() };
        let Some(elements) = entry.value.as_array() else {
            let message =
                format!("expected tables that each begin with [[{}]], found {}", entry.path, kind(entry.value));
            reader.fault(entry.path, entry.line, message);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (at, element) in elements.iter().enumerate() {
            let path = format!("{}[{at}]", entry.path);
            let line = Some(reader.line_of(element.span().start));
            match element.get_ref().as_table() {
                Some(table) => {
                    sections.push(Section { path, line, table: Some(table), known: Vec::new(), overridable: false });
                }
                None => reader.fault(path, line, format!("expected a table, found {}", kind(element.get_ref()))),
            }
        }
        sections
    }

    /// Keeps the keys that nobody has asked for.
    pub(super) fn finish(self, reader: &mut Reader<'a>) {
        let table = self.plain_path().to_owned();
        let within = self.raw(reader, "name").and_then(|name| name.value.as_str()).map(str::to_owned);
        for (written, value) in self.table.into_iter().flatten() {
            let name: &str = written.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            reader.strangers.push(Stranger {
                path: self.path_of(&name.escape_debug().to_string()),
                line: Some(reader.line_of(written.span().start)),
                key: name.to_owned(),
                table: table.clone(),
                is_table: strangers::is_table(value.get_ref()),
                within: within.clone(),
            });
        }
    }

    /// The path without the number in its list. `owner.token[0]` is cut at the bracket, and nothing is ever below that.
    fn plain_path(&self) -> &str {
        self.path.split('[').next().unwrap_or_default()
    }

    /// What a flag or a variable says of a key, if they set it.
    fn overridden<T>(
        &self,
        reader: &mut Reader<'a>,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Result<T, Reported>> {
        if !self.overridable {
            return None;
        }
        let path = self.path_of(key);
        let variable = variable_of(&path);
        reader.variables.insert(variable.clone());
        let environment = reader.environment;
        let over = environment.overriding(&path, &variable)?;
        match read(over.value) {
            Ok(value) => Some(Ok(value)),
            Err(message) => {
                reader.fault(path, None, format!("{message} (set by {})", over.origin));
                Some(Err(Reported))
            }
        }
    }
}
