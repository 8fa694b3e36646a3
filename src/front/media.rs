//! Which types of media a client sends and takes.

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::protocol::headers::single;

/// `Content-Type` of a plain answer.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// `Content-Type` of a stream.
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// What a client takes for an answer. The specification wants both types named, but real clients name one, a
/// wildcard or nothing (field case 22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepts {
    /// Either type.
    Both,
    /// Plain JSON only.
    Json,
    /// A stream only.
    Events,
    /// No type is named: such clients are sure to read plain JSON only, but do not rule a stream out.
    Anything,
}

impl Accepts {
    /// What the `Accept` headers say; `None` if neither type will do.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut named = (false, false);
        let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut ranges = ranges.flat_map(|value| value.split(',')).filter(|range| !range.trim().is_empty()).peekable();
        let mut wildcard = ranges.peek().is_none();
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            if parts.any(is_zero_weight) {
                continue;
            }
            let is = |other: &str| kind.eq_ignore_ascii_case(other);
            if is("application/json") || is("application/*") {
                named.0 = true;
            } else if is("text/event-stream") || is("text/*") {
                named.1 = true;
            } else if kind == "*/*" {
                wildcard = true;
            }
        }
        match (named, wildcard) {
            ((true, true), _) => Some(Self::Both),
            ((true, false), _) => Some(Self::Json),
            ((false, true), _) => Some(Self::Events),
            ((false, false), true) => Some(Self::Anything),
            ((false, false), false) => None,
        }
    }

    /// Whether a call may be answered by a stream.
    pub(super) fn takes_events(self) -> bool {
        matches!(self, Self::Both | Self::Events)
    }

    /// Whether a call may be answered by plain JSON.
    pub(super) fn takes_json(self) -> bool {
        matches!(self, Self::Both | Self::Json | Self::Anything)
    }
}

/// `q=0`: not this one.
fn is_zero_weight(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0)
}

/// Whether the body is said to be plain JSON: one `Content-Type`, no compression.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Ok(Some(kind)) = single(headers, &CONTENT_TYPE) else { return false };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    kind.eq_ignore_ascii_case("application/json") && headers.get_all(CONTENT_ENCODING).iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(values: &[&'static str]) -> Option<Accepts> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        Accepts::of(&headers)
    }

    #[test]
    fn only_a_client_that_takes_neither_type_is_refused() {
        let cases: [(&[&'static str], _); 13] = [
            (&[], Some(Accepts::Anything)),
            (&["*/*"], Some(Accepts::Anything)),
            (&["application/json"], Some(Accepts::Json)),
            (&["text/event-stream"], Some(Accepts::Events)),
            (&["application/json, text/event-stream"], Some(Accepts::Both)),
            (&["text/event-stream,application/json;q=0.5"], Some(Accepts::Both)),
            (&["text/event-stream", "Application/JSON"], Some(Accepts::Both)),
            (&["application/json, */*"], Some(Accepts::Json)),
            (&["application/*"], Some(Accepts::Json)),
            (&["application/json;q=0, text/event-stream"], Some(Accepts::Events)),
            (&["text/html"], None),
            (&["text/html, application/xml"], None),
            (&[""], Some(Accepts::Anything)),
        ];
        for (values, expected) in cases {
            assert_eq!(accept(values), expected, "{values:?}");
        }
    }

    #[test]
    fn a_body_is_json_in_any_charset_and_never_compressed() {
        let cases = [
            (Some("application/json"), None, true),
            (Some("Application/JSON; charset=utf-8"), Some("identity"), true),
            (Some("application/json"), Some("gzip"), false),
            (Some("text/plain"), None, false),
            (Some("application/jsonp"), None, false),
            (None, None, false),
        ];
        for (kind, encoding, expected) in cases {
            let mut headers = HeaderMap::new();
            kind.map(|value| headers.insert(CONTENT_TYPE, HeaderValue::from_static(value)));
            encoding.map(|value| headers.insert(CONTENT_ENCODING, HeaderValue::from_static(value)));
            assert_eq!(is_json(&headers), expected, "{kind:?} {encoding:?}");
        }
    }
}
