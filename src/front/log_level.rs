//! Levels of log notifications.

use crate::protocol::Json;

/// A level, in the order of RFC 5424 (2026-07-28, logging).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogLevel {
    /// Detailed debugging information.
    Debug,
    /// General information.
    Info,
    /// Normal but significant.
    Notice,
    /// A warning.
    Warning,
    /// An error.
    Error,
    /// A component failed.
    Critical,
    /// Action must be taken at once.
    Alert,
    /// The system is unusable.
    Emergency,
}

impl LogLevel {
    /// The level that this JSON string names.
    pub(super) fn read(level: &Json) -> Option<Self> {
        level.read().ok()
    }

    /// Whether a log notification with these `params` is at or above this level.
    pub(super) fn admits(self, params: &Json) -> bool {
        params.member("level").and_then(|level| Self::read(&level)).is_some_and(|level| level >= self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_at_or_above_the_level_is_admitted() {
        let levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
        for (least, least_name) in levels.iter().enumerate() {
            let wanted = LogLevel::read(&Json::string(least_name)).unwrap();
            for (at, name) in levels.iter().enumerate() {
                let params = Json::from_value(&serde_json::json!({ "level": name, "data": 1 }));
                assert_eq!(wanted.admits(&params), at >= least, "{name} for {least_name}");
            }
        }
        assert_eq!(LogLevel::read(&Json::string("WARN")), None);
        assert!(!LogLevel::Debug.admits(&Json::from_value(&serde_json::json!({ "level": "odd" }))));
        assert!(!LogLevel::Debug.admits(&Json::from_value(&serde_json::json!({}))));
    }
}
