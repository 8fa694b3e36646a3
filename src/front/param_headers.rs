//! Compares the headers that mirror arguments of a tool with the body (2026-07-28, Streamable HTTP, server validation).
//!
//! Which arguments those are is said by the tool's schema in the last `tools/list` that came by for the same caller. A
//! caller that sends such headers before it has listed anything has the list fetched for it; if that cannot be had, the
//! call goes on: the server behind may know better.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use http::StatusCode;
use tokio::time::Instant;

use super::refusal::Refusal;
use crate::protocol::error::code;
use crate::protocol::headers::PARAM_PREFIX;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, Caller, HeaderRules, Json, Method, Outcome, Params, Principal, Reply, RpcError, meta_key};

/// What is known of tools that mirror arguments. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolHeaders(Arc<Mutex<Callers>>);

/// Never more than [`MOST_CALLERS`].
#[derive(Debug, Default)]
struct Callers(HashMap<Whose, Listed>);

/// Whose list: servers may show each caller others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Whose {
    server: String,
    principal: Principal,
}

/// The tools that mirror arguments, as the last list said.
#[derive(Debug)]
struct Listed {
    tools: HashMap<String, Arc<HeaderRules>>,
    /// When the list came, or when it was last asked for in vain.
    at: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Known,
    Unavailable,
}

/// Whether a call may go on without asking for a list.
enum Look {
    /// By these rules, if any.
    By(Option<Arc<HeaderRules>>),
    /// There is no list.
    NoList,
}

/// Callers whose lists are remembered, all servers together.
const MOST_CALLERS: usize = 1024;
/// Tools of one caller that are remembered.
const MOST_TOOLS: usize = 4096;
/// How long fetching a list may hold a call back.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a list that could not be had is not asked for again.
const PAUSE: Duration = Duration::from_secs(10);
/// Pages that are fetched.
const PAGES: usize = 16;

impl ToolHeaders {
    /// Checks a `tools/call`: -32020 with status 400 if its headers do not say what its arguments say.
    pub(super) async fn check<F>(
        &self,
        server: &str,
        params: &Params,
        caller: &Caller,
        ask: impl Fn(Call) -> F,
    ) -> Result<(), Refusal>
    where
        F: Future<Output = Reply>,
    {
        let headers = caller.credentials.headers();
        let mirrors = headers.keys().any(|name| name.as_str().starts_with(PARAM_PREFIX));
        if !mirrors && self.lock().0.is_empty() {
            return Ok(());
        }
        let Some(tool) = params.name() else { return Ok(()) };
        let whose = Whose { server: server.to_owned(), principal: caller.principal.clone() };
        let rules = match self.look(&whose, tool) {
            Look::By(rules) => rules,
            // Without such headers nobody on the way can have read any.
            Look::NoList if !mirrors => return Ok(()),
            Look::NoList => {
                // Boxed, as all that is rare.
                let fetch = Box::pin(self.fetch(&whose, params, caller, ask));
                let fetched = tokio::time::timeout(PATIENCE, fetch).await;
                if fetched != Ok(true) {
                    tracing::debug!(server, "the tools of a server could not be listed to check the headers of a call");
                    self.lock().entry(whose.clone(), State::Unavailable);
                }
                match self.look(&whose, tool) {
                    Look::By(rules) => rules,
                    Look::NoList => None,
                }
            }
        };
        let Some(rules) = rules else { return Ok(()) };
        rules.check(headers, params.raw().member("arguments").as_ref()).map_err(|mismatch| {
            let error = RpcError::new(code::HEADER_MISMATCH, format!("Header mismatch: {mismatch}"));
            Refusal::rpc(StatusCode::BAD_REQUEST, error)
        })
    }

    /// What is to be done with the answer to a `tools/list` of this caller.
    pub(super) fn learner(
        &self,
        server: &str,
        params: &Params,
        principal: &Principal,
    ) -> impl FnOnce(&Outcome) + Send + use<> {
        let (known, is_first) = (self.clone(), is_first_page(params));
        let whose = Whose { server: server.to_owned(), principal: principal.clone() };
        move |outcome| {
            if let Outcome::Result(result) = outcome {
                known.learn(whose, is_first, result);
            }
        }
    }

