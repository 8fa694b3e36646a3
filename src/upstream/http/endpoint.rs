//! One server's address, and the requests that go there: whose headers, and which of them.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{Method as Verb, Request, Response, StatusCode, Uri};
use url::Url;

use super::client::{HttpClient, NoClient, RopeBody, SendError, ServerBody};
use crate::config::is_own_header;
use crate::protocol::{Call, Credentials, MODERN, Method, Rope, headers, hops};

/// One server, as it is reached over HTTP.
pub(super) struct Endpoint {
    client: HttpClient,
    /// Where it is; another place once it has told so.
    uri: RwLock<Uri>,
    /// Set on every request. Secret.
    fixed: HeaderMap,
    /// Headers of the caller that are passed on.
    forward: Vec<HeaderName>,
    /// What tells our own requests, should they come back.
    mark: HeaderValue,
}

/// Why a server cannot be reached with this configuration.
#[derive(Debug)]
#[non_exhaustive]
pub(super) enum EndpointError {
    /// The address cannot be used in a request.
    Address(http::uri::InvalidUri),
    /// The address is neither `http` nor `https`.
    Scheme(String),
    /// No TLS.
    Tls(Box<dyn std::error::Error + Send + Sync>),
}

/// What a client takes as an answer to a POST, in the order that most servers expect.
pub(super) const JSON_FIRST: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// The other order, which a few servers insist on (field case 22).
pub(super) const EVENTS_FIRST: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");

/// How many headers of its own most requests have.
const OWN_HEADERS: usize = 7;

/// Redirects that are followed for one request.
const REDIRECTS: usize = 3;

