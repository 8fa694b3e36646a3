//! The forms of tools: their fields, what each takes, and what is wrong with an answer (2026-07-28, elicitation,
//! primitive schemas).

use std::fmt::Write as _;

use serde_json::{Map, Number, Value, json};
use url::Url;

use super::json::{Json, Part};

/// A field of a form.
pub(crate) struct Field {
    pub(crate) name: String,
    /// Title and description, as far as the server gives them.
    pub(crate) about: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) default: Option<Value>,
    pub(crate) is_required: bool,
}

/// What a field holds.
pub(crate) enum Kind {
    /// Characters, counted as JSON Schema does.
    Text {
        format: Option<Format>,
        length: Bounds,
    },
    Whole(Range),
    Number(Range),
    YesNo,
    OneOf(Vec<Choice>),
    SomeOf {
        choices: Vec<Choice>,
        count: Bounds,
    },
    /// What these forms do not have; the server's own check is all there is.
    Any,
}

/// How a text is written.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Email,
    Uri,
    Date,
    DateTime,
}

/// How many of something there may be.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds {
    fewest: Option<u64>,
    most: Option<u64>,
}

/// The smallest and the largest number, spelled as the server does.
#[derive(Default)]
pub(crate) struct Range {
    smallest: Option<Number>,
    largest: Option<Number>,
}

/// A value to choose, with its name for people.
pub(crate) struct Choice {
    value: String,
    title: Option<String>,
}

/// Characters of a placeholder at the most.
const LONGEST_PLACEHOLDER: u64 = 64;

/// The fields of a form, in the order in which the server wrote them.
pub(crate) fn fields(params: &Json) -> Vec<Field> {
    let Some(schema) = params.member("requestedSchema") else { return Vec::new() };
    let required: Vec<String> = schema.member("required").and_then(|required| required.read().ok()).unwrap_or_default();
    let Some(properties) = schema.member("properties") else { return Vec::new() };
    let Ok(members) = properties.members() else { return Vec::new() };
    let field = |(name, raw): (&str, Part<'_>)| {
        let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let about = match (text("title"), text("description")) {
            (Some(title), Some(description)) => Some(format!("{title} ({description})")),
            (title, description) => title.or(description).map(str::to_owned),
        };
        let default = value.get("default").cloned();
        let is_required = required.iter().any(|required| required == name);
        Field { name: name.to_owned(), about, kind: Kind::of(&value), default, is_required }
    };
    members.iter().map(field).collect()
}

/// What is wrong with the content of an answer, one line each.
pub(crate) fn faults(fields: &[Field], content: &Map<String, Value>) -> Vec<String> {
    let of_field = |field: &Field| {
        let name = &field.name;
        match content.get(name) {
            None if field.is_required => Some(format!("\"{name}\" is required: {}", field.kind.describe())),
            None => None,
            Some(value) if field.kind.takes(value) => None,
            Some(value) => Some(format!("\"{name}\" must be {}, not {value}", field.kind.describe())),
        }
    };
    let unknown = content.keys().filter(|key| !fields.iter().any(|field| field.name == **key));
    let names = fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
    let unknown = unknown.map(|key| format!("the form has no field \"{key}\"; it has: {names}"));
    fields.iter().filter_map(of_field).chain(unknown).collect()
}

impl Field {
    /// What it takes, whether it must be there, and what it is about.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.kind.describe();
        // Writing into a string cannot fail.
        if self.is_required {
            text.push_str(", required");
        }
        if let Some(default) = &self.default {
            let _ = write!(text, ", default {default}");
        }
        if let Some(about) = &self.about {
            let _ = write!(text, ": {about}");
        }
        text
    }

    /// A value that the field takes.
    pub(crate) fn placeholder(&self) -> Value {
        self.default.clone().filter(|default| self.kind.takes(default)).unwrap_or_else(|| self.kind.placeholder())
    }
}

impl Kind {
    fn of(schema: &Value) -> Self {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let number = |key: &str| schema.get(key).and_then(Value::as_number).cloned();
        let range = || Range { smallest: number("minimum"), largest: number("maximum") };
        if let Some(choices) = choices(schema) {
            return Self::OneOf(choices);
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("integer") => Self::Whole(range()),
            Some("number") => Self::Number(range()),
            Some("boolean") => Self::YesNo,
            Some("array") if items_are_texts(schema) => Self::SomeOf {
                choices: schema.get("items").and_then(choices).unwrap_or_default(),
                count: Bounds { fewest: bound("minItems"), most: bound("maxItems") },
            },
            Some("string") => Self::Text {
                format: schema.get("format").and_then(Value::as_str).and_then(Format::named),
                length: Bounds { fewest: bound("minLength"), most: bound("maxLength") },
            },
            _ => Self::Any,
        }
    }

