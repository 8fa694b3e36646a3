use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn json(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

fn text(rope: Rope) -> String {
    String::from_utf8(rope.into_bytes().to_vec()).unwrap()
}

#[test]
fn a_result_is_completed_and_loses_nothing_else() {
    let cases = [
        ("{}", r#"{"resultType":"complete"}"#),
        (r#"{"resultType":"complete"}"#, r#"{"resultType":"complete"}"#),
        (r#"{"resultType":"input_required","x": 1}"#, r#"{"resultType":"input_required","x": 1}"#),
        (
            r#"{"content":[{"type":"odd","n":1.0}],"structuredContent":{"id":9007199254740995,"e":1E2},"_meta":{"com.example/x":1},"zzz":1e400}"#,
            r#"{"resultType":"complete","content":[{"type":"odd","n":1.0}],"structuredContent":{"id":9007199254740995,"e":1E2},"_meta":{"com.example/x":1},"zzz":1e400}"#,
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"7"}},"content":[]}"#,
            r#"{"resultType":"complete","content":[]}"#,
        ),
        (
            r#"{"_meta":{"a":1.50,"io.modelcontextprotocol/related-task":{"taskId":"7"}},"content":[]}"#,
            r#"{"resultType":"complete","_meta":{"a":1.50},"content":[]}"#,
        ),
        (r#"{"_meta":null}"#, r#"{"resultType":"complete","_meta":null}"#),
    ];
    for (from, expected) in cases {
        assert_eq!(text(complete(&json(from)).unwrap()), expected, "{from}");
    }
}

#[test]
fn what_is_no_object_is_no_result() {
    for from in ["null", "[]", "1", "\"\"", r#"{"a":1,"a":2}"#, r#"{"_meta":{"a":1,"a":2}}"#] {
        assert!(complete(&json(from)).is_err(), "{from}");
    }
}

#[test]
fn a_large_value_is_not_copied() {
    let from = json(&format!(r#"{{"content":"{}"}}"#, "x".repeat(10_000)));
    let content = from.member("content").unwrap();
    let rope = complete(&from).unwrap();
    assert!(rope.clone().into_pieces().iter().any(|piece| piece.as_ptr() == content.bytes().as_ptr()));
}

#[test]
fn cache_hints_are_added_where_they_are_missing_or_wrong() {
    let cases = [
        (r#"{"a":1}"#, r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","a":1}"#),
        (
            r#"{"resultType":"complete","ttlMs":5,"cacheScope":"public"}"#,
            r#"{"resultType":"complete","ttlMs":5,"cacheScope":"public"}"#,
        ),
        (
            r#"{"resultType":"complete","ttlMs":-5,"cacheScope":null}"#,
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#,
        ),
        (r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#),
    ];
    for (from, expected) in cases {
        assert_eq!(text(cacheable(&json(from)).unwrap()), expected, "{from}");
    }
}

#[test]
fn the_old_way_to_say_that_a_tool_can_be_a_task_is_dropped_and_only_that() {
    let from = r#"{"resultType":"complete","ttlMs":1,"cacheScope":"public","tools":[{"name":"a","execution":{"taskSupport":"required"},"outputSchema":{"x": 1}},{"name":"b"},7],"nextCursor":"n"}"#;
    let expected = r#"{"resultType":"complete","ttlMs":1,"cacheScope":"public","tools":[{"name":"a","outputSchema":{"x": 1}},{"name":"b"},7],"nextCursor":"n"}"#;
    assert_eq!(text(result(&Method::ListTools, &json(from)).unwrap()), expected);
    let plain = r#"{"resultType":"complete","ttlMs":1,"cacheScope":"public","tools":[ {"name":"a"} ]}"#;
    assert_eq!(text(result(&Method::ListTools, &json(plain)).unwrap()), plain);
}

#[test]
fn the_old_capability_is_dropped_and_only_that() {
    let from = r#"{"capabilities":{"tasks":{"list":{}},"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"private"}"#;
    let expected = r#"{"resultType":"complete","capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"private"}"#;
    assert_eq!(text(result(&Method::Discover, &json(from)).unwrap()), expected);
}

#[test]
fn forbidden_codes_are_mapped_and_the_rest_of_the_error_stays() {
    let cases = [
        (-32002, code::INVALID_PARAMS),
        (-32042, URL_REQUIRED),
        (-32603, -32603),
        (-32000, -32000),
        (-32800, -32800),
        (0, 0),
    ];
    for (from, expected) in cases {
        let raw = json(&format!(r#"{{"code":{from},"message":"m","data":{{"uri": 1.0}}}}"#));
        let error = super::error(RpcError::from_server(raw).unwrap());
        assert_eq!(error.code(), expected);
        assert_eq!(error.raw().as_str(), format!(r#"{{"code":{expected},"message":"m","data":{{"uri": 1.0}}}}"#));
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,300}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(
                "_meta|tools|execution|capabilities|tasks|ttlMs|resultType|\\PC{0,8}",
                inner,
                0..5
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn a_tool_with_an_invalid_header_declaration_is_left_out() {
    let bad = r#"{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}"#;
    let good = r#"{"name":"good", "inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#;
    let shown = |list: &str| {
        let from = Json::parse(bytes::Bytes::from(format!(r#"{{"tools":[{list}]}}"#))).unwrap();
        text(tools(&from).unwrap())
    };
    assert!(shown(good).ends_with(&format!(r#""tools":[{good}]}}"#)));
    assert!(shown(&format!("{bad},{good}")).contains(r#""tools":[{"name":"good""#));
    assert!(shown(bad).ends_with(r#""tools":[]}"#));
}

proptest! {
    #[test]
    fn whatever_a_server_sends_keeps_its_other_members(value in any_value()) {
        let from = Json::from_value(&value);
        let Value::Object(members) = &value else {
            prop_assert!(complete(&from).is_err());
            return Ok(());
        };
        for method in [Method::CallTool, Method::ListTools, Method::Discover, Method::ListPrompts] {
            let shaped: Value = serde_json::from_str(&text(result(&method, &from).unwrap())).unwrap();
            prop_assert!(shaped.get("resultType").is_some());
            for (name, value) in members {
                if !["_meta", "tools", "capabilities", "ttlMs", "cacheScope"].contains(&name.as_str()) {
                    prop_assert_eq!(shaped.get(name), Some(value));
                }
            }
        }
    }
}

/// Values in spellings that reading and writing them again would change.
fn any_spelling() -> impl Strategy<Value = String> {
    let spelled = prop_oneof![
        Just("1.0"),
        Just("1E400"),
        Just("-0"),
        Just("9007199254740995"),
        Just("0.10"),
        Just("18446744073709551615"),
        Just(r#""\u0041\/""#),
        Just(r#"{ "z":1 , "a":[ 1.50 ] }"#),
        Just("null"),
        Just("[1,  2]"),
    ];
    spelled.prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn every_other_member_keeps_its_bytes_and_its_place(
        members in prop::collection::btree_map("[a-z]{1,6}", any_spelling(), 0..8),
        meta in prop::collection::btree_map("[a-z]{1,6}", any_spelling(), 0..4),
    ) {
        let object = |members: &std::collections::BTreeMap<String, String>| {
            let members: Vec<_> = members.iter().rev().map(|(name, value)| format!("\"{name}\": {value}")).collect();
            members.join(",")
        };
        let comma = if members.is_empty() { "" } else { "," };
        let related = r#""io.modelcontextprotocol/related-task":{"taskId":"t"}"#;
        let behind = if meta.is_empty() { "" } else { "," };
        let from = format!("{{\"_meta\":{{{related}{behind}{}}}{comma}{}}}", object(&meta), object(&members));
        let from = Json::parse(bytes::Bytes::from(from)).unwrap();
        for method in [Method::CallTool, Method::ListTools, Method::Discover, Method::ListPrompts] {
            let shaped = Json::parse(bytes::Bytes::from(text(result(&method, &from).unwrap()))).unwrap();
            let spelled = |json: &Json, skipped: &[&str]| -> Vec<(String, String)> {
                let members = json.members().unwrap();
                let kept = members.iter().filter(|(name, _)| !skipped.contains(name));
                kept.map(|(name, raw)| (name.to_owned(), raw.get().to_owned())).collect()
            };
            let ours = ["_meta", "resultType", "tools", "ttlMs", "cacheScope", "capabilities"];
            prop_assert_eq!(spelled(&shaped, &ours), spelled(&from, &ours));
            let left = shaped.member("_meta").map(|meta| spelled(&meta, &[])).unwrap_or_default();
            let before = spelled(&from.member("_meta").unwrap(), &["io.modelcontextprotocol/related-task"]);
            prop_assert_eq!(left, before);
        }
    }
}
