//! Results for clients of 2025-11-25 and older.

use super::{Change, Edit, without, without_execution};
use crate::protocol::json::{Json, JsonError};
use crate::protocol::method::Method;
use crate::protocol::rope::{ObjectWriter, Rope};
use crate::protocol::{TASKS_EXTENSION, meta_key};

/// The members of results that 2026-07-28 added.
const MODERN_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
/// The prefix of the keys of `_meta` that 2026-07-28 added.
const MODERN_META: &str = "io.modelcontextprotocol/";

/// The result of a 2026-07-28 server for `method` as a legacy client is to see it: without `resultType`, `ttlMs` and
/// `cacheScope`, without that revision's own keys in `_meta`, and as [`legacy_server_result`]. An error if `result` is no
/// object, or repeats a name in itself or in `_meta`.
pub fn legacy_result(method: &Method, result: &Json) -> Result<Rope, JsonError> {
    let mut edit = Edit::of(result)?;
    edit.changes.extend(MODERN_MEMBERS.map(|name| (name, Change::Drop)));
    if let Some(meta) = edit.member("_meta").filter(Json::is_object) {
        let (all, kept_names) = {
            let members = meta.members()?;
            (members.len(), members.iter().filter(|(name, _)| is_legacy_meta(name)).count())
        };
        if kept_names == 0 {
            edit.changes.push(("_meta", Change::Drop));
        } else if kept_names < all {
            let mut writer = ObjectWriter::new();
            writer.members_of(&meta, is_legacy_meta)?;
            edit.changes.push(("_meta", Change::Replace(writer.finish_json())));
        }
    }
    edit.without_executions(method);
    Ok(edit.finish())
}

/// Whether [`legacy_result`] keeps a member of this name.
pub fn is_legacy_member(name: &str) -> bool {
    !MODERN_MEMBERS.contains(&name)
}

/// Whether [`legacy_result`] keeps what has this key in `_meta`.
pub fn is_legacy_meta(name: &str) -> bool {
    !name.starts_with(MODERN_META) || name == meta_key::RELATED_TASK
}

/// The result of a legacy server for `method` as a legacy client is to see it: word for word, but for `execution` of
/// tools, since Raincheck uses a server's own tasks itself. What cannot be read is for the client to judge.
/// Where Raincheck offers tasks of its own, that member says so and the result is not for this.
pub fn legacy_server_result(method: &Method, result: &Json) -> Result<Rope, JsonError> {
    if *method != Method::ListTools {
        return Ok(result.clone().into());
    }
    let Ok(mut edit) = Edit::of(result) else { return Ok(result.clone().into()) };
    edit.without_executions(method);
    Ok(edit.finish())
}

/// Where the tasks layer puts the capability `tasks` of Raincheck itself into a result of `initialize`: the server's own
/// never goes on to a client.
pub const OFFERED_TASKS: &str = "dev.raincheck/tasks";

/// The result of `initialize` under the revision `version`: without the capability `tasks` of the server, which is used
/// on the way to it only, and without the Tasks extension, which legacy clients cannot use. `tasks` is the capability
/// of Raincheck itself, if the client is to have that.
pub fn legacy_initialize(result: &Json, version: &str, tasks: Option<&Json>) -> Result<Rope, JsonError> {
    let mut edit = Edit::of(result)?;
    edit.set("protocolVersion", Json::string(version));
    edit.changes.push((OFFERED_TASKS, Change::Drop));
    match edit.member("capabilities").filter(Json::is_object) {
        None => edit.set("capabilities", Json::empty_object()),
        Some(capabilities) => {
            let mut without_tasks = without(&capabilities, "tasks")?;
            if let Some(tasks) = tasks {
                let mut writer = ObjectWriter::new();
                writer.members_of(&without_tasks, |_| true)?.raw("tasks", tasks);
                without_tasks = writer.finish_json();
            }
            let extensions = without_tasks.member("extensions").filter(|it| it.member(TASKS_EXTENSION).is_some());
            let capabilities = match extensions {
                None => without_tasks,
                Some(extensions) => {
                    let mut writer = ObjectWriter::new();
                    writer.members_of(&without_tasks, |name| name != "extensions")?;
                    writer.raw("extensions", &without(&extensions, TASKS_EXTENSION)?);
                    writer.finish_json()
                }
            };
            edit.set("capabilities", capabilities);
        }
    }
    Ok(edit.finish())
}

