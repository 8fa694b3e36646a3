//! What a modern request says of its client (2026-07-28, `clientCapabilities` in `_meta`).

use super::ask::Abilities;
use super::call::TaskSupport;
use super::json::{Json, JsonError};

/// What the `clientCapabilities` of a request are. They are on every request, so they are read once.
#[derive(Debug)]
pub enum Capabilities {
    /// The request has none.
    Missing,
    /// Something that is no object.
    NoObject,
    /// An object that cannot be read.
    Unreadable(JsonError),
    /// What the client declares.
    Declared {
        /// What it can be asked.
        abilities: Abilities,
        /// Whether it takes tasks.
        tasks: TaskSupport,
    },
}

impl Capabilities {
    /// Reads them.
    pub fn read(raw: Option<&Json>) -> Self {
        let Some(raw) = raw else { return Self::Missing };
        if !raw.is_object() {
            return Self::NoObject;
        }
        match raw.members() {
            Err(error) => Self::Unreadable(error),
            Ok(members) => {
                Self::Declared { abilities: Abilities::among(raw, &members), tasks: TaskSupport::among(&members) }
            }
        }
    }
}