impl Endpoint {
    /// The server at `url`.
    pub(super) fn new(
        url: &Url,
        headers: &HeaderMap,
        forward: &[HeaderName],
        connect: Duration,
    ) -> Result<Self, EndpointError> {
        let https = match url.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(EndpointError::Scheme(other.to_owned())),
        };
        let client =
            HttpClient::new(https, connect).map_err(|error| EndpointError::Tls(Box::<NoClient>::from(error)))?;
        let mut fixed = headers.clone();
        if let Some(basic) = basic(url) {
            fixed.entry(header::AUTHORIZATION).or_insert(basic);
        }
        let mut bare = url.clone();
        // These fail for addresses without a host only, which the schemes above always have.
        let _ = bare.set_username("");
        let _ = bare.set_password(None);
        bare.set_fragment(None);
        let uri = bare.as_str().parse().map_err(EndpointError::Address)?;
        let forward = forward.iter().filter(|name| may_be_forwarded(name)).cloned().collect();
        Ok(Self { client, uri: RwLock::new(uri), fixed, forward, mark: hops::mark("") })
    }

    /// The same, known by this name to the proxy.
    pub(super) fn named(self, server: &str) -> Self {
        Self { mark: hops::mark(server), ..self }
    }

    /// The same server over connections of a test.
    #[cfg(test)]
    pub(super) fn with_client(self, client: HttpClient) -> Self {
        Self { client, ..self }
    }

    /// Sends a request. A redirect within the same origin that keeps the request as it is (307, 308) is followed,
    /// and remembered: Python servers redirect `/mcp` to `/mcp/`. Credentials never follow one to another origin.
    pub(super) async fn send(&self, make: impl Fn() -> Request<RopeBody>) -> Result<Response<ServerBody>, SendError> {
        let mut redirects = 0;
        loop {
            let sent = self.client.send(make()).await;
            let mut response = sent.map_err(|error| error.at(shown(&self.uri())))?;
            redirects += 1;
            if redirects > REDIRECTS || !self.moved(&response) {
                self.sort_challenges(&mut response);
                return Ok(response);
            }
        }
    }

    /// Whether connections get on only while the caller waits for the answer.
    pub(super) fn is_driven_by_callers(&self) -> bool {
        self.client.is_driven_by_callers()
    }

    /// Sends a request to wherever it is addressed. No redirect is followed.
    pub(super) async fn send_once(&self, request: Request<RopeBody>) -> Result<Response<ServerBody>, SendError> {
        let at = shown(request.uri());
        self.client.send(request).await.map_err(|error| error.at(at))
    }

    /// A challenge is for the caller where the credentials were the caller's, and for nobody else. A 401 without one is
    /// wrong, and means the common one.
    fn sort_challenges(&self, response: &mut Response<ServerBody>) {
        let status = response.status();
        let headers = response.headers_mut();
        if !self.lets_callers_log_in() {
            headers.remove(header::WWW_AUTHENTICATE);
        } else if status == StatusCode::UNAUTHORIZED && !headers.contains_key(header::WWW_AUTHENTICATE) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
    }

    /// Whether the credentials that it sees are those of its callers.
    pub(super) fn lets_callers_log_in(&self) -> bool {
        self.forward.contains(&header::AUTHORIZATION) && !self.fixed.contains_key(header::AUTHORIZATION)
    }

    /// Whether the response says that the server is elsewhere in the same origin.
    fn moved(&self, response: &Response<ServerBody>) -> bool {
        if !matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
            return false;
        }
        let Ok(here) = Url::parse(&self.uri().to_string()) else { return false };
        let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        let Some(there) = location.and_then(|location| here.join(location).ok()) else { return false };
        if there.origin() != here.origin() || there == here {
            return false;
        }
        let Ok(uri) = there.as_str().parse::<Uri>() else { return false };
        tracing::info!(path = uri.path(), "a server says that it is at another path; that path is used from now on");
        *self.uri.write().unwrap_or_else(PoisonError::into_inner) = uri;
        true
    }

    /// The address without credentials and query, for a person.
    pub(super) fn shown(&self) -> String {
        let uri = self.uri();
        let (scheme, host) = (uri.scheme_str().unwrap_or("http"), uri.authority().map_or("", Authority::as_str));
        format!("{scheme}://{host}{}", uri.path())
    }

    /// Where the server is, as far as that is known.
    pub(super) fn uri(&self) -> Uri {
        self.uri.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What of a caller's headers goes to this server, and the way that its request has come.
    pub(super) fn forwarded(&self, credentials: &Credentials) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in self.forward.iter().chain([&hops::VIA]) {
            for value in credentials.headers().get_all(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        headers
    }

    /// A POST of one message.
    pub(super) fn post(&self, forwarded: &HeaderMap, accept: HeaderValue, message: Rope) -> Request<RopeBody> {
        let mut request = self.request(Verb::POST, forwarded, RopeBody::from(message));
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, accept);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    /// A GET of an event stream.
    pub(super) fn get(&self, forwarded: &HeaderMap) -> Request<RopeBody> {
        let mut request = self.request(Verb::GET, forwarded, RopeBody::empty());
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        request
    }

    /// A DELETE of a session.
    pub(super) fn delete(&self, forwarded: &HeaderMap) -> Request<RopeBody> {
        self.request(Verb::DELETE, forwarded, RopeBody::empty())
    }

    fn request(&self, verb: Verb, forwarded: &HeaderMap, body: RopeBody) -> Request<RopeBody> {
        let mut request = Request::new(body);
        *request.method_mut() = verb;
        *request.uri_mut() = self.uri();
        let mut headers = HeaderMap::with_capacity(OWN_HEADERS + forwarded.len() + self.fixed.len());
        if !forwarded.is_empty() {
            headers.extend(forwarded.clone());
        }
        if !self.fixed.is_empty() {
            for name in self.fixed.keys() {
                headers.remove(name);
            }
            headers.extend(self.fixed.clone());
        }
        headers.append(hops::VIA, self.mark.clone());
        *request.headers_mut() = headers;
        request
    }
}

/// The headers that mirror a modern request (2026-07-28, Streamable HTTP, request metadata). Those that mirror arguments
/// are passed on as they came, but for `arguments`: those that are known to mirror this call.
pub(super) fn mirror(map: &mut HeaderMap, call: &Call, arguments: &[(HeaderName, HeaderValue)]) {
    mirror_method(map, &call.method);
    if let Some(name) = call.params.name() {
        map.insert(headers::NAME, headers::encode(name));
    }
    if call.method == Method::CallTool {
        let given = call.caller.credentials.headers().iter();
        for (name, value) in given.filter(|(name, _)| name.as_str().starts_with(headers::PARAM_PREFIX)) {
            map.append(name, value.clone());
        }
    }
    for (name, value) in arguments {
        map.insert(name, value.clone());
    }
}

/// The headers that every modern request has.
pub(super) fn mirror_method(map: &mut HeaderMap, method: &Method) {
    map.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(MODERN));
    map.insert(headers::METHOD, headers::encode(method.name()));
}

/// Whether any of what was forwarded is the caller's own, so that no other may stand for it. By which way a request came
/// tells nothing of its caller.
pub(super) fn is_personal(forwarded: &HeaderMap) -> bool {
    forwarded.keys().any(|name| *name != hops::VIA)
}

