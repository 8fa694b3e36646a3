//! Results and errors put into the shape that the client's era wants: those of older servers into that of 2026-07-28,
//! and the other way round.
//!
//! Only what an era rule names is added or taken away; every other value keeps its bytes and is not copied.

mod legacy;
mod question;
mod reserved;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use smallvec::SmallVec;

use super::error::{RpcError, code};
use super::json::{Json, JsonError, Members, Part};
use super::meta_key;
use super::method::Method;
use super::param_headers::HeaderRules;
use super::rope::{ObjectWriter, Rope};

pub use legacy::{
    OFFERED_TASKS, is_legacy_member, is_legacy_meta, legacy_initialize, legacy_result, legacy_server_result,
};
pub use question::{legacy_question, question};
pub use reserved::{legacy_error, set_aside, set_aside_undefined};

/// -32002 of 2025-11-25 and older: there is no such resource. 2026-07-28 uses -32602 for it.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// -32042 of 2025-11-25: a URL has to be opened first.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// What a server's -32042 becomes: a URL has to be opened before the call can work; `data.elicitations` has it.
///
/// The revision forbids -32042 and defines nothing in its place for an error, so this is outside of
/// what JSON-RPC reserves (2026-07-28, basic, error codes). -32602 would tell a model to change its arguments.
pub const URL_REQUIRED: i64 = -31042;

/// Made once: to make them takes longer than to search most results.
static RESULT_TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"resultType\""));
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u00"));

/// What is done to a member that is neither kept nor new.
enum Change {
    Drop,
    Replace(Json),
}