    /// What it takes, in words.
    pub(crate) fn describe(&self) -> String {
        let listed = |choices: &[Choice]| choices.iter().map(Choice::shown).collect::<Vec<_>>().join(", ");
        match self {
            Self::Text { format, length } => {
                let what = format.map_or("text", Format::describe);
                match (length.fewest, length.most) {
                    (None | Some(0), None) => what.to_owned(),
                    (Some(fewest), None) => format!("{what} of {fewest} characters or more"),
                    (None | Some(0), Some(most)) => format!("{what} of {most} characters at most"),
                    (Some(fewest), Some(most)) => format!("{what} of {fewest} to {most} characters"),
                }
            }
            Self::Whole(range) => format!("a whole number{}", range.describe()),
            Self::Number(range) => format!("a number{}", range.describe()),
            Self::YesNo => "true or false".to_owned(),
            Self::OneOf(choices) => format!("one of {}", listed(choices)),
            Self::SomeOf { choices, count } => {
                let what = if choices.is_empty() { "texts".to_owned() } else { format!("any of {}", listed(choices)) };
                let count = match (count.fewest, count.most) {
                    (None | Some(0), None) => String::new(),
                    (Some(fewest), None) => format!(", at least {fewest}"),
                    (None | Some(0), Some(most)) => format!(", at most {most}"),
                    (Some(fewest), Some(most)) => format!(", {fewest} to {most} of them"),
                };
                format!("a list of {what}{count}")
            }
            Self::Any => "as its schema says".to_owned(),
        }
    }

    /// Whether the server has to take this value.
    pub(crate) fn takes(&self, value: &Value) -> bool {
        let is_choice = |choices: &[Choice], text: &str| choices.iter().any(|choice| choice.value == text);
        match (self, value) {
            (Self::Text { format, length }, Value::String(text)) => {
                length.hold(text.chars().count()) && format.is_none_or(|format| format.is_of(text))
            }
            (Self::Whole(range), Value::Number(number)) => is_whole(number) && range.holds(number),
            (Self::Number(range), Value::Number(number)) => range.holds(number),
            (Self::YesNo, Value::Bool(_)) | (Self::Any, _) => true,
            (Self::OneOf(choices), Value::String(text)) => is_choice(choices, text),
            (Self::SomeOf { choices, count }, Value::Array(items)) => {
                let fits = |text: &str| choices.is_empty() || is_choice(choices, text);
                count.hold(items.len()) && items.iter().all(|item| item.as_str().is_some_and(fits))
            }
            _ => false,
        }
    }

    /// The value that a typed line stands for.
    pub(crate) fn read(&self, line: &str) -> Option<Value> {
        let value = match self {
            Self::Text { .. } | Self::OneOf(_) => Some(line.into()),
            // As it was typed, so that nothing is rounded on the way to the check.
            Self::Whole(_) | Self::Number(_) => serde_json::from_str::<Value>(line).ok(),
            Self::YesNo => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Some(true.into()),
                "n" | "no" | "false" => Some(false.into()),
                _ => None,
            },
            Self::Any => Some(serde_json::from_str::<Value>(line).unwrap_or_else(|_| line.into())),
            Self::SomeOf { .. } => {
                Some(line.split(',').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().into())
            }
        };
        value.filter(|value| self.takes(value))
    }

    fn placeholder(&self) -> Value {
        match self {
            Self::Text { format: Some(format), .. } => format.example().into(),
            Self::Text { format: None, length } => {
                let length = length.fewest.unwrap_or(0).max(3).min(length.most.unwrap_or(LONGEST_PLACEHOLDER));
                ".".repeat(usize::try_from(length.min(LONGEST_PLACEHOLDER)).unwrap_or_default()).into()
            }
            Self::Whole(range) => {
                let near = range.nearest_to_zero();
                if is_whole(&near) { near.into() } else { json!(near.as_f64().unwrap_or_default().ceil()) }
            }
            Self::Number(range) => range.nearest_to_zero().into(),
            Self::YesNo => false.into(),
            Self::Any => "...".into(),
            Self::OneOf(choices) => choices.first().map_or(Value::Null, |choice| choice.value.as_str().into()),
            Self::SomeOf { choices, count } => {
                let wanted = count.fewest.unwrap_or(1).max(1).min(count.most.unwrap_or(u64::MAX));
                let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
                choices.iter().take(wanted).map(|choice| choice.value.as_str()).collect::<Vec<_>>().into()
            }
        }
    }
}

