//! Whoever sits at the terminal, asked what tools want to know (2026-07-28, elicitation).

use std::io::{IsTerminal, Write};

use serde_json::{Map, Value, json};

use super::super::terminal::{plain, say};
use super::view::Asked;
use crate::protocol::Json;
use crate::protocol::json::Part;

/// Who may answer questions.
#[derive(Debug)]
pub(crate) enum Person {
    /// Somebody at a terminal.
    Here,
    /// Nobody: stdin is no terminal.
    Away,
    /// Somebody who says these lines, for tests.
    #[cfg(test)]
    Says(std::collections::VecDeque<&'static str>),
}

/// A field of a form.
struct Field {
    name: String,
    title: String,
    kind: Kind,
    default: Option<Value>,
    is_required: bool,
}

/// What a field holds (2025-11-25 and 2026-07-28, elicitation, primitive schemas).
enum Kind {
    Text,
    Whole,
    Number,
    YesNo,
    OneOf(Vec<String>),
    SomeOf(Vec<String>),
}

/// What is typed to say no.
const DECLINE: &str = "!decline";

impl Person {
    /// Whoever sits at the terminal of this process.
    pub(crate) fn of_process() -> Self {
        if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() { Self::Here } else { Self::Away }
    }

    /// Whether somebody is there.
    pub(crate) fn is_here(&self) -> bool {
        !matches!(self, Self::Away)
    }

    /// Whether all of these can be answered.
    pub(crate) fn can_answer(&self, asked: &[Asked]) -> bool {
        self.is_here() && asked.iter().all(|asked| asked.method == "elicitation/create")
    }

    /// The answers, under their keys.
    pub(crate) async fn answer(&mut self, asked: &[Asked]) -> Json {
        let mut responses = Map::new();
        for asked in asked {
            responses.insert(asked.key.clone(), self.fill(asked).await);
        }
        Json::from_value(&responses.into())
    }

    async fn fill(&mut self, asked: &Asked) -> Value {
        say(&format!("\nThe tool asks: {}", plain(&asked.message())));
        say(&format!("({DECLINE} says no; Ctrl-D closes the question without an answer)"));
        let text = |name: &str| asked.params.member(name).and_then(|value| value.read::<String>().ok());
        if text("mode").as_deref() == Some("url") {
            let url = plain(&text("url").unwrap_or_default());
            return match self.line(&format!("Open {url} and press Enter when you have: ")).await {
                None => json!({ "action": "cancel" }),
                Some(line) if line.trim() == DECLINE => json!({ "action": "decline" }),
                Some(_) => json!({ "action": "accept" }),
            };
        }
        let mut content = Map::new();
        for field in fields(&asked.params) {
            match self.field(&field).await {
                Typed::Value(value) => {
                    content.insert(field.name, value);
                }
                Typed::Nothing => {}
                Typed::Decline => return json!({ "action": "decline" }),
                Typed::Cancel => return json!({ "action": "cancel" }),
            }
        }
        json!({ "action": "accept", "content": content })
    }

    async fn field(&mut self, field: &Field) -> Typed {
        let hint = field.kind.hint();
        let default = field.default.as_ref().map(|value| format!(" [{}]", plain(&shown(value)))).unwrap_or_default();
        let optional = if field.is_required || field.default.is_some() { "" } else { ", may be left empty" };
        let prompt = format!("{}{hint}{optional}{default}: ", plain(&field.title));
        loop {
            let Some(line) = self.line(&prompt).await else { return Typed::Cancel };
            let line = line.trim();
            match (line, &field.default) {
                (DECLINE, _) => return Typed::Decline,
                ("", Some(default)) => return Typed::Value(default.clone()),
                ("", None) if !field.is_required => return Typed::Nothing,
                _ => {}
            }
            match field.kind.read(line).filter(|_| !line.is_empty()) {
                Some(value) => return Typed::Value(value),
                None => say(&format!("That is not what is asked for{hint}.")),
            }
        }
    }

    /// A line that is typed; `None` at the end of input. The read goes on in the background if this is dropped.
    async fn line(&mut self, prompt: &str) -> Option<String> {
        match self {
            Self::Away => None,
            Self::Here => {
                let mut out = std::io::stderr().lock();
                // If stderr is gone there is nobody left to ask.
                let _ = out.write_all(prompt.as_bytes()).and_then(|()| out.flush());
                drop(out);
                let read = || {
                    let mut line = String::new();
                    let read = std::io::stdin().read_line(&mut line);
                    read.ok().filter(|bytes| *bytes > 0).map(|_| line)
                };
                tokio::task::spawn_blocking(read).await.ok().flatten()
            }
            #[cfg(test)]
            Self::Says(lines) => lines.pop_front().map(str::to_owned),
        }
    }
}

/// What was typed for a field.
enum Typed {
    Value(Value),
    Nothing,
    Decline,
    Cancel,
}

/// The fields of a form, in the order in which the server wrote them.
fn fields(params: &Json) -> Vec<Field> {
    let Some(schema) = params.member("requestedSchema") else { return Vec::new() };
    let required: Vec<String> = schema.member("required").and_then(|required| required.read().ok()).unwrap_or_default();
    let Some(properties) = schema.member("properties") else { return Vec::new() };
    let Ok(members) = properties.members() else { return Vec::new() };
    let field = |(name, raw): (&str, Part<'_>)| {
        let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let title = match (text("title").unwrap_or(name), text("description")) {
            (title, Some(description)) => format!("{title} ({description})"),
            (title, None) => title.to_owned(),
        };
        let default = value.get("default").cloned();
        let is_required = required.iter().any(|required| required == name);
        Field { name: name.to_owned(), title, kind: Kind::of(&value), default, is_required }
    };
    members.iter().map(field).collect()
}

impl Kind {
    fn of(schema: &Value) -> Self {
        if let Some(choices) = choices(schema) {
            return Self::OneOf(choices);
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("integer") => Self::Whole,
            Some("number") => Self::Number,
            Some("boolean") => Self::YesNo,
            Some("array") => Self::SomeOf(schema.get("items").and_then(choices).unwrap_or_default()),
            _ => Self::Text,
        }
    }

