//! What is wrong with a configuration, all of it at once.

use std::fmt;

/// Everything that is wrong with a configuration; never empty. One line each when shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<Fault>);

/// One thing that is wrong, and what to do about it. Never holds a secret value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where: `tool[2].timeout` (counted from 0), the name of a variable, or a file.
    pub path: String,
    /// The line of the file, counted from 1; `None` where there is no single one.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

impl ConfigFaults {
    /// A single fault.
    pub fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self(vec![Fault { path: path.into(), line: None, message: message.into() }])
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} (line {line}): {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}

/// What keys are called elsewhere, and here.
const ALIASES: &[(&str, &str)] = &[
    ("port", "http"),
    ("host", "http"),
    ("address", "http"),
    ("bind", "http"),
    ("program", "command"),
    ("cmd", "command"),
    ("args", "command"),
    ("name", "match"),
    ("pattern", "match"),
    ("dir", "path"),
    ("directory", "path"),
    ("async", "task"),
    ("background", "task"),
];

/// What is called otherwise among `known`.
pub(super) fn alias(written: &str, known: &[&str]) -> Option<&'static str> {
    ALIASES.iter().find(|(other, name)| *other == written && known.contains(name)).map(|(_, name)| *name)
}

/// The text `; did you mean "..."?` for a name that looks like one of `known`; empty if none does.
pub(super) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let written = written.to_lowercase();
    let known: Vec<&str> = known.into_iter().collect();
    let spelled = known.iter().map(|name| (*name, *name));
    let meant = ALIASES.iter().copied().filter(|(_, name)| known.contains(name));
    let near = spelled
        .chain(meant)
        .map(|(spelled, name)| (strsim::damerau_levenshtein(&written, spelled), spelled.chars().count(), name))
        .filter(|(distance, length, _)| *distance <= (length / 3).max(1))
        .min_by_key(|(distance, ..)| *distance);
    near.map(|(.., name)| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}
