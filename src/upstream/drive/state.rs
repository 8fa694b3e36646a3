//! What a server says of a task of its own, in either revision.

use std::time::Duration;

use crate::protocol::Json;

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Its handle. Never passed on.
    pub(super) id: String,
    /// Where it stands.
    pub(super) status: Status,
    /// What the server says it is doing.
    pub(super) message: Option<String>,
    /// How long to wait before it is asked after again.
    pub(super) interval: Duration,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

/// Where a server names no interval.
const USUAL: Duration = Duration::from_secs(1);
/// An interval is believed within these bounds: 0 and negative ones are seen in the field (field case 76).
const LEAST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_mins(1);
/// Bytes of a status message that are read.
const MESSAGE: usize = 8 << 10;
/// Bytes of a handle that are believed to be one.
const HANDLE: usize = 4 << 10;

impl State {
    /// Reads a task of 2026-07-28 (`pollIntervalMs`) or 2025-11-25 (`pollInterval`).
    pub(super) fn read(task: &Json) -> Option<Self> {
        let members = task.members().ok()?;
        let text = |name: &str| members.get(name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let number = |name: &str| members.get(name).and_then(|raw| serde_json::from_str::<f64>(raw.get()).ok());
        let interval = number("pollIntervalMs").or_else(|| number("pollInterval"));
        let status = match text("status")?.as_str() {
            "working" | "submitted" => Status::Working,
            "input_required" => Status::InputRequired,
            "completed" => Status::Completed,
            "failed" => Status::Failed,
            "cancelled" => Status::Cancelled,
            _ => return None,
        };
        let interval = interval.filter(|millis| *millis > 0.0 && millis.is_finite());
        let interval = interval.map_or(USUAL, |millis| Duration::from_secs_f64(millis.min(1e9) / 1000.0));
        let id = text("taskId").filter(|id| id.len() <= HANDLE)?;
        let message = text("statusMessage").filter(|text| !text.is_empty()).map(|mut text| {
            text.truncate(text.floor_char_boundary(MESSAGE));
            text
        });
        Some(Self { id, status, message, interval: interval.clamp(LEAST, LONGEST) })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(text: &str) -> Option<State> {
        State::read(&Json::parse(Bytes::from(text.to_owned())).unwrap())
    }

    #[test]
    fn an_interval_is_read_in_either_spelling_and_bounded() {
        let cases = [
            (r#""pollIntervalMs":700"#, 700),
            (r#""pollInterval":5000"#, 5000),
            (r#""pollInterval":700.4"#, 700),
            (r#""x":0"#, 1000),
            (r#""pollInterval":0"#, 1000),
            (r#""pollInterval":-5"#, 1000),
            (r#""pollInterval":"soon""#, 1000),
            (r#""pollInterval":1"#, 50),
            (r#""pollInterval":1e300"#, 60_000),
        ];
        for (member, expected) in cases {
            let state = read(&format!(r#"{{"taskId":"t","status":"working",{member}}}"#)).unwrap();
            assert_eq!(state.interval.as_millis(), expected, "{member}");
        }
    }

    #[test]
    fn what_names_no_task_or_no_known_status_is_no_task() {
        for text in ["{}", "[]", r#"{"taskId":"t"}"#, r#"{"status":"working"}"#, r#"{"taskId":"t","status":"odd"}"#] {
            assert_eq!(read(text), None, "{text}");
        }
        let state = read(r#"{"taskId":"t","status":"input_required","statusMessage":""}"#).unwrap();
        assert_eq!((state.status, state.message), (Status::InputRequired, None));
    }
}
