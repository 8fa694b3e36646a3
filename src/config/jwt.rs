//! `[owner.jwt]`: callers proved by the tokens of an issuer (RFC 7519), whose keys are published (RFC 7517).

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::{Host, Url};

use super::reader::{Reader, Section};
use super::run::{JwtConfig, KeySource};
use super::setting::{Setting, WebUrl};

/// How far the clocks of issuer and proxy may differ, unless the config says otherwise.
const SKEW: Duration = Duration::from_mins(1);
/// The most that they may be said to differ: beyond it an expiry means nothing.
const LARGEST_SKEW: Duration = Duration::from_mins(10);

impl Setting for KeySource {
    const EXPECTED: &'static str = "the https URL of a key set, or the path of a file with one";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err(format!("expected {}", Self::EXPECTED));
        }
        if !text.contains("://") {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let WebUrl(url) = WebUrl::from_text(text)?;
        if url.scheme() != "https" && !is_loopback(&url) {
            return Err(
                "keys over plain http could be swapped on the way; use https (http is for loopback only)".into()
            );
        }
        Ok(Self::Url(url))
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}

/// Reads the table; `None` if it is not there, or wrong and reported.
pub(super) fn read<'a>(reader: &mut Reader<'a>, owner: &mut Section<'a>) -> Option<JwtConfig> {
    if !owner.has(reader, "jwt") {
        owner.entry(reader, "jwt");
        return None;
    }
    let mut section = owner.table(reader, "jwt");
    let issuer: Option<String> = section.get(reader, "issuer");
    let audience: Option<Vec<String>> = section.list(reader, "audience");
    let keys: Option<KeySource> = section.get(reader, "jwks");
    let skew = section.get(reader, "skew").unwrap_or(SKEW);
    let missing = [
        ("issuer", "the exact `iss` of the tokens, such as \"https://login.example.com/\""),
        ("audience", "a list of the `aud` that tokens for this proxy have, such as [\"https://mcp.example.com/mcp\"]"),
        ("jwks", "where the issuer publishes its keys, such as \"https://login.example.com/.well-known/jwks.json\""),
    ];
    for (key, what) in missing {
        if !section.has(reader, key) {
            section.fault(reader, key, format!("is missing: {what}"));
        }
    }
    let is_blank = |text: &String| text.trim().is_empty();
    if issuer.as_ref().is_some_and(is_blank) {
        section.fault(reader, "issuer", "must not be empty");
    }
    if audience.as_ref().is_some_and(|list| list.is_empty() || list.iter().any(is_blank)) {
        let message =
            "must name at least one audience, none of them empty: a token for another service must not open this one";
        section.fault(reader, "audience", message);
    }
    if skew > LARGEST_SKEW {
        section.fault(reader, "skew", "must be 10m at most");
    }
    if let Some(KeySource::File(path)) = &keys
        && let Err(error) = File::open(path).and_then(|mut file| file.read(&mut [0]))
    {
        section.fault(reader, "jwks", format!("cannot read {}: {error}", path.display()));
    }
    section.finish(reader);
    Some(JwtConfig { issuer: issuer?, audience: audience?, keys: keys?, skew })
}