impl Format {
    fn named(name: &str) -> Option<Self> {
        match name {
            "email" => Some(Self::Email),
            "uri" => Some(Self::Uri),
            "date" => Some(Self::Date),
            "date-time" => Some(Self::DateTime),
            // JSON Schema has more; what is not known cannot be checked.
            _ => None,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Email => "an e-mail address",
            Self::Uri => "a URL",
            Self::Date => "a date such as 2026-01-31",
            Self::DateTime => "a date and time such as 2026-01-31T12:00:00Z",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Email => "ann@example.com",
            Self::Uri => "https://example.com/",
            Self::Date => "2026-01-31",
            Self::DateTime => "2026-01-31T12:00:00Z",
        }
    }

    /// Whether `text` looks like it. The server has the last word.
    fn is_of(self, text: &str) -> bool {
        let is_date = |text: &str| humantime::parse_rfc3339(&format!("{text}T00:00:00Z")).is_ok();
        match self {
            Self::Email => {
                let parts = text.split_once('@');
                parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !host.contains('@'))
                    && !text.contains(char::is_whitespace)
            }
            Self::Uri => Url::parse(text).is_ok(),
            Self::Date => is_date(text),
            Self::DateTime => {
                text.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && time.contains(':'))
            }
        }
    }
}

impl Bounds {
    fn hold(self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.fewest.is_none_or(|fewest| count >= fewest) && self.most.is_none_or(|most| count <= most)
    }
}

impl Range {
    fn describe(&self) -> String {
        match (&self.smallest, &self.largest) {
            (None, None) => String::new(),
            (Some(smallest), None) => format!(", {smallest} or more"),
            (None, Some(largest)) => format!(", {largest} or less"),
            (Some(smallest), Some(largest)) => format!(", {smallest} to {largest}"),
        }
    }

    fn holds(&self, number: &Number) -> bool {
        let compared = |bound: &Option<Number>| Some((number.as_f64()?, bound.as_ref()?.as_f64()?));
        compared(&self.smallest).is_none_or(|(number, smallest)| number >= smallest)
            && compared(&self.largest).is_none_or(|(number, largest)| number <= largest)
    }

    fn nearest_to_zero(&self) -> Number {
        let zero = Number::from(0);
        if self.holds(&zero) {
            return zero;
        }
        let is_below = self.largest.as_ref().and_then(Number::as_f64).is_some_and(|largest| largest < 0.0);
        let nearest = if is_below { &self.largest } else { &self.smallest };
        nearest.clone().unwrap_or(zero)
    }
}

impl Choice {
    fn shown(&self) -> String {
        match &self.title {
            Some(title) if *title != self.value => on_one_line(&format!("{} ({title})", self.value)),
            _ => on_one_line(&self.value),
        }
    }
}

fn items_are_texts(schema: &Value) -> bool {
    schema.pointer("/items/type").is_none_or(|kind| kind == "string")
}

/// A server may send anything.
fn on_one_line(text: &str) -> String {
    text.chars().filter(|sign| !sign.is_control()).collect()
}

fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// The values that a schema lists: `enum` (with `enumNames` of 2025-06-18), or `const` in `oneOf` or `anyOf`.
fn choices(schema: &Value) -> Option<Vec<Choice>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let choices: Vec<Choice> = if let Some(listed) = schema.get("enum").and_then(Value::as_array) {
        let names = schema.get("enumNames").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let choice =
            |(at, value): (usize, &Value)| Some(Choice { value: text(value)?, title: names.get(at).and_then(text) });
        listed.iter().enumerate().filter_map(choice).collect()
    } else {
        let titled = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array)?;
        let choice = |choice: &Value| {
            Some(Choice { value: text(choice.get("const")?)?, title: choice.get("title").and_then(text) })
        };
        titled.iter().filter_map(choice).collect()
    };
    // Where none can be read, the server's own check is all there is.
    (!choices.is_empty()).then_some(choices)
}
