//! The tools beside the server's own in `tools/list`, and their names.

use std::time::Duration;

use raincheck::config::ToolPolicy;
use raincheck::protocol::Outcome;
use serde_json::{Value, json};

use crate::support::calls::{call_of, legacy_call, text};
use crate::support::layer::Proxy;
use crate::{Kind, in_words, next_call, tool, words};

/// Ann's list, as the server answers it page by page.
async fn listed(proxy: &mut Proxy, kind: Kind, cursor: Option<&str>, pages: &[&str]) -> String {
    let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
    let call = match kind {
        Kind::Legacy => legacy_call("ann", "tools/list", params, json!({})),
        Kind::Modern => call_of("ann", false, "tools/list", params),
    };
    let service = proxy.send(call).await.in_background();
    for page in pages {
        let (call, sender) = proxy.next_sent().await;
        assert_eq!(call.method.name(), "tools/list");
        sender.done(Outcome::Result(text(page)));
    }
    let Outcome::Result(list) = service.outcome().await else { panic!("no list") };
    list.as_str().to_owned()
}

fn names(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap();
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_list_has_the_tools_once_and_says_what_may_answer_with_a_handle() {
    let page = r#"{"zzz":1.0,"tools":[{"name":"export","description":"Exports","outputSchema":{"type":"object"},"inputSchema":{"x": 1E2}}],"ttlMs":5,"cacheScope":"public"}"#;
    for kind in crate::BOTH {
        let mut proxy = Proxy::new(in_words());
        let list = listed(&mut proxy, kind, None, &[page]).await;
        assert_eq!(names(&list), ["export", "check_job", "cancel_job", "answer_job"]);
        assert!(list.contains(r#""zzz":1.0"#) && list.contains(r#""inputSchema":{"x": 1E2}"#), "{list}");
        let list: Value = serde_json::from_str(&list).unwrap();
        let export = &list["tools"][0];
        assert!(export.get("outputSchema").is_none());
        let description = export["description"].as_str().unwrap();
        assert!(description.starts_with("Exports. ") && description.contains("check_job"), "{description}");
        assert_eq!((&list["cacheScope"], &list["ttlMs"]), (&json!("private"), &json!(5)));
        for companion in &list["tools"].as_array().unwrap()[1..] {
            assert_eq!(companion["inputSchema"]["required"], json!(["job"]));
            assert!(companion.get("outputSchema").is_none());
        }
    }
}

#[tokio::test]
async fn nothing_is_added_where_no_tool_answers_with_a_handle() {
    let page = r#"{"tools": [{"name":"export","outputSchema":{}}] , "x":1E2}"#;
    let mut proxy = Proxy::new(ToolPolicy::default());
    assert_eq!(listed(&mut proxy, Kind::Legacy, None, &[page]).await, page);
    // And the server's tools of these names are its own.
    let reply = proxy.send_in_background(tool(Kind::Legacy, "check_job", &json!({ "job": "x" })));
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert_eq!(reply.await.unwrap(), json!({ "content": [] }));
}

#[tokio::test]
async fn a_name_that_the_server_has_is_left_to_it() {
    let page = r#"{"tools":[{"name":"export"},{"name":"check_job"}]}"#;
    let mut proxy = Proxy::new(in_words());
    let list = listed(&mut proxy, Kind::Legacy, None, &[page]).await;
    assert_eq!(names(&list), ["export", "check_job", "raincheck_check_job", "cancel_job", "answer_job"]);
    assert!(list.contains("call raincheck_check_job with"), "{list}");
    let reply = proxy.send(tool(Kind::Legacy, "check_job", &json!({ "job": "x" }))).await.in_background();
    let (_, sender) = proxy.next_sent().await;
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert!(matches!(reply.outcome().await, Outcome::Result(_)));
    let unknown = proxy.value(tool(Kind::Legacy, "raincheck_check_job", &json!({ "job": "x" }))).await;
    assert!(words(&unknown).contains("no such job"));
}

#[tokio::test]
async fn a_list_of_several_pages_has_them_on_the_first_under_names_that_no_page_has() {
    let (first, second) =
        (r#"{"tools":[{"name":"a"}],"nextCursor":"2"}"#, r#"{"tools":[{"name":"cancel_job"}],"nextCursor":null}"#);
    let mut proxy = Proxy::new(in_words());
    // The second is asked for before the first is given out.
    let list = listed(&mut proxy, Kind::Modern, None, &[first, second]).await;
    assert_eq!(names(&list), ["a", "check_job", "raincheck_cancel_job", "answer_job"]);
    assert_eq!(names(&listed(&mut proxy, Kind::Modern, Some("2"), &[second]).await), ["cancel_job"]);
    // And once only.
    let again = listed(&mut proxy, Kind::Modern, None, &[first]).await;
    assert_eq!(names(&again), ["a", "check_job", "raincheck_cancel_job", "answer_job"]);
}

#[tokio::test]
async fn a_call_before_any_list_finds_out_what_the_server_calls_its_own() {
    let page = r#"{"tools":[{"name":"check_job"}]}"#;
    let mut proxy = Proxy::new(in_words());
    let reply = proxy.send_in_background(tool(Kind::Modern, "export", &json!({})));
    let (_, _sender) = next_call(&mut proxy, page).await;
    let handle = reply.await.unwrap();
    assert!(words(&handle).contains("`raincheck_check_job`"), "{handle}");

    // The server's own is not taken for ours either.
    let mut proxy = Proxy::new(ToolPolicy { hold: Duration::from_hours(1), ..in_words() });
    let reply = proxy.send_in_background(tool(Kind::Modern, "check_job", &json!({})));
    let (call, sender) = next_call(&mut proxy, page).await;
    assert_eq!(call.params.name(), Some("check_job"));
    sender.done(Outcome::Result(text(r#"{"content":[]}"#)));
    assert_eq!(reply.await.unwrap(), json!({ "content": [] }));
}
