//! What is logged, as `log.level` and `RUST_LOG` spell it.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The levels, the quietest first.
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// What the levels are called elsewhere.
const ALIASES: &[(&str, &str)] = &[
    ("none", "off"),
    ("critical", "error"),
    ("fatal", "error"),
    ("warning", "warn"),
    ("notice", "info"),
    ("verbose", "debug"),
    ("all", "trace"),
];

/// Directives as they are to be used, without the spaces around them; or what is wrong with them.
///
/// A word alone must be a level: the filter would take any other for a target, and everything else would be silent.
pub fn directives(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err("a level is missing".to_owned());
    }
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    if let Some(word) = parts.iter().find(|part| !part.contains(['=', '[']) && !is_level(part)) {
        return Err(format!("\"{}\" is no level{}", word.escape_debug(), guess(word)));
    }
    let text = parts.join(",");
    EnvFilter::builder().parse(&text).map_err(|error| error.to_string())?;
    Ok(text)
}

/// What was meant by a word that is no level.
fn guess(word: &str) -> String {
    let lower = word.to_lowercase();
    let near = |(spelled, level): (&str, &'static str)| {
        let far = strsim::damerau_levenshtein(&lower, spelled);
        (far <= 1 + spelled.len() / 4).then_some((far, level))
    };
    let spelled = LEVELS.iter().map(|level| (*level, *level));
    if let Some((_, level)) = spelled.chain(ALIASES.iter().copied()).filter_map(near).min_by_key(|(far, _)| *far) {
        return format!("; did you mean \"{level}\"?");
    }
    match word.rsplit_once(':') {
        Some((target, level)) if !target.ends_with(':') && level.parse::<LevelFilter>().is_ok() => {
            format!("; did you mean \"{}={}\"?", target.escape_debug(), level.to_lowercase())
        }
        _ => format!("; for one part of the program write \"{}=debug\"", word.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_a_fault_that_says_what_was_meant() {
        let table = [
            ("inof", "\"inof\" is no level; did you mean \"info\"?"),
            ("verbose", "did you mean \"debug\"?"),
            ("WARNING", "did you mean \"warn\"?"),
            ("warn,raincheck:debug", "\"raincheck:debug\" is no level; did you mean \"raincheck=debug\"?"),
            ("raincheck:DEBUG", "did you mean \"raincheck=debug\"?"),
            ("raincheck::upstream", "write \"raincheck::upstream=debug\""),
            (" , ", "a level is missing"),
            ("raincheck=loud", "expected one of"),
        ];
        for (text, says) in table {
            let error = directives(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn levels_in_any_case_and_spaces_around_directives_are_accepted() {
        for level in LEVELS {
            assert_eq!(directives(level).unwrap(), *level);
            assert!(directives(&level.to_uppercase()).is_ok());
        }
        assert_eq!(directives("warn, raincheck=debug ,").unwrap(), "warn,raincheck=debug");
        assert_eq!(directives("[run{tool=a}]=debug").unwrap(), "[run{tool=a}]=debug");
    }
}
