//! Answers to the questions of a task: how one is written, and whether one is right (2026-07-28, `inputResponses`).

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::super::terminal::{one_line, plain};
use super::view::Asked;
use crate::protocol::Json;
use crate::protocol::form::{faults, fields};
use crate::protocol::rope::ObjectWriter;

/// Characters of what is said about one field.
const LONGEST: usize = 300;

/// The questions of a task, what each field takes, and a command that answers.
pub(crate) fn how_to_answer(id: &str, asked: &[Asked]) -> String {
    asked.iter().map(|asked| question(id, asked)).collect()
}

fn question(id: &str, asked: &Asked) -> String {
    let (key, method) = (one_line(&asked.key, 64), one_line(&asked.method, 64));
    // Writing into a string cannot fail.
    let mut text = format!("\n{key} ({method}): {}", one_line(&asked.message(), LONGEST));
    if let Some(url) = asked.url() {
        let _ = write!(text, "\n  open {}", one_line(&url, 2000));
    }
    let fields = if asked.is_form() { fields(&asked.params) } else { Vec::new() };
    let widest = fields.iter().map(|field| field.name.chars().count()).max().unwrap_or_default().min(40);
    for field in &fields {
        let name = one_line(&field.name, 64);
        let _ = write!(text, "\n  {name:widest$}  {}", one_line(&field.describe(), LONGEST));
    }
    let answer = example(asked);
    // The line is there to be copied, and the key may be anything.
    let quoted = |text: &str| format!("'{}'", plain(text).replace('\'', "'\\''"));
    let _ = write!(text, "\n  raincheck task answer {id} {} {}", quoted(&asked.key), quoted(&answer));
    text
}

/// What is wrong with an answer, and nothing where it can be sent.
pub(crate) fn check_answer(asked: &Asked, answer: &Json) -> Vec<String> {
    let answer: Map<String, Value> = answer.read().unwrap_or_default();
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    let missing = |name: &str, what: &str| format!("\"{name}\" is missing: {what}");
    match asked.method.as_str() {
        "elicitation/create" => elicited(asked, &answer),
        "sampling/createMessage" => {
            let mut wrong = Vec::new();
            if !matches!(text("role"), Some("assistant" | "user")) {
                wrong.push("\"role\" must be \"assistant\"".to_owned());
            }
            if !answer.get("content").is_some_and(|content| content.is_object() || content.is_array()) {
                wrong.push(missing("content", "the message, such as {\"type\":\"text\",\"text\":\"...\"}"));
            }
            if text("model").is_none() {
                wrong.push(missing("model", "the name of the model that wrote the message"));
            }
            wrong
        }
        "roots/list" => {
            let roots = answer.get("roots").and_then(Value::as_array);
            let is_root = |root: &Value| root.get("uri").is_some_and(Value::is_string);
            match roots {
                Some(roots) if roots.iter().all(is_root) => Vec::new(),
                Some(_) => vec!["every one of \"roots\" has a \"uri\"".to_owned()],
                None => vec![missing("roots", "a list such as [{\"uri\":\"file:///home/ann\"}]")],
            }
        }
        // Nothing is known of what else may be asked.
        _ => Vec::new(),
    }
}

fn elicited(asked: &Asked, answer: &Map<String, Value>) -> Vec<String> {
    let actions = "\"accept\", \"decline\" or \"cancel\"";
    let accepts = match answer.get("action") {
        None => return vec![format!("\"action\" is missing: it is {actions}")],
        Some(action) => match action.as_str() {
            Some("accept") => true,
            Some("decline" | "cancel") => false,
            _ => return vec![format!("\"action\" is {actions}, not {action}")],
        },
    };
    match (answer.get("content"), accepts && asked.is_form()) {
        (Some(Value::Object(content)), true) => faults(&fields(&asked.params), content),
        (None, true) => faults(&fields(&asked.params), &Map::new()),
        (Some(_), true) => vec!["\"content\" must be a JSON object with the fields of the form".to_owned()],
        (None | Some(Value::Null), false) => Vec::new(),
        (Some(_), false) if accepts => vec!["a question with a URL takes no \"content\"".to_owned()],
        (Some(_), false) => vec!["\"content\" goes with \"accept\" only".to_owned()],
    }
}