/// An address without credentials and query, for a person.
fn shown(uri: &Uri) -> String {
    let (scheme, host) = (uri.scheme_str().unwrap_or("http"), uri.host().unwrap_or_default());
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{}", uri.path())
}

fn may_be_forwarded(name: &HeaderName) -> bool {
    !is_own_header(name) && !name.as_str().starts_with(headers::PARAM_PREFIX)
}

/// User and password of an address, as a header.
fn basic(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| percent_decoded(text);
    let pair = [decoded(url.username()), b":".to_vec(), decoded(url.password().unwrap_or_default())].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let query = format!("x={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(query.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned().into_bytes())
        .unwrap_or_default()
}

/// Hides header values.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("host", &self.uri().host()).finish_non_exhaustive()
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(_) => f.write_str("the address cannot be used in a request"),
            Self::Scheme(scheme) => write!(f, "the address must begin with http or https, not {scheme}"),
            Self::Tls(_) => f.write_str("no TLS connections can be made"),
        }
    }
}

impl std::error::Error for EndpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address(source) => Some(source),
            Self::Tls(source) => Some(source.as_ref()),
            Self::Scheme(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, fixed: &[(&'static str, &str)], forward: &[&'static str]) -> Endpoint {
        let mut headers = HeaderMap::new();
        for (name, value) in fixed {
            headers.insert(*name, value.parse().unwrap());
        }
        let forward: Vec<_> = forward.iter().map(|name| HeaderName::from_static(name)).collect();
        Endpoint::new(&url.parse().unwrap(), &headers, &forward, Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn only_listed_headers_are_forwarded_and_fixed_ones_win() {
        let endpoint = endpoint(
            "http://localhost/mcp",
            &[("x-fixed", "1")],
            &["authorization", "x-fixed", "content-length", "transfer-encoding", "connection", "host"],
        );
        let mut given = HeaderMap::new();
        for name in ["authorization", "x-fixed", "x-other", "content-length", "transfer-encoding", "connection", "host"]
        {
            given.insert(HeaderName::from_static(name), HeaderValue::from_static("theirs"));
        }
        given.insert(hops::VIA, HeaderValue::from_static("others"));
        let forwarded = endpoint.forwarded(&Credentials::new(given));
        let request = endpoint.post(&forwarded, JSON_FIRST, Rope::default());
        let mut sent: Vec<_> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        sent.sort_unstable();
        assert_eq!(
            sent,
            [
                ("accept", "application/json, text/event-stream"),
                ("authorization", "theirs"),
                ("content-type", "application/json"),
                ("dev-raincheck-via", hops::mark("").to_str().unwrap()),
                ("dev-raincheck-via", "others"),
                ("x-fixed", "1"),
            ]
        );
    }

    #[test]
    fn a_call_of_a_tool_is_mirrored_with_the_headers_of_its_arguments() {
        let mirrored = |method: Method| {
            let mut given = HeaderMap::new();
            given.insert("mcp-param-region", HeaderValue::from_static("eu"));
            given.insert("x-other", HeaderValue::from_static("1"));
            let raw = crate::protocol::Json::parse(bytes::Bytes::from_static(br#"{"name":"query"}"#)).unwrap();
            let params = crate::protocol::Params::read(&method, Some(raw)).unwrap();
            let principal = crate::protocol::Principal::Local;
            let caller = crate::protocol::Caller::of_modern(&params, principal, Credentials::new(given));
            let call = Call { method, params, caller, arrived: tokio::time::Instant::now() };
            let mut headers = HeaderMap::new();
            mirror(&mut headers, &call, &[]);
            let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(mirrored(Method::CallTool), ["mcp-method", "mcp-name", "mcp-param-region", "mcp-protocol-version"]);
        assert_eq!(mirrored(Method::GetPrompt), ["mcp-method", "mcp-name", "mcp-protocol-version"]);
    }

    #[test]
    fn user_and_password_of_an_address_become_a_header() {
        let endpoint = endpoint("http://us%65r:p%2Bw@localhost/mcp?a=b#c", &[], &[]);
        let request = endpoint.get(&HeaderMap::new());
        assert_eq!(request.uri().to_string(), "http://localhost/mcp?a=b");
        assert_eq!(request.headers()["authorization"], format!("Basic {}", STANDARD.encode("user:p+w")));
    }
}
