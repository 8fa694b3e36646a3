//! Whoever sits at the terminal, asked what tools want to know (2026-07-28, elicitation).

use std::io::{IsTerminal, Write};

use serde_json::{Map, Value, json};

use super::super::terminal::{plain, say};
use super::view::Asked;
use crate::protocol::Json;
use crate::protocol::form::{Field, Kind, fields};

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
        self.is_here() && asked.iter().all(Asked::is_elicitation)
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
        if let Some(url) = asked.url() {
            let url = plain(&url);
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
        let hint = match (&field.kind, field.kind.describe()) {
            (Kind::Text { .. }, text) if text == "text" => String::new(),
            (Kind::YesNo, _) => " (yes or no)".to_owned(),
            (Kind::SomeOf { .. }, text) => format!(" ({}, with commas between)", plain(&text)),
            (_, text) => format!(" ({})", plain(&text)),
        };
        let default = field.default.as_ref().map(|value| format!(" [{}]", plain(&shown(value)))).unwrap_or_default();
        let optional = if field.is_required || field.default.is_some() { "" } else { ", may be left empty" };
        let prompt = format!("{}{hint}{optional}{default}: ", plain(field.about.as_deref().unwrap_or(&field.name)));
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