/// An answer with a value of the right type in every field, in the form's order.
fn example(asked: &Asked) -> String {
    let text = match asked.method.as_str() {
        "sampling/createMessage" => {
            r#"{"role":"assistant","content":{"type":"text","text":"..."},"model":"..."}"#.to_owned()
        }
        "roots/list" => r#"{"roots":[{"uri":"file:///..."}]}"#.to_owned(),
        _ if !asked.is_form() => r#"{"action":"accept"}"#.to_owned(),
        _ => {
            let mut content = ObjectWriter::new();
            for field in fields(&asked.params) {
                content.raw(&field.name, &Json::from_value(&field.placeholder()));
            }
            let mut answer = ObjectWriter::new();
            answer.string("action", "accept").raw("content", &content.finish_json());
            answer.finish_json().as_str().to_owned()
        }
    };
    // In JSON a control character may be spelled, so nothing is lost on a terminal.
    let spelled = |sign: char| if sign.is_control() { format!("\\u{:04x}", u32::from(sign)) } else { sign.to_string() };
    text.chars().map(spelled).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(method: &str, params: &Value) -> Asked {
        Asked { key: "k".to_owned(), method: method.to_owned(), params: Json::from_value(params) }
    }

    fn form(field: Value) -> Asked {
        asked("elicitation/create", &json!({ "requestedSchema": { "properties": { "f": field }, "required": ["f"] } }))
    }

    #[test]
    fn every_example_passes_the_check_of_its_own_question() {
        let fields = [
            json!({ "type": "string" }),
            json!({ "type": "string", "minLength": 5, "maxLength": 7 }),
            json!({ "type": "string", "maxLength": 1 }),
            json!({ "type": "string", "format": "email" }),
            json!({ "type": "string", "format": "uri" }),
            json!({ "type": "string", "format": "date" }),
            json!({ "type": "string", "format": "date-time" }),
            json!({ "type": "string", "enum": ["a\u{1b}", "b"], "enumNames": ["A", "B"] }),
            json!({ "type": "integer", "minimum": 1.5 }),
            json!({ "type": "integer", "maximum": -3 }),
            json!({ "type": "number", "minimum": 0.25, "maximum": 0.5 }),
            json!({ "type": "number", "default": 7 }),
            json!({ "type": "boolean" }),
            json!({ "type": "array", "items": { "enum": ["a", "b", "c"] }, "minItems": 2 }),
            json!({ "type": "array", "items": { "anyOf": [{ "const": "a" }] }, "maxItems": 0 }),
            json!({ "type": "array", "items": { "type": "string" } }),
            json!({}),
        ];
        let questions = fields.into_iter().map(form).chain([
            asked("elicitation/create", &json!({ "mode": "url", "url": "https://h/" })),
            asked("sampling/createMessage", &json!({})),
            asked("roots/list", &json!({})),
        ]);
        for asked in questions {
            let text = example(&asked);
            let answer = Json::parse(text.clone().into()).unwrap();
            assert_eq!(check_answer(&asked, &answer), Vec::<String>::new(), "{text} for {asked:?}");
        }
    }

    #[test]
    fn answers_to_other_questions_than_forms_are_checked_too() {
        let cases = [
            ("sampling/createMessage", json!({ "action": "accept" }), 3),
            ("roots/list", json!({ "roots": [{ "url": "file:///" }] }), 1),
            ("roots/list", json!({}), 1),
            ("something/else", json!({}), 0),
        ];
        for (method, answer, count) in cases {
            let found = check_answer(&asked(method, &json!({})), &Json::from_value(&answer));
            assert_eq!(found.len(), count, "{method}: {found:?}");
        }
        let url = asked("elicitation/create", &json!({ "mode": "url", "url": "https://h/" }));
        let content = Json::from_value(&json!({ "action": "accept", "content": {} }));
        assert_eq!(check_answer(&url, &content).len(), 1);
    }

    #[test]
    fn a_question_cannot_steer_the_terminal_or_break_out_of_its_quotes() {
        let asked =
            Asked { key: "a'\u{1b}[2J; rm".to_owned(), ..form(json!({ "type": "string", "default": "'\u{9b}" })) };
        let text = how_to_answer("t", &[asked]);
        assert!(!text.contains(['\u{1b}', '\u{9b}']), "{text:?}");
        assert!(text.ends_with(r#"'a'\''[2J; rm' '{"action":"accept","content":{"f":"'\''\u009b"}}'"#), "{text}");
    }
}
