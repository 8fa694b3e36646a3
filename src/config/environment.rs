//! What surrounds a configuration file: variables, flags, and the path of this program.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables, flags and the path of this program. The values of variables may be secret.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    flags: BTreeMap<&'static str, Flag>,
    program: Option<PathBuf>,
}

/// A flag of the command line that overrides a setting.
#[derive(Clone)]
struct Flag {
    name: &'static str,
    value: String,
}

/// A value that comes before the one in the file, and where it comes from.
pub(super) struct Override<'a> {
    pub(super) origin: &'a str,
    pub(super) value: &'a str,
}

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "RAINCHECK_";

impl Environment {
    /// The variables of this process, and its program. Variables that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            flags: BTreeMap::new(),
            program: std::env::current_exe().ok(),
        }
    }

    /// These variables and no others.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { variables, flags: BTreeMap::new(), program: None }
    }

    /// The same, with `path` as this very program (`@self` in a command).
    #[must_use]
    pub fn with_program(mut self, path: PathBuf) -> Self {
        self.program = Some(path);
        self
    }

    /// The same, with the setting at `path` (`listen.http`) given by the flag `name` (`--listen`). A flag comes
    /// before a variable, a variable before the file.
    #[must_use]
    pub fn with_flag(mut self, path: &'static str, name: &'static str, value: String) -> Self {
        self.flags.insert(path, Flag { name, value });
        self
    }

    /// The value of a variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(super) fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    pub(super) fn overriding<'a>(&'a self, path: &str, variable: &'a str) -> Option<Override<'a>> {
        if let Some(flag) = self.flags.get(path) {
            return Some(Override { origin: flag.name, value: &flag.value });
        }
        self.variable(variable).map(|value| Override { origin: variable, value })
    }

    /// The names of all variables that begin with `RAINCHECK_`.
    pub(super) fn ours(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str).filter(|name| name.starts_with(PREFIX))
    }
}

/// Shows names only.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.len())
            .field("flags", &self.flags.keys())
            .field("program", &self.program)
            .finish()
    }
}