    fn learn(&self, whose: Whose, is_first: bool, result: &Json) {
        let found = HeaderRules::of_list(result);
        for (tool, fault) in found.iter().filter_map(|(tool, rules)| Some((tool, rules.as_ref().err()?))) {
            let tool: String = tool.chars().take(128).collect();
            tracing::warn!(server = whose.server, tool, %fault, "a tool is left out of tools/list: its declaration is invalid");
        }
        let mut all = self.lock();
        // Callers of servers without such tools need not be remembered, but for what they were told before.
        if found.is_empty() && all.0.is_empty() {
            return;
        }
        let listed = all.entry(whose, State::Known);
        if is_first {
            listed.tools.clear();
        }
        for (tool, rules) in found {
            if let (Ok(rules), true) = (rules, listed.tools.len() < MOST_TOOLS) {
                listed.tools.insert(tool, Arc::new(rules));
            }
        }
    }

    fn look(&self, whose: &Whose, tool: &str) -> Look {
        match self.lock().0.get(whose) {
            Some(listed) if listed.state == State::Known => Look::By(listed.tools.get(tool).cloned()),
            Some(listed) if listed.at.elapsed() < PAUSE => Look::By(None),
            _ => Look::NoList,
        }
    }

    /// Asks for the list in the name of the caller; false if it cannot be had.
    async fn fetch<F>(&self, whose: &Whose, params: &Params, caller: &Caller, ask: impl Fn(Call) -> F) -> bool
    where
        F: Future<Output = Reply>,
    {
        let mut cursor = None;
        for _ in 0..PAGES {
            let Some(params) = list_params(params, cursor.as_ref()) else { return false };
            let is_first = cursor.is_none();
            let caller = Caller { progress_token: None, ..caller.clone() };
            let call = Call { method: Method::ListTools, params, caller, arrived: Instant::now() };
            // A panic in a layer below ends this request for a list, not the connection that the call came on.
            let Ok(reply) = AssertUnwindSafe(ask(call)).catch_unwind().await else { return false };
            let Outcome::Result(result) = reply.outcome().await else { return false };
            self.learn_fetched(whose, is_first, &result);
            cursor = result.member("nextCursor").filter(|cursor| !cursor.is_null());
            if cursor.is_none() {
                return true;
            }
        }
        true
    }

    /// The same as [`ToolHeaders::learn`], but a list without such tools is remembered too: it was asked for.
    fn learn_fetched(&self, whose: &Whose, is_first: bool, result: &Json) {
        self.lock().entry(whose.clone(), State::Known);
        self.learn(whose.clone(), is_first, result);
    }

    fn lock(&self) -> MutexGuard<'_, Callers> {
        // Nothing in here panics with the lock held, so a poisoned map is still in order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callers {
    /// What is known of a caller's list, which is in this state from now on.
    fn entry(&mut self, whose: Whose, state: State) -> &mut Listed {
        if self.0.len() >= MOST_CALLERS && !self.0.contains_key(&whose) {
            let oldest = self.0.iter().min_by_key(|(_, listed)| listed.at).map(|(whose, _)| whose.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let at = Instant::now();
        let listed = self.0.entry(whose).or_insert_with(|| Listed { tools: HashMap::new(), at, state });
        (listed.at, listed.state) = (at, state);
        listed
    }
}

fn is_first_page(params: &Params) -> bool {
    params.raw().member("cursor").is_none_or(|cursor| cursor.is_null())
}

/// The parameters of a `tools/list` in the place of a call.
fn list_params(call: &Params, cursor: Option<&Json>) -> Option<Params> {
    let mut writer = ObjectWriter::new();
    if let Some(cursor) = cursor {
        writer.raw("cursor", cursor);
    }
    if let Some(meta) = call.meta() {
        let mut kept = ObjectWriter::new();
        kept.members_of(meta, |name| name != meta_key::PROGRESS_TOKEN && name != meta_key::LOG_LEVEL).ok()?;
        writer.rope("_meta", kept.finish());
    }
    Params::read(&Method::ListTools, Some(writer.finish_json())).ok()
}
