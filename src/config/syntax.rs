//! What is said of a text that is no TOML.

use toml::de::Error;

use super::reader::{LISTS, Reader};

/// What begins in a text and has no end.
struct Open {
    line: usize,
    /// The key that it is the value of, if that stands in the same line.
    key: Option<String>,
    /// What would end it.
    sign: char,
}

/// How the parser says that the text ends within a list or an inline table.
const OPEN: [&str; 2] = ["unclosed array,", "unclosed inline table,"];

/// Longer ones first.
const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];

/// Errors that are reported. What follows is mostly of the same making, and each is looked up in the whole text.
const MOST: usize = 50;

/// Reports what keeps the text from being read.
pub(super) fn report(reader: &mut Reader<'_>, text: &str, errors: &[Error]) {
    if let Some(other) = other_language(text) {
        let message = format!("this looks like {other}; a configuration is TOML, as in config.example.toml");
        reader.fault("syntax", None, message);
        return;
    }
    let is_open = errors.iter().any(|error| OPEN.iter().any(|open| error.message().starts_with(open)));
    let open = is_open.then(|| never_closed(text)).flatten();
    let line = |error: &Error| error.span().map(|span| reader.line_of(span.start));
    // What follows is of its making.
    let is_own = |error: &&Error| open.as_ref().is_none_or(|open| line(error).is_some_and(|line| line < open.line));
    let errors: Vec<&Error> = errors.iter().filter(is_own).collect();
    for error in errors.iter().take(MOST) {
        let span = error.span();
        let line = span.as_ref().map(|span| reader.line_of(span.start));
        let written = span.and_then(|span| text.get(span)).unwrap_or_default();
        if error.message() == "duplicate key" {
            let key = written.trim_matches(['"', '\'']);
            let on_line = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
            if let Some(message) = several(key, on_line.trim()) {
                reader.fault("syntax", line, message);
                // The keys below it seem to be there twice as well.
                return;
            }
            let key = key.escape_debug();
            reader.fault("syntax", line, format!("duplicate key \"{key}\": it is in this file already; make them one"));
            continue;
        }
        let on_line = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
        reader.fault("syntax", line, remedy(on_line).unwrap_or_else(|| error.message().to_owned()));
    }
    if let Some(open) = open {
        reader.fault("syntax", Some(open.line), open.message());
    }
    if errors.len() > MOST {
        reader.fault("syntax", None, format!("and {} more like these", errors.len() - MOST));
    }
}

/// What is said of a table that is there twice, where there may be several of its name.
fn several(key: &str, line: &str) -> Option<String> {
    let list = LISTS.iter().find(|list| list.rsplit('.').next() == Some(key))?;
    let head = line.strip_prefix('[')?;
    let (head, is_double) = head.strip_prefix('[').map_or((head, false), |head| (head, true));
    let head = head.split(']').next().unwrap_or_default().trim();
    if head == *list {
        let before = if is_double { format!("an earlier line has [{list}]; ") } else { String::new() };
        return Some(format!(
            "{before}there may be several of these if each begins with [[{list}]], in double brackets"
        ));
    }
    let way = match *list {
        "tool" => "a rule is [[tool]], beside the servers, with server = \"NAME\"".to_owned(),
        list => format!("it is [[{list}]]"),
    };
    Some(format!("there is no [{}]; {way}", head.escape_debug()))
}

