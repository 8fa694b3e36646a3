//! Says of a server that it has tasks.

use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Json, JsonError, TASKS_EXTENSION};

/// The `DiscoverResult` with the extension added. Its settings are exactly `{}`: clients turn tasks off
/// when there is anything in it. The old capability `tasks` (2025-11-25) goes.
pub(super) fn with_tasks(result: &Json) -> Result<Json, JsonError> {
    let none = Json::empty_object();
    let capabilities = result.member("capabilities").filter(Json::is_object).unwrap_or_else(|| none.clone());
    let extensions = capabilities.member("extensions").filter(Json::is_object).unwrap_or_else(|| none.clone());

    let mut with_tasks = ObjectWriter::new();
    with_tasks.members_of(&extensions, |name| name != TASKS_EXTENSION)?.raw(TASKS_EXTENSION, &none);
    let mut can = ObjectWriter::new();
    can.members_of(&capabilities, |name| name != "extensions" && name != "tasks")?;
    can.rope("extensions", with_tasks.finish());
    let mut whole = ObjectWriter::new();
    whole.members_of(result, |name| name != "capabilities")?.rope("capabilities", can.finish());
    Ok(whole.finish_json())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn advertised(result: &str) -> String {
        with_tasks(&Json::parse(Bytes::from(result.to_owned())).unwrap()).unwrap().as_str().to_owned()
    }

    #[test]
    fn the_extension_is_added_with_empty_settings_and_nothing_else_is_lost() {
        assert_eq!(
            advertised(
                r#"{"x":1.0,"capabilities":{"tools":{},"tasks":{"list":{}},"extensions":{"a/b":{"c":1},"io.modelcontextprotocol/tasks":{"y":1}}}}"#
            ),
            r#"{"x":1.0,"capabilities":{"tools":{},"extensions":{"a/b":{"c":1},"io.modelcontextprotocol/tasks":{}}}}"#
        );
        assert_eq!(
            advertised(r#"{"supportedVersions":[]}"#),
            r#"{"supportedVersions":[],"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#
        );
    }
}
