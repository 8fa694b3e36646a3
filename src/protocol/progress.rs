//! Progress of a call, as a server reports it.

use super::json::Json;

/// One `notifications/progress`, as the server spelled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number reached so far.
    pub progress: Json,
    /// The number at the end, where the server knows it.
    pub total: Option<Json>,
    /// What the server says it is doing.
    pub message: Option<String>,
}

impl Progress {
    /// Reads the `params` of a progress notification; `None` if they are malformed.
    pub fn read(params: &Json) -> Option<Self> {
        let members = params.members().ok()?;
        let number = |name: &str| {
            let raw = members.get(name)?;
            serde_json::from_str::<serde_json::Number>(raw.get()).ok()?;
            Some(Json::of(params.bytes(), raw))
        };
        Some(Self {
            progress: number("progress")?,
            total: number("total"),
            message: members.get("message").and_then(|raw| serde_json::from_str(raw.get()).ok()),
        })
    }

    /// One line for `statusMessage`: `3 of 5: loading rows`.
    pub fn describe(&self) -> String {
        let mut line = self.progress.as_str().to_owned();
        if let Some(total) = &self.total {
            line.push_str(" of ");
            line.push_str(total.as_str());
        }
        if let Some(message) = &self.message {
            line.push_str(": ");
            line.extend(message.chars().take(300));
        }
        line
    }
}
