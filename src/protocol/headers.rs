//! The HTTP headers of MCP, and the encoding of their values (2026-07-28, Streamable HTTP, request metadata).

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The revision that a request speaks; equal to the one in `_meta`.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The method of the request.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What the request names: a tool, prompt, resource or task. May be encoded.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The session of 2025-11-25 and older.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Where a broken stream of 2025-11-25 and older is to go on.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How the headers that mirror a tool's arguments begin.
pub const PARAM_PREFIX: &str = "mcp-param-";

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// A wait that a server asks for is believed up to this.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// Why a header's value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// It has bytes that are neither visible ASCII, space nor tab.
    Characters,
    /// It has the markers of the encoding, but what stands between them is no Base64 of UTF-8 text.
    Encoding,
}

/// A header that may be there once is there more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated;

/// The value of a header that may be there once.
pub fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Repeated),
        (value, None) => Ok(value),
    }
}

/// The text of a header that says `value`: as it is where that is safe, else in the Base64 form. What
/// looks like the Base64 form is encoded once more, so it cannot be taken for something else.
pub fn encode_text(value: &str) -> Cow<'_, str> {
    let looks_encoded = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    let padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    if value.bytes().all(is_safe) && !looks_encoded && !padded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value)))
}

/// [`encode_text`] as a header's value.
pub fn encode(value: &str) -> HeaderValue {
    let text = encode_text(value);
    // The text is visible ASCII, space and tab by now, so the fallback is never taken.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What a header says. The markers count only in lower case; anything else is plain text.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, ValueError> {
    if !value.iter().copied().all(is_safe) {
        return Err(ValueError::Characters);
    }
    let text = std::str::from_utf8(value).map_err(|_| ValueError::Characters)?;
    let Some(inner) = text.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Ok(Cow::Borrowed(text));
    };
    let bytes = STANDARD.decode(inner).map_err(|_| ValueError::Encoding)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| ValueError::Encoding)
}

/// How long a server wants us to wait: seconds or a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => http_date(text)?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(wait.min(LONGEST_WAIT))
}

/// A date as `Retry-After` spells it (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = parts.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name == month)? + 1;
    humantime::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
}

fn is_safe(byte: u8) -> bool {
    matches!(byte, b'\t' | 0x20..=0x7e)
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Characters => "has characters other than visible ASCII, space and tab",
            Self::Encoding => "has the markers =?base64?..?= but no Base64 of UTF-8 text between them",
        })
    }
}

impl std::error::Error for ValueError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        let cases = [
            ("us-west1", "us-west1"),
            ("", ""),
            ("a b", "a b"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
            ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
            ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
            ("a\r\nx-evil: 1", "=?base64?YQ0KeC1ldmlsOiAx?="),
            ("\u{7f}", "=?base64?fw==?="),
        ];
        for (value, expected) in cases {
            assert_eq!(encode(value), expected, "{value:?}");
            assert_eq!(decode(encode(value).as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn a_wait_is_read_in_seconds_or_as_a_date_and_bounded() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("99999999"), Some(LONGEST_WAIT));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(read("Fri, 01 Jan 2100 00:00:00 GMT"), Some(LONGEST_WAIT));
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn a_broken_value_is_no_text() {
        let cases = [
            (&b"=?base64?###?="[..], ValueError::Encoding),
            (b"=?base64?eA?=", ValueError::Encoding),
            (b"=?base64?/w==?=", ValueError::Encoding),
            (b"caf\xc3\xa9", ValueError::Characters),
            (b"a\x01", ValueError::Characters),
        ];
        for (value, expected) in cases {
            assert_eq!(decode(value), Err(expected), "{value:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_text_survives_the_header(value in "\\PC*|[ -~\t\r\n]*|=\\?base64\\?[a-zA-Z0-9+/=]*\\?=") {
            let header = encode(&value);
            proptest::prop_assert_eq!(decode(header.as_bytes()).unwrap(), value.as_str());
        }

        #[test]
        fn every_value_is_read_or_refused(value: Vec<u8>) {
            let _ = decode(&value);
        }
    }
}
