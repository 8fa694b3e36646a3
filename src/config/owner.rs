//! `[owner]`: who callers are.

use std::collections::BTreeSet;

use http::{HeaderName, HeaderValue};

use super::reader::{Reader, Section};
use super::run::{NamedToken, Network, OwnerConfig, OwnerSource};
use super::secret;
use super::setting::Setting;

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

pub(super) fn read<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> OwnerConfig {
    let from = section.get(reader, "from").unwrap_or(From::Authorization);
    let trusted: Option<Vec<Network>> = section.list(reader, "trusted");
    let allow_anonymous = section.get(reader, "allow_anonymous").unwrap_or(false);
    let tokens = section.tables(reader, "token");
    let any_token = !tokens.is_empty();
    let tokens = read_tokens(reader, tokens);
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
            OwnerSource::Header { name, trusted }
        }
    };
    OwnerConfig { from, tokens, allow_anonymous }
}

fn read_tokens<'a>(reader: &mut Reader<'a>, sections: Vec<Section<'a>>) -> Vec<NamedToken> {
    let mut tokens: Vec<NamedToken> = Vec::new();
    let mut seen = BTreeSet::new();
    for mut section in sections {
        let name: Option<String> = section.get(reader, "name");
        if name.is_none() && !section.has(reader, "name") {
            section.fault(reader, "name", "is missing: the name that the token stands for");
        }
        let token = secret::one_of(reader, &mut section, ["token", "token_env", "token_file"]);
        if let Some(token) = &token {
            // Several tokens may stand for one name, so that a token can be replaced without a gap.
            if !seen.insert(token.clone()) {
                section.fault(reader, "token", "is the same as that of an earlier entry");
            }
            let sendable = HeaderValue::from_str(token).is_ok_and(|value| value.to_str().is_ok());
            if !sendable || token.contains(char::is_whitespace) {
                section.fault(reader, "token", "must be printable ASCII without spaces; leave out the word Bearer");
            }
        }
        section.finish(reader, &[]);
        tokens.extend(name.zip(token).map(|(name, token)| NamedToken { name, token }));
    }
    tokens
}
