//! What is said of a text that is no TOML.

use toml::de::Error;

use super::reader::{LISTS, Reader};

/// Errors that are reported. What follows is mostly of the same making, and each is looked up in the whole text.
const MOST: usize = 50;

/// Reports what keeps the text from being read.
pub(super) fn report(reader: &mut Reader<'_>, text: &str, errors: &[Error]) {
    if let Some(other) = other_language(text) {
        let message = format!("this looks like {other}; a configuration is TOML, as in config.example.toml");
        reader.fault("syntax", None, message);
        return;
    }
    for error in errors.iter().take(MOST) {
        let span = error.span();
        let line = span.as_ref().map(|span| reader.line_of(span.start));
        let written = span.and_then(|span| text.get(span)).unwrap_or_default();
        if error.message() == "duplicate key" {
            let key = written.trim_matches(['"', '\'']);
            if let Some(list) = LISTS.iter().find(|list| list.rsplit('.').next() == Some(key)) {
                let message =
                    format!("there may be several of these if each begins with [[{list}]], in double brackets");
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
    if errors.len() > MOST {
        reader.fault("syntax", None, format!("and {} more like these", errors.len() - MOST));
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
