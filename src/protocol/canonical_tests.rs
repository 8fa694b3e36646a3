use std::fmt::Write as _;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

fn of(text: &str) -> String {
    let json = Json::parse(Bytes::from(text.to_owned())).unwrap_or_else(|error| panic!("{text}: {error}"));
    String::from_utf8(canonical(&json)).unwrap()
}

#[test]
fn texts_that_say_the_same_have_one_spelling() {
    let cases: [(&str, &[&str]); 12] = [
        ("{}", &["{ }", "\n{\t}\r"]),
        (r#"{"a":1,"b":[1,2]}"#, &[r#"{"b": [1 , 2], "a": 1}"#, r#"{"\u0062":[1,2],"\u0061":1}"#]),
        (r#"{"a":{"x":1,"y":2},"b":1}"#, &[r#"{"b":1,"a":{"y":2,"x":1}}"#]),
        (r#""é€\n\u000f\"\\""#, &[r#""\u00e9\u20AC\u000a\u000F\u0022\u005c""#]),
        (r#""/""#, &[r#""\/""#]),
        (r#""😀""#, &[r#""\ud83d\ude00""#, r#""\uD83D\uDE00""#]),
        ("1", &["1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000"]),
        ("12e2", &["1200", "1.2e3", "0.12E4", "1200.0"]),
        ("-15e-1", &["-1.5", "-15e-1", "-0.15e1"]),
        ("0", &["-0", "0.0", "0e5", "-0.0E-7"]),
        ("true", &[" true "]),
        ("null", &["null"]),
    ];
    for (canonical, others) in cases {
        assert_eq!(of(canonical), canonical);
        for other in others {
            assert_eq!(of(other), canonical, "{other}");
        }
    }
}

#[test]
fn members_are_in_the_order_of_the_rfc() {
    // RFC 8785, 3.2.3: by UTF-16 code units, so a pair of surrogates comes before U+FB33.
    let text = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
    assert_eq!(of(text), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}");
}

#[test]
fn texts_that_say_something_else_differ() {
    let texts = [
        "{}",
        "[]",
        "null",
        "\"null\"",
        "0",
        "\"0\"",
        "1",
        "-1",
        "9007199254740992",
        "9007199254740993",
        "0.1",
        "0.1000000000000000055511151231257827",
        "1e400",
        "1e401",
        "-1e400",
        "1e-400",
        "1e99999999999999999999",
        "1e99999999999999999998",
        "[1,2]",
        "[2,1]",
        "[[1],2]",
        "[[1,2]]",
        "[12]",
        r#"{"a":1}"#,
        r#"{"a":null}"#,
        r#"{"A":1}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":2,"a":1}"#,
        r#"{"a":2}"#,
        r#"{"a":"1"}"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":{},"b":1}"#,
        r#""a""#,
        r#""a ""#,
        r#""\ud800""#,
        r#""\ud801""#,
        r#""\\ud800""#,
    ];
    for (at, one) in texts.iter().enumerate() {
        for other in &texts[at + 1..] {
            assert_ne!(of(one), of(other), "{one} {other}");
        }
    }
}

/// Any JSON value.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(vec![0.5, -2.25, 1e300, 1e-7, 1e21]).prop_map(Value::from),
        "\\PC{0,4}|[\"\\\\\n\u{1}]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c\"é😀]{0,2}", inner, 0..4)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The value in another spelling: members in another order, white space, escapes.
fn spelled(value: &Value, out: &mut String) {
    let text = |text: &str, out: &mut String| {
        out.push('"');
        for unit in text.encode_utf16() {
            write!(out, "\\u{unit:04X}").unwrap();
        }
        out.push('"');
    };
    match value {
        Value::Object(members) => {
            out.push_str("{ ");
            for (at, (name, member)) in members.iter().rev().enumerate() {
                out.push_str(if at > 0 { " ,\t" } else { "" });
                text(name, out);
                out.push_str("\n: ");
                spelled(member, out);
            }
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at > 0 { "\r, " } else { "" });
                spelled(element, out);
            }
            out.push_str(" ]");
        }
        Value::String(string) => text(string, out),
        Value::Number(number) if number.is_i64() => write!(out, "{number}0e-1").unwrap(),
        other => out.push_str(&other.to_string()),
    }
}

proptest! {
    #[test]
    fn order_white_space_and_escapes_do_not_matter(value in values()) {
        let mut other = String::new();
        spelled(&value, &mut other);
        prop_assert_eq!(of(&value.to_string()), of(&other));
    }

    #[test]
    fn everything_else_matters(one in values(), other in values()) {
        prop_assert_eq!(of(&one.to_string()) == of(&other.to_string()), one == other);
    }

    #[test]
    fn the_canonical_text_says_what_the_text_says(value in values()) {
        let once = of(&value.to_string());
        prop_assert_eq!(&of(&once), &once);
        let read: Value = serde_json::from_str(&once).unwrap();
        prop_assert_eq!(flat(&read), flat(&value));
    }
}

/// The value with all its numbers as floats.
fn flat(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(elements) => elements.iter().map(flat).collect(),
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), flat(member))).collect(),
        other => other.clone(),
    }
}

#[test]
fn deep_objects_in_reverse_order_are_sorted_at_every_level() {
    const LEVELS: usize = 60;
    let (mut text, mut expected) = ("1".to_owned(), "1".to_owned());
    for level in 0..LEVELS {
        text = format!(r#"{{"z":{level},"m":[{{"b":2,"a":{text}}},{{"d":1,"c":2}}],"a":0}}"#);
        let level = level.to_string();
        let mut number = Vec::new();
        super::number(level.as_bytes(), &mut number);
        let number = String::from_utf8(number).unwrap();
        expected = format!(r#"{{"a":0,"m":[{{"a":{expected},"b":2}},{{"c":2,"d":1}}],"z":{number}}}"#);
    }
    let json = Json::parse(text.into_bytes().into()).unwrap();
    assert_eq!(String::from_utf8(canonical(&json)).unwrap(), expected);
}
