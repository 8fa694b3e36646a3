//! Headers of requests that are Raincheck's own to write.

use http::HeaderName;

/// Those that belong to one connection or one body, or that Raincheck writes itself.
const OWN: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "dev-raincheck-via",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "origin",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether nobody else may set this header, or pass it on from a caller.
pub fn is_own_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    OWN.contains(&name) || name.starts_with("proxy-")
}
