//! The key by which a caller makes a start idempotent.

use std::borrow::Cow;
use std::fmt;

use super::error::{RpcError, code};

/// A caller's key for a call: the same key joins a repeat of the call to the first one. Never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CallKey(Box<str>);

/// Bytes of the longest key.
const LONGEST: usize = 256;

impl CallKey {
    /// A key as a client wrote it: 1 to 256 visible ASCII characters.
    pub fn read(text: &str) -> Result<Self, RpcError> {
        let is_good = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_good {
            let message = "Invalid params: an idempotency key has 1 to 256 visible ASCII characters and no spaces";
            return Err(RpcError::new(code::INVALID_PARAMS, message));
        }
        Ok(Self(text.into()))
    }

    /// What a key in quotes says (RFC 9651, 3.3.3), or the text itself if it has none; `None` for what is neither.
    pub fn unquote(text: &str) -> Option<Cow<'_, str>> {
        let Some(rest) = text.strip_prefix('"') else {
            return (!text.contains(['"', '\\'])).then_some(Cow::Borrowed(text));
        };
        let inner = rest.strip_suffix('"')?;
        let mut out = String::with_capacity(inner.len());
        let mut characters = inner.chars();
        while let Some(character) = characters.next() {
            match character {
                '"' => return None,
                '\\' => out.push(characters.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
                other => out.push(other),
            }
        }
        Some(Cow::Owned(out))
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_short_and_visible() {
        for good in ["a", "8e03978e-40d5-43dd-bc93-6894a57f9324", &"x".repeat(256)] {
            assert_eq!(CallKey::read(good).unwrap().as_str(), good);
        }
        for bad in ["", " a", "a b", "a\n", "ü", &"x".repeat(257)] {
            assert!(CallKey::read(bad).is_err(), "{bad:?}");
        }
    }
}
