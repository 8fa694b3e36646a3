//! `[[server]] companion_tools`: what the tools are called that are listed beside a server's own.

use super::reader::{Reader, Section};

/// What the tools are called by which a client without Tasks checks, cancels and answers (`fallback = "handle"`).
/// No two are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionNames {
    /// Says how far a job is, and gives its result.
    pub check: String,
    /// Stops a job.
    pub cancel: String,
    /// Answers a question of a job.
    pub answer: String,
}

/// Longer names are refused by hosts, once they have put the server's name in front.
const LONGEST: usize = 48;

impl Default for CompanionNames {
    fn default() -> Self {
        let [check, cancel, answer] = ["check_job", "cancel_job", "answer_job"].map(str::to_owned);
        Self { check, cancel, answer }
    }
}

/// Reads the names of one server.
pub(super) fn read<'a>(reader: &mut Reader<'a>, section: &mut Section<'a>) -> CompanionNames {
    const KEY: &str = "companion_tools";
    let mut names = CompanionNames::default();
    for (of, name, line) in section.strings(reader, KEY) {
        let path = format!("{}.{}", section.path_of(KEY), of.escape_debug());
        let place = match of.as_str() {
            "check" => &mut names.check,
            "cancel" => &mut names.cancel,
            "answer" => &mut names.answer,
            _ => {
                reader.fault(&path, line, "there is no such tool; it has check, cancel and answer");
                continue;
            }
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(fits) {
            let message = format!("expected a name of letters, digits, _ and -, {LONGEST} characters at most");
            reader.fault(&path, line, message);
            continue;
        }
        *place = name;
    }
    let CompanionNames { check, cancel, answer } = &names;
    if check == cancel || check == answer || cancel == answer {
        section.fault(reader, KEY, "each tool needs a name of its own");
    }
    names
}
