//! What makes two calls the same: the key, and what they ask for.

use std::time::Duration;

use crate::config::Dedupe;
use crate::protocol::error::code;
use crate::protocol::{Call, Params, Principal, RpcError, canonical};
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

/// That a call may be the same as another, before its arguments were looked at.
#[derive(Clone, Copy, Debug)]
pub(in crate::runner) struct Sought {
    within: Option<Duration>,
    origin: Origin,
}

/// A digest of what a call asks for.
pub(in crate::runner) type Arguments = [u8; 32];

impl Sought {
    /// Whether `call` may be the same as another; `None` if it is one of its own. -32602 for a key that means nothing, as
    /// all who are anonymous would share it.
    pub(in crate::runner) fn of(plan: &Plan, call: &Call) -> Result<Option<Self>, RpcError> {
        let What::Tool(_) = &plan.what else { return Ok(None) };
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
        let origin = if key.is_some() { Origin::Caller(plan.policy.key_window) } else { Origin::Derived };
        Ok(Some(Self { within, origin }))
    }
}

/// The digest of what a call of `tool` asks for. It takes long if that is large.
pub(super) fn arguments(store: &Store, tool: &str, params: &Params) -> Arguments {
    let arguments = params.raw().member("arguments").map(|arguments| canonical(&arguments));
    // No arguments are not the same as empty ones.
    let present = [u8::from(arguments.is_some())];
    let asked: [&[u8]; 3] = [tool.as_bytes(), &present, arguments.as_deref().unwrap_or_default()];
    store.seal("arguments", &asked)
}

impl Repeat {
    /// What makes `call`, which asks for this, the same as another.
    pub(super) fn of(store: &Store, server: &str, call: &Call, sought: Sought, arguments: Arguments) -> Self {
        let Sought { within, origin } = sought;
        let owner = store.owner(&call.caller.principal);
        let whose: [&[u8]; 3] = [&[owner.scheme()], owner.digest(), server.as_bytes()];
        let [scheme, digest, server] = whose;
        let key = match &call.caller.key {
            Some(key) => store.seal("idempotency key", &[scheme, digest, server, key.as_str().as_bytes()]),
            None => store.seal("derived key", &[scheme, digest, server, &arguments]),
        };
        let source = match within {
            None => KeySource::Caller,
            Some(Duration::ZERO) => KeySource::Running,
            Some(window) => KeySource::Window(window),
        };
        let key = KeyDigest::from_bytes(key).from_source(source);
        Self { key, claim: Claim { arguments, within }, origin }
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
