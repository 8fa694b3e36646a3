//! Failures of our own: why, and whether to try again.

use std::fmt;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::json::Json;
use crate::clock::millis;

/// A call that Raincheck, not the tool, has to give up.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure.
    pub reason: Reason,
    /// What happened and what to do, for a person or a model. Never a body or a credential.
    pub message: String,
    /// Whether the same call may be sent again.
    pub retry: Retry,
    /// What happened, where `message` says more: see [`Failure::how`]. Not kept.
    #[serde(skip)]
    pub how: Option<Box<str>>,
    /// What the server answered to the caller's own credentials, for whoever can pass it on. Not kept.
    #[serde(skip)]
    pub challenge: Option<Box<Challenge>>,
}

/// How a server refused credentials (RFC 9110, 11.6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// 401 or 403.
    pub status: StatusCode,
    /// The values of `WWW-Authenticate`: what the server wants instead.
    pub wanted: Vec<HeaderValue>,
}

/// Why a call failed. The spelling in `reason` on the wire and in the store is the one of `serde`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The run was lost: the tool may or may not have run.
    OutcomeUnknown,
    /// The server never took the call: it could not be reached or started.
    NotStarted,
    /// The run reached its hard limit.
    Timeout,
    /// The call waited too long for a free slot; it was never sent.
    QueueTimeout,
    /// Too much at once; nothing was sent.
    Busy,
    /// The server refused the credentials of the call.
    Unauthorized,
    /// The server answered with something that is no answer.
    BadAnswer,
    /// The answer is larger than the limit.
    TooLarge,
    /// The store could not keep the task; nothing was sent.
    Store,
    /// The proxy is stopping; nothing was sent.
    Stopping,
    /// The tool asked and nobody answered in time.
    InputTimeout,
    /// The tool gave no sign of life for too long.
    IdleTimeout,
    /// Too many calls wait for a slot already; nothing was sent.
    QueueFull,
    /// Started too often in too short a time; nothing was sent.
    RateLimited,
    /// The budget of the caller is used up.
    OverBudget,
    /// The caller's key belongs to a call with other arguments; nothing was sent.
    KeyReused,
}

/// Whether the same call may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Yes: nothing was run.
    Yes,
    /// Yes, after a while.
    After(Duration),
    /// No: it would fail again.
    No,
    /// Nobody knows: the tool may already have run.
    Unknown,
}

impl Retry {
    /// Yes, but not at once: when it is worth looking whether what was missing is there again.
    pub const SOON: Self = Self::After(Duration::from_secs(5));
}

/// Two are the same if they say the same: `how` is a part of the message.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        let Self { reason, message, retry, how: _, challenge } = self;
        (reason, message, retry, challenge) == (&other.reason, &other.message, &other.retry, &other.challenge)
    }
}

impl Failure {
    /// A failure of that kind.
    pub fn new(reason: Reason, message: impl Into<String>, retry: Retry) -> Self {
        Self { reason, message: message.into(), retry, how: None, challenge: None }
    }

    /// The run was lost; `how` says in which way.
    pub fn outcome_unknown(how: &str) -> Self {
        let message =
            format!("outcome unknown: {how}; the tool may or may not have run, check before calling it again");
        Self::new(Reason::OutcomeUnknown, message, Retry::Unknown).for_how(how)
    }

    /// The same, if `message` says more than that: what `how` means for a call.
    #[must_use]
    pub fn for_how(self, how: &str) -> Self {
        Self { how: Some(how.into()), ..self }
    }

    /// What happened, without what that means for a call: for a request that is none. All of it where nothing was kept beside
    /// it.
    pub fn how(&self) -> &str {
        self.how.as_deref().unwrap_or(&self.message)
    }

    /// `reason`, `retryable` (absent when unknown) and `retryAfterMs`, as they stand in `error.data`.
    pub fn facts(&self) -> Json {
        let mut facts = serde_json::Map::new();
        facts.insert("reason".to_owned(), serde_json::json!(self.reason));
        if let Some(retryable) = self.retry.retryable() {
            facts.insert("retryable".to_owned(), retryable.into());
        }
        if let Retry::After(wait) = self.retry {
            facts.insert("retryAfterMs".to_owned(), millis(wait).into());
        }
        Json::from_value(&facts.into())
    }
}

impl Reason {
    /// Whether it says, of a call that went to a server, that the server never took it.
    pub const fn is_of_unsent(self) -> bool {
        match self {
            Self::NotStarted | Self::Busy | Self::Stopping => true,
            Self::OutcomeUnknown
            | Self::Timeout
            | Self::QueueTimeout
            | Self::Unauthorized
            | Self::BadAnswer
            | Self::TooLarge
            | Self::Store
            | Self::InputTimeout
            | Self::IdleTimeout
            | Self::QueueFull
            | Self::RateLimited
            | Self::OverBudget
            | Self::KeyReused => false,
        }
    }

    /// The JSON-RPC code: outside of -32768..-32000, which JSON-RPC reserves.
    pub const fn code(self) -> i64 {
        match self {
            Self::OutcomeUnknown => -31001,
            Self::NotStarted => -31002,
            Self::Timeout => -31003,
            Self::QueueTimeout => -31004,
            Self::Busy => -31005,
            Self::Unauthorized => -31006,
            Self::BadAnswer => -31007,
            Self::TooLarge => -31008,
            Self::Store => -31009,
            Self::Stopping => -31010,
            Self::InputTimeout => -31011,
            Self::IdleTimeout => -31012,
            Self::QueueFull => -31013,
            Self::RateLimited => -31014,
            Self::OverBudget => -31015,
            Self::KeyReused => -31016,
        }
    }
}

/// As on the wire.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Retry {
    /// True, false, or `None` when nobody knows.
    pub const fn retryable(self) -> Option<bool> {
        match self {
            Self::Yes | Self::After(_) => Some(true),
            Self::No => Some(false),
            Self::Unknown => None,
        }
    }
}
