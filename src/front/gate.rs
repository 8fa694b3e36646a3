//! Who may talk to the listener at all: `Host` and `Origin`, against pages that rebind a name to us, and CORS for
//! the pages that may (2026-07-28, Streamable HTTP, security).

use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST, ORIGIN, VARY,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode};
use url::{Host, Url};

use super::refusal::Refusal;
use crate::config::Listen;
use crate::protocol::headers::{PARAM_PREFIX, single};

/// Which hosts and origins are let in.
#[derive(Debug)]
pub(super) struct Gate {
    /// Names, in lower case, without a port.
    hosts: Vec<String>,
    /// Origins as browsers spell them.
    origins: Vec<String>,
    /// Whether pages of this machine are let in.
    loopback: bool,
}

/// What the response has to say to the page that asked.
#[derive(Debug)]
pub(super) enum Cors {
    /// No page asked.
    NoPage,
    /// A page of this origin, which is let in.
    Page(HeaderValue),
}

/// Headers that a page may send, whatever it asks for.
const ALLOWED_HEADERS: &str = "authorization, content-type, accept, mcp-protocol-version, mcp-session-id, \
                               last-event-id, mcp-method, mcp-name, idempotency-key";
/// Headers that a page may read.
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static("mcp-session-id, www-authenticate, retry-after");
/// GET and DELETE are for legacy clients; without a session a page should see the 405 instead of a failed preflight.
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("POST, GET, DELETE");
/// Seconds for which a browser may remember a preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// Headers of arguments that one preflight may ask for.
const MAX_PARAM_HEADERS: usize = 64;

impl Gate {
    /// As the config says. `loopback` is whether the listener is bound to this machine only.
    pub(super) fn new(listen: &Listen, loopback: bool) -> Self {
        let mut hosts: Vec<String> = listen.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        let mut origins: Vec<String> = listen.allowed_origins.iter().map(|origin| canonical(origin)).collect();
        if let Some(url) = &listen.public_url {
            hosts.extend(url.host_str().map(str::to_ascii_lowercase));
            origins.push(url.origin().ascii_serialization());
        }
        Self { hosts, origins, loopback }
    }

    /// Lets a request in, or refuses it with 403. `local` is the address on which it came in.
    pub(super) fn admit(&self, request: &Parts, local: IpAddr) -> Result<Cors, Refusal> {
        self.check_hosts(request, local)?;
        match single(&request.headers, &ORIGIN) {
            Ok(None) => Ok(Cors::NoPage),
            Ok(Some(origin)) if self.allows_origin(origin) => Ok(Cors::Page(origin.clone())),
            _ => Err(Refusal::http(
                StatusCode::FORBIDDEN,
                "the Origin of this request is not allowed; listen.allowed_origins lists the pages that may ask",
            )),
        }
    }

    fn check_hosts(&self, request: &Parts, local: IpAddr) -> Result<(), Refusal> {
        let header = single(&request.headers, &HOST)
            .map_err(|_| Refusal::http(StatusCode::BAD_REQUEST, "the request has more than one Host"))?;
        let header = header.map(|value| Authority::try_from(value.as_bytes()));
        let named = [request.uri.authority().cloned().map(Ok), header];
        let mut named = named.into_iter().flatten().peekable();
        if named.peek().is_none() {
            return Err(Refusal::http(StatusCode::BAD_REQUEST, "the request has no Host"));
        }
        let allowed = |name: Result<Authority, _>| {
            name.is_ok_and(|name| !name.as_str().contains('@') && self.allows_host(name.host(), local))
        };
        if named.all(allowed) {
            return Ok(());
        }
        Err(Refusal::http(
            StatusCode::FORBIDDEN,
            "the Host of this request is not allowed; listen.allowed_hosts or listen.public_url names the hosts that are",
        ))
    }

    /// A page can point any name of its own at us, but not a loopback name, and no address but ours.
    fn allows_host(&self, host: &str, local: IpAddr) -> bool {
        let host = host.to_ascii_lowercase();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let ours =
            |address: IpAddr| address.to_canonical().is_loopback() || address.to_canonical() == local.to_canonical();
        host == "localhost" || address.is_ok_and(ours) || self.hosts.contains(&host)
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let spelled = canonical(origin);
        self.origins.contains(&spelled) || (self.loopback && is_loopback_origin(origin))
    }
}

impl Cors {
    /// Puts the headers on any response, errors too: without them a page cannot even read the status.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        let Self::Page(origin) = self else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }

    /// Puts the answer to a preflight on the response to an OPTIONS request.
    pub(super) fn preflight(&self, asked: &HeaderMap, headers: &mut HeaderMap) {
        if let Self::NoPage = self {
            return;
        }
        let wanted = asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|value| value.to_str().ok());
        let wanted = wanted.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase());
        let mut allowed = ALLOWED_HEADERS.to_owned();
        for name in wanted.filter(|name| is_param_header(name)).take(MAX_PARAM_HEADERS) {
            allowed.push_str(", ");
            allowed.push_str(&name);
        }
        if let Ok(allowed) = HeaderValue::from_str(&allowed) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        }
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        headers.append(VARY, HeaderValue::from_static("access-control-request-headers"));
    }
}

