//! Arguments of tools that are mirrored into headers (2026-07-28, Streamable HTTP, custom headers from tool parameters).

use std::collections::HashSet;
use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use serde_json::{Map, Value};

use super::headers::{self, PARAM_PREFIX};
use super::json::{self, Json};

/// Which arguments of one tool are mirrored into which headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules(Vec<HeaderRule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HeaderRule {
    /// The names that lead to the argument, from `arguments` on.
    path: Vec<String>,
    header: HeaderName,
}

/// Why a tool's declarations are invalid; clients must then leave the tool out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleFault {
    /// The definition is no JSON that can be read.
    Unreadable,
    /// A declaration stands where no chain of `properties` leads to; the text says where.
    Unreachable(String),
    /// The value is no name that a header can have.
    Name(String),
    /// The argument is no string, integer or boolean.
    Kind(String),
    /// Two arguments want the same header.
    Repeated(String),
}

/// Why the headers of a call do not say what its arguments say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    header: HeaderName,
    why: &'static str,
}

/// What stands at the place of an argument.
enum Argument {
    Nothing,
    Text(String),
    Number(Json),
    /// An object or an array, which no header can mirror.
    Structure,
}

/// The keyword.
const KEYWORD: &str = "x-mcp-header";
/// Up to here every integer is exact in JavaScript.
const SAFE: f64 = 9_007_199_254_740_991.0;
/// Keywords whose values are data, in which the word would mean nothing.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

impl HeaderRules {
    /// The rules of one tool of a `tools/list` result.
    pub fn of_tool(tool: &Json) -> Result<Self, RuleFault> {
        if memmem::find(tool.bytes(), KEYWORD.as_bytes()).is_none() {
            return Ok(Self::default());
        }
        let Some(schema) = tool.member("inputSchema") else { return Ok(Self::default()) };
        let schema: Value = schema.read().map_err(|_| RuleFault::Unreadable)?;
        let mut rules = Vec::new();
        walk(&schema, Some(&mut Vec::new()), &mut rules)?;
        let mut seen = HashSet::new();
        match rules.iter().find(|rule| !seen.insert(&rule.header)) {
            Some(rule) => Err(RuleFault::Repeated(rule.header.as_str().to_owned())),
            None => Ok(Self(rules)),
        }
    }

    /// The tools of a `tools/list` result that declare headers, with what they declare.
    pub fn of_list(result: &Json) -> Vec<(String, Result<Self, RuleFault>)> {
        if memmem::find(result.bytes(), KEYWORD.as_bytes()).is_none() {
            return Vec::new();
        }
        let Some(tools) = result.member("tools") else { return Vec::new() };
        let Ok(elements) = json::elements(tools.bytes()) else { return Vec::new() };
        let tool = |raw| {
            let tool = Json::of(tools.bytes(), raw);
            let name: String = tool.member("name")?.read().ok()?;
            let rules = Self::of_tool(&tool);
            let plain = rules.as_ref().is_ok_and(Self::is_empty);
            (!plain).then_some((name, rules))
        };
        elements.iter().filter_map(tool).collect()
    }

    /// Whether nothing is mirrored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that `headers` say what `arguments` say, as a server must.
    pub fn check(&self, headers: &HeaderMap, arguments: Option<&Json>) -> Result<(), Mismatch> {
        self.0.iter().try_for_each(|rule| {
            rule.check(headers, arguments).map_err(|why| Mismatch { header: rule.header.clone(), why })
        })
    }

    /// The headers that a client must send beside `arguments`.
    pub fn mirror(&self, arguments: Option<&Json>) -> Vec<(HeaderName, HeaderValue)> {
        let header = |rule: &HeaderRule| {
            let text = match rule.argument(arguments).ok()? {
                Argument::Nothing | Argument::Structure => return None,
                Argument::Text(text) => text,
                Argument::Number(number) => decimal(number.as_str()),
            };
            Some((rule.header.clone(), headers::encode(&text)))
        };
        self.0.iter().filter_map(header).collect()
    }
}

