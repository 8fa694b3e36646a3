//! Why a request got no result.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::super::terminal::{one_line, plain};
use super::view::Asked;
use crate::protocol::error::code;
use crate::protocol::{RpcError, headers};

/// Why a request got no result.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// No connection: nothing was sent.
    Unreachable {
        /// The URL, without what may be secret.
        at: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection broke before the answer was whole.
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// An HTTP status without an answer of MCP.
    Status {
        /// The status.
        status: StatusCode,
        /// How long it wants to be left alone.
        wait: Option<Duration>,
    },
    /// What came is no answer of MCP 2026-07-28; the text says why.
    NotMcp(String),
    /// The tool asks for what this client cannot give.
    Asks(Vec<Asked>),
    /// The server's own error.
    Rpc(RpcError),
}

/// A server that wants to be left alone for longer is asked after that all the same.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

impl ClientError {
    /// Whether the server wants a client whose user can be asked.
    pub(crate) fn needs_person(&self) -> bool {
        let Self::Rpc(error) = self else { return false };
        let data = error.raw().member("data");
        let wanted = data.and_then(|data| data.member("requiredCapabilities"));
        error.code() == code::MISSING_CAPABILITY && wanted.is_some_and(|wanted| wanted.member("elicitation").is_some())
    }

    /// A status that is no success, of a response with these headers.
    pub(crate) fn of_status(status: StatusCode, headers: &HeaderMap) -> Self {
        Self::Status { status, wait: headers::retry_after(headers) }
    }

    /// How long the server wants to be left alone, as far as that is believed.
    pub(crate) fn wait(&self) -> Duration {
        let Self::Status { wait: Some(wait), .. } = self else { return Duration::ZERO };
        (*wait).min(LONGEST_WAIT)
    }

    /// Whether a request that changes nothing may succeed if it is sent again a little later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken(_) => true,
            Self::Status { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
            Self::NotMcp(_) | Self::Asks(_) | Self::Rpc(_) => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { at, source } => {
                // What rustls says of a server that answers in plain HTTP.
                let is_plain = at.starts_with("https:") && format!("{source:?}").contains("InvalidContentType");
                let advice = if is_plain { " over TLS (is it http:// in place of https://?)" } else { "" };
                write!(f, "the server at {at} cannot be reached{advice}")
            }
            Self::Broken(_) => f.write_str("the connection broke before the answer was there"),
            Self::Status { status, .. } => {
                let advice = match *status {
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; add --header 'Authorization: Bearer ...'",
                    StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                        "; is that the URL of an MCP endpoint, such as http://127.0.0.1:8080/mcp?"
                    }
                    _ => "",
                };
                write!(f, "the server answered with HTTP status {status}{advice}")
            }
            Self::NotMcp(why) => write!(f, "this is no answer of MCP 2026-07-28: {why}"),
            Self::Asks(asked) => {
                f.write_str("the tool asks for input that cannot be given here:")?;
                for asked in asked {
                    let (method, message) = (one_line(&asked.method, 64), one_line(&asked.message(), 200));
                    write!(f, " {message}")?;
                    if message != method {
                        write!(f, " ({method})")?;
                    }
                }
                Ok(())
            }
            Self::Rpc(error) => write!(f, "{}", plain(&error.to_string())),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } | Self::Broken(source) => Some(source.as_ref()),
            Self::Status { .. } | Self::NotMcp(_) | Self::Asks(_) | Self::Rpc(_) => None,
        }
    }
}
