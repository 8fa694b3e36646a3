use bytes::Bytes;

use super::*;

fn json(text: &str) -> Json {
    Json::parse(Bytes::from(text.to_owned())).unwrap()
}

fn of(schema: &str) -> Result<HeaderRules, RuleFault> {
    HeaderRules::of_tool(&json(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#)))
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

#[test]
fn declarations_are_valid_where_properties_lead_to_them() {
    let nested = of(r#"{"type":"object","properties":{"a":{"type":"object","properties":{"b.c":
        {"type":"string","x-mcp-header":"Region","default":{"x-mcp-header":7}}}},"x-mcp-header":{"type":"number"}}}"#)
    .unwrap();
    let mirrored = nested.mirror(Some(&json(r#"{"a":{"b.c":"x"}}"#)));
    assert_eq!(mirrored, [(HeaderName::from_static("mcp-param-region"), HeaderValue::from_static("x"))]);
    assert!(of(r#"{"properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}"#).is_ok());
    assert!(of("{}").unwrap().is_empty() && of("7").unwrap().is_empty());
}

#[test]
fn every_broken_rule_of_a_declaration_is_a_fault() {
    let on = |schema: &str| format!(r#"{{"properties":{{"a":{schema}}}}}"#);
    let declared = r#"{"type":"string","x-mcp-header":"A"}"#;
    let mut unreachable = vec![r#"{"x-mcp-header":"A"}"#.to_owned(), declared.to_owned()];
    for keyword in ["items", "not", "if", "then", "else", "contains", "additionalProperties", "propertyNames"] {
        unreachable.push(on(&format!(r#"{{"{keyword}":{declared}}}"#)));
        unreachable.push(format!(r#"{{"{keyword}":{{"properties":{{"a":{declared}}}}}}}"#));
    }
    for keyword in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        unreachable.push(on(&format!(r#"{{"{keyword}":[{declared}]}}"#)));
    }
    for keyword in ["$defs", "definitions", "patternProperties", "dependentSchemas"] {
        unreachable.push(format!(r#"{{"{keyword}":{{"x":{declared}}}}}"#));
    }
    for schema in unreachable {
        assert!(matches!(of(&schema), Err(RuleFault::Unreachable(_))), "{schema}");
    }
    for name in [r#""""#, r#""a b""#, r#""a:""#, r#""a\r\nb: c""#, r#""é""#, "7", "null", "{}"] {
        let schema = on(&format!(r#"{{"type":"string","x-mcp-header":{name}}}"#));
        assert!(matches!(of(&schema), Err(RuleFault::Name(_))), "{schema}");
    }
    for kind in [r#""number""#, r#""object""#, r#""array""#, r#""null""#, "[]", r#"["null"]"#, r#"["string","number"]"#]
    {
        let schema = on(&format!(r#"{{"type":{kind},"x-mcp-header":"A"}}"#));
        assert!(matches!(of(&schema), Err(RuleFault::Kind(_))), "{schema}");
    }
    assert!(matches!(of(&on(r#"{"x-mcp-header":"A"}"#)), Err(RuleFault::Kind(_))));
    let twice =
        r#"{"properties":{"a":{"type":"string","x-mcp-header":"Same"},"b":{"type":"integer","x-mcp-header":"sAME"}}}"#;
    assert!(matches!(of(twice), Err(RuleFault::Repeated(_))));
}

/// The arguments, the headers, and whether they agree.
type Case = (&'static str, Vec<(&'static str, &'static str)>, bool);

#[test]
fn headers_must_say_what_arguments_say() {
    let rules =
        of(r#"{"properties":{"s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"N"},
        "b":{"type":"boolean","x-mcp-header":"B"}}}"#)
        .unwrap();
    let cases: Vec<Case> = vec![
        ("{}", vec![], true),
        (r#"{"s":null}"#, vec![], true),
        (r#"{"s":[1]}"#, vec![], true),
        (r#"{"s":"x"}"#, vec![("mcp-param-s", "x")], true),
        (r#"{"s":"x"}"#, vec![("Mcp-Param-S", "x"), ("mcp-param-other", "y")], true),
        (r#"{"s":"Hello"}"#, vec![("mcp-param-s", "=?base64?SGVsbG8=?=")], true),
        (r#"{"s":"SGVsbG8="}"#, vec![("mcp-param-s", "SGVsbG8=")], true),
        (r#"{"s":"=?base64?SGVsbG8="}"#, vec![("mcp-param-s", "=?base64?SGVsbG8=")], true),
        (r#"{"s":"caf\u00e9"}"#, vec![("mcp-param-s", "=?base64?Y2Fmw6k=?=")], true),
        (r#"{"s":""}"#, vec![("mcp-param-s", "=?base64??=")], true),
        (r#"{"n":42}"#, vec![("mcp-param-n", "42.0")], true),
        (r#"{"n":4.2e1}"#, vec![("mcp-param-n", "42")], true),
        (r#"{"n":-7}"#, vec![("mcp-param-n", "-7")], true),
        (r#"{"b":true}"#, vec![("mcp-param-b", "true")], true),
        (r#"{"s":"x"}"#, vec![], false),
        (r#"{"n":0}"#, vec![], false),
        (r#"{"b":false}"#, vec![], false),
        ("{}", vec![("mcp-param-s", "x")], false),
        (r#"{"s":null}"#, vec![("mcp-param-s", "null")], false),
        (r#"{"s":[1]}"#, vec![("mcp-param-s", "[1]")], false),
        (r#"{"s":"x"}"#, vec![("mcp-param-s", "y")], false),
        (r#"{"s":"x"}"#, vec![("mcp-param-s", "X")], false),
        (r#"{"s":"x"}"#, vec![("mcp-param-s", "x"), ("mcp-param-s", "x")], false),
        (r#"{"s":"caf\u00e9"}"#, vec![("mcp-param-s", "caf\u{e9}")], false),
        (r#"{"s":"Hello"}"#, vec![("mcp-param-s", "=?base64?SGVsbG8?=")], false),
        (r#"{"s":"Hello"}"#, vec![("mcp-param-s", "=?base64?SGVs!!!bG8=?=")], false),
        (r#"{"n":42}"#, vec![("mcp-param-n", "43")], false),
        (r#"{"n":1}"#, vec![("mcp-param-n", "+1")], false),
        (r#"{"n":9007199254740993}"#, vec![("mcp-param-n", "9007199254740992")], false),
        (r#"{"b":true}"#, vec![("mcp-param-b", "TRUE")], false),
        (r#"{"s":"x","s":"y"}"#, vec![("mcp-param-s", "x")], false),
        (r#"{"s":"x","s":"y"}"#, vec![], false),
        ("[]", vec![], true),
    ];
    for (arguments, list, expected) in cases {
        let checked = rules.check(&headers(&list), Some(&json(arguments)));
        assert_eq!(checked.is_ok(), expected, "{arguments} {list:?} {checked:?}");
    }
    assert!(rules.check(&HeaderMap::new(), None).is_ok());
    assert!(rules.check(&headers(&[("mcp-param-b", "true")]), None).is_err());
}

#[test]
fn a_list_names_the_tools_that_declare_headers() {
    let list = json(
        r#"{"tools":[{"name":"plain","inputSchema":{}},{"name":"good","inputSchema":{"properties":{"a":
        {"type":"string","x-mcp-header":"A"}}}},{"name":"bad","inputSchema":{"x-mcp-header":"A"}},7]}"#,
    );
    let found = HeaderRules::of_list(&list);
    let shown: Vec<_> = found.iter().map(|(name, rules)| (name.as_str(), rules.is_ok())).collect();
    assert_eq!(shown, [("good", true), ("bad", false)]);
}

proptest::proptest! {
    #[test]
    fn what_a_client_mirrors_a_server_accepts(text: String, number: i64, truth: bool, present: [bool; 3]) {
        let rules = of(r#"{"properties":{"s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"N"},
            "b":{"type":"boolean","x-mcp-header":"B"}}}"#).unwrap();
        let mut arguments = serde_json::Map::new();
        if present[0] { arguments.insert("s".to_owned(), text.into()); }
        if present[1] { arguments.insert("n".to_owned(), number.into()); }
        if present[2] { arguments.insert("b".to_owned(), truth.into()); }
        let arguments = Json::from_value(&arguments.into());
        let headers: HeaderMap = rules.mirror(Some(&arguments)).into_iter().collect();
        proptest::prop_assert_eq!(headers.len(), present.iter().filter(|it| **it).count());
        proptest::prop_assert_eq!(rules.check(&headers, Some(&arguments)), Ok(()));
    }
}
