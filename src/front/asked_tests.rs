use super::*;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(HeaderName::from_static(name), http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn standard(method: &str) -> HeaderMap {
    headers(&[("mcp-protocol-version", MODERN), ("mcp-method", method)])
}

fn refusal(text: &str, headers: &HeaderMap) -> (u16, i64, String) {
    let refusal = read(&Bytes::from(text.to_owned()), headers, 64).unwrap_err();
    (refusal.status().as_u16(), refusal.error().code(), refusal.error().raw().as_str().to_owned())
}

#[test]
fn a_request_that_follows_the_rules_is_read() {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1e2,"method":"tools/list","params":{{{META}}}}}"#);
    let Ok(Asked::Request(request)) = read(&Bytes::from(text), &standard("tools/list"), 64) else { panic!() };
    assert_eq!((request.id.token().as_str(), request.method, request.log_level), ("1e2", Method::ListTools, None));
}

#[test]
fn a_number_that_is_no_integer_is_no_id() {
    for (id, is) in [
        ("1", true),
        ("-0", true),
        ("1.0", true),
        ("1e0", true),
        ("12.50e1", true),
        ("12.5e0", false),
        ("1.5", false),
        ("-1.5", false),
        ("15e-1", false),
        ("1500e-2", true),
        ("0.0e-9", true),
        ("1e99999999999999999999", true),
        ("1e-99999999999999999999", false),
        ("9007199254740993", true),
        (r#""1.5""#, true),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{{META}}}}}"#);
        let read = read(&Bytes::from(text), &standard("tools/list"), 64);
        assert_eq!(read.is_ok(), is, "{id}");
        if let Err(refusal) = read {
            let (told, error) = refusal.into_parts();
            assert_eq!((told, error.code()), (None, -32600), "{id}");
        }
    }
}

#[test]
fn the_era_of_a_message_is_decided_by_its_own_meta() {
    let session = headers(&[("mcp-session-id", "s"), ("mcp-protocol-version", MODERN)]);
    let modern = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
    let told = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{{META}}}}}"#);
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}"#;
    let list = r#"{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{"_meta":{}}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
    let both = |text: &str, headers: &HeaderMap| match read(&Bytes::from(text.to_owned()), headers, 64) {
        Ok(Asked::Request(_)) => "request".to_owned(),
        Ok(Asked::Notification) => "notification".to_owned(),
        Ok(Asked::Legacy(_)) => "legacy".to_owned(),
        Ok(Asked::LegacyBroken(_, refusal)) => format!("broken {}", refusal.error().code()),
        Ok(Asked::LegacyBatch(messages)) => format!("batch of {}", messages.len()),
        Err(refusal) => refusal.error().code().to_string(),
    };
    let cases = [
        (modern.as_str(), "-32020", "-32020"),
        (&told, "notification", "notification"),
        (r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#, "notification", "legacy"),
        (r#"{"jsonrpc":"2.0","method":"tools/list"}"#, "-32600", "legacy"),
        (initialize, "legacy", "legacy"),
        (list, "-32602", "legacy"),
        (answer, "-32600", "legacy"),
        (&format!("[{list},{answer}]"), "-32600", "batch of 2"),
        (&format!("[{list},{modern}]"), "-32600", "batch of 2"),
        ("[]", "-32600", "-32600"),
        (&initialize.replace(":0,", ":0.5,"), "-32600", "-32600"),
        (&list.replace(":0,", ":1e-1,"), "-32600", "-32600"),
        (&list.replace(":0,", ":10e-1,"), "-32602", "legacy"),
        (&answer.replace(":0,", ":0.5,"), "-32600", "legacy"),
        (r#"{"jsonrpc":"2.0","id":0}"#, "-32600", "broken -32600"),
        (r#"{"jsonrpc":"2.0","id":0,"params":{}}"#, "-32600", "-32600"),
        (r#"{"jsonrpc":"2.0","id":0,"method":7}"#, "-32600", "-32600"),
    ];
    for (text, alone, in_session) in cases {
        assert_eq!(
            (both(text, &HeaderMap::new()).as_str(), both(text, &session).as_str()),
            (alone, in_session),
            "{text}"
        );
    }
    let mut standard = standard("tools/list");
    standard.extend(headers(&[("mcp-session-id", "s")]));
    assert_eq!(both(&modern, &standard), "request");
}

#[test]
fn every_broken_rule_of_meta_has_its_error() {
    let meta = |meta: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{meta}}}}}"#);
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let cases = [
        (meta("{}"), 400, -32602),
        (meta("[]"), 400, -32600),
        (meta(r#"{"a":1,"a":2}"#), 400, -32600),
        (meta(&format!(r#"{{"io.modelcontextprotocol/protocolVersion":20260728,{capabilities}}}"#)), 400, -32602),
        (meta(&format!(r#"{{"io.modelcontextprotocol/protocolVersion":"1900-01-01",{capabilities}}}"#)), 400, -32020),
        (meta(&format!("{{{version}}}")), 400, -32602),
        (meta(&format!(r#"{{{version},"io.modelcontextprotocol/clientCapabilities":[]}}"#)), 400, -32602),
        (meta(&format!(r#"{{{version},"io.modelcontextprotocol/clientCapabilities":null}}"#)), 400, -32602),
        (meta(&format!(r#"{{{version},"io.modelcontextprotocol/clientCapabilities":{{"a":1,"a":2}}}}"#)), 400, -32602),
        (meta(&format!(r#"{{{version},{capabilities},"progressToken":{{}}}}"#)), 400, -32602),
        (meta(&format!(r#"{{{version},{capabilities},"progressToken":true}}"#)), 400, -32602),
        (meta(&format!(r#"{{{version},{capabilities},"io.modelcontextprotocol/logLevel":"loud"}}"#)), 400, -32602),
        (
            meta(&format!(
                r#"{{{version},{capabilities},"progressToken":"a","io.modelcontextprotocol/logLevel":"info"}}"#
            )),
            0,
            0,
        ),
        (meta(&format!(r#"{{{version},{capabilities},"progressToken":5}}"#)), 0, 0),
    ];
    for (text, status, code) in cases {
        match read(&Bytes::from(text.clone()), &standard("tools/list"), 64) {
            Ok(_) => assert_eq!(status, 0, "{text}"),
            Err(refusal) => assert_eq!((refusal.status().as_u16(), refusal.error().code()), (status, code), "{text}"),
        }
    }
}

#[test]
fn two_versions_in_one_request_are_a_mismatch_and_one_unknown_version_is_unsupported() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}"#;
    let cases = [
        (headers(&[("mcp-protocol-version", "1900-01-01")]), -32022),
        (HeaderMap::new(), -32022),
        (headers(&[("mcp-protocol-version", MODERN)]), -32020),
        (headers(&[("mcp-protocol-version", MODERN), ("mcp-protocol-version", "1900-01-01")]), -32020),
    ];
    for (headers, expected) in cases {
        let (status, code, _) = refusal(text, &headers);
        assert_eq!((status, code), (400, expected), "{headers:?}");
    }
}

#[test]
fn headers_must_say_what_the_body_says() {
    let call =
        |name: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{name},{META}}}}}"#);
    let list = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
    let task = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{{"taskId":"t1",{META}}}}}"#);
    let version = ("mcp-protocol-version", MODERN);
    let (is_call, is_list, is_get) =
        (("mcp-method", "tools/call"), ("mcp-method", "tools/list"), ("mcp-method", "tasks/get"));
    let cases = [
        (list.clone(), vec![version, is_list], 0),
        (list.clone(), vec![version, is_list, ("mcp-name", "whatever")], 0),
        (list.clone(), vec![version, is_list, ("mcp-param-region", "caf\u{e9}")], 0),
        (list.clone(), vec![version, is_list, ("mcp-session-id", "old"), ("last-event-id", "5")], 0),
        (list.clone(), vec![is_list], -32020),
        (list.clone(), vec![version], -32020),
        (list.clone(), vec![("mcp-protocol-version", "2025-11-25"), is_list], -32020),
        (list.clone(), vec![version, version, is_list], -32020),
        (list.clone(), vec![version, is_call], -32020),
        (list.clone(), vec![version, is_list, is_list], -32020),
        (list, vec![version, ("mcp-method", "Tools/List")], -32020),
        (call("\"add\""), vec![version, is_call, ("mcp-name", "add")], 0),
        (call("\"add\""), vec![version, is_call], -32020),
        (call("\"add\""), vec![version, is_call, ("mcp-name", "sub")], -32020),
        (call("\"add\""), vec![version, is_call, ("mcp-name", "ADD")], -32020),
        (call("\"add\""), vec![version, is_call, ("mcp-name", "add"), ("mcp-name", "sub")], -32020),
        (call("\"add\""), vec![version, is_call, ("mcp-name", "=?base64?YWRk?=")], 0),
        (call("\"add\""), vec![version, is_call, ("mcp-name", "=?BASE64?YWRk?=")], -32020),
        (call("\"add\""), vec![version, is_call, ("mcp-name", "=?base64?YWR?=")], -32020),
        (call("\"世界\""), vec![version, is_call, ("mcp-name", "=?base64?5LiW55WM?=")], 0),
        (call("\"世界\""), vec![version, is_call, ("mcp-name", "世界")], -32020),
        (call(r#""=?base64?eA==?=""#), vec![version, is_call, ("mcp-name", "=?base64?PT9iYXNlNjQ/ZUE9PT89?=")], 0),
        (call(r#""=?base64?eA==?=""#), vec![version, is_call, ("mcp-name", "=?base64?eA==?=")], -32020),
        (call(r#""=?BASE64?eA==?=""#), vec![version, is_call, ("mcp-name", "=?BASE64?eA==?=")], 0),
        (call("\"\""), vec![version, is_call, ("mcp-name", "")], 0),
        (call("7"), vec![version, is_call], -32602),
        (call("7"), vec![version, is_call, ("mcp-name", "7")], -32020),
        (task.clone(), vec![version, is_get], 0),
        (task.clone(), vec![version, is_get, ("mcp-name", "t1")], 0),
        (task, vec![version, is_get, ("mcp-name", "t2")], -32020),
    ];
    for (text, list, expected) in cases {
        let code =
            read(&Bytes::from(text.clone()), &headers(&list), 64).map_or_else(|refusal| refusal.error().code(), |_| 0);
        assert_eq!(code, expected, "{text} {list:?}");
    }
}

#[test]
fn a_method_that_the_revision_removed_is_not_found() {
    for name in ["initialize", "ping", "logging/setLevel", "tasks/result", "tasks/list", "resources/subscribe"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{name}","params":{{{META}}}}}"#);
        let (status, code, _) = refusal(&text, &standard(name));
        assert_eq!((status, code), (404, -32601), "{name}");
    }
}

#[test]
fn only_requests_and_notifications_are_taken_from_a_client() {
    let none = HeaderMap::new();
    let notification =
        Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert!(matches!(read(&notification, &none, 64), Ok(Asked::Notification)));
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call"}"#,
        "[]",
        "[1]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call"}]"#,
    ] {
        let (status, code, _) = refusal(text, &none);
        assert_eq!((status, code), (400, -32600), "{text}");
    }
}

#[test]
fn an_error_carries_the_id_if_it_could_be_read() {
    let refusal = read(&Bytes::from_static(br#"{"id":"a","method":"m"}"#), &HeaderMap::new(), 64).unwrap_err();
    assert!(format!("{refusal:?}").contains("RequestId"));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(text: Vec<u8>, name in "[a-z/]{0,12}", value in "[ -~]{0,40}") {
        let text = Bytes::from(text);
        let _ = read(&text, &standard(&name), 64);
        let meta = serde_json::from_str::<Value>(&format!("{{{META}}}")).unwrap();
        let mut params = meta.as_object().unwrap().clone();
        params.insert("name".to_owned(), value.clone().into());
        let request = serde_json::json!({ "jsonrpc": "2.0", "id": value, "method": name, "params": params });
        let read = read(&Bytes::from(request.to_string()), &standard(&name), 64);
        proptest::prop_assert!(read.is_ok() || Method::of(&name).is_removed());
    }
}
