//! What a client wants to hear of.

use std::collections::HashSet;

use http::StatusCode;

use crate::front::refusal::Refusal;
use crate::protocol::error::code;
use crate::protocol::{ACKNOWLEDGED, Json, Notification, Params, RpcError, TaskSupport};

/// The `notifications` of a `subscriptions/listen` request (2026-07-28, subscriptions; SEP-2663, task status
/// notifications).
#[derive(Debug, Default)]
pub(in crate::front) struct Filter {
    methods: Vec<&'static str>,
    tasks: HashSet<String>,
}

impl Filter {
    /// Reads what is wanted; a refusal if it is malformed, or needs an extension that was not declared.
    pub(in crate::front) fn read(params: &Params, tasks: TaskSupport) -> Result<Self, Refusal> {
        let bad = |error| Refusal::rpc(StatusCode::BAD_REQUEST, error);
        let invalid = |what: &str| bad(RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {what}")));
        let Some(filter) = params.raw().member("notifications").filter(Json::is_object) else {
            return Err(invalid("notifications must be an object"));
        };
        if filter.member("taskIds").is_some() && tasks == TaskSupport::Undeclared {
            return Err(bad(RpcError::tasks_not_declared()));
        }
        let flag = |name: &str| match filter.member(name) {
            None => Ok(false),
            Some(value) => value.read().map_err(|_| invalid(&format!("notifications.{name} must be true or false"))),
        };
        let list = |name: &str| match filter.member(name) {
            None => Ok(Vec::new()),
            Some(value) => {
                value.read().map_err(|_| invalid(&format!("notifications.{name} must be a list of strings")))
            }
        };
        let mut methods = Vec::new();
        for (name, method) in [
            ("toolsListChanged", "notifications/tools/list_changed"),
            ("promptsListChanged", "notifications/prompts/list_changed"),
            ("resourcesListChanged", "notifications/resources/list_changed"),
        ] {
            if flag(name)? {
                methods.push(method);
            }
        }
        // Any resource at all: servers also tell of a part of one that was subscribed to.
        if !list("resourceSubscriptions")?.is_empty() {
            methods.push("notifications/resources/updated");
        }
        Ok(Self { methods, tasks: list("taskIds")?.into_iter().collect() })
    }

    /// Whether the client asked for this one: it must not get any other.
    pub(super) fn admits(&self, notification: &Notification) -> bool {
        match notification.method.as_str() {
            ACKNOWLEDGED => true,
            "notifications/tasks" => text_member(notification, "taskId").is_some_and(|task| self.tasks.contains(&task)),
            method => self.methods.contains(&method),
        }
    }
}

/// A string among the parameters.
pub(super) fn text_member(notification: &Notification, name: &str) -> Option<String> {
    notification.params.as_ref()?.member(name)?.read().ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::Method;

    fn params(filter: &str) -> Params {
        let text = Bytes::from(format!(r#"{{"notifications":{filter}}}"#));
        Params::read(&Method::Listen, Some(Json::parse(text).unwrap())).unwrap()
    }

    fn notification(method: &str, params: &str) -> Notification {
        let params = Some(Json::parse(Bytes::from(params.to_owned())).unwrap());
        Notification { method: format!("notifications/{method}"), params }
    }

    #[test]
    fn only_what_was_asked_for_is_admitted() {
        let all = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,
            "resourceSubscriptions":["file:///a"],"taskIds":["t"]}"#;
        let cases = [
            ("tools/list_changed", "{}", r#"{"toolsListChanged":true}"#),
            ("prompts/list_changed", "{}", r#"{"promptsListChanged":true}"#),
            ("resources/list_changed", "{}", r#"{"resourcesListChanged":true}"#),
            ("resources/updated", r#"{"uri":"file:///a/b"}"#, r#"{"resourceSubscriptions":["file:///a"]}"#),
            ("tasks", r#"{"taskId":"t"}"#, r#"{"taskIds":["t"]}"#),
        ];
        let read = |filter: &str| Filter::read(&params(filter), TaskSupport::Declared).unwrap();
        for (method, params, filter) in cases {
            let notification = notification(method, params);
            assert!(read(all).admits(&notification) && read(filter).admits(&notification), "{method}");
            let others = cases.iter().filter(|(other, ..)| *other != method);
            for (_, _, other) in others {
                assert!(!read(other).admits(&notification), "{method} with {other}");
            }
        }
        for (method, params) in [("tasks", r#"{"taskId":"other"}"#), ("message", "{}"), ("progress", "{}")] {
            assert!(!read(all).admits(&notification(method, params)), "{method}");
        }
        assert!(!read(r#"{"toolsListChanged":false}"#).admits(&notification("tools/list_changed", "{}")));
    }

    #[test]
    fn a_malformed_filter_is_refused() {
        let read = |filter: &str, tasks| {
            let refusal = Filter::read(&params(filter), tasks).unwrap_err();
            (refusal.status().as_u16(), refusal.error().code())
        };
        for filter in ["7", "[]", r#"{"toolsListChanged":1}"#, r#"{"resourceSubscriptions":"a"}"#, r#"{"taskIds":[1]}"#]
        {
            assert_eq!(read(filter, TaskSupport::Declared), (400, -32602), "{filter}");
        }
        assert_eq!(read(r#"{"taskIds":[]}"#, TaskSupport::Undeclared), (400, -32021));
    }
}
