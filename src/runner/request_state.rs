//! `requestState` (2026-07-28, multi round-trip requests): which run a retry belongs to, sealed.
//!
//! The client holds it, so it is read as an attacker's. The seal covers who calls what: a state that comes from
//! somebody else, or with another request, is refused.

use data_encoding::BASE64URL_NOPAD;
use subtle::ConstantTimeEq;

use crate::clock::Timestamp;
use crate::protocol::error::code;
use crate::protocol::{Call, Json, Method, Principal, RpcError};
use crate::store::Store;
use crate::task::TaskId;

/// What states of ours begin with.
const PREFIX: &str = "raincheck-1.";

/// A request that may be retried: what its states are bound to, beside who sends it.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) method: Method,
    pub(super) params: Json,
}

/// The round of a state that stands for whatever the record of the task asks: those of a parked run begin with 1.
pub(super) const AS_RECORDED: u32 = 0;

/// Which run, and which round of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The task that the run has, or would have: random, so that no two are ever the same. By it another process finds
    /// the run again.
    pub(super) task: TaskId,
    pub(super) round: u32,
    /// When the run is given up.
    pub(super) expires: Timestamp,
}

/// Why a state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forged;

/// Whether a `requestState` is one of ours. Others are those of servers that speak 2026-07-28 themselves.
pub fn is_ours(state: &str) -> bool {
    state.starts_with(PREFIX)
}

impl Subject {
    /// The request that `call` is.
    pub(super) fn of(call: &Call) -> Self {
        Self { method: call.method.clone(), params: call.params.raw().clone() }
    }
}

impl Claim {
    /// The state that makes this claim for `principal`, who sends `subject` to `server`.
    pub(super) fn sealed(&self, store: &Store, principal: &Principal, server: &str, subject: &Subject) -> String {
        let claim = self.bytes();
        let seal = self.seal(store, principal, server, subject);
        format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&[claim.as_slice(), &seal].concat()))
    }

    /// The claim that `state` makes, if it was sealed here for this principal and this request.
    pub(super) fn open(
        state: &str,
        store: &Store,
        principal: &Principal,
        server: &str,
        subject: &Subject,
    ) -> Result<Self, Forged> {
        let text = state.strip_prefix(PREFIX).ok_or(Forged)?;
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| Forged)?;
        let (task, rest) = bytes.split_first_chunk::<{ TaskId::LENGTH }>().ok_or(Forged)?;
        let task = std::str::from_utf8(task).ok().and_then(|text| text.parse().ok()).ok_or(Forged)?;
        let (round, rest) = rest.split_first_chunk().ok_or(Forged)?;
        let (expires, seal) = rest.split_first_chunk().ok_or(Forged)?;
        let (round, expires) = (u32::from_be_bytes(*round), Timestamp::from_millis(u64::from_be_bytes(*expires)));
        let claim = Self { task, round, expires };
        let expected = claim.seal(store, principal, server, subject);
        if bool::from(expected.as_slice().ct_eq(seal)) { Ok(claim) } else { Err(Forged) }
    }

    fn bytes(&self) -> Vec<u8> {
        [self.task.as_bytes(), &self.round.to_be_bytes(), &self.expires.as_millis().to_be_bytes()].concat()
    }

    fn seal(&self, store: &Store, principal: &Principal, server: &str, subject: &Subject) -> [u8; 32] {
        let owner = store.owner(principal);
        let params = canonical(&subject.params);
        let parts: [&[u8]; 6] = [
            &self.bytes(),
            &[owner.scheme()],
            owner.digest(),
            server.as_bytes(),
            subject.method.name().as_bytes(),
            &params,
        ];
        store.seal("requestState", &parts)
    }
}

/// -32602: the error for a state that was not made here for this request.
pub fn refused() -> RpcError {
    RpcError::new(
        code::INVALID_PARAMS,
        "Invalid params: requestState was not issued to this caller for this request; retry the same method with the \
         same parameters and the requestState exactly as it came",
    )
}

/// `params` without what differs between a request and its retry, in a form that does not depend on the order of members.
fn canonical(params: &Json) -> Vec<u8> {
    let Ok(members) = params.members() else { return params.bytes().to_vec() };
    let mut members: Vec<_> = members
        .iter()
        .filter(|(name, _)| !matches!(*name, "_meta" | "inputResponses" | "requestState"))
        .map(|(name, value)| {
            let decoded: Result<serde_json::Value, _> = serde_json::from_str(value.get());
            // What cannot be decoded (a number out of range) is taken as it is spelled.
            (name.to_owned(), decoded.map_or_else(|_| value.get().to_owned(), |decoded| decoded.to_string()))
        })
        .collect();
    members.sort();
    serde_json::to_vec(&members).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
    }

    #[test]
    fn a_retry_is_the_same_request_whatever_the_order_and_whatever_a_retry_adds() {
        let same = [
            r#"{"name":"a","arguments":{"x":1,"y":[1,{"b":2,"c":3}]},"_meta":{"k":1}}"#,
            r#"{"arguments":{"y":[1,{"c":3,"b":2}],"x":1},"requestState":"s","inputResponses":{},"name":"a"}"#,
        ];
        let first = canonical(&json(same[0]));
        assert!(same.iter().all(|text| canonical(&json(text)) == first));
        let others = [
            r#"{"name":"b","arguments":{"x":1,"y":[1,{"b":2,"c":3}]}}"#,
            r#"{"name":"a","arguments":{"x":2,"y":[1,{"b":2,"c":3}]}}"#,
            r#"{"name":"a","arguments":{"x":1,"y":[{"b":2,"c":3},1]}}"#,
            r#"{"name":"a"}"#,
            r#"{"name":"a","arguments":{"x":1e400,"y":[1,{"b":2,"c":3}]}}"#,
        ];
        assert!(others.iter().all(|text| canonical(&json(text)) != first));
    }
}
