//! Marks of the way that a request has come, so that one that comes round is known: a server's URL may lead back to the
//! proxy that asks it, at once or through others.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The proxies that a request has come through, each with the server that it was for there.
pub const VIA: HeaderName = HeaderName::from_static("dev-raincheck-via");

/// So many proxies stand one behind the other at most, in case that marks are lost on the way.
const MOST: usize = 16;

/// Makes marks that no other process makes, and that tell nobody anything.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// What a request of this process to this server carries.
pub fn mark(server: &str) -> HeaderValue {
    // Hex digits are a header's value.
    HeaderValue::from_str(&text(server)).unwrap_or_else(|_| HeaderValue::from_static("?"))
}

/// Whether a request with these headers, which is for this server, was sent by this process to reach this server.
pub fn has_come_round(headers: &HeaderMap, server: &str) -> bool {
    let mut marks =
        headers.get_all(VIA).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    let Some(first) = marks.next() else { return false };
    let own = text(server);
    let mut count = 0;
    std::iter::once(first).chain(marks).any(|mark| {
        count += 1;
        count > MOST || mark.trim() == own
    })
}

fn text(server: &str) -> String {
    format!("{:016x}", KEYS.hash_one(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_its_own_mark_among_others() {
        let mut headers = HeaderMap::new();
        assert!(!has_come_round(&headers, "a"));
        headers.append(VIA, HeaderValue::from_static("0123, 4567"));
        headers.append(VIA, mark("b"));
        assert!(!has_come_round(&headers, "a"), "one server of a proxy may stand before another");
        headers.append(VIA, mark("a"));
        assert!(has_come_round(&headers, "a"));
        let many = HeaderValue::from_str(&["0"; MOST].join(",")).unwrap();
        let headers = HeaderMap::from_iter([(VIA, many.clone())]);
        assert!(!has_come_round(&headers, "a"));
        let mut headers = headers;
        headers.append(VIA, many);
        assert!(has_come_round(&headers, "a"), "too long a way");
    }
}
