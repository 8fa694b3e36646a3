//! `[owner]`: who callers are.

use std::collections::BTreeSet;

use http::{HeaderName, HeaderValue};

use super::reader::{Reader, Section};
use super::run::{NamedToken, Network, OwnerConfig, OwnerSource, TokenProof};
use super::setting::Setting;
use super::{jwt, secret};

/// What `from` says.
enum From {
    Authorization,
    Header(HeaderName),
}

impl Setting for From {
    const EXPECTED: &'static str = "\"authorization\" or \"header:NAME\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "authorization" {
            return Ok(Self::Authorization);
        }
        let Some(name) = text.strip_prefix("header:") else {
            return Err(format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug()));
        };
        match HeaderName::from_text(name)? {
            http::header::AUTHORIZATION => Err("write \"authorization\" for that header".to_owned()),
            name => Ok(Self::Header(name)),
        }
    }
}

/// Who callers are, and the names that listed tokens stand for, those that are written wrongly too.
pub(super) fn read<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> (OwnerConfig, BTreeSet<String>) {
    let from = section.get(reader, "from").unwrap_or(From::Authorization);
    let trusted: Option<Vec<Network>> = section.list(reader, "trusted");
    let allow_anonymous = section.get(reader, "allow_anonymous").unwrap_or(false);
    let tokens = section.tables(reader, "token");
    let any_token = !tokens.is_empty();
    let mut names = BTreeSet::new();
    let tokens = read_tokens(reader, tokens, &mut names);
    let jwt = jwt::read(reader, section);
    let from = match from {
        From::Authorization => {
            if trusted.is_some() {
                section.fault(reader, "trusted", "only means something with from = \"header:NAME\"");
            }
            OwnerSource::Authorization
        }
        From::Header(name) => {
            let trusted = trusted.unwrap_or_default();
            if trusted.is_empty() {
                let message = "list the addresses of the gateway that sets the header, such as [\"10.0.0.5\"]; \
                               from any other address it could be forged";
                section.fault(reader, "trusted", message);
            }
            if !allow_anonymous && trusted.iter().any(|network| network.prefix == 0) {
                let message = "a block of every address lets anyone forge the header; name the gateway's addresses, \
                               or say owner.allow_anonymous = true";
                section.fault(reader, "trusted", message);
            }
            if any_token {
                section.fault(reader, "token", "only means something with from = \"authorization\"");
            }
            if section.has(reader, "jwt") {
                section.fault(reader, "jwt", "only means something with from = \"authorization\"");
            }
            OwnerSource::Header { name, trusted }
        }
    };
    (OwnerConfig { from, tokens, jwt, allow_anonymous }, names)
}

fn read_tokens<'a>(
    reader: &mut Reader<'a>,
    sections: Vec<Section<'a>>,
    names: &mut BTreeSet<String>,
) -> Vec<NamedToken> {
    let mut tokens: Vec<NamedToken> = Vec::new();
    let mut seen = BTreeSet::new();
    for mut section in sections {
        let name: Option<String> = section.get(reader, "name");
        if name.is_none() && !section.has(reader, "name") {
            section.fault(reader, "name", "is missing: the name that the token stands for");
        }
        names.extend(name.clone());
        let token = proof(reader, &mut section);
        if let Some(token) = &token
            // Several tokens may stand for one name, so that a token can be replaced without a gap.
            && !seen.insert(token.clone())
        {
            section.fault(reader, "token", "is the same as that of an earlier entry");
        }
        section.finish(reader);
        tokens.extend(name.zip(token).map(|(name, token)| NamedToken { name, token }));
    }
    tokens
}

/// What a token is compared with: the token, however it is given, or its digest.
pub(super) fn proof<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> Option<TokenProof> {
    let digest: Option<Sha256Hex> = section.get(reader, "sha256");
    if section.has(reader, "sha256") {
        let others = ["token", "token_env", "token_file"].map(|key| section.get::<String>(reader, key));
        if others.iter().any(Option::is_some) {
            section.fault(reader, "sha256", "set exactly one of token, token_env, token_file and sha256");
        }
        return digest.map(|Sha256Hex(digest)| TokenProof::Sha256(digest));
    }
    let token = secret::one_of(reader, section, ["token", "token_env", "token_file"])?;
    let sendable = HeaderValue::from_str(&token).is_ok_and(|value| value.to_str().is_ok());
    if !sendable || token.contains(char::is_whitespace) {
        section.fault(reader, "token", "must be printable ASCII without spaces; leave out the word Bearer");
    }
    Some(TokenProof::Plain(token))
}

/// A SHA-256 as `sha256sum` prints it.
struct Sha256Hex([u8; 32]);

impl Setting for Sha256Hex {
    const EXPECTED: &'static str =
        "the SHA-256 of a token in 64 hex digits, as `printf %s TOKEN | sha256sum` prints it";

    // The text may be the token itself, put here by mistake, so it is never repeated.
    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}", Self::EXPECTED);
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| wrong())?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}
