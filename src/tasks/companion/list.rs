//! `tools/list` with the tools beside those of the server. They are on the first page, once: not every client asks for
//! another.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use super::names::Names;
use super::words::array;
use super::{Shared, tools};
use crate::config::CompanionNames;
use crate::policy::Policies;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Call, Caller, Event, Json, McpService, Method, Outcome, Params, Reply, ReplySender, Rope, meta_key,
};
use crate::tasks::fallback;

/// How long the server may take to list all its tools.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pages that are asked for.
const PAGES: usize = 64;

/// Passes the server's reply to a `tools/list` on, with the tools in it.
pub(super) async fn relay<S: McpService>(
    shared: Arc<Shared>,
    inner: S,
    call: Call,
    mut reply: Reply,
    mut sender: ReplySender,
) {
    let cancellation = sender.cancellation();
    let mut is_cancelled = false;
    let outcome = loop {
        let event = tokio::select! {
            biased;
            () = sender.abandoned() => return,
            () = cancellation.cancelled(), if !is_cancelled => {
                is_cancelled = true;
                reply.cancel();
                continue;
            }
            event = reply.next() => event,
        };
        match event {
            Some(Event::Done(outcome)) => break outcome,
            Some(event) => sender.event(event),
            None => return,
        }
    };
    let Outcome::Result(result) = outcome else { return sender.done(outcome) };
    let page = Page::of(&call, &result);
    if let Some(tools) = elements(&result) {
        shared.names.see(&tools);
    }
    match (page.is_first, &page.next) {
        (true, None) => shared.names.saw_all(),
        // The names are given on this page, and must not be found taken on another.
        (true, Some(_)) => learn(&shared.names, inner, &call, page.next.clone()).await,
        (false, _) => {}
    }
    let changed = with_companions(&result, &shared.policies, &shared.names.now(), &page);
    sender.done(Outcome::Result(changed.unwrap_or(result)));
}

/// Which page of the list a result is.
struct Page {
    is_first: bool,
    next: Option<Json>,
}

impl Page {
    fn of(call: &Call, result: &Json) -> Self {
        let cursor = |object: &Json, name: &str| object.member(name).filter(|cursor| !cursor.is_null());
        Self { is_first: cursor(call.params.raw(), "cursor").is_none(), next: cursor(result, "nextCursor") }
    }
}

/// Sees all pages of the server's list from `cursor` on, in the name of whoever makes `call`, unless it is known.
pub(super) async fn learn<S: McpService>(names: &Names, inner: S, call: &Call, mut cursor: Option<Json>) {
    if !names.wants_more() {
        return;
    }
    let fetching = async move {
        for _ in 0..PAGES {
            let Some(params) = list_params(call, cursor.as_ref()) else { return false };
            let caller = Caller { progress_token: None, key: None, ..call.caller.clone() };
            let list = Call { method: Method::ListTools, params, caller, arrived: Instant::now() };
            let Ok(reply) = inner.clone().oneshot(list).await;
            let Outcome::Result(result) = reply.outcome().await else { return false };
            let Some(tools) = elements(&result) else { return false };
            names.see(&tools);
            cursor = result.member("nextCursor").filter(|cursor| !cursor.is_null());
            if cursor.is_none() {
                return true;
            }
        }
        true
    };
    if let Ok(true) = timeout(PATIENCE, fetching).await {
        names.saw_all();
    } else {
        tracing::debug!("the server's tools could not be listed to find free names");
        names.was_refused();
    }
}

/// The parameters of a `tools/list` beside `call`.
fn list_params(call: &Call, cursor: Option<&Json>) -> Option<Params> {
    let mut params = ObjectWriter::new();
    if let Some(cursor) = cursor {
        params.raw("cursor", cursor);
    }
    if let Some(meta) = call.params.meta() {
        let mut kept = ObjectWriter::new();
        kept.members_of(meta, |name| name != meta_key::PROGRESS_TOKEN && name != meta_key::LOG_LEVEL).ok()?;
        params.rope("_meta", kept.finish());
    }
    Params::read(&Method::ListTools, Some(params.finish_json())).ok()
}

/// The tools of a list.
fn elements(result: &Json) -> Option<Vec<Json>> {
    let tools = result.member("tools")?;
    let elements = tools.elements().ok()?;
    Some(elements.iter().map(|tool| Json::of(tools.bytes(), tool)).collect())
}

/// The list with the tools, and with what a client is to know of those that may answer with a handle. `None` if nothing is
/// to be changed, or this is no list.
fn with_companions(result: &Json, policies: &Policies, names: &CompanionNames, page: &Page) -> Option<Json> {
    let tools = elements(result)?;
    let name = |tool: &Json| tool.member("name").and_then(|name| name.read::<String>().ok());
    let speaks = |tool: &Json| name(tool).is_some_and(|name| fallback::speaks(policies.of(&name)));
    let any = tools.iter().any(speaks);
    // Where more pages follow, such a tool may be on one of them.
    let adds = page.is_first && (any || page.next.is_some());
    if !any && !adds {
        return None;
    }
    let added = if adds { tools::all(names).to_vec() } else { Vec::new() };
    let changed = |tool: &Json| if speaks(tool) { in_words(tool, names) } else { None };
    let own = tools.iter().map(|tool| changed(tool).unwrap_or_else(|| tool.clone().into()));
    let mut list = array(own.chain(added.into_iter().map(Rope::from)));
    let members = result.members().ok()?;
    let mut whole = ObjectWriter::new();
    for (name, value) in members.iter() {
        match name {
            "tools" => whole.rope("tools", std::mem::take(&mut list)),
            // Whoever else asks may be shown another list.
            "cacheScope" => whole.string("cacheScope", "private"),
            name => whole.raw(name, &Json::of(result.bytes(), value)),
        };
    }
    Some(whole.finish_json())
}

/// A tool that may answer with a handle: its results are not always of its `outputSchema`.
fn in_words(tool: &Json, names: &CompanionNames) -> Option<Rope> {
    let described = tool.member("description").and_then(|description| description.read::<String>().ok());
    let sentence = tools::sentence(names);
    let description = match described.as_deref().map(str::trim_end) {
        None | Some("") => sentence,
        Some(text) if text.ends_with(['.', '!', '?', ')', ':']) => format!("{text} {sentence}"),
        Some(text) => format!("{text}. {sentence}"),
    };
    let mut changed = ObjectWriter::new();
    changed.members_of(tool, |name| name != "description" && name != "outputSchema").ok()?;
    changed.string("description", &description);
    Some(changed.finish())
}
