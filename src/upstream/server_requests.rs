//! What a server that asks us something is told, at once: an open question stalls servers that hold
//! a lock while they ask (field case 48).

use bytes::Bytes;

use crate::protocol::Rope;
use crate::protocol::error::RpcError;
use crate::protocol::message::{self, RequestId};

/// The answer to the request `method` of a legacy server. We declare no roots, sampling or elicitation
/// to it, so `ping` is all there is.
pub(super) fn answer(id: &RequestId, method: &str) -> Rope {
    match method {
        "ping" => message::result(id, Rope::from(Bytes::from_static(b"{}"))),
        other => {
            tracing::debug!(method = %other.escape_debug(), "a server asked for what we do not offer");
            message::error(Some(id), &RpcError::method_not_found(other))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Json;

    #[test]
    fn a_ping_is_answered_and_all_else_refused_under_the_servers_own_id() {
        let id = RequestId::read(Json::string("a\u{7}")).unwrap();
        let text = |method| String::from_utf8(answer(&id, method).into_bytes().to_vec()).unwrap();
        assert_eq!(text("ping"), r#"{"jsonrpc":"2.0","id":"a\u0007","result":{}}"#);
        for method in ["roots/list", "sampling/createMessage", "elicitation/create", "made/up"] {
            let answer: serde_json::Value = serde_json::from_str(&text(method)).unwrap();
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&"a\u{7}".into(), &(-32601).into()), "{method}");
        }
    }
}