/// A result in the making: members that go in front, and changes to members that are there.
struct Edit<'a> {
    object: &'a Json,
    members: Members<'a>,
    added: SmallVec<[(&'static str, Json); 3]>,
    changes: SmallVec<[(&'static str, Change); 1]>,
}

/// The result of `method` as a 2026-07-28 client is to see it: [`complete`], and what is particular to the method.
pub fn result(method: &Method, result: &Json) -> Result<Rope, JsonError> {
    match method {
        Method::ListTools => tools(result),
        Method::Discover => discover(result),
        method if method.is_cacheable() => cacheable(result),
        _ => complete(result),
    }
}

/// A result with `"resultType":"complete"` where it has none, and without the 2025-11-25 tie to a task
/// in its `_meta`. An error if `result` is no object, or repeats a name in itself or in `_meta`.
pub fn complete(result: &Json) -> Result<Rope, JsonError> {
    Ok(Edit::completing(result)?.finish())
}

/// [`complete`], with `ttlMs` (0) and `cacheScope` ("private") where a complete result has none that is
/// valid (2026-07-28, caching).
pub fn cacheable(result: &Json) -> Result<Rope, JsonError> {
    let mut edit = Edit::completing(result)?;
    edit.cache_hints();
    Ok(edit.finish())
}

/// [`cacheable`] for `tools/list`: `execution` is dropped from every tool, as it belongs to 2025-11-25, and a tool whose
/// `x-mcp-header` declarations are invalid is left out, as clients must do anyway (2026-07-28, Streamable HTTP).
pub fn tools(result: &Json) -> Result<Rope, JsonError> {
    let mut edit = Edit::completing(result)?;
    edit.cache_hints();
    if let Some(tools) = edit.member("tools").and_then(|tools| modern_tools(&tools)) {
        edit.changes.push(("tools", Change::Replace(tools)));
    }
    Ok(edit.finish())
}

/// [`cacheable`] for `server/discover`: the capability `tasks` of 2025-11-25 is dropped.
pub fn discover(result: &Json) -> Result<Rope, JsonError> {
    let mut edit = Edit::completing(result)?;
    edit.cache_hints();
    if let Some(capabilities) = edit.member("capabilities").filter(|it| it.member("tasks").is_some()) {
        edit.changes.push(("capabilities", Change::Replace(without(&capabilities, "tasks")?)));
    }
    Ok(edit.finish())
}

/// The member `resultType` of a result.
pub fn result_type(result: &Json) -> Option<Json> {
    // The search is far cheaper than reading every result once more. A name may be spelled with escapes.
    let may_be_there = RESULT_TYPE.find(result.bytes()).is_some() || ESCAPE.find(result.bytes()).is_some();
    if may_be_there { result.member("resultType") } else { None }
}

/// A result without the member `resultType`. What cannot be read is for the client to judge.
#[must_use]
pub fn without_result_type(result: Json) -> Json {
    match result_type(&result) {
        Some(_) => without(&result, "resultType").unwrap_or(result),
        None => result,
    }
}

/// A server's error, under another code where 2026-07-28 forbids its own: -32002 becomes -32602, -32042
/// becomes [`URL_REQUIRED`]. Message and data stay.
#[must_use]
pub fn error(error: RpcError) -> RpcError {
    match error.code() {
        RESOURCE_NOT_FOUND => error.recoded(code::INVALID_PARAMS),
        URL_ELICITATION_REQUIRED => error.recoded(URL_REQUIRED),
        _ => error,
    }
}

impl<'a> Edit<'a> {
    fn of(result: &'a Json) -> Result<Self, JsonError> {
        let members = result.members()?;
        Ok(Self { object: result, members, added: SmallVec::new(), changes: SmallVec::new() })
    }

    /// What every result needs.
    fn completing(result: &'a Json) -> Result<Self, JsonError> {
        let mut edit = Self::of(result)?;
        if edit.members.get("resultType").is_none() {
            edit.added.push(("resultType", Json::word("\"complete\"")));
        }
        if let Some(meta) = edit.member("_meta").filter(Json::is_object) {
            let entries = meta.members()?;
            match (entries.get(meta_key::RELATED_TASK), entries.len()) {
                (None, _) => {}
                (Some(_), 1) => edit.changes.push(("_meta", Change::Drop)),
                (Some(_), _) => {
                    let rest = without(&meta, meta_key::RELATED_TASK)?;
                    edit.changes.push(("_meta", Change::Replace(rest)));
                }
            }
        }
        Ok(edit)
    }

    fn member(&self, name: &str) -> Option<Json> {
        self.members.get(name).map(|raw| Json::of(self.object.bytes(), raw))
    }

    fn cache_hints(&mut self) {
        // An interim result is not to be cached and carries no hints.
        if self.members.get("resultType").is_some_and(|kind| kind.string().as_deref() != Some("complete")) {
            return;
        }
        if self.members.get("ttlMs").is_none_or(|ttl| ttl.get().parse::<u64>().is_err()) {
            self.set("ttlMs", Json::from_value(&0.into()));
        }
        let scope = self.members.get("cacheScope").map(Part::get);
        if !matches!(scope, Some("\"public\"" | "\"private\"")) {
            self.set("cacheScope", Json::word("\"private\""));
        }
    }

    fn set(&mut self, name: &'static str, value: Json) {
        if self.members.get(name).is_some() {
            self.changes.push((name, Change::Replace(value)));
        } else {
            self.added.push((name, value));
        }
    }

    fn finish(self) -> Rope {
        if self.added.is_empty() && self.changes.is_empty() {
            return self.object.clone().into();
        }
        let mut writer = ObjectWriter::new();
        for (name, value) in &self.added {
            writer.raw(name, value);
        }
        for (name, raw) in self.members.iter() {
            match self.changes.iter().find(|(changed, _)| *changed == name) {
                Some((_, Change::Drop)) => {}
                Some((_, Change::Replace(value))) => {
                    writer.raw(name, value);
                }
                None => {
                    writer.part(name, self.object, raw);
                }
            }
        }
        writer.finish()
    }
}

/// The object without one member.
fn without(object: &Json, name: &str) -> Result<Json, JsonError> {
    let mut writer = ObjectWriter::new();
    writer.members_of(object, |member| member != name)?;
    Ok(writer.finish_json())
}

/// The tools that are valid, without `execution`; `None` if nothing has to be changed or this is no list.
fn modern_tools(tools: &Json) -> Option<Json> {
    written_anew(tools, |tool| HeaderRules::of_tool(tool).is_ok())
}

/// The tools without `execution`; `None` if none of them has it or this is no list.
fn without_execution(tools: &Json) -> Option<Json> {
    written_anew(tools, |_| true)
}

/// The tools that are wanted, without `execution`; `None` if nothing has to be changed or this is no list.
fn written_anew(tools: &Json, is_wanted: impl Fn(&Json) -> bool) -> Option<Json> {
    let elements = tools.elements().ok()?;
    let tool = |raw| Json::of(tools.bytes(), raw);
    if !elements.iter().map(tool).any(|tool| tool.member("execution").is_some() || !is_wanted(&tool)) {
        return None;
    }
    let mut text = Vec::with_capacity(tools.len());
    for tool in elements.iter().map(tool).filter(|tool| is_wanted(tool)) {
        text.push(if text.is_empty() { b'[' } else { b',' });
        match without(&tool, "execution") {
            Ok(tool) => text.extend_from_slice(tool.bytes()),
            // No object, or one that repeats a name: for the client to judge.
            Err(_) => text.extend_from_slice(tool.bytes()),
        }
    }
    if text.is_empty() {
        text.push(b'[');
    }
    text.push(b']');
    Some(Json::assume_valid(text.into()))
}

#[cfg(test)]
mod tests;
