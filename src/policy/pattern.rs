//! Patterns of tool names, where `*` stands for any characters, also none.

use std::fmt;

/// An exact name, or a pattern with `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The literal parts between the stars; one part alone is an exact name.
    parts: Vec<Box<str>>,
}

impl Pattern {
    /// The pattern that `text` spells.
    pub fn new(text: &str) -> Self {
        Self { parts: text.split('*').map(Box::from).collect() }
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let [first, middle @ .., last] = self.parts.as_slice() else {
            return self.parts.first().is_some_and(|exact| exact.as_ref() == name);
        };
        let Some(mut rest) = name.strip_prefix(first.as_ref()) else { return false };
        for part in middle {
            // The earliest place leaves the most for the parts that follow.
            let Some(at) = rest.find(part.as_ref()) else { return false };
            rest = rest.get(at + part.len()..).unwrap_or_default();
        }
        rest.ends_with(last.as_ref())
    }

    /// How specific it is: exact names above all patterns, then by the number of literal bytes.
    pub fn weight(&self) -> (bool, usize) {
        (self.parts.len() == 1, self.parts.iter().map(|part| part.len()).sum())
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("*"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_the_table_says() {
        let table = [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("*é*", "caféteria", true),
            ("**", "x", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    /// Straight from the definition, in exponential time.
    fn slowly(pattern: &[char], name: &[char]) -> bool {
        match pattern {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|at| slowly(rest, &name[at..])),
            [one, rest @ ..] => name.first() == Some(one) && slowly(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_the_definition_says(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
            let (letters, of_name): (Vec<_>, Vec<_>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Pattern::new(&pattern).matches(&name), slowly(&letters, &of_name));
        }
    }
}