    fn hint(&self) -> String {
        let listed = |choices: &[String]| plain(&choices.join(", "));
        match self {
            Self::Text => String::new(),
            Self::Whole => " (a whole number)".to_owned(),
            Self::Number => " (a number)".to_owned(),
            Self::YesNo => " (yes or no)".to_owned(),
            Self::OneOf(choices) => format!(" (one of {})", listed(choices)),
            Self::SomeOf(choices) => format!(" (any of {}, with commas between)", listed(choices)),
        }
    }

    fn read(&self, line: &str) -> Option<Value> {
        match self {
            Self::Text => Some(line.into()),
            Self::Whole => line.parse::<i64>().ok().map(Value::from),
            // As it was typed, so that nothing is rounded on the way to the check.
            Self::Number => serde_json::from_str::<Value>(line).ok().filter(Value::is_number),
            Self::YesNo => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Some(true.into()),
                "n" | "no" | "false" => Some(false.into()),
                _ => None,
            },
            Self::OneOf(choices) => choices.iter().find(|choice| *choice == line).map(|choice| choice.as_str().into()),
            Self::SomeOf(choices) => {
                let chosen: Vec<&str> = line.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
                chosen.iter().all(|part| choices.iter().any(|choice| choice == part)).then(|| chosen.into())
            }
        }
    }
}

/// The values that a schema lists: `enum`, or `const` in `oneOf` or `anyOf`.
fn choices(schema: &Value) -> Option<Vec<String>> {
    let listed = schema.get("enum").and_then(Value::as_array);
    if let Some(listed) = listed {
        return Some(listed.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    }
    let titled = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array)?;
    Some(titled.iter().filter_map(|choice| choice.get("const")?.as_str()).map(str::to_owned).collect())
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(params: Value) -> Asked {
        let (key, method) = ("k".to_owned(), "elicitation/create".to_owned());
        Asked { key, method, params: Json::from_value(&params) }
    }

    async fn said(params: Value, lines: &[&'static str]) -> Value {
        let mut person = Person::Says(lines.iter().copied().collect());
        let answers = person.answer(&[asked(params)]).await;
        answers.read::<Value>().unwrap()["k"].take()
    }

    fn form() -> Value {
        json!({ "message": "?", "requestedSchema": {
            "type": "object",
            "properties": {
                "name": { "type": "string", "title": "Your name" },
                "age": { "type": "integer" },
                "size": { "type": "string", "enum": ["s", "m"], "default": "m" },
                "tags": { "type": "array", "items": { "anyOf": [{ "const": "a" }, { "const": "b" }] } },
                "sure": { "type": "boolean" },
            },
            "required": ["name", "sure"],
        } })
    }

    #[tokio::test]
    async fn a_form_is_filled_in_field_by_field_and_wrong_input_is_asked_again() {
        // Fields come in the order of their names here, since that is how this test writes them.
        let lines = ["old", "", "", "Ann", "x", "s", "perhaps", "yes", "a, c", "a, b"];
        let content = json!({ "name": "Ann", "size": "s", "sure": true, "tags": ["a", "b"] });
        assert_eq!(said(form(), &lines).await, json!({ "action": "accept", "content": content }));
    }

    #[tokio::test]
    async fn a_question_can_be_declined_or_left() {
        assert_eq!(said(form(), &["7", "!decline"]).await, json!({ "action": "decline" }));
        assert_eq!(said(form(), &["7"]).await, json!({ "action": "cancel" }));
        let url = || json!({ "mode": "url", "message": "?", "url": "https://a/" });
        assert_eq!(said(url(), &["\n"]).await, json!({ "action": "accept" }));
        assert_eq!(said(url(), &["!decline"]).await, json!({ "action": "decline" }));
        assert_eq!(said(json!({}), &[]).await, json!({ "action": "accept", "content": {} }));
    }

    #[test]
    fn only_somebody_who_is_there_can_answer_and_only_elicitations() {
        let form = asked(json!({}));
        let sampling = Asked { method: "sampling/createMessage".to_owned(), ..form.clone() };
        assert!(Person::Here.can_answer(std::slice::from_ref(&form)));
        assert!(!Person::Here.can_answer(&[form.clone(), sampling]));
        assert!(!Person::Away.can_answer(&[form]));
    }
}
