//! Which request an answer names. The ids are ours, so forms that servers get wrong are safe to take.

use crate::protocol::Json;

/// Whom an answer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The request in question.
    Ours,
    /// No request at all: `null`, `0`, or no id.
    Nobody,
    /// Another one.
    Other,
}

/// Whether `id` names the request `ours`, be it as a string or a float.
pub(super) fn named(id: Option<&Json>, ours: u64) -> Named {
    let Some(id) = id.filter(|id| !id.is_null()) else { return Named::Nobody };
    match number(id) {
        Some(0) => Named::Nobody,
        Some(number) if number == ours => Named::Ours,
        _ => Named::Other,
    }
}

/// The request that a progress token of ours names.
pub(super) fn token(token: &Json) -> Option<u64> {
    number(token).filter(|number| *number > 0)
}

fn number(id: &Json) -> Option<u64> {
    // As nearly all servers spell it.
    if id.bytes().iter().all(u8::is_ascii_digit) {
        return id.as_str().parse().ok();
    }
    let text = match id.read::<serde_json::Value>().ok()? {
        serde_json::Value::Number(number) => number.to_string(),
        serde_json::Value::String(text) => text,
        _ => return None,
    };
    let whole = text.strip_suffix(".0").unwrap_or(&text);
    let digits = !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| whole.parse().ok())?
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn wrong_forms_of_an_id_still_name_its_request_and_no_other() {
        let cases = [
            ("5", Named::Ours),
            ("\"5\"", Named::Ours),
            ("5.0", Named::Ours),
            ("0", Named::Nobody),
            ("null", Named::Nobody),
            ("\"0\"", Named::Nobody),
            ("6", Named::Other),
            ("\"5a\"", Named::Other),
            ("\"\"", Named::Other),
            ("-5", Named::Other),
            ("\"server-error\"", Named::Other),
            ("{}", Named::Other),
        ];
        for (id, expected) in cases {
            assert_eq!(named(Some(&Json::parse(Bytes::from(id)).unwrap()), 5), expected, "{id}");
        }
        assert_eq!(named(None, 5), Named::Nobody);
    }
}