fn is_param_header(name: &str) -> bool {
    name.starts_with(PARAM_PREFIX) && http::HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// An origin as browsers spell it: lower case, no default port, no path.
fn canonical(origin: &str) -> String {
    match Url::parse(origin) {
        Ok(url) if url.origin().is_tuple() => url.origin().ascii_serialization(),
        _ => origin.to_ascii_lowercase(),
    }
}

fn is_loopback_origin(origin: &str) -> bool {
    let Ok(url) = Url::parse(origin) else { return false };
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    is_loopback && matches!(url.scheme(), "http" | "https")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use super::*;

    fn gate(loopback: bool) -> Gate {
        let listen = Listen {
            http: SocketAddr::from(([127, 0, 0, 1], 0)),
            public_url: Some("https://MCP.example.com/base".parse().unwrap()),
            allowed_hosts: vec!["Inner.example".to_owned()],
            allowed_origins: vec!["https://App.example/".to_owned()],
            keep_alive: Duration::from_secs(15),
            session_idle: Duration::from_hours(1),
        };
        Gate::new(&listen, loopback)
    }

    fn parts(uri: &str, headers: &[(http::HeaderName, &str)]) -> Parts {
        let mut request = http::Request::builder().uri(uri).body(()).unwrap().into_parts().0;
        for (name, value) in headers {
            request.headers.append(name, value.parse().unwrap());
        }
        request
    }

    #[test]
    fn a_host_must_be_ours() {
        let local = IpAddr::from([10, 0, 0, 5]);
        let cases: [(&[&str], Option<StatusCode>); 16] = [
            (&["localhost:8080"], None),
            (&["LOCALHOST"], None),
            (&["127.0.0.1:1"], None),
            (&["[::1]:8080"], None),
            (&["10.0.0.5:8080"], None),
            (&["mcp.example.com"], None),
            (&["inner.example:8443"], None),
            (&["10.0.0.6"], Some(StatusCode::FORBIDDEN)),
            (&["evil.example"], Some(StatusCode::FORBIDDEN)),
            (&["localhost.evil.example"], Some(StatusCode::FORBIDDEN)),
            (&["evil.example@localhost"], Some(StatusCode::FORBIDDEN)),
            (&["localhost@evil.example"], Some(StatusCode::FORBIDDEN)),
            (&[""], Some(StatusCode::FORBIDDEN)),
            (&["a b"], Some(StatusCode::FORBIDDEN)),
            (&[], Some(StatusCode::BAD_REQUEST)),
            (&["localhost", "evil.example"], Some(StatusCode::BAD_REQUEST)),
        ];
        for (hosts, expected) in cases {
            let headers: Vec<_> = hosts.iter().map(|host| (HOST, *host)).collect();
            let refused = gate(true).admit(&parts("/mcp", &headers), local).err().map(|refusal| refusal.status());
            assert_eq!(refused, expected, "{hosts:?}");
        }
    }

    #[test]
    fn the_host_in_the_address_line_counts_as_well() {
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(gate(true).admit(&parts("http://localhost/mcp", &[]), local).is_ok());
        let split = parts("http://evil.example/mcp", &[(HOST, "localhost")]);
        assert_eq!(gate(true).admit(&split, local).unwrap_err().status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn an_origin_must_be_listed_or_of_this_machine() {
        let cases = [
            ("http://localhost:6274", true, true),
            ("http://127.0.0.1", true, true),
            ("http://[::1]:3000", true, true),
            ("http://localhost:6274", false, false),
            ("https://app.example", false, true),
            ("https://app.example:443", false, true),
            ("https://mcp.example.com", false, true),
            ("http://app.example", true, false),
            ("https://app.example.evil", true, false),
            ("http://localhost.evil.example", true, false),
            ("file://localhost", true, false),
            ("null", true, false),
            ("", true, false),
        ];
        for (origin, loopback, expected) in cases {
            let request = parts("/mcp", &[(HOST, "localhost"), (ORIGIN, origin)]);
            let admitted = gate(loopback).admit(&request, Ipv4Addr::LOCALHOST.into());
            assert_eq!(admitted.is_ok(), expected, "{origin} on loopback: {loopback}");
        }
        let twice = parts("/mcp", &[(HOST, "localhost"), (ORIGIN, "http://localhost"), (ORIGIN, "http://localhost")]);
        assert!(gate(true).admit(&twice, Ipv4Addr::LOCALHOST.into()).is_err());
    }

    #[test]
    fn a_preflight_allows_the_headers_of_arguments_that_were_asked_for() {
        let request = parts("/mcp", &[(ACCESS_CONTROL_REQUEST_HEADERS, "mcp-param-region, X-Other,MCP-Param-b c")]);
        let mut headers = HeaderMap::new();
        Cors::Page(HeaderValue::from_static("http://localhost")).preflight(&request.headers, &mut headers);
        let allowed = headers[ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        for name in ["authorization", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region"] {
            assert!(allowed.contains(name), "{name}");
        }
        assert!(!allowed.contains("x-other") && !allowed.contains("mcp-param-b"));
    }
}
