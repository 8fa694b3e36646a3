//! The level of log lines that a session asks its server for.

use std::sync::atomic::{AtomicU8, Ordering};

use super::sessions::Speak;
use crate::protocol::Call;
use crate::protocol::rope::ObjectWriter;

/// A level of log lines, by its place: the finest is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level(u8);

/// The finest level that was asked for on a session so far.
#[derive(Debug)]
pub(super) struct AskedLevel(AtomicU8);

/// RFC 5424, finest first (2025-11-25, logging).
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Nothing was asked for.
const NONE: u8 = u8::MAX;

impl Default for AskedLevel {
    fn default() -> Self {
        Self(AtomicU8::new(NONE))
    }
}

impl AskedLevel {
    /// A call wants lines from `level` on: what is to be asked for, if that is finer than what was asked before.
    pub(super) fn wanted(&self, level: &str) -> Option<Level> {
        let place = LEVELS.iter().position(|name| *name == level).and_then(|place| u8::try_from(place).ok())?;
        let before = self.0.fetch_min(place, Ordering::Relaxed);
        (place < before).then_some(Level(place))
    }
}

/// Asks the server for the log lines that `call` wants, where that was not done before. The lines are a nicety, so a
/// server that refuses is let be.
pub(super) async fn ask<S: Speak>(session: &S, call: &Call) {
    let Some(Level(place)) = session.floor().level_to_ask(call) else { return };
    let Some(level) = LEVELS.get(usize::from(place)) else { return };
    let mut params = ObjectWriter::new();
    params.string("level", level);
    // Boxed: what this future takes is set aside for each call.
    let outcome = Box::pin(session.request("logging/setLevel", params.finish())).await;
    tracing::debug!(level, ?outcome, "asked the server for log lines");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_asked_for_once_and_then_only_a_finer_one() {
        let asked = AskedLevel::default();
        let steps = [
            ("loud", None),
            ("warning", Some(3)),
            ("warning", None),
            ("error", None),
            ("debug", Some(0)),
            ("info", None),
        ];
        for (level, expected) in steps {
            assert_eq!(asked.wanted(level), expected.map(Level), "{level}");
        }
    }
}