/// The first thing in the text that begins and never ends, where a list or an inline table has no end.
fn never_closed(text: &str) -> Option<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut within: Option<&str> = None;
    for (at, line) in text.lines().enumerate() {
        let here = |sign| Open { line: at + 1, key: key_of(line), sign };
        if within.is_none() && open.is_empty() && line.trim_start().starts_with('[') {
            // The head of a table.
            continue;
        }
        let mut rest = line;
        loop {
            if let Some(quotes) = within {
                let Some(end) = end_of_text(rest, quotes) else { break };
                (within, rest) = (None, end);
            }
            let Some(found) = rest.find(['"', '\'', '#', '[', ']', '{', '}']) else { break };
            rest = rest.get(found..).unwrap_or_default();
            if let Some(quotes) = QUOTES.into_iter().find(|quotes| rest.starts_with(quotes)) {
                rest = rest.strip_prefix(quotes).unwrap_or_default();
                if quotes.len() == 1 && end_of_text(rest, quotes).is_none() {
                    // It ends with its line. Beside an open list it is what keeps that open.
                    if !open.is_empty() {
                        return Some(here(if quotes == "\"" { '"' } else { '\'' }));
                    }
                    break;
                }
                within = Some(quotes);
                continue;
            }
            let mut signs = rest.chars();
            match signs.next() {
                Some('[') => open.push(here(']')),
                Some('{') => open.push(here('}')),
                Some(']' | '}') => drop(open.pop()),
                Some(_) | None => break,
            }
            rest = signs.as_str();
        }
    }
    open.into_iter().next()
}

/// What follows a text in such quotes; `None` if it does not end in this line.
fn end_of_text<'a>(line: &'a str, quotes: &str) -> Option<&'a str> {
    let mut rest = line;
    loop {
        let found = rest.find(['\\', '"', '\''])?;
        rest = rest.get(found..)?;
        if let Some(end) = rest.strip_prefix(quotes) {
            return Some(end);
        }
        let mut signs = rest.chars();
        if signs.next() == Some('\\') && quotes.starts_with('"') {
            signs.next();
        }
        rest = signs.as_str();
    }
}

/// The key that a line sets, if it does.
fn key_of(line: &str) -> Option<String> {
    let (key, _) = line.split_once('=').filter(|(key, _)| is_key(key))?;
    Some(key.trim().to_owned())
}

impl Open {
    fn message(&self) -> String {
        let sign = self.sign;
        let what = match sign {
            ']' => "list",
            '}' => "inline table",
            _ => return format!("a text that begins in this line has no end: a {sign} is missing"),
        };
        match &self.key {
            Some(key) => format!("the {what} of {key} has no end: a {sign} is missing"),
            None => format!("the {what} that begins in this line has no end: a {sign} is missing"),
        }
    }
}

/// What to do about a line that cannot be read, if that can be seen. Never its value, which may be secret.
fn remedy(line: &str) -> Option<String> {
    if let Some((key, value)) = line.split_once('=').filter(|(key, _)| is_key(key)) {
        let (key, value) = (key.trim(), value.split('#').next().unwrap_or_default().trim());
        if value.is_empty() {
            return Some(format!("the value of {key} is missing"));
        }
        if value.parse::<f64>().is_ok() || value.starts_with(['"', '\'', '[', '{']) {
            return None;
        }
        return Some(format!("a text stands in quotes: {key} = \"...\""));
    }
    let (key, _) = line.split_once(':').filter(|(key, _)| is_key(key))?;
    Some(format!("between a key and its value stands =, no colon: {} = ...", key.trim()))
}

/// Whether this is a key as nearly everybody writes it.
fn is_key(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().all(|sign| sign.is_ascii_alphanumeric() || "_-.".contains(sign))
}

/// The language that the text is in, if it is plainly another one.
fn other_language(text: &str) -> Option<&'static str> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    if first.starts_with('{') {
        return Some("JSON");
    }
    let is_yaml = first == "---" || first.split_once(':').is_some_and(|(key, _)| is_key(key));
    is_yaml.then_some("YAML")
}

#[cfg(test)]
mod tests {
    use crate::config::{ConfigFaults, Environment, parse};

    #[test]
    fn of_a_list_without_an_end_nothing_is_told_that_comes_of_it() {
        for text in ["a = \nb = [\n  \"x\"\nc = 1\nd = 2\n", "a = \nb = [\"x\" \"y\",\nc = 1\n"] {
            let Err(ConfigFaults(found)) = parse(text, &Environment::default()) else { panic!("no fault in {text:?}") };
            let told: Vec<_> = found.iter().filter(|fault| fault.path == "syntax").map(|fault| fault.line).collect();
            assert_eq!(told, [Some(1), Some(2)], "{text:?}: {found:#?}");
        }
    }
}
