//! Whether another process may keep what is not found here.

use std::fmt;
use std::sync::Arc;

/// Says whether another process that is alive may keep the handles that are unknown in this one. By default none does.
#[derive(Clone, Default)]
pub struct Elsewhere(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Elsewhere {
    /// As `look` says, which is called for each handle that is unknown and must not block for long.
    pub fn of(look: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }

    pub(super) fn keeps_some(&self) -> bool {
        self.0.as_ref().is_some_and(|look| look())
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Elsewhere(..)")
    }
}
