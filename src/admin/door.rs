//! Who is let in: whoever has the token, or, on a loopback address without one, whoever is on this machine, but no page
//! of somebody else in a browser on it.

use std::net::{IpAddr, SocketAddr};

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, StatusCode};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::answer::{Answer, refused};
use crate::config::{AdminConfig, TokenProof};
use crate::protocol::headers::single;

/// Lets operators in.
#[derive(Debug)]
pub(super) struct Door {
    token: Option<TokenProof>,
    local: IpAddr,
}

/// How much a path tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// Probes and the empty page: nothing worth a token.
    Open,
    /// All else.
    Operators,
}

impl Door {
    pub(super) fn new(config: &AdminConfig, local: SocketAddr) -> Self {
        Self { token: config.token.clone(), local: local.ip() }
    }

    /// Lets a request in, or says why not.
    pub(super) fn admit(&self, request: &Parts, secrecy: Secrecy) -> Result<(), Box<Answer>> {
        let refused = |status, why| Box::new(refused(status, why));
        let host = host(request).ok_or_else(|| refused(StatusCode::BAD_REQUEST, "the request needs one Host"))?;
        // A page can point a name of its own at us. It has no token, so a token is as good as the right name.
        if self.token.is_none() && !self.is_ours(host.host()) {
            return Err(refused(StatusCode::FORBIDDEN, "use a loopback name or the address of this listener"));
        }
        let origin = text(&request.headers, &ORIGIN).map_err(|()| refused(StatusCode::FORBIDDEN, "two origins"))?;
        let is_own =
            |origin: &str| origin.split_once("://").is_some_and(|(_, named)| named.eq_ignore_ascii_case(host.as_str()));
        if origin.is_some_and(|origin| !is_own(origin)) {
            return Err(refused(StatusCode::FORBIDDEN, "pages from elsewhere are not let in"));
        }
        match (&self.token, secrecy) {
            (None, _) | (_, Secrecy::Open) => Ok(()),
            (Some(token), Secrecy::Operators) if has_token(&request.headers, token) => Ok(()),
            (Some(_), Secrecy::Operators) => {
                Err(refused(StatusCode::UNAUTHORIZED, "send the token of [admin]: `Authorization: Bearer ...`"))
            }
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let ours = |address: IpAddr| {
            let address = address.to_canonical();
            address.is_loopback() || address == self.local.to_canonical()
        };
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(ours)
    }
}

/// The one host that a request names.
fn host(request: &Parts) -> Option<Authority> {
    let header = text(&request.headers, &HOST).ok()?;
    let authority = match (request.uri.authority(), header) {
        (Some(authority), _) => authority.clone(),
        (None, Some(header)) => header.parse().ok()?,
        (None, None) => return None,
    };
    (!authority.as_str().contains('@')).then_some(authority)
}

/// The text of a header that is there once, or not at all.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let value = single(headers, name).map_err(|_| ())?;
    value.map(|value| value.to_str().map_err(|_| ())).transpose()
}

/// Compared in constant time, so that the time tells nothing of the token but its length.
fn has_token(headers: &HeaderMap, token: &TokenProof) -> bool {
    let Ok(Some(value)) = text(headers, &AUTHORIZATION) else { return false };
    let Some((scheme, sent)) = value.split_once(' ') else { return false };
    let sent = sent.trim().as_bytes();
    let same = match token {
        TokenProof::Plain(plain) => plain.as_bytes().ct_eq(sent),
        TokenProof::Sha256(digest) => digest.ct_eq(Sha256::digest(sent).as_slice()),
    };
    scheme.eq_ignore_ascii_case("bearer") && bool::from(same)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn status(door: &Door, secrecy: Secrecy, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        door.admit(&parts, secrecy).map_or_else(|answer| answer.status().as_u16(), |()| 200)
    }

    fn door(token: Option<TokenProof>) -> Door {
        let config = AdminConfig { http: "127.0.0.1:0".parse().unwrap(), token };
        Door::new(&config, "127.0.0.1:8081".parse().unwrap())
    }

    #[test]
    fn without_a_token_only_this_machine_is_let_in_and_no_page_of_others() {
        let door = door(None);
        let table: [(&[(&str, &str)], u16); 12] = [
            (&[("host", "127.0.0.1:8081")], 200),
            (&[("host", "localhost:8081")], 200),
            (&[("host", "LOCALHOST")], 200),
            (&[("host", "[::1]:8081")], 200),
            (&[("host", "evil.example:8081")], 403),
            (&[("host", "10.0.0.7:8081")], 403),
            (&[("host", "localhost.evil.example")], 403),
            (&[("host", "x@localhost")], 400),
            (&[], 400),
            (&[("host", "localhost"), ("host", "localhost")], 400),
            (&[("host", "localhost:8081"), ("origin", "http://localhost:8081")], 200),
            (&[("host", "localhost:8081"), ("origin", "https://evil.example")], 403),
        ];
        for (headers, expected) in table {
            for secrecy in [Secrecy::Open, Secrecy::Operators] {
                assert_eq!(status(&door, secrecy, headers), expected, "{headers:?}");
            }
        }
        for origin in ["null", "http://localhost:9999", "http://localhost"] {
            assert_eq!(status(&door, Secrecy::Operators, &[("host", "localhost:8081"), ("origin", origin)]), 403);
        }
    }

    #[test]
    fn with_a_token_whoever_has_it_is_let_in_under_any_name() {
        let digest = Sha256::digest(b"secret").into();
        for door in [door(Some(TokenProof::Plain("secret".to_owned()))), door(Some(TokenProof::Sha256(digest)))] {
            let with =
                |value| status(&door, Secrecy::Operators, &[("host", "admin.example"), ("authorization", value)]);
            assert_eq!(with("Bearer secret"), 200);
            assert_eq!(with("bearer secret"), 200);
            for wrong in ["Bearer secre", "Bearer secret2", "Basic secret", "secret", "Bearer"] {
                assert_eq!(with(wrong), 401, "{wrong}");
            }
            assert_eq!(status(&door, Secrecy::Operators, &[("host", "admin.example")]), 401);
            assert_eq!(status(&door, Secrecy::Open, &[("host", "10.1.2.3:8081")]), 200);
            let page = [("host", "a"), ("origin", "http://b"), ("authorization", "Bearer secret")];
            assert_eq!(status(&door, Secrecy::Operators, &page), 403);
        }
    }
}
