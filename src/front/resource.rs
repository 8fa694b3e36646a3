//! Where clients learn how to log in (RFC 9728): the metadata of a server behind, told under our own URL, or our own where
//! we check tokens ourselves.
//!
//! Strict clients refuse metadata whose `resource` is not the URL that they know. That URL is the configured one, or where
//! we listen on this machine; never what a request calls us.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use url::Url;

use super::body::Body;
use super::media;
use super::refusal::Refusal;
use crate::protocol::Json;
use crate::protocol::rope::ObjectWriter;

/// Gets the metadata of one server behind; `None` if it has none, or if its login is none of its clients' business.
#[derive(Clone)]
pub struct ResourceMetadata(Arc<Get>);

type Get = dyn Fn() -> BoxFuture<'static, Option<Json>> + Send + Sync;

/// What is told of the servers behind as protected resources.
#[derive(Debug)]
pub(super) struct Resources {
    /// What clients know us by, without a slash at the end; `None` if nobody has told us.
    base: Option<String>,
    /// The path in it that whoever stands before us takes off; empty, or with a slash in front.
    taken_off: String,
    login: Login,
}

/// Who says how to log in.
#[derive(Debug)]
enum Login {
    /// The servers, by their names.
    Servers(HashMap<String, ResourceMetadata>),
    /// We do: tokens of this issuer are checked here.
    Issuer(String),
}

/// Where the metadata is, before the path of the resource (RFC 9728, 3.1).
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// The parameter of a challenge that says so (RFC 9728, 5.1).
const PARAMETER: &str = "resource_metadata";

impl ResourceMetadata {
    /// `get` is called whenever a client asks.
    pub fn new(get: impl Fn() -> BoxFuture<'static, Option<Json>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(get))
    }
}

impl Resources {
    /// `listens` is where we listen, `issuer` whose tokens are checked here.
    pub(super) fn new(
        public_url: Option<&Url>,
        listens: SocketAddr,
        issuer: Option<&str>,
        servers: HashMap<String, ResourceMetadata>,
    ) -> Self {
        let here = listens.ip().to_canonical().is_loopback().then(|| format!("http://{listens}"));
        let base = public_url.map(|url| url.as_str().trim_end_matches('/').to_owned()).or(here);
        let taken_off = public_url.map(|url| url.path().trim_end_matches('/').to_owned()).unwrap_or_default();
        let login = issuer.map_or(Login::Servers(servers), |issuer| Login::Issuer(issuer.to_owned()));
        Self { base, taken_off, login }
    }

    /// The path of the endpoint whose metadata is at `path`; without one it is that of the only server.
    pub(super) fn endpoint<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(WELL_KNOWN).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        // At the root of the host nothing was taken off.
        let inner = rest.strip_prefix(self.taken_off.as_str()).filter(|inner| inner.starts_with('/'));
        Some(inner.unwrap_or(rest)).map(|rest| if matches!(rest, "" | "/") { "/mcp" } else { rest })
    }

    /// The metadata of the server `name`, whose endpoint the client knows under `path`.
    pub(super) async fn tell(&self, method: &Method, name: &str, path: &str) -> Result<Response<Body>, Refusal> {
        if method != Method::GET {
            return Err(Refusal::http(StatusCode::METHOD_NOT_ALLOWED, "metadata is there to be read with GET"));
        }
        let none = || Refusal::http(StatusCode::NOT_FOUND, "this server says nothing of how to log in");
        let base = self.base.as_ref().ok_or_else(none)?;
        let resource = format!("{base}{path}");
        let mut metadata = ObjectWriter::new();
        metadata.string("resource", &resource);
        match &self.login {
            Login::Issuer(issuer) => {
                metadata.raw("authorization_servers", &Json::from_value(&serde_json::json!([issuer])));
                metadata.raw("bearer_methods_supported", &Json::from_value(&serde_json::json!(["header"])));
            }
            Login::Servers(servers) => {
                let theirs = match servers.get(name) {
                    Some(server) => (server.0)().await,
                    None => None,
                };
                // What the server has signed names another resource.
                let kept = |name: &str| !matches!(name, "resource" | "signed_metadata");
                metadata.members_of(&theirs.ok_or_else(none)?, kept).map_err(|_| none())?;
            }
        }
        let mut response = Response::new(Body::text(metadata.finish()));
        response.headers_mut().insert(CONTENT_TYPE, media::JSON);
        Ok(response)
    }

    /// Makes challenges to requests for `path` lead to our metadata.
    pub(super) fn mark(&self, path: &str, headers: &mut HeaderMap) {
        let Some(base) = self.base.as_ref().filter(|_| headers.contains_key(WWW_AUTHENTICATE)) else { return };
        let metadata = format!("{base}{WELL_KNOWN}{path}");
        let is_ours = matches!(self.login, Login::Issuer(_));
        let marked = |challenge: &HeaderValue| {
            let marked = challenge.to_str().ok().and_then(|challenge| marked(challenge, &metadata, is_ours));
            marked.and_then(|marked| HeaderValue::from_str(&marked).ok()).unwrap_or_else(|| challenge.clone())
        };
        let challenges: Vec<_> = headers.get_all(WWW_AUTHENTICATE).iter().map(marked).collect();
        headers.remove(WWW_AUTHENTICATE);
        for challenge in challenges {
            headers.append(WWW_AUTHENTICATE, challenge);
        }
    }
}

