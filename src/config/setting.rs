//! The kinds of value that a setting can have, each read from TOML or from the text of a variable or flag.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use http::HeaderName;
use toml::de::DeValue;
use url::Url;

use super::fault::did_you_mean;
use super::run::Network;

/// A kind of value. Errors say what is wrong and what to write instead.
pub(super) trait Setting: Sized {
    /// What is expected, with an example.
    const EXPECTED: &'static str;

    /// What is expected where several are, with an example.
    const LIST: &'static str = "a list, such as [\"...\"]";

    /// Reads the text of a variable or a flag, or a TOML string.
    fn from_text(text: &str) -> Result<Self, String>;

    /// Reads a TOML value.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            other => Err(expected::<Self>(other)),
        }
    }
}

/// A number of bytes: `"8MiB"`, or a plain number.
pub(super) struct Size(pub(super) u64);

/// How long something is kept: a duration or `"forever"`.
pub(super) struct Keep(pub(super) Option<Duration>);

/// A URL of http or https without credentials in it.
pub(super) struct WebUrl(pub(super) Url);

/// A duration as the configuration spells it, for flags that are no settings. Zero is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    Duration::from_text(text)
}

/// Longer durations are mistakes, and would overflow sums of moments.
const LONGEST: Duration = Duration::from_hours(24 * 3650);

/// What stands where something else was expected.
pub(super) fn expected<T: Setting>(found: &DeValue<'_>) -> String {
    format!("expected {}, found {}", T::EXPECTED, kind(found))
}

/// The English name of a TOML value's kind.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The value that a word stands for. `later` are words of versions to come.
pub(super) fn choice<T: Copy>(text: &str, choices: &[(&str, T)], later: &[&str]) -> Result<T, String> {
    if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words: Vec<_> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    let words = words.join(", ");
    if later.contains(&text) {
        return Err(format!("\"{text}\" is not in this version yet; use one of {words}"));
    }
    let guess = did_you_mean(text, choices.iter().map(|(word, _)| *word));
    Err(format!("expected one of {words}, found \"{}\"{guess}", text.escape_debug()))
}

impl Setting for String {
    const EXPECTED: &'static str = "a string";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
    }
}

impl Setting for PathBuf {
    const EXPECTED: &'static str = "a path, such as \"raincheck.data\"";

    fn from_text(text: &str) -> Result<Self, String> {
        String::from_text(text).map(Self::from)
    }
}

impl Setting for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_text(text: &str) -> Result<Self, String> {
        choice(text, &[("true", true), ("false", false)], &[])
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| expected::<Self>(value))
    }
}

impl Setting for usize {
    const EXPECTED: &'static str = "a whole number above 0";

    fn from_text(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug()))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let DeValue::Integer(number) = value else { return Err(expected::<Self>(value)) };
        let read = Self::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| *number > 0);
        read.ok_or_else(|| format!("expected {}, found {}", Self::EXPECTED, number.as_str()))
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a duration, such as \"10s\", \"30m\" or \"1h 30m\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!(
                "a duration needs a unit; write \"{text}s\" for seconds or \"{text}ms\" for milliseconds"
            ));
        }
        let read = humantime::parse_duration(text)
            .map_err(|_| format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug()))?;
        match read {
            Self::ZERO => Err("must be longer than zero".to_owned()),
            read if read > LONGEST => Err("must not be longer than ten years".to_owned()),
            read => Ok(read),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            DeValue::Integer(number) => Self::from_text(number.as_str()),
            other => Err(expected::<Self>(other)),
        }
    }
}

impl Setting for Keep {
    const EXPECTED: &'static str = "a duration, such as \"24h\", or \"forever\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "forever" { Ok(Self(None)) } else { Duration::from_text(text).map(|keep| Self(Some(keep))) }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            other => Duration::from_toml(other).map(|keep| Self(Some(keep))),
        }
    }
}

impl Setting for Size {
    const EXPECTED: &'static str = "a size, such as \"8MiB\", or a number of bytes";

    fn from_text(text: &str) -> Result<Self, String> {
        let read = text.parse::<ByteSize>().ok().filter(|size| size.as_u64() > 0);
        let read = read.filter(|size| i64::try_from(size.as_u64()).is_ok());
        read.map(|size| Self(size.as_u64()))
            .ok_or_else(|| format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug()))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            DeValue::Integer(_) => usize::from_toml(value).map(|bytes| Self(bytes as u64)),
            other => Err(expected::<Self>(other)),
        }
    }
}

impl Setting for SocketAddr {
    const EXPECTED: &'static str = "an address and a port, such as \"127.0.0.1:8080\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| {
            let hint = match text.rsplit_once(':') {
                Some(("localhost", port)) => format!("; write \"127.0.0.1:{port}\""),
                Some(("" | "*", port)) => {
                    format!("; write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every network")
                }
                _ if text.parse::<IpAddr>().is_ok() => "; the port is missing".to_owned(),
                _ if text.parse::<u16>().is_ok() => format!("; write \"127.0.0.1:{text}\""),
                _ => String::new(),
            };
            format!("expected {}, found \"{}\"{hint}", Self::EXPECTED, text.escape_debug())
        })
    }
}

impl Setting for WebUrl {
    const EXPECTED: &'static str = "a URL, such as \"http://127.0.0.1:3000/mcp\"";

    // The text may hold credentials, so it is never repeated.
    fn from_text(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Err(format!("expected {}; http:// or https:// is missing in front", Self::EXPECTED));
        }
        let url = Url::parse(text).map_err(|error| format!("expected {}: {error}", Self::EXPECTED))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("the scheme must be http or https, found \"{}\"", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must hold no credentials; put them into headers, headers_env or headers_file".to_owned());
        }
        if url.fragment().is_some() {
            return Err("must not have a fragment (the part from #)".to_owned());
        }
        Ok(Self(url))
    }
}

impl Setting for HeaderName {
    const EXPECTED: &'static str = "the name of a header, such as \"authorization\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("\"{}\" is not the name of a header", text.escape_debug()))
    }
}

impl Setting for Network {
    const EXPECTED: &'static str = "an address or a block of them, such as \"10.0.0.0/8\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}, found \"{}\"", Self::EXPECTED, text.escape_debug());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= longest).ok_or_else(wrong)?,
            None => longest,
        };
        Ok(Self { address, prefix })
    }
}
