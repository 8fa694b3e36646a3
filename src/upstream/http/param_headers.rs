//! Which arguments of whose tools a modern server wants mirrored into headers (2026-07-28, Streamable HTTP, custom
//! headers from tool parameters).
//!
//! Clients over stdio and legacy clients mirror nothing, so it is done here, by the last list that came by for the same
//! caller. A server that misses a header (-32020) has not run the call: its tools are listed, and the call is sent again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, Caller, HeaderRules, Json, Method, Outcome, Params, Principal, meta_key};

/// What is known of the tools of one server. Never more than [`MOST_CALLERS`].
#[derive(Debug, Default)]
pub(super) struct ToolHeaders {
    /// Whether all callers see the same tools.
    share: bool,
    lists: Mutex<HashMap<Option<Principal>, Listed>>,
}

#[derive(Debug)]
struct Listed {
    tools: HashMap<String, Arc<HeaderRules>>,
    at: Instant,
}

/// Callers whose tools are remembered.
const MOST_CALLERS: usize = 1024;
/// Tools of one caller that are remembered.
const MOST_TOOLS: usize = 4096;
/// Pages of tools that are asked for.
const PAGES: usize = 16;

impl ToolHeaders {
    /// Nothing is known yet. `share`: all callers see the same tools.
    pub(super) fn new(share: bool) -> Self {
        Self { share, ..Self::default() }
    }

    /// The headers that mirror the arguments of `call`, as far as its tool is known.
    pub(super) fn of(&self, call: &Call) -> Vec<(HeaderName, HeaderValue)> {
        let Some(tool) = call.params.name().filter(|_| call.method == Method::CallTool) else { return Vec::new() };
        let rules = self.lock().get(&self.whose(&call.caller)).and_then(|listed| listed.tools.get(tool).cloned());
        rules.map(|rules| rules.mirror(call.params.raw().member("arguments").as_ref())).unwrap_or_default()
    }

    /// Remembers what the answer to `call` says, if it is a list of tools.
    pub(super) fn learn(&self, call: &Call, outcome: &Outcome) {
        let (Method::ListTools, Outcome::Result(result)) = (&call.method, outcome) else { return };
        let found = HeaderRules::of_list(result);
        let mut lists = self.lock();
        // Callers of servers without such tools need not be remembered, but for what was known of them before.
        if found.is_empty() && lists.is_empty() {
            return;
        }
        let whose = self.whose(&call.caller);
        if lists.len() >= MOST_CALLERS && !lists.contains_key(&whose) {
            let oldest = lists.iter().min_by_key(|(_, listed)| listed.at).map(|(whose, _)| whose.clone());
            oldest.and_then(|oldest| lists.remove(&oldest));
        }
        let at = Instant::now();
        let listed = lists.entry(whose).or_insert_with(|| Listed { tools: HashMap::new(), at });
        listed.at = at;
        if call.params.raw().member("cursor").is_none_or(|cursor| cursor.is_null()) {
            listed.tools.clear();
        }
        for (tool, rules) in found {
            if let (Ok(rules), true) = (rules, listed.tools.len() < MOST_TOOLS) {
                listed.tools.insert(tool, Arc::new(rules));
            }
        }
    }

    /// Lists the tools in the name of the caller of `call`; whether that makes its headers others than they were.
    pub(super) async fn look<'a>(&self, call: &Call, ask: impl Fn(Call) -> BoxFuture<'a, Outcome>) -> bool {
        let sent = self.of(call);
        let mut cursor = None;
        for _ in 0..PAGES {
            let Some(list) = list(call, cursor.as_ref()) else { break };
            let listed = ask(list.clone()).await;
            self.learn(&list, &listed);
            let Outcome::Result(result) = listed else { break };
            cursor = result.member("nextCursor").filter(|cursor| !cursor.is_null());
            if cursor.is_none() {
                break;
            }
        }
        self.of(call) != sent
    }

    fn whose(&self, caller: &Caller) -> Option<Principal> {
        (!self.share).then(|| caller.principal.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<Principal>, Listed>> {
        // Nothing in here panics with the lock held, so a poisoned map is still in order.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server refused `call` since its headers do not say what its arguments say.
pub(super) fn is_mismatch(call: &Call, outcome: &Outcome) -> bool {
    call.method == Method::CallTool && matches!(outcome, Outcome::Error(error) if error.code() == code::HEADER_MISMATCH)
}

/// A `tools/list` in the name of the caller of `call`; `cursor` says from where on.
fn list(call: &Call, cursor: Option<&Json>) -> Option<Call> {
    let mut writer = ObjectWriter::new();
    if let Some(cursor) = cursor {
        writer.raw("cursor", cursor);
    }
    if let Some(meta) = call.params.meta() {
        let mut kept = ObjectWriter::new();
        kept.members_of(meta, |name| name != meta_key::PROGRESS_TOKEN && name != meta_key::LOG_LEVEL).ok()?;
        writer.rope("_meta", kept.finish());
    }
    let params = Params::read(&Method::ListTools, Some(writer.finish_json())).ok()?;
    let caller = Caller { progress_token: None, ..call.caller.clone() };
    Some(Call { method: Method::ListTools, params, caller, arrived: Instant::now() })
}
