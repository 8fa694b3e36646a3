//! Notifications of a modern server that belong to a subscription (2026-07-28, subscriptions).

use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Json, meta_key};

/// The subscription that a notification names, and its parameters without that: the name is ours, for the leg to the
/// server only. `None` if it names none.
pub(super) fn unwrap(params: &Json) -> Option<(Json, Json)> {
    let meta = params.member("_meta")?;
    let subscription = meta.member(meta_key::SUBSCRIPTION_ID)?;
    let mut rest = ObjectWriter::new();
    rest.members_of(params, |name| name != "_meta").ok()?;
    if meta.members().is_ok_and(|members| members.len() > 1) {
        let mut others = ObjectWriter::new();
        others.members_of(&meta, |name| name != meta_key::SUBSCRIPTION_ID).ok()?;
        rest.raw("_meta", &others.finish_json());
    }
    Some((subscription, rest.finish_json()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_name_of_the_subscription_is_taken_off_and_all_else_stays() {
        let of = |text: &str| unwrap(&Json::parse(Bytes::from(text.to_owned())).unwrap());
        let cases = [
            (r#"{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#, Some(("7", r#"{"uri":"a:b"}"#))),
            (
                r#"{"_meta":{"x":1e2,"io.modelcontextprotocol/subscriptionId":"s"}}"#,
                Some(("\"s\"", r#"{"_meta":{"x":1e2}}"#)),
            ),
            (r#"{"_meta":{"x":1}}"#, None),
            ("{}", None),
        ];
        for (text, expected) in cases {
            let found = of(text);
            let found = found.as_ref().map(|(name, rest)| (name.as_str(), rest.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
