//! The revisions of a legacy client, and which of them a session speaks.

use std::fmt;

/// A revision that opens with `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::front) enum Revision {
    /// The first. Over Streamable HTTP a few clients settle on it with a server of that age.
    V2024_11_05,
    /// Streamable HTTP, and the one revision with batches.
    V2025_03_26,
    /// No batches; the header `MCP-Protocol-Version`.
    V2025_06_18,
    /// Streams that can be resumed from their first event on.
    V2025_11_25,
}

impl Revision {
    /// The newest, which is what a client that asks for anything else gets (lifecycle, version negotiation).
    pub(in crate::front) const NEWEST: Self = Self::V2025_11_25;

    const ALL: [Self; 4] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];

    /// The revision of that name.
    pub(in crate::front) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.name() == name)
    }

    /// As it stands on the wire.
    pub(in crate::front) const fn name(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// What the session speaks: what the server settled on, so that the client sees what it would see without us. A
    /// server of 2026-07-28 settles on nothing; then it is what the client asked for, if that is a revision of these.
    pub(super) fn negotiated(requested: &str, settled: Option<&str>) -> Self {
        settled.and_then(Self::of).or_else(|| Self::of(requested)).unwrap_or(Self::NEWEST)
    }

    /// Whether a body may be an array of messages (2025-03-26 only).
    pub(in crate::front) fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Whether calls may be tasks (2025-11-25, tasks).
    pub(super) fn has_tasks(self) -> bool {
        self >= Self::V2025_11_25
    }

    /// Whether a stream begins with an event without data (2025-11-25, sending messages; older clients take such an
    /// event for broken JSON).
    pub(in crate::front) fn is_primed(self) -> bool {
        self >= Self::V2025_11_25
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_settles_the_revision_and_unknown_ones_become_the_newest() {
        let cases = [
            ("2025-06-18", Some("2025-06-18"), "2025-06-18"),
            ("2025-11-25", Some("2025-06-18"), "2025-06-18"),
            ("2025-03-26", Some("2024-11-05"), "2024-11-05"),
            ("2025-06-18", Some("2026-07-28"), "2025-06-18"),
            ("2026-07-28", Some("2025-11-25"), "2025-11-25"),
            ("2026-07-28", Some("2026-07-28"), "2025-11-25"),
            ("2099-01-01", None, "2025-11-25"),
            ("", Some(""), "2025-11-25"),
        ];
        for (requested, settled, expected) in cases {
            assert_eq!(Revision::negotiated(requested, settled).name(), expected, "{requested} {settled:?}");
        }
    }
}
