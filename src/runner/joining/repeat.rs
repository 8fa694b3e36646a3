//! What makes two calls the same: the key, and what they ask for.

use std::time::Duration;

use crate::config::Dedupe;
use crate::protocol::error::code;
use crate::protocol::{Call, Principal, RpcError, canonical};
use crate::runner::{Plan, What};
use crate::store::{Claim, Store};
use crate::task::{KeyDigest, KeySource};

/// What makes two calls the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runner) struct Repeat {
    /// Of the owner, the server and the key; so no owner ever meets another's.
    pub(in crate::runner) key: KeyDigest,
    pub(in crate::runner) claim: Claim,
    pub(in crate::runner) origin: Origin,
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runner) enum Origin {
    /// The caller gave it, to find the call again: it goes on when the caller is gone, and is kept this long.
    Caller(Duration),
    /// It was made of the arguments (`dedupe`): the caller knows nothing of it.
    Derived,
}

impl Repeat {
    /// What makes `call` the same as another; `None` if it is one of its own. -32602 for a key that means nothing, as
    /// all who are anonymous would share it.
    pub(in crate::runner) fn of(store: &Store, plan: &Plan, call: &Call) -> Result<Option<Self>, RpcError> {
        let What::Tool(tool) = &plan.what else { return Ok(None) };
        // A retry with answers goes on with its own run.
        if call.params.request_state().is_some() {
            return Ok(None);
        }
        let principal = &call.caller.principal;
        let key = call.caller.key.as_ref();
        let within = match (key, plan.policy.dedupe) {
            (Some(_), _) => None,
            (None, Dedupe::Off) => return Ok(None),
            (None, Dedupe::Running) => Some(Duration::ZERO),
            (None, Dedupe::Window(window)) => Some(window),
        };
        if *principal == Principal::Anonymous {
            return if key.is_some() { Err(anonymous()) } else { Ok(None) };
        }
        let owner = store.owner(principal);
        let arguments = call.params.raw().member("arguments").map(|arguments| canonical(&arguments));
        // No arguments are not the same as empty ones.
        let present = [u8::from(arguments.is_some())];
        let asked: [&[u8]; 3] = [tool.as_bytes(), &present, arguments.as_deref().unwrap_or_default()];
        let arguments = store.seal("arguments", &asked);
        let whose: [&[u8]; 3] = [&[owner.scheme()], owner.digest(), plan.server.as_bytes()];
        let [scheme, digest, server] = whose;
        let (key, origin) = match key {
            Some(key) => {
                let key = store.seal("idempotency key", &[scheme, digest, server, key.as_str().as_bytes()]);
                (key, Origin::Caller(plan.policy.key_window))
            }
            None => (store.seal("derived key", &[scheme, digest, server, &arguments]), Origin::Derived),
        };
        let source = match within {
            None => KeySource::Caller,
            Some(Duration::ZERO) => KeySource::Running,
            Some(window) => KeySource::Window(window),
        };
        let key = KeyDigest::from_bytes(key).from_source(source);
        Ok(Some(Self { key, claim: Claim { arguments, within }, origin }))
    }

    /// How long the outcome is kept, if outcomes of the tool are kept for `keep`.
    pub(in crate::runner) fn keep(&self, keep: Duration) -> Duration {
        match self.origin {
            Origin::Caller(window) => keep.max(window),
            Origin::Derived => keep.max(self.claim.within.unwrap_or_default()),
        }
    }

    /// Whether the run goes on for the sake of a caller who is gone: it will come back with the key.
    pub(in crate::runner) fn outlives_caller(&self) -> bool {
        matches!(self.origin, Origin::Caller(_))
    }
}

fn anonymous() -> RpcError {
    RpcError::new(
        code::INVALID_PARAMS,
        "Invalid params: an idempotency key needs a caller who is known, since all who are anonymous would share it; \
         send credentials (Authorization), or leave the key out",
    )
}
