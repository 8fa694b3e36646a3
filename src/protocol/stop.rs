//! Why a server is told to stop.

use std::fmt;

use super::failure::Reason;

/// Why the server of a call is told to stop working on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopCause {
    /// The caller cancelled it, or left.
    #[default]
    Caller,
    /// An operator cancelled it.
    Operator,
    /// The client cannot be asked what the server wants to ask.
    Unaskable,
    /// It was given up for this.
    GivenUp(Reason),
}

/// As the server is told (2025-11-25, cancellation).
impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caller => "the caller cancelled or left",
            Self::Operator => "an operator cancelled the call",
            Self::Unaskable => "the caller cannot be asked what the call wants to ask",
            Self::GivenUp(Reason::Timeout) => "the call ran into its timeout",
            Self::GivenUp(Reason::IdleTimeout) => "the call reported no progress for too long",
            Self::GivenUp(Reason::InputTimeout) => "nobody answered what the call asked",
            Self::GivenUp(Reason::OverBudget) => "the caller's budget is used up",
            Self::GivenUp(_) => "the call was given up",
        })
    }
}
