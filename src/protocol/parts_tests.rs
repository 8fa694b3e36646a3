//! What is cut up is what `serde_json` reads.

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::*;

/// Any JSON value, spelled with white space in odd places.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i16>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        "[\\x20-\\x7e\\n\"\\\\{}\\[\\],:\u{e9}\u{2028}]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-c\"\\\\}\u{e9}]*", inner), 0..6)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

fn spelled(value: &Value, pretty: bool) -> String {
    if pretty { serde_json::to_string_pretty(value).unwrap() } else { value.to_string() }
}

proptest! {
    #[test]
    fn members_and_elements_are_those_that_serde_reads(value in value(), pretty in any::<bool>()) {
        let text = spelled(&value, pretty);
        match &value {
            Value::Object(object) => {
                let members = Members::of(text.as_bytes()).unwrap();
                let shown: Vec<_> = members.iter().map(|(name, part)| (name.to_owned(), part.get().to_owned())).collect();
                let read: Vec<_> = object.keys().cloned().collect();
                prop_assert_eq!(shown.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), read);
                for (name, part) in shown {
                    prop_assert_eq!(&serde_json::from_str::<Value>(&part).unwrap(), &object[&name]);
                    prop_assert_eq!(part.trim(), &part);
                }
            }
            Value::Array(_) => {
                let elements: Vec<_> = Elements::of(text.as_bytes()).unwrap().iter().map(Part::get).collect();
                let read: Vec<&RawValue> = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(elements, read.into_iter().map(RawValue::get).collect::<Vec<_>>());
            }
            _ => {
                prop_assert!(Members::of(text.as_bytes()).is_err());
                prop_assert!(Elements::of(text.as_bytes()).is_err());
            }
        }
    }

    #[test]
    fn text_of_any_kind_is_cut_up_without_a_panic(text in "[\\[\\]{}:,\"\\\\a1 \n\u{e9}]*") {
        let _ = Members::of(text.as_bytes());
        let _ = Elements::of(text.as_bytes());
        let _ = is_flat(text.as_bytes(), 2);
    }
}

proptest! {
    #[test]
    fn the_next_mark_is_the_first(text in "[a-d\"\\\\!#\\[\\]\u{a2}\u{e9}]{0,120}", from in 0_usize..130) {
        let text = text.as_bytes();
        let first = text.iter().skip(from).position(|byte| matches!(byte, b'"' | b'\\')).map(|at| at + from);
        prop_assert_eq!(next_mark(text, from), first);
    }

    #[test]
    fn a_part_that_is_a_string_says_what_serde_reads(value in value(), pretty in any::<bool>()) {
        let text = spelled(&value, pretty);
        let said = Part(text.as_bytes()).string();
        prop_assert_eq!(said.as_deref(), value.as_str());
    }
}

proptest! {
    #[test]
    fn an_object_is_too_deep_exactly_where_its_text_is(value in value(), limit in 0_usize..6) {
        let text = spelled(&value, false);
        if value.is_object() {
            let read = Members::within(text.as_bytes(), limit);
            // An empty object has no member that could be too deep.
            let is_flat = is_flat(text.as_bytes(), limit.max(1));
            prop_assert_eq!(matches!(read, Err(JsonError::TooDeep { .. })), !is_flat, "{}", text);
        }
    }
}

#[test]
fn a_name_that_cannot_be_decoded_is_an_error_with_its_place() {
    let Err(JsonError::Syntax(error)) = Members::of(b"{\"a\":1,\n \"\\ud800\":2}") else { panic!() };
    assert_eq!(error.line(), 2);
}

#[test]
fn white_space_of_every_kind_stands_outside_of_parts() {
    let text = " \t{ \"a\" :\r\n[ 1 ,2 ] , \"b\"\t: 3 }\n";
    let members = Members::of(text.as_bytes()).unwrap();
    let shown: Vec<_> = members.iter().map(|(name, part)| (name, part.get())).collect();
    assert_eq!(shown, [("a", "[ 1 ,2 ]"), ("b", "3")]);
    assert!(Members::of(b" { } ").unwrap().is_empty());
    assert_eq!(Elements::of(b" [ ] ").unwrap().iter().count(), 0);
}
