//! The key by which a caller makes a start idempotent: the header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header,
//! a string in quotes; many leave them out) or `dev.raincheck/idempotency-key` in `_meta`.

use http::HeaderName;

use crate::protocol::error::code;
use crate::protocol::headers::single;
use crate::protocol::meta_key::IDEMPOTENCY_KEY;
use crate::protocol::{CallKey, Credentials, Method, Params, RpcError};

/// The header.
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The key of a call. On anything but `tools/call` it has no meaning, and is not looked at. `headers` are those that could go on to the
/// server; there are none over stdio.
pub(super) fn read(method: &Method, params: &Params, headers: &Credentials) -> Result<Option<CallKey>, RpcError> {
    if *method != Method::CallTool {
        return Ok(None);
    }
    let repeated = |_| invalid("the header Idempotency-Key appears more than once; send one key");
    let header = match single(headers.headers(), &HEADER).map_err(repeated)? {
        None => None,
        Some(value) => {
            let wrong = || invalid("the header Idempotency-Key must be a string in quotes, such as \"8e03978e-40d5\"");
            let text = value.to_str().map_err(|_| wrong())?;
            Some(CallKey::read(&CallKey::unquote(text.trim()).ok_or_else(wrong)?)?)
        }
    };
    let member = match params.meta_member(IDEMPOTENCY_KEY).map(|member| member.read::<String>()) {
        None => None,
        Some(Ok(text)) => Some(CallKey::read(&text)?),
        Some(Err(_)) => return Err(invalid("_meta[\"dev.raincheck/idempotency-key\"] must be a string")),
    };
    match (header, member) {
        (Some(header), Some(member)) if header != member => Err(invalid(
            "the header Idempotency-Key and _meta[\"dev.raincheck/idempotency-key\"] name different keys; send one of them",
        )),
        (header, member) => Ok(header.or(member)),
    }
}

fn invalid(why: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {why}"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::Json;

    fn key(method: &str, headers: &[&str], member: Option<Value>) -> Result<Option<String>, i64> {
        let method = Method::of(method);
        let mut meta = json!({});
        if let Some(member) = member {
            meta[IDEMPOTENCY_KEY] = member;
        }
        let params = Json::from_value(&json!({ "name": "export", "_meta": meta }));
        let params = Params::read(&method, Some(params)).unwrap();
        let mut map = HeaderMap::new();
        for value in headers {
            map.append(HEADER, HeaderValue::from_str(value).unwrap());
        }
        let read = read(&method, &params, &Credentials::new(map));
        read.map(|key| key.map(|key| key.as_str().to_owned())).map_err(|error| error.code())
    }

    #[test]
    fn a_key_comes_in_the_header_or_in_meta() {
        let table: [(&[&str], Option<Value>, Option<&str>); 9] = [
            (&[], None, None),
            (&["\"k-1\""], None, Some("k-1")),
            (&["k-1"], None, Some("k-1")),
            (&[" k-1 "], None, Some("k-1")),
            (&["\"a\\\\\\\"b\""], None, Some("a\\\"b")),
            (&[], Some(json!("k-1")), Some("k-1")),
            (&[], Some(json!("\"k-1\"")), Some("\"k-1\"")),
            (&["\"k-1\""], Some(json!("k-1")), Some("k-1")),
            (&["k-1"], Some(json!("k-1")), Some("k-1")),
        ];
        for (headers, member, expected) in table {
            assert_eq!(key("tools/call", headers, member.clone()), Ok(expected.map(str::to_owned)), "{headers:?}");
        }
    }

    #[test]
    fn what_is_no_key_or_not_one_key_is_refused() {
        let table: [(&[&str], Option<Value>); 15] = [
            (&[""], None),
            (&["\"\""], None),
            (&["\"k"], None),
            (&["k\""], None),
            (&["\""], None),
            (&["\"a\"b\""], None),
            (&["\"a\\n\""], None),
            (&["\"a\\\""], None),
            (&["\"a b\""], None),
            (&["\"k\";x=1"], None),
            (&["k", "k"], None),
            (&["k"], Some(json!("other"))),
            (&[], Some(json!(1))),
            (&[], Some(json!(""))),
            (&["k"], Some(Value::Null)),
        ];
        for (headers, member) in table {
            let refused = key("tools/call", headers, member.clone());
            assert_eq!(refused, Err(code::INVALID_PARAMS), "{headers:?} {member:?}");
            assert_eq!(key("tools/list", headers, member), Ok(None), "{headers:?}");
        }
    }
}
