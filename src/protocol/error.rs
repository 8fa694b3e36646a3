//! JSON-RPC errors, kept word for word where a server sent them.

use std::fmt;

use super::TASKS_EXTENSION;
use super::ask::{Question, QuestionKind};
use super::failure::Failure;
use super::json::{Json, JsonError};
use super::rope::ObjectWriter;

/// Codes of JSON-RPC and of MCP 2026-07-28 (basic, error codes).
pub mod code {
    /// The text was not JSON.
    pub const PARSE: i64 = -32700;
    /// The JSON was not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are wrong; also an unknown task or resource.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something broke here.
    pub const INTERNAL: i64 = -32603;
    /// An HTTP header does not say what the body says.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare what the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The revision is not spoken here.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// A JSON-RPC error object, as it was or will be spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    code: i64,
    message: String,
    raw: Json,
}

impl RpcError {
    /// An error of ours without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self::with_data(code, message, None)
    }

    /// An error of ours.
    pub fn with_data(code: i64, message: impl Into<String>, data: Option<&Json>) -> Self {
        let message = message.into();
        let mut writer = ObjectWriter::new();
        writer.number("code", code).string("message", &message);
        if let Some(data) = data {
            writer.raw("data", data);
        }
        Self { code, message, raw: writer.finish_json() }
    }

    /// An error that a server sent. Servers get this wrong: a code that is no integer reads as
    /// -32603, a missing message as a fixed text, and the object is then written anew with its
    /// other members kept (field case 54).
    pub fn from_server(raw: Json) -> Result<Self, JsonError> {
        let members = raw.members()?;
        let code = members.get("code").and_then(|value| serde_json::from_str::<i64>(value.get()).ok());
        let message = members.get("message").and_then(|value| serde_json::from_str::<String>(value.get()).ok());
        if let (Some(code), Some(message)) = (code, &message) {
            return Ok(Self { code, message: message.clone(), raw: raw.clone() });
        }
        let code = code.unwrap_or(code::INTERNAL);
        let message = message.unwrap_or_else(|| "the server sent an error without a message".to_owned());
        let mut writer = ObjectWriter::new();
        writer.number("code", code).string("message", &message);
        writer.members_of(&raw, |name| name != "code" && name != "message")?;
        Ok(Self { code, message, raw: writer.finish_json() })
    }

    /// -32021: the request needs the Tasks extension, which the client did not declare.
    pub fn tasks_not_declared() -> Self {
        let data = serde_json::json!({ "requiredCapabilities": { "extensions": { TASKS_EXTENSION: {} } } });
        Self::with_data(
            code::MISSING_CAPABILITY,
            "this request needs a client that declares the extension io.modelcontextprotocol/tasks on the request itself",
            Some(&Json::from_value(&data)),
        )
    }

    /// -32021: the server asks what the client did not declare that it can be asked.
    pub fn cannot_be_asked(question: &Question) -> Self {
        let mut settings = serde_json::json!({});
        if question.kind == QuestionKind::Elicitation && question.is_by_url() {
            settings = serde_json::json!({ "url": {} });
        }
        if question.has_tools() {
            settings = serde_json::json!({ "tools": {} });
        }
        let capability = question.kind.capability();
        let data = serde_json::json!({ "requiredCapabilities": { capability: settings } });
        let text =
            format!("this request needs a client that declares the capability {capability} on the request itself");
        Self::with_data(code::MISSING_CAPABILITY, text, Some(&Json::from_value(&data)))
    }

    /// -32602: a task that does not exist, has expired, or belongs to somebody else; all three read alike.
    pub fn unknown_task() -> Self {
        Self::new(code::INVALID_PARAMS, "Task not found: the taskId is unknown or has expired")
    }

    /// -32601: there is no such method.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("Method not found: {}", method.escape_debug()))
    }

    /// The same error under another code, for codes that 2026-07-28 must not emit.
    #[must_use]
    pub fn recoded(&self, code: i64) -> Self {
        let mut writer = ObjectWriter::new();
        writer.number("code", code);
        // `raw` was read as an object when this error was made.
        let _ = writer.members_of(&self.raw, |name| name != "code");
        Self { code, message: self.message.clone(), raw: writer.finish_json() }
    }

    /// The same error under another code and with other data, or none.
    #[must_use]
    pub fn recoded_with(&self, code: i64, data: Option<&Json>) -> Self {
        let mut writer = ObjectWriter::new();
        writer.number("code", code);
        // As above.
        let _ = writer.members_of(&self.raw, |name| name != "code" && name != "data");
        if let Some(data) = data {
            writer.raw("data", data);
        }
        Self { code, message: self.message.clone(), raw: writer.finish_json() }
    }

    /// The code.
    pub fn code(&self) -> i64 {
        self.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The whole object.
    pub fn raw(&self) -> &Json {
        &self.raw
    }
}

impl From<&Failure> for RpcError {
    fn from(failure: &Failure) -> Self {
        Self::with_data(failure.reason.code(), failure.message.clone(), Some(&failure.facts()))
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for RpcError {}
