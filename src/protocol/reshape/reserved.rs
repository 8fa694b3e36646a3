//! Errors under codes that 2026-07-28 keeps for the protocol, of servers for which they mean nothing of the kind: those of
//! older servers, and of servers of 2026-07-28 those that it does not define.
//!
//! -32020 to -32022 tell a client of 2026-07-28 that its request was not taken, so that it sends it once more; none of the
//! others may be emitted at all (basic, error codes). Such an error of a tool is set aside before anything else sees it, so
//! that no way out can forget to, and is put back for clients of the older revisions.

use std::ops::RangeInclusive;

use super::super::error::{RpcError, code};
use super::super::json::Json;
use super::super::rope::ObjectWriter;
use super::URL_ELICITATION_REQUIRED;

/// The codes that are the protocol's own.
const RESERVED: RangeInclusive<i64> = -32099..=-32020;
/// From such a code to the one that stands for it: outside of what JSON-RPC reserves, and beside the codes of our own
/// failures. [`URL_REQUIRED`](super::URL_REQUIRED) is as far from its own.
const ASIDE: i64 = 1000;

/// In `data`: the code as the server said it.
const OWN_CODE: &str = "dev.raincheck/code";
/// In `data`: the server's own data, where a member cannot be added to it without a loss.
const OWN_DATA: &str = "dev.raincheck/data";

/// The error under a code of its own, if the one it has is the protocol's: -32022 becomes -31022. The message stays, and
/// `data` has the server's code beside its data. -32042 is left for [`error`](super::error).
#[must_use]
pub fn set_aside(error: RpcError) -> RpcError {
    let code = error.code();
    if !RESERVED.contains(&code) || code == URL_ELICITATION_REQUIRED {
        return error;
    }
    let mut data = ObjectWriter::new();
    data.number(OWN_CODE, code);
    match error.raw().member("data") {
        None => {}
        Some(own) if has_room(&own) => {
            // It was just read as an object.
            let _ = data.members_of(&own, |_| true);
        }
        Some(own) => {
            data.raw(OWN_DATA, &own);
        }
    }
    error.recoded_with(code + ASIDE, Some(&data.finish_json()))
}

/// The same for an error of a server of 2026-07-28: what the revision defines is meant as such.
#[must_use]
pub fn set_aside_undefined(error: RpcError) -> RpcError {
    match error.code() {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => error,
        _ => set_aside(error),
    }
}

/// The error as its server said it, for clients to which the code means nothing: the way back from [`set_aside`].
#[must_use]
pub fn legacy_error(error: RpcError) -> RpcError {
    let code = error.code() - ASIDE;
    let data = RESERVED.contains(&code).then(|| error.raw().member("data")).flatten();
    let Some(data) = data.filter(|data| data.member(OWN_CODE).is_some_and(|own| own.as_str() == code.to_string()))
    else {
        return error;
    };
    if let Some(own) = data.member(OWN_DATA) {
        return error.recoded_with(code, Some(&own));
    }
    let mut own = ObjectWriter::new();
    let _ = own.members_of(&data, |name| name != OWN_CODE);
    let own = Some(own.finish_json()).filter(|own| own.members().is_ok_and(|members| !members.is_empty()));
    error.recoded_with(code, own.as_ref())
}

/// Whether a member may be added to the server's data and found again: it is an object, says something, and has neither name.
fn has_room(data: &Json) -> bool {
    data.members()
        .is_ok_and(|members| !members.is_empty() && members.get(OWN_CODE).is_none() && members.get(OWN_DATA).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> RpcError {
        RpcError::from_server(Json::parse(text.to_owned().into()).unwrap()).unwrap()
    }

    #[test]
    fn a_code_of_the_protocol_is_set_aside_with_all_that_was_said() {
        let cases = [
            (
                r#"{"code":-32022,"message":"m"}"#,
                r#"{"code":-31022,"message":"m","data":{"dev.raincheck/code":-32022}}"#,
            ),
            (
                r#"{"code":-32021,"message":"m","data":{"requiredCapabilities": {},"n":1.0}}"#,
                r#"{"code":-31021,"message":"m","data":{"dev.raincheck/code":-32021,"requiredCapabilities":{},"n":1.0}}"#,
            ),
            (
                r#"{"code":-32099,"message":"m","data":[1.0]}"#,
                r#"{"code":-31099,"message":"m","data":{"dev.raincheck/code":-32099,"dev.raincheck/data":[1.0]}}"#,
            ),
        ];
        for (said, expected) in cases {
            assert_eq!(
                set_aside(error(said)).raw().read::<serde_json::Value>().unwrap(),
                error(expected).raw().read::<serde_json::Value>().unwrap()
            );
        }
        for code in [-32019, -32100, -32042, -32002, -32000, -31022, code::INVALID_PARAMS, 7] {
            let other = RpcError::new(code, "m");
            assert_eq!((set_aside(other.clone()), legacy_error(other.clone())), (other.clone(), other), "{code}");
        }
    }

    #[test]
    fn a_client_that_the_code_tells_nothing_gets_it_back_byte_for_byte() {
        let data = [
            "",
            "{}",
            "null",
            "[]",
            "1.0",
            r#"{"a":1.0}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"dev.raincheck/code":-32022}"#,
            r#"{"dev.raincheck/data":1,"dev.raincheck/code":1}"#,
        ];
        for (code, data) in
            [-32020, -32021, -32022, -32023, -32099].into_iter().flat_map(|code| data.map(|data| (code, data)))
        {
            let data = if data.is_empty() { String::new() } else { format!(",\"data\":{data}") };
            let said = error(&format!(r#"{{"code":{code},"message":"m \u0041","zzz":1e2{data}}}"#));
            let aside = set_aside(said.clone());
            assert_eq!((aside.code(), aside.message()), (code + 1000, said.message()));
            // As it comes from the store.
            let kept = RpcError::from_server(aside.raw().clone()).unwrap();
            assert_eq!(legacy_error(kept), said);
        }
    }
}