/// A challenge whose parameter names `metadata`; without the parameter it gets one only if `adds`. `None` if it stays.
fn marked(challenge: &str, metadata: &str, adds: bool) -> Option<String> {
    let quoted = format!("\"{metadata}\"");
    if let Some((from, to)) = parameter(challenge) {
        return Some([challenge.get(..from)?, &quoted, challenge.get(to..)?].concat());
    }
    let is_bearer = challenge.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
    let separator = if challenge.trim().len() == 6 { "" } else { "," };
    (adds && is_bearer).then(|| format!("{}{separator} {PARAMETER}={quoted}", challenge.trim_end()))
}

/// Where the value of the parameter stands, quotes included. What is quoted elsewhere is passed over.
fn parameter(challenge: &str) -> Option<(usize, usize)> {
    let bytes = challenge.as_bytes();
    let (mut at, mut begins) = (0, true);
    while let Some(byte) = bytes.get(at) {
        let name =
            challenge.get(at..at + PARAMETER.len()).filter(|name| begins && name.eq_ignore_ascii_case(PARAMETER));
        if name.is_some() {
            let rest = challenge.get(at + PARAMETER.len()..)?;
            let value = rest.trim_start().strip_prefix('=').map(str::trim_start);
            if let Some(value) = value {
                let from = challenge.len() - value.len();
                let length = match value.strip_prefix('"') {
                    Some(_) => quoted_length(value),
                    None => value.find([',', ' ']).unwrap_or(value.len()),
                };
                return Some((from, from + length));
            }
        }
        begins = matches!(byte, b' ' | b',' | b'\t');
        at += if *byte == b'"' { quoted_length(challenge.get(at..)?) } else { 1 };
    }
    None
}

/// How long the quoted text at the beginning is.
fn quoted_length(text: &str) -> usize {
    let mut is_escaped = true;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

impl fmt::Debug for ResourceMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResourceMetadata")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_names_our_metadata_and_keeps_all_else() {
        let cases = [
            (r#"Bearer resource_metadata="http://in/x""#, false, Some(r#"Bearer resource_metadata="M""#)),
            (
                r#"Bearer realm="a, resource_metadata=b", Resource_Metadata = x, scope="s""#,
                false,
                Some(r#"Bearer realm="a, resource_metadata=b", Resource_Metadata = "M", scope="s""#),
            ),
            (r#"Bearer realm="q\" resource_metadata=", error=e"#, false, None),
            (r#"Bearer x_resource_metadata="y""#, false, None),
            (r#"Bearer resource_metadata="open"#, false, Some(r#"Bearer resource_metadata="M""#)),
            ("Bearer", true, Some(r#"Bearer resource_metadata="M""#)),
            (r#"bearer error="e""#, true, Some(r#"bearer error="e", resource_metadata="M""#)),
            ("Basic realm=x", true, None),
            ("Bearer", false, None),
            ("", true, None),
        ];
        for (challenge, adds, expected) in cases {
            assert_eq!(marked(challenge, "M", adds).as_deref(), expected, "{challenge}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_challenge_is_read(challenge in "\\PC*|(Bearer |resource_metadata|=|\"|\\\\|,| |é)*", adds: bool) {
            let _ = marked(&challenge, "M", adds);
        }
    }
}