impl HeaderRule {
    fn check(&self, headers: &HeaderMap, arguments: Option<&Json>) -> Result<(), &'static str> {
        let value = headers::single(headers, &self.header).map_err(|_| "appears more than once")?;
        let value = value.map(|value| headers::decode(value.as_bytes())).transpose().map_err(|error| match error {
            headers::ValueError::Characters => "has characters other than visible ASCII, space and tab",
            headers::ValueError::Encoding => "has markers of Base64 with no Base64 of UTF-8 text between them",
        })?;
        let matches = match (self.argument(arguments)?, value) {
            (Argument::Nothing | Argument::Structure, None) => true,
            (Argument::Nothing, Some(_)) => return Err("is there, and the argument that it mirrors is not"),
            (Argument::Text(_) | Argument::Number(_), None) => return Err("is missing"),
            (Argument::Structure, Some(_)) => false,
            (Argument::Text(text), Some(value)) => text == value,
            (Argument::Number(number), Some(value)) => same_number(number.as_str(), &value),
        };
        if matches { Ok(()) } else { Err("does not match the body") }
    }

    fn argument(&self, arguments: Option<&Json>) -> Result<Argument, &'static str> {
        let Some(mut value) = arguments.cloned() else { return Ok(Argument::Nothing) };
        for name in &self.path {
            if !value.is_object() {
                return Ok(Argument::Nothing);
            }
            // Two readers could read two different values.
            let members = value.members().map_err(|_| "mirrors arguments that cannot be read, or repeat a name")?;
            let member = members.get(name).map(|raw| Json::of(value.bytes(), raw));
            drop(members);
            let Some(member) = member else { return Ok(Argument::Nothing) };
            value = member;
        }
        Ok(match value.bytes().first() {
            Some(b'"') => Argument::Text(value.read().map_err(|_| "mirrors an argument that is no text")?),
            Some(b't' | b'f') => Argument::Text(value.as_str().to_owned()),
            Some(b'-' | b'0'..=b'9') => Argument::Number(value),
            Some(b'{' | b'[') => Argument::Structure,
            _ => Argument::Nothing,
        })
    }
}

/// Looks for declarations in a schema. `path` leads to it by `properties` alone, else there is none.
fn walk(schema: &Value, mut path: Option<&mut Vec<String>>, rules: &mut Vec<HeaderRule>) -> Result<(), RuleFault> {
    let members = match schema {
        Value::Object(members) => members,
        Value::Array(elements) => return elements.iter().try_for_each(|element| walk(element, None, rules)),
        _ => return Ok(()),
    };
    if let Some(declared) = members.get(KEYWORD) {
        let path = path.as_deref().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| RuleFault::Unreachable(shown(declared)))?;
        rules.push(HeaderRule { header: header(declared)?, path: path.clone() });
        if !is_primitive(members) {
            return Err(RuleFault::Kind(shown(declared)));
        }
    }
    for (keyword, value) in members.iter().filter(|(keyword, _)| !DATA.contains(&keyword.as_str())) {
        match value {
            // The members of these are schemas by names of the tool's own.
            Value::Object(named) if keyword == "properties" => {
                for (name, value) in named {
                    match path.as_deref_mut() {
                        Some(path) => {
                            path.push(name.clone());
                            walk(value, Some(path), rules)?;
                            path.pop();
                        }
                        None => walk(value, None, rules)?,
                    }
                }
            }
            Value::Object(named) if is_map(keyword) => named.values().try_for_each(|value| walk(value, None, rules))?,
            _ => walk(value, None, rules)?,
        }
    }
    Ok(())
}

fn is_map(keyword: &str) -> bool {
    matches!(keyword, "$defs" | "definitions" | "patternProperties" | "dependentSchemas")
}

fn header(declared: &Value) -> Result<HeaderName, RuleFault> {
    let name = declared.as_str().filter(|name| !name.is_empty());
    let header = name.and_then(|name| HeaderName::from_bytes(format!("{PARAM_PREFIX}{name}").as_bytes()).ok());
    header.ok_or_else(|| RuleFault::Name(shown(declared)))
}

/// A string, an integer or a boolean, or `null` beside one of these.
fn is_primitive(schema: &Map<String, Value>) -> bool {
    let primitive = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(primitive) && kinds.iter().all(|kind| primitive(kind) || kind == "null")
        }
        Some(kind) => primitive(kind),
        None => false,
    }
}

fn shown(declared: &Value) -> String {
    declared.to_string().chars().take(64).collect()
}

/// An integer in plain digits; any other number as it is spelled.
fn decimal(number: &str) -> String {
    if number.parse::<i128>().is_ok() {
        return number.to_owned();
    }
    match number.parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && value.abs() <= SAFE => format!("{value:.0}"),
        _ => number.to_owned(),
    }
}

/// `42.0` and `42` are equal (2026-07-28, Streamable HTTP, server validation).
fn same_number(body: &str, header: &str) -> bool {
    if body == header {
        return true;
    }
    if !header.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return false;
    }
    if let (Ok(body), Ok(header)) = (body.parse::<i128>(), header.parse::<i128>()) {
        return body == header;
    }
    match (body.parse::<f64>(), header.parse::<f64>()) {
        (Ok(body), Ok(header)) => body.is_finite() && body.to_bits() == header.to_bits(),
        _ => false,
    }
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("the schema of the tool cannot be read"),
            Self::Unreachable(name) => write!(f, "x-mcp-header {name} is not on a property that `properties` lead to"),
            Self::Name(name) => write!(f, "x-mcp-header {name} is no name that a header can have"),
            Self::Kind(name) => write!(f, "x-mcp-header {name} is on a property that is no string, integer or boolean"),
            Self::Repeated(name) => write!(f, "the header {name} is declared twice"),
        }
    }
}

impl std::error::Error for RuleFault {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, why } = self;
        write!(f, "the header {header} {why}")
    }
}

impl std::error::Error for Mismatch {}

#[cfg(test)]
#[path = "param_headers_tests.rs"]
mod tests;
