//! Which tools are known to ask.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of tools of one server that have asked before. Clones are the same set.
#[derive(Clone, Debug, Default)]
pub(in crate::upstream) struct Askers(Arc<Mutex<BTreeSet<String>>>);

/// Names that are remembered; there are no more tools than this in any server worth serving.
const REMEMBERED: usize = 1024;

impl Askers {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tool `name` has asked.
    pub(super) fn remember(&self, name: &str) {
        let mut names = self.names();
        if names.len() < REMEMBERED && !names.contains(name) {
            names.insert(name.to_owned());
        }
    }

    /// Whether the tool `name` has asked before.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.names().contains(name)
    }
}
