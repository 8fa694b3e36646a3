//! The wire: JSON-RPC, methods, capabilities, headers, SSE, task shapes. No I/O.

mod anchor;
pub mod ask;
pub mod call;
mod canonical;
mod capabilities;
mod credential;
pub mod error;
pub mod failure;
pub(crate) mod form;
pub mod headers;
pub mod hops;
pub mod json;
mod key;
mod line;
pub mod message;
pub mod method;
pub mod param_headers;
mod parts;
pub mod progress;
pub mod reply;
pub mod reshape;
pub(crate) mod room;
pub mod rope;
mod service;
pub mod sse;
mod stop;
mod subscription;

pub use anchor::Anchor;
pub use ask::{Abilities, Answer, Ask, Asking, Question, QuestionKind};
pub use call::{Call, Caller, ClientSession, Credentials, Params, Principal, TaskSupport};
pub use canonical::canonical;
pub use capabilities::Capabilities;
pub use credential::{Credential, Newcomer, Proofs};
pub use error::RpcError;
pub use failure::{Challenge, Failure, Reason, Retry};
pub use json::{Json, JsonError};
pub use key::CallKey;
pub use message::{Message, RequestId};
pub use method::Method;
pub use param_headers::HeaderRules;
pub use progress::Progress;
pub use reply::{Event, EventSender, Handle, Notification, Outcome, Reply, ReplySender, WaitsFor};
pub use rope::Rope;
pub use service::McpService;
pub use stop::StopCause;
pub use subscription::{ACKNOWLEDGED, Said};

/// The revision of MCP that clients in front speak.
pub const MODERN: &str = "2026-07-28";

/// The identifier of the Tasks extension (SEP-2663).
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Keys of `_meta` that the revision reserves (2026-07-28, basic, `_meta`).
pub mod meta_key {
    /// The protocol version of a request; required on each.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The client's name and version.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What the client can do, for this request; required on each.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The least level of log notifications that the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The server's name and version, on results.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Ties a notification to its `subscriptions/listen` request.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Opts a request into progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// Ours: makes a start idempotent (the header `Idempotency-Key` does the same).
    pub const IDEMPOTENCY_KEY: &str = "dev.raincheck/idempotency-key";
    /// Ties a 2025-11-25 result to its task; never passed on.
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
}
