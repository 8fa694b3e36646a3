//! What a person sees: results on stdout, everything else on stderr.

use std::io::{self, Write};

/// Writes lines to stdout. An error means that nobody reads any more.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes a line to stderr. If that is gone there is nobody left to tell.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says on stderr what went wrong.
pub(super) fn complain(text: &str) {
    say(&format!("raincheck: {text}"));
}

/// The text of an error and of what caused it, on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors repeat their cause.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// `text` without what would move the cursor or colour the screen: a server may send anything.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|sign| !sign.is_control() || matches!(sign, '\n' | '\t')).collect()
}

/// `text` on one line of at most `longest` characters.
pub(super) fn one_line(text: &str, longest: usize) -> String {
    let line: String = text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).take(longest).collect();
    if text.chars().count() > longest { format!("{line}…") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_sends_cannot_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\tc\r\nd\u{9b}"), "a[31mb\tc\nd");
        assert_eq!(one_line("a\nb\u{7}c", 3), "a b…");
    }
}
