//! What somebody who listens wants to hear.

use std::collections::BTreeSet;

use crate::protocol::rope::ObjectWriter;
use crate::protocol::{ACKNOWLEDGED, Json, Notification, Params};

/// What somebody who listens wants to hear, or what he is promised to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) tools: bool,
    pub(super) prompts: bool,
    pub(super) resources: bool,
    /// Of these resources.
    pub(super) uris: BTreeSet<String>,
}

/// Resources that one listener may subscribe to; more are not acknowledged.
const MOST: usize = 256;
/// Bytes of a URI.
const LONGEST: usize = 8 << 10;

impl Filter {
    /// Reads `notifications` of the parameters. What is malformed is not wanted.
    pub(super) fn of(params: &Params) -> Self {
        let Some(wanted) = params.raw().member("notifications") else { return Self::default() };
        let flag = |name: &str| wanted.member(name).and_then(|flag| flag.read::<bool>().ok()).unwrap_or(false);
        let uris = wanted.member("resourceSubscriptions").and_then(|uris| uris.read::<Vec<String>>().ok());
        Self {
            tools: flag("toolsListChanged"),
            prompts: flag("promptsListChanged"),
            resources: flag("resourcesListChanged"),
            uris: uris.into_iter().flatten().filter(|uri| uri.len() <= LONGEST).take(MOST).collect(),
        }
    }

    /// What of it a server with these `capabilities` of 2025-11-25 or older can say.
    #[must_use]
    pub(super) fn within(mut self, capabilities: &Json) -> Self {
        let can = |kind: &str, what: &str| {
            let settings = capabilities.member(kind).and_then(|kind| kind.member(what));
            settings.and_then(|flag| flag.read::<bool>().ok()).unwrap_or(false)
        };
        self.tools &= can("tools", "listChanged");
        self.prompts &= can("prompts", "listChanged");
        self.resources &= can("resources", "listChanged");
        if !can("resources", "subscribe") {
            self.uris.clear();
        }
        self
    }

    /// Whether nothing is wanted.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this is wanted.
    pub(super) fn wants(&self, said: &Notification) -> bool {
        match said.method.as_str() {
            "notifications/tools/list_changed" => self.tools,
            "notifications/prompts/list_changed" => self.prompts,
            "notifications/resources/list_changed" => self.resources,
            "notifications/resources/updated" => {
                let uri = said.params.as_ref().and_then(|params| params.member("uri"));
                let uri = uri.and_then(|uri| uri.read::<String>().ok());
                uri.is_some_and(|uri| self.covers(&uri))
            }
            _ => false,
        }
    }

    /// The lists that may have changed while nobody could hear it.
    pub(super) fn lists(&self) -> impl Iterator<Item = Notification> {
        let lists = [(self.tools, "tools"), (self.prompts, "prompts"), (self.resources, "resources")];
        let wanted = lists.into_iter().filter(|(wanted, _)| *wanted);
        wanted.map(|(_, list)| Notification { method: format!("notifications/{list}/list_changed"), params: None })
    }

    /// [`ACKNOWLEDGED`].
    pub(super) fn acknowledgement(&self) -> Notification {
        let mut honoured = ObjectWriter::new();
        let flags = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        for (name, _) in flags.into_iter().filter(|(_, wanted)| *wanted) {
            honoured.boolean(name, true);
        }
        if !self.uris.is_empty() {
            honoured.raw("resourceSubscriptions", &Json::from_value(&serde_json::json!(self.uris)));
        }
        let mut params = ObjectWriter::new();
        params.rope("notifications", honoured.finish());
        Notification { method: ACKNOWLEDGED.to_owned(), params: Some(params.finish_json()) }
    }

    /// A server may speak of a part of what was subscribed to (2025-11-25, resources, `notifications/resources/updated`).
    fn covers(&self, uri: &str) -> bool {
        self.uris.contains(uri)
            || self.uris.iter().any(|wanted| {
                let rest = uri.strip_prefix(wanted.as_str());
                rest.is_some_and(|rest| wanted.ends_with('/') || rest.starts_with('/'))
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::Method;

    fn filter(notifications: &Value) -> Filter {
        let params = Json::from_value(&json!({ "notifications": notifications }));
        Filter::of(&Params::read(&Method::Listen, Some(params)).unwrap())
    }

    #[test]
    fn only_what_the_server_can_say_is_promised() {
        let all = json!({
            "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
            "resourceSubscriptions": ["a:1", "a:2"], "taskIds": ["t"],
        });
        let promised = |wanted: &Value, capabilities: Value| {
            let kept = filter(wanted).within(&Json::from_value(&capabilities));
            let said = kept.acknowledgement().params.unwrap().read::<Value>().unwrap();
            said["notifications"].clone()
        };
        let full = json!({
            "tools": { "listChanged": true }, "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
        });
        assert_eq!(promised(&all, json!({})), json!({}));
        let mut expected = all.clone();
        expected.as_object_mut().unwrap().remove("taskIds");
        assert_eq!(promised(&all, full.clone()), expected);
        assert_eq!(promised(&json!({ "toolsListChanged": false }), full.clone()), json!({}));
        assert_eq!(promised(&json!({ "toolsListChanged": 1, "resourceSubscriptions": "a" }), full), json!({}));
        let subscribe = json!({ "tools": { "listChanged": false }, "resources": { "subscribe": true } });
        assert_eq!(promised(&all, subscribe), json!({ "resourceSubscriptions": ["a:1", "a:2"] }));
        let many: Vec<_> = (0..1000).map(|n| format!("a:{n}")).collect();
        assert_eq!(filter(&json!({ "resourceSubscriptions": many })).uris.len(), MOST);
    }

    #[test]
    fn nobody_hears_what_he_did_not_ask_for() {
        let some = filter(&json!({ "promptsListChanged": true, "resourceSubscriptions": ["file:///d", "x:/y/"] }));
        let cases = [
            ("notifications/prompts/list_changed", json!({}), true),
            ("notifications/tools/list_changed", json!({}), false),
            ("notifications/resources/list_changed", json!({}), false),
            ("notifications/message", json!({}), false),
            ("notifications/resources/updated", json!({ "uri": "file:///d" }), true),
            ("notifications/resources/updated", json!({ "uri": "file:///d/part" }), true),
            ("notifications/resources/updated", json!({ "uri": "file:///dd" }), false),
            ("notifications/resources/updated", json!({ "uri": "x:/y/z" }), true),
            ("notifications/resources/updated", json!({ "uri": 1 }), false),
            ("notifications/resources/updated", json!({}), false),
        ];
        for (method, params, expected) in cases {
            let said = Notification { method: method.to_owned(), params: Some(Json::from_value(&params)) };
            assert_eq!(some.wants(&said), expected, "{method} {params}");
        }
    }
}
