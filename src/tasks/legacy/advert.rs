//! Says to a client of 2025-11-25 that there are tasks: in the answer to `initialize`, and of each tool.

use super::offers;
use crate::policy::Policies;
use crate::protocol::reshape::OFFERED_TASKS;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Event, Json, JsonError, Outcome, Principal};

/// Whether any tool of the server may be called as such a task.
pub(in crate::tasks) fn offers_any(policies: &Policies) -> bool {
    policies.all().any(offers)
}

/// The first event of a client's session, with the capability for the front to pass on. Whoever cannot be told apart
/// from others may not list tasks (2025-11-25, tasks, task isolation).
pub(in crate::tasks) fn offer(event: Event, principal: &Principal) -> Event {
    let Event::Attached(result) = event else { return event };
    let capability = match principal {
        Principal::Anonymous => serde_json::json!({ "cancel": {}, "requests": { "tools": { "call": {} } } }),
        _ => serde_json::json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } }),
    };
    let mut offered = ObjectWriter::new();
    match offered.members_of(&result, |name| name != OFFERED_TASKS) {
        Ok(offered) => offered.raw(OFFERED_TASKS, &Json::from_value(&capability)),
        Err(_) => return Event::Attached(result),
    };
    Event::Attached(offered.finish_json())
}

/// A list of tools that says which of them may be called as tasks. They are never required to: a client that knows
/// nothing of tasks can call them too, and some refuse to call a tool that requires them.
pub(in crate::tasks) fn with_support(event: Event, policies: &Policies) -> Event {
    match event {
        Event::Done(Outcome::Result(result)) => {
            let changed = supported(&result, policies).unwrap_or(None);
            Event::Done(Outcome::Result(changed.unwrap_or(result)))
        }
        event => event,
    }
}

/// `None` if this is no list of tools.
fn supported(result: &Json, policies: &Policies) -> Result<Option<Json>, JsonError> {
    let Some(tools) = result.member("tools") else { return Ok(None) };
    let optional = Json::from_value(&serde_json::json!({ "taskSupport": "optional" }));
    let mut list = b"[".to_vec();
    for (at, tool) in tools.elements()?.iter().enumerate() {
        if at > 0 {
            list.push(b',');
        }
        let tool = Json::of(tools.bytes(), tool);
        let name = tool.member("name").and_then(|name| name.read::<String>().ok());
        // The server's own word is of its own tasks, which are used on the way to it.
        let mut changed = ObjectWriter::new();
        if !tool.is_object() || changed.members_of(&tool, |name| name != "execution").is_err() {
            list.extend_from_slice(tool.bytes());
            continue;
        }
        if name.is_some_and(|name| offers(policies.of(&name))) {
            changed.raw("execution", &optional);
        }
        list.extend_from_slice(changed.finish_json().bytes());
    }
    list.push(b']');
    let mut whole = ObjectWriter::new();
    whole.members_of(result, |name| name != "tools")?.raw("tools", &Json::parse(list.into())?);
    Ok(Some(whole.finish_json()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Fallback, ToolPolicy, ToolRule};

    fn json(text: &str) -> Json {
        Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
    }

    #[test]
    fn tools_with_the_fallback_may_be_tasks_and_the_word_of_the_server_goes() {
        let policy = ToolPolicy { fallback: Fallback::LegacyTasks, ..ToolPolicy::default() };
        let rule = ToolRule { pattern: "slow_*".to_owned(), server: None, policy };
        let policies = Policies::for_server("s", &ToolPolicy::default(), &[rule]);
        let cases = [
            (
                r#"{"tools":[{"name":"slow_a","x":1.0,"execution":{"taskSupport":"required"}},{"name":"b","execution":{}}],"n":1e2}"#,
                r#"{"n":1e2,"tools":[{"name":"slow_a","x":1.0,"execution":{"taskSupport":"optional"}},{"name":"b"}]}"#,
            ),
            (r#"{"tools":[7,{"name":1}]}"#, r#"{"tools":[7,{"name":1}]}"#),
            (r#"{"tools":{}}"#, r#"{"tools":{}}"#),
            ("{}", "{}"),
        ];
        for (result, expected) in cases {
            let Event::Done(Outcome::Result(shown)) =
                with_support(Event::Done(Outcome::Result(json(result))), &policies)
            else {
                panic!()
            };
            assert_eq!(shown.as_str(), expected);
        }
    }

    #[test]
    fn whoever_cannot_be_told_apart_may_not_list() {
        let said = |principal: &Principal| match offer(Event::Attached(json(r#"{"capabilities":{}}"#)), principal) {
            Event::Attached(result) => result.member(OFFERED_TASKS).unwrap().as_str().to_owned(),
            _ => panic!(),
        };
        let all = r#"{"cancel":{},"list":{},"requests":{"tools":{"call":{}}}}"#;
        assert_eq!(said(&Principal::Local), all);
        assert_eq!(said(&Principal::Named("ann".into())), all);
        assert_eq!(said(&Principal::Anonymous), r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#);
    }
}
