//! What a server says of a task (SEP-2663, task shapes).

use std::time::Duration;

use super::error::ClientError;
use crate::protocol::json::Part;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Json, Progress, RpcError};

/// A task as the server describes it.
#[derive(Debug)]
pub(crate) struct TaskView {
    /// The handle.
    pub(crate) id: String,
    /// How far it is.
    pub(crate) status: Status,
    /// What the server says about it.
    pub(crate) message: Option<String>,
    /// The numbers of its progress, where a Raincheck gives them.
    pub(crate) progress: Option<Box<Progress>>,
    /// When it began, as the server spells it.
    pub(crate) created: String,
    /// When its state last changed, as the server spells it.
    pub(crate) updated: String,
    /// How long to wait before the next look.
    pub(crate) poll: Duration,
    /// The whole object, as it came.
    pub(crate) raw: Json,
}

/// How far a task is, with what comes with it.
#[derive(Debug)]
pub(crate) enum Status {
    Working,
    /// It waits for answers to these questions.
    InputRequired(Vec<Asked>),
    Completed(Json),
    Failed(RpcError),
    Cancelled,
}

/// A question (2026-07-28, `inputRequests`).
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// What the answer goes under.
    pub(crate) key: String,
    pub(crate) method: String,
    pub(crate) params: Json,
}

/// The hints that are heeded: neither a busy loop nor a client that looks asleep.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(30);
/// SEP-2663 leaves the hint out where the server has none.
const DEFAULT: Duration = Duration::from_secs(1);

impl TaskView {
    /// Reads a `CreateTaskResult`. It has no outcome, even if it repeats an earlier call that has ended: then the task is
    /// to be looked at without a wait.
    pub(crate) fn handle(raw: Json) -> Result<Self, ClientError> {
        let is_over =
            raw.member("status").is_some_and(|status| matches!(status.as_str(), r#""completed""# | r#""failed""#));
        if !is_over {
            return Self::read(raw);
        }
        let mut shown = ObjectWriter::new();
        let members = raw.members().map_err(|error| ClientError::NotMcp(error.to_string()))?;
        for (name, value) in members.iter().filter(|(name, _)| !matches!(*name, "status" | "pollIntervalMs")) {
            shown.raw(name, &Json::of(raw.bytes(), value));
        }
        shown.string("status", "working").number_or_null("pollIntervalMs", Some(0));
        Ok(Self { raw: raw.clone(), ..Self::read(shown.finish_json())? })
    }

    /// Reads the result of `tasks/get`, or a `CreateTaskResult` of a task that goes on.
    pub(crate) fn read(raw: Json) -> Result<Self, ClientError> {
        let wrong = |what: &str| ClientError::NotMcp(format!("the task has no {what} that can be read"));
        let members = raw.members().map_err(|error| ClientError::NotMcp(error.to_string()))?;
        let text = |name: &str| members.get(name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let json = |name: &str| members.get(name).map(|value| Json::of(raw.bytes(), value));
        let id = text("taskId").filter(|id| !id.is_empty()).ok_or_else(|| wrong("taskId"))?;
        let status = match text("status").ok_or_else(|| wrong("status"))?.as_str() {
            "working" => Status::Working,
            "input_required" => Status::InputRequired(questions(json("inputRequests").as_ref())),
            "completed" => Status::Completed(json("result").ok_or_else(|| wrong("result"))?),
            "failed" => {
                let error = json("error").and_then(|error| RpcError::from_server(error).ok());
                Status::Failed(error.ok_or_else(|| wrong("error"))?)
            }
            "cancelled" => Status::Cancelled,
            other => return Err(ClientError::NotMcp(format!("a task is \"{}\"", other.escape_debug()))),
        };
        let hint = members.get("pollIntervalMs").and_then(|raw| serde_json::from_str(raw.get()).ok());
        let poll = hint.map_or(DEFAULT, Duration::from_millis).clamp(SHORTEST, LONGEST);
        let (message, created) = (text("statusMessage"), text("createdAt").unwrap_or_default());
        let updated = text("lastUpdatedAt").unwrap_or_default();
        let progress = json("_meta").and_then(|meta| meta.member("dev.raincheck/progress"));
        let progress = progress.as_ref().and_then(Progress::read).map(Box::new);
        Ok(Self { id, status, message, progress, created, updated, poll, raw: raw.clone() })
    }

    /// The word for the status.
    pub(crate) fn word(&self) -> &'static str {
        match self.status {
            Status::Working => "working",
            Status::InputRequired(_) => "input_required",
            Status::Completed(_) => "completed",
            Status::Failed(_) => "failed",
            Status::Cancelled => "cancelled",
        }
    }

    /// Whether nothing will change any more.
    pub(crate) fn is_terminal(&self) -> bool {
        match self.status {
            Status::Working | Status::InputRequired(_) => false,
            Status::Completed(_) | Status::Failed(_) | Status::Cancelled => true,
        }
    }
}

/// The questions in `inputRequests`.
pub(crate) fn questions(requests: Option<&Json>) -> Vec<Asked> {
    let Some(requests) = requests else { return Vec::new() };
    let Ok(members) = requests.members() else { return Vec::new() };
    let asked = |(key, raw): (&str, Part<'_>)| {
        let request = Json::of(requests.bytes(), raw);
        let method = request.member("method").and_then(|method| method.read().ok()).unwrap_or_default();
        let params = request.member("params").unwrap_or_else(Json::empty_object);
        Asked { key: key.to_owned(), method, params }
    };
    members.iter().map(asked).collect()
}

impl Asked {
    /// Whether a person is asked, and no model or program.
    pub(crate) fn is_elicitation(&self) -> bool {
        self.method == "elicitation/create"
    }

    /// What it says.
    pub(crate) fn message(&self) -> String {
        self.text("message").unwrap_or_else(|| self.method.clone())
    }
    /// Whether it is a form to fill in.
    pub(crate) fn is_form(&self) -> bool {
        self.method == "elicitation/create" && self.text("mode").as_deref() != Some("url")
    }

    /// The URL that somebody is to open.
    pub(crate) fn url(&self) -> Option<String> {
        (self.method == "elicitation/create" && !self.is_form()).then(|| self.text("url").unwrap_or_default())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.params.member(name).and_then(|value| value.read().ok())
    }
}