impl Edit<'_> {
    fn without_executions(&mut self, method: &Method) {
        if *method == Method::ListTools
            && let Some(tools) = self.member("tools").and_then(|tools| without_execution(&tools))
        {
            self.changes.push(("tools", Change::Replace(tools)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
    }

    fn text(rope: Result<Rope, JsonError>) -> String {
        rope.unwrap().into_json().as_str().to_owned()
    }

    #[test]
    fn what_2026_07_28_adds_is_taken_away_and_nothing_else() {
        let cases = [
            (Method::CallTool, r#"{"resultType":"complete","content": [1.0]}"#, r#"{"content":[1.0]}"#),
            (
                Method::ListPrompts,
                r#"{"prompts":[],"ttlMs":5,"cacheScope":"public","resultType":"complete","zzz":1e2}"#,
                r#"{"prompts":[],"zzz":1e2}"#,
            ),
            (
                Method::ListTools,
                r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{},"a/b":1},"tools":[{"name":"t","execution":{}}]}"#,
                r#"{"_meta":{"a/b":1},"tools":[{"name":"t"}]}"#,
            ),
            (
                Method::CallTool,
                r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{}},"content":[]}"#,
                r#"{"content":[]}"#,
            ),
            (Method::CallTool, r#"{"_meta":{"progress":1},"content":[]}"#, r#"{"_meta":{"progress":1},"content":[]}"#),
        ];
        for (method, result, expected) in cases {
            let parts = |text: &str| text.replace(' ', "");
            assert_eq!(parts(&text(legacy_result(&method, &json(result)))), expected, "{result}");
        }
        legacy_result(&Method::CallTool, &json("[]")).unwrap_err();
    }

    #[test]
    fn what_a_legacy_server_says_is_kept_word_for_word() {
        let odd = r#"{"resultType": "x","ttlMs":1,"a":1,"a":2,"_meta":{"io.modelcontextprotocol/related-task":{}}}"#;
        for method in [Method::CallTool, Method::ListTools] {
            assert_eq!(text(legacy_server_result(&method, &json(odd))), odd);
        }
        let tools = r#"{"tools":[{"name":"t","execution":{"taskSupport":"optional"},"x":1.0}],"n":1}"#;
        let expected = r#"{"tools":[{"name":"t","x":1.0}],"n":1}"#;
        assert_eq!(text(legacy_server_result(&Method::ListTools, &json(tools))), expected);
    }

    #[test]
    fn initialize_says_the_revision_of_the_session_and_nothing_of_tasks() {
        let cases = [
            (
                r#"{"protocolVersion":"2026-07-28","capabilities":{"tools":{},"tasks":{"list":{}}},"serverInfo":{"name":"s"}}"#,
                r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s"}}"#,
            ),
            (
                r#"{"dev.raincheck/tasks":{"list":{}},"capabilities":{"tasks":{"list":{}}}}"#,
                r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#,
            ),
            (
                r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}},"zzz":1.0}"#,
                r#"{"protocolVersion":"2025-06-18","capabilities":{"extensions":{"a/b":{}}},"zzz":1.0}"#,
            ),
            ("{}", r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#),
        ];
        for (result, expected) in cases {
            assert_eq!(text(legacy_initialize(&json(result), "2025-06-18", None)), expected);
        }
        let result = json(r#"{"dev.raincheck/tasks":{"a":1.0},"capabilities":{"tasks":{"list":{}},"tools":{}}}"#);
        let ours = result.member(OFFERED_TASKS);
        let expected = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"a":1.0}}}"#;
        assert_eq!(text(legacy_initialize(&result, "2025-11-25", ours.as_ref())), expected);
    }
}
