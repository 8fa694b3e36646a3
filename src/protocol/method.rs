//! The methods that Raincheck tells apart.

use std::fmt;

use super::anchor::Anchor;

/// A JSON-RPC method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `server/discover`: versions, capabilities and identity of the server.
    Discover,
    /// `tools/call`: the one method that may become a task.
    CallTool,
    /// `tools/list`.
    ListTools,
    /// `tasks/get`: the state of a task, with its outcome once there is one.
    GetTask,
    /// `tasks/update`: answers to what a task asks.
    UpdateTask,
    /// `tasks/cancel`: asks to stop a task.
    CancelTask,
    /// `subscriptions/listen`: a stream of notifications.
    Listen,
    /// `prompts/get`.
    GetPrompt,
    /// `prompts/list`.
    ListPrompts,
    /// `resources/read`.
    ReadResource,
    /// `resources/list`.
    ListResources,
    /// `resources/templates/list`.
    ListResourceTemplates,
    /// `completion/complete`.
    Complete,
    /// Not on the wire under this name: opens, and for as long as its reply is held keeps, the one upstream session
    /// of a legacy client ([`ClientSession::Legacy`](super::ClientSession)); `params` are those of its `initialize`.
    /// The first event of the reply is [`Event::Attached`](super::Event), then comes what the server sends outside
    /// of any call. The outcome comes only when the session is lost or could not be opened.
    Attach,
    /// A notification of a legacy client to its server; answered with an empty result when it was sent.
    Notify(String),
    /// Not on the wire: listens on for the answer to a `tools/call` that an earlier process sent; `params` have the `name` of
    /// the tool. The reply is that of the call. Nothing is ever sent anew: what cannot be found is outcome unknown.
    Resume(Anchor),
    /// Any other; whether it exists is for the server to say, unless the revision removed it.
    Other(String),
}

impl Method {
    /// The method of that name.
    pub fn of(name: &str) -> Self {
        match name {
            "server/discover" => Self::Discover,
            "tools/call" => Self::CallTool,
            "tools/list" => Self::ListTools,
            "tasks/get" => Self::GetTask,
            "tasks/update" => Self::UpdateTask,
            "tasks/cancel" => Self::CancelTask,
            "subscriptions/listen" => Self::Listen,
            "prompts/get" => Self::GetPrompt,
            "prompts/list" => Self::ListPrompts,
            "resources/read" => Self::ReadResource,
            "resources/list" => Self::ListResources,
            "resources/templates/list" => Self::ListResourceTemplates,
            "completion/complete" => Self::Complete,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The name on the wire.
    pub fn name(&self) -> &str {
        match self {
            Self::Discover => "server/discover",
            Self::CallTool | Self::Resume(_) => "tools/call",
            Self::ListTools => "tools/list",
            Self::GetTask => "tasks/get",
            Self::UpdateTask => "tasks/update",
            Self::CancelTask => "tasks/cancel",
            Self::Listen => "subscriptions/listen",
            Self::GetPrompt => "prompts/get",
            Self::ListPrompts => "prompts/list",
            Self::ReadResource => "resources/read",
            Self::ListResources => "resources/list",
            Self::ListResourceTemplates => "resources/templates/list",
            Self::Complete => "completion/complete",
            Self::Attach => "initialize",
            Self::Notify(name) | Self::Other(name) => name,
        }
    }

    /// The member of `params` that `Mcp-Name` mirrors (2026-07-28, Streamable HTTP, request metadata;
    /// SEP-2663, routing headers).
    pub fn named_by(&self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::Resume(_) | Self::GetPrompt => Some("name"),
            Self::ReadResource => Some("uri"),
            Self::GetTask | Self::UpdateTask | Self::CancelTask => Some("taskId"),
            _ => None,
        }
    }

    /// Whether complete results of this method must carry `ttlMs` and `cacheScope` (2026-07-28, caching).
    pub fn is_cacheable(&self) -> bool {
        matches!(
            self,
            Self::Discover
                | Self::ListTools
                | Self::ListPrompts
                | Self::ReadResource
                | Self::ListResources
                | Self::ListResourceTemplates
        )
    }

    /// Whether 2026-07-28 has no such method any more, so a modern client gets -32601 without the
    /// server being asked (2026-07-28, changelog; SEP-2663 dropped `tasks/result` and `tasks/list`).
    pub fn is_removed(&self) -> bool {
        let Self::Other(name) = self else { return false };
        matches!(
            name.as_str(),
            "initialize"
                | "ping"
                | "logging/setLevel"
                | "resources/subscribe"
                | "resources/unsubscribe"
                | "tasks/result"
                | "tasks/list"
        )
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
