//! Who a caller is, and which of its headers may go on to a server.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
    ORIGIN, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, StatusCode};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::jwt::{Unproved, Verifier};
use super::refusal::Refusal;
use crate::config::{Network, OwnerConfig, OwnerSource, TokenProof};
use crate::jobs::Jobs;
use crate::protocol::headers::{PARAM_PREFIX, single};
use crate::protocol::{Credentials, Principal, Proofs};

/// Proves who callers are, as the config says.
#[derive(Debug)]
pub(super) struct Identity {
    owner: OwnerConfig,
    jwt: Option<Arc<Verifier>>,
    /// Whether the listener is bound to this machine only.
    loopback: bool,
    /// Which credentials servers have taken that nobody here can check.
    proofs: Proofs,
    warned_of_jwt: AtomicBool,
}

/// The header that says who the caller is appears twice or is no plain text.
struct Broken;

/// Headers of the connection, of the body or of MCP itself; a server gets its own.
const NOT_PASSED_ON: [HeaderName; 13] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    HOST,
    ORIGIN,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

impl Identity {
    /// As the config says. `loopback` is whether the listener is bound to this machine only. Keys of an
    /// issuer are renewed in `jobs`.
    pub(super) fn new(owner: OwnerConfig, loopback: bool, jobs: &Jobs) -> Self {
        let jwt = owner.jwt.as_ref().map(|config| Arc::new(Verifier::new(config, jobs.clone())));
        Self { owner, jwt, loopback, proofs: Proofs::default(), warned_of_jwt: AtomicBool::new(false) }
    }

    /// Who sent these headers from the address `peer`; 401 or 403 if that is not known or not believed.
    pub(super) async fn of(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Principal, Refusal> {
        match &self.owner.from {
            OwnerSource::Authorization => self.by_authorization(headers, peer).await,
            OwnerSource::Header { name, trusted } => self.by_header(headers, name, trusted, peer),
        }
    }

    /// What checks signed tokens, if the config has it.
    pub(super) fn verifier(&self) -> Option<Arc<Verifier>> {
        self.jwt.clone()
    }

    async fn by_authorization(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Principal, Refusal> {
        let broken = |Broken| Refusal::unauthorized("the header Authorization appears twice or is no plain text");
        let Some(value) = text(headers, &AUTHORIZATION).map_err(broken)? else { return self.without_credentials() };
        let bearer = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let bearer = bearer.map(|(_, token)| token.trim());
        if let Some(name) = bearer.and_then(|token| self.name_of(token)) {
            return Ok(Principal::Named(name));
        }
        match (&self.jwt, bearer) {
            (Some(jwt), Some(token)) if !token.is_empty() => {
                // Boxed, since it is large and hardly ever waits.
                return Box::pin(jwt.verify(token)).await.map_err(|unproved| match unproved {
                    Unproved::Token(why) => Refusal::invalid_token(why),
                    Unproved::NoKeys(error) => Refusal::no_keys(&error),
                });
            }
            _ if self.owner.authenticates() => {
                return Err(match bearer {
                    Some("") => Refusal::unauthorized("the token is missing behind `Authorization: Bearer`"),
                    Some(_) => Refusal::invalid_token(
                        "the token is not known here: send one that the configuration of this proxy lists (owner.token), or \
                         have whoever runs it list this one",
                    ),
                    None => Refusal::unauthorized(
                        "the credentials are not known here: they are sent as `Authorization: Bearer ...`",
                    ),
                });
            }
            _ => {}
        }
        match bearer {
            Some("") => self.without_credentials(),
            Some(token) => {
                self.warn_of_jwt(token);
                // One spelling, so that `bearer x` and `Bearer x` are one owner.
                Ok(Principal::Credential(self.proofs.shown(format!("Bearer {token}"), peer)))
            }
            None if value.eq_ignore_ascii_case("bearer") => self.without_credentials(),
            None => Ok(Principal::Credential(self.proofs.shown(value, peer))),
        }
    }

    fn by_header(
        &self,
        headers: &HeaderMap,
        name: &HeaderName,
        trusted: &[Network],
        peer: IpAddr,
    ) -> Result<Principal, Refusal> {
        let value = text(headers, name).map_err(|Broken| Refusal::unnamed(name))?;
        let Some(value) = value else { return self.without_credentials() };
        if trusted.iter().any(|network| network.contains(peer)) {
            return Ok(Principal::Named(value.into()));
        }
        Err(Refusal::http(
            StatusCode::FORBIDDEN,
            &format!("the header {name} is believed only from the addresses of the gateway (owner.trusted)"),
        ))
    }

    fn without_credentials(&self) -> Result<Principal, Refusal> {
        if self.loopback && !self.owner.authenticates() {
            return Ok(Principal::Local);
        }
        if self.owner.allow_anonymous {
            return Ok(Principal::Anonymous);
        }
        Err(match &self.owner.from {
            OwnerSource::Authorization => {
                Refusal::unauthorized("credentials are wanted here: send `Authorization: Bearer ...`")
            }
            OwnerSource::Header { name, .. } => Refusal::unnamed(name),
        })
    }

    /// Compares with every token in constant time, so that the time tells nothing of a token but its length.
    fn name_of(&self, token: &str) -> Option<Box<str>> {
        let mut found = None;
        for named in &self.owner.tokens {
            let same = match &named.token {
                TokenProof::Plain(plain) => plain.as_bytes().ct_eq(token.as_bytes()),
                TokenProof::Sha256(digest) => digest.ct_eq(Sha256::digest(token.as_bytes()).as_slice()),
            };
            if bool::from(same) {
                found = Some(named.name.as_str().into());
            }
        }
        found
    }

    fn warn_of_jwt(&self, token: &str) {
        if is_jwt(token) && !self.warned_of_jwt.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a caller's bearer token is a JWT: tasks belong to the token as it is, so they are out of the caller's \
                 reach once it is refreshed; set [owner.jwt] to have tokens checked and tasks belong to their subject"
            );
        }
    }

    /// What may be passed on of a request's headers, those that mirror arguments of a tool among them. While Raincheck
    /// checks tokens of its own, those are for Raincheck alone.
    pub(super) fn credentials(&self, headers: &HeaderMap) -> Credentials {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        let ours = !self.owner.tokens.is_empty() || self.jwt.is_some();
        let is_for_the_server = |name: &HeaderName| {
            let text = name.as_str();
            let of_mcp = text.starts_with("mcp-") && !text.starts_with(PARAM_PREFIX);
            let of_the_wire = of_mcp || text.starts_with("proxy-") || matches!(text, "keep-alive" | "last-event-id");
            let of_the_connection = NOT_PASSED_ON.contains(name) || listed.contains(name);
            let for_us = ours && *name == AUTHORIZATION;
            !(of_the_wire || of_the_connection || for_us)
        };
        let passed = headers.iter().filter(|(name, _)| is_for_the_server(name));
        Credentials::new(passed.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

/// The value of a header that may be there once; an empty one counts as none.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Broken> {
    let Some(value) = single(headers, name).map_err(|_| Broken)? else { return Ok(None) };
    let value = value.to_str().map_err(|_| Broken)?.trim();
    Ok(Some(value).filter(|value| !value.is_empty()))
}

/// Whether a token looks like a JWT: three parts in Base64, the first of which is a JSON object.
fn is_jwt(token: &str) -> bool {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part));
    let (Some(Ok(header)), Some(Ok(_)), Some(Ok(_)), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    header.starts_with(b"{")
}

#[cfg(test)]
#[path = "principal_tests.rs"]
mod tests;
