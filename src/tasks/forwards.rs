//! Which headers of a caller go to the server with its calls.

use std::sync::Arc;

use http::HeaderName;

use crate::config::{ServerConfig, Transport};
use crate::protocol::Credentials;
use crate::runner::Carries;

/// Which headers of a caller go to the server with its calls.
#[derive(Clone, Debug)]
pub(super) enum Forwards {
    /// Nobody knows: all may.
    Any,
    /// These.
    These(Arc<[HeaderName]>),
}

impl Forwards {
    /// As the config of the server says. What it sets itself is not the caller's.
    pub(super) fn of(config: &ServerConfig) -> Self {
        match &config.transport {
            Transport::Stdio { .. } => Self::These(Arc::new([])),
            Transport::Http { headers, forward, .. } | Transport::Sse { headers, forward, .. } => {
                Self::These(forward.iter().filter(|name| !headers.contains_key(*name)).cloned().collect())
            }
        }
    }

    /// What a call with these headers goes out with that only this process has.
    pub(super) fn carries(&self, credentials: &Credentials) -> Carries {
        let headers = credentials.headers();
        let any = match self {
            Self::Any => !headers.is_empty(),
            Self::These(names) => names.iter().any(|name| headers.contains_key(name)),
        };
        if any { Carries::Credentials } else { Carries::Nothing }
    }
}
