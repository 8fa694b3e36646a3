//! What is shown while a call runs, and at its end.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::super::terminal::{one_line, plain, say};
use super::view::{Status, TaskView};
use crate::clock::rough;
use crate::protocol::{Json, Progress, RpcError};

/// Shows on stderr how far a call is.
pub(crate) enum Display {
    /// A bar, for a terminal.
    Bar(ProgressBar),
    /// A line for what changes, for a file or a pipe.
    Lines(Lines),
    /// Nothing, for tests.
    #[cfg(test)]
    Notes(Vec<String>),
}

/// What was said line by line, and when.
#[derive(Default)]
pub(crate) struct Lines {
    last: String,
    said: Option<Instant>,
}

/// Says something that stays, while a [`Display`] is in use elsewhere.
pub(crate) struct Voice(Option<ProgressBar>);

const LONGEST_MESSAGE: usize = 200;
/// On 80 columns a message is to have room beside the bar.
const LONGEST_TITLE: usize = 20;
/// The least time between two lines about a run that goes on: a log is not to be filled with them.
const PACE: Duration = Duration::from_secs(10);

impl Display {
    /// A bar if stderr is a terminal, else lines.
    pub(crate) fn of_process(title: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Lines::default());
        }
        let bar = ProgressBar::new_spinner();
        bar.set_style(style("{spinner} {prefix} {elapsed} {wide_msg}"));
        bar.set_prefix(one_line(title, LONGEST_TITLE));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self::Bar(bar)
    }

    /// Shows what a server reports during a call.
    pub(crate) fn progress(&mut self, progress: &Progress) {
        self.show(&progress.describe(), true);
    }

    /// Shows how far a task is.
    pub(crate) fn task(&mut self, task: &TaskView) {
        let message = match (&task.status, &task.message) {
            (Status::Working, Some(message)) => message.clone(),
            (Status::Working, None) => "working".to_owned(),
            (_, Some(message)) => format!("{}: {message}", task.word()),
            (_, None) => task.word().to_owned(),
        };
        let is_working = matches!(task.status, Status::Working);
        let message = match (&*self, &task.progress) {
            (Self::Bar(_), Some(progress)) if is_working => measured(progress, &message),
            _ => message,
        };
        self.show(&message, task.message.is_some() && is_working);
    }

    /// Of what `runs` and says how far it is there will be more to show soon.
    fn show(&mut self, message: &str, runs: bool) {
        let message = one_line(message, LONGEST_MESSAGE);
        match self {
            Self::Bar(bar) => match position(&message) {
                Some((done, total, rest)) => {
                    if bar.length() != Some(total) {
                        bar.set_length(total);
                        bar.set_style(style("{spinner} {prefix} {elapsed} {bar:20} {pos} of {len} {wide_msg}"));
                    }
                    bar.set_position(done);
                    bar.set_message(rest.to_owned());
                }
                None => bar.set_message(message),
            },
            Self::Lines(lines) => {
                if lines.take(&message, runs, Instant::now()) {
                    say(&message);
                }
            }
            #[cfg(test)]
            Self::Notes(notes) => notes.push(message),
        }
    }

    /// Shows for how long the server could not be asked; a line that stays has said why.
    pub(crate) fn away(&mut self, since: Duration) {
        if let Self::Bar(bar) = self {
            bar.set_message(format!("no answer for {} s", since.as_secs()));
        }
    }

    /// Says something that stays.
    pub(crate) fn note(&mut self, text: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| say(text)),
            Self::Lines(_) => say(text),
            #[cfg(test)]
            Self::Notes(notes) => notes.push(text.to_owned()),
        }
    }

    /// What speaks beside it.
    pub(crate) fn voice(&self) -> Voice {
        match self {
            Self::Bar(bar) => Voice(Some(bar.clone())),
            Self::Lines(_) => Voice(None),
            #[cfg(test)]
            Self::Notes(_) => Voice(None),
        }
    }

    /// Leaves the screen to somebody who types.
    pub(crate) fn pause(&mut self) {
        if let Self::Bar(bar) = self {
            bar.disable_steady_tick();
            bar.suspend(|| ());
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    /// Goes on after [`Display::pause`].
    pub(crate) fn resume(&mut self) {
        if let Self::Bar(bar) = self {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(100));
        }
    }

    /// Takes the bar away.
    pub(crate) fn close(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    /// Whether the message is to be said now.
    fn take(&mut self, message: &str, runs: bool, now: Instant) -> bool {
        let is_soon = self.said.is_some_and(|said| now.saturating_duration_since(said) < PACE);
        if self.last == message || (runs && is_soon) {
            return false;
        }
        message.clone_into(&mut self.last);
        self.said = runs.then_some(now);
        true
    }
}

impl Voice {
    /// Says it.
    pub(crate) fn say(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// What a bar shows of a task that reports progress: its numbers first, which move the bar, and last what a narrow
/// screen may cut off.
fn measured(progress: &Progress, message: &str) -> String {
    let timing = message.split("; progress ").next().unwrap_or_default();
    let sign = if progress.message.is_some() { ';' } else { ':' };
    format!("{}{sign} {timing}", progress.describe())
}

/// `3 of 5: loading` in numbers, as Raincheck words the progress of a server.
fn position(message: &str) -> Option<(u64, u64, &str)> {
    let (numbers, rest) = message.split_once(": ").unwrap_or((message, ""));
    let (done, total) = numbers.split_once(" of ")?;
    let whole = |text: &str| {
        let whole = text.split('.').next().unwrap_or_default();
        whole.parse::<u64>().ok().filter(|_| text.parse::<f64>().is_ok())
    };
    let (done, total) = (whole(done)?, whole(total)?);
    (total > 0).then_some((done.min(total), total, rest))
}

/// A tool's result for a person (or, `raw`, for a program), and whether it is an error of the tool.
pub(crate) fn result(result: &Json, raw: bool) -> (String, bool) {
    let value: Value = result.read().unwrap_or_default();
    let is_error = value.get("isError").and_then(Value::as_bool).unwrap_or(false);
    if raw {
        return (result.as_str().to_owned(), is_error);
    }
    let blocks = value.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = blocks
        .iter()
        .map(|block| match (block.get("type").and_then(Value::as_str), block.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(text)) => plain(text),
            _ => plain(&block.to_string()),
        })
        .collect();
    if lines.is_empty() {
        let rest = value.get("structuredContent").unwrap_or(&value);
        lines.push(plain(&serde_json::to_string_pretty(rest).unwrap_or_default()));
    }
    (lines.join("\n"), is_error)
}

/// A server's error for a person, with what is known about trying again.
pub(crate) fn failure(error: &RpcError) -> String {
    let data: Value = error.raw().member("data").and_then(|data| data.read().ok()).unwrap_or_default();
    // Writing into a string cannot fail.
    let mut text = plain(&error.to_string());
    if let Some(reason) = data.get("reason").and_then(Value::as_str) {
        let _ = write!(text, " [{}]", one_line(reason, 40));
    }
    let wait = data.get("retryAfterMs").and_then(Value::as_u64).map(Duration::from_millis);
    match (data.get("retryable").and_then(Value::as_bool), wait) {
        (Some(true), Some(wait)) => {
            let wait = rough(wait).to_string();
            // Many a message of ours has said it.
            if !error.message().contains(&format!(" in {wait}")) {
                let _ = write!(text, "\nIt may be called again in {wait}.");
            }
        }
        (Some(true), None) => text.push_str("\nIt may be called again: nothing was run."),
        (Some(false), _) if data.get("reason").and_then(Value::as_str) == Some("unauthorized") => {
            // A gateway's header, where that names the caller.
            let header = data.get("header").and_then(Value::as_str);
            let header = header.map_or_else(
                || "Credentials are given with -H 'Authorization: Bearer ...'".to_owned(),
                |name| format!("To call as the gateway does give -H '{}: NAME'", one_line(name, 64)),
            );
            let _ = write!(text, "\n{header} (or -H @FILE).");
        }
        (Some(false), _) => text.push_str("\nCalling it again would fail again."),
        // Only our own errors say so; of others nothing is known.
        (None, _) => match data.get("reason").and_then(Value::as_str) {
            Some("timeout" | "idle_timeout" | "input_timeout" | "over_budget") => {
                text.push_str("\nThe tool has run for a while; check what it has done before you call it again.");
            }
            Some(_) => text.push_str("\nNobody knows whether the tool has run; check before you call it again."),
            None => {}
        },
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::{Failure, Reason, Retry};

    #[test]
    fn a_message_with_numbers_moves_the_bar() {
        let cases = [
            ("3 of 5: loading: rows", Some((3, 5, "loading: rows"))),
            ("3 of 5", Some((3, 5, ""))),
            ("2.5 of 10.0: x", Some((2, 10, "x"))),
            ("9 of 5", Some((5, 5, ""))),
            ("0 of 0", None),
            ("one of 5", None),
            ("queued, place 3 of 7", None),
        ];
        for (message, expected) in cases {
            assert_eq!(position(message), expected, "{message}");
        }
    }

    #[test]
    fn the_bar_follows_each_look_at_a_task() {
        let bar = ProgressBar::hidden();
        let mut display = Display::Bar(bar.clone());
        let mut look = |progress: Value, said: &str| {
            let message = format!("running for 3s; usually takes about 9s; progress {said}");
            let task = json!({
                "taskId": "t", "status": "working", "statusMessage": message,
                "_meta": { "dev.raincheck/progress": progress },
            });
            display.task(&TaskView::read(Json::from_value(&task)).unwrap());
            (bar.position(), bar.length(), bar.message())
        };
        let looks = [
            (json!({ "progress": 2, "total": 6 }), "2 of 6", (2, Some(6), "running for 3s; usually takes about 9s")),
            (
                json!({ "progress": 4.5, "total": 6, "message": "rows: 9" }),
                "4.5 of 6: rows: 9",
                (4, Some(6), "rows: 9; running for 3s; usually takes about 9s"),
            ),
            (
                json!({ "progress": 7, "message": "more" }),
                "7: more",
                (4, Some(6), "7: more; running for 3s; usually takes about 9s"),
            ),
        ];
        for (progress, said, (position, length, message)) in looks {
            assert_eq!(look(progress, said), (position, length, message.to_owned()), "{said}");
        }
    }

    #[test]
    fn lines_say_what_changes_and_of_a_run_that_goes_on_one_in_ten_seconds_at_most() {
        let (mut lines, begun) = (Lines::default(), Instant::now());
        for (second, message, runs, is_said) in [
            (0, "1 of 9", true, true),
            (1, "2 of 9", true, false),
            (9, "3 of 9", true, false),
            (10, "3 of 9", true, true),
            (21, "3 of 9", true, false),
            (22, "input_required", false, true),
            (23, "input_required", false, false),
            (24, "4 of 9", true, true),
            (25, "5 of 9", true, false),
            (25, "completed", false, true),
        ] {
            let now = begun + Duration::from_secs(second);
            assert_eq!(lines.take(message, runs, now), is_said, "{message} at {second} s");
        }
    }

    #[test]
    fn a_result_is_shown_as_text_where_it_is_text() {
        let cases = [
            (r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#, "a\nb", false),
            (
                r#"{"content":[{"type":"image","data":"AA=="}],"isError":true}"#,
                r#"{"type":"image","data":"AA=="}"#,
                true,
            ),
            (r#"{"content":[],"structuredContent":{"n":1}}"#, "{\n  \"n\": 1\n}", false),
            (r#"{"content":[{"type":"text","text":"a\u001b[2J"}]}"#, "a[2J", false),
        ];
        for (text, shown, is_error) in cases {
            let json = Json::parse(text.to_owned().into()).unwrap();
            let (found, error) = result(&json, false);
            // The order of members is not ours to keep.
            if shown.starts_with("{\"") {
                let (found, shown): (Value, Value) = (found.parse().unwrap(), shown.parse().unwrap());
                assert_eq!(found, shown);
            } else {
                assert_eq!(found, shown);
            }
            assert_eq!(error, is_error);
            assert_eq!(result(&json, true), (text.to_owned(), is_error));
        }
    }

    #[test]
    fn a_failure_says_whether_to_try_again() {
        let shown = |retry| failure(&RpcError::from(&Failure::new(Reason::Busy, "full", retry)));
        assert!(shown(Retry::Yes).contains("[busy]\nIt may be called again: nothing was run."));
        assert!(shown(Retry::After(Duration::from_secs(2))).ends_with("again in 2s."));
        let day = Retry::After(Duration::from_millis(86_400_000 + 26 * 60_000 + 7231));
        assert!(shown(day).ends_with("It may be called again in 1day 27m."), "{}", shown(day));
        let told = Failure::new(Reason::RateLimited, "try again in 1day 27m", day);
        assert_eq!(failure(&RpcError::from(&told)).matches("1day").count(), 1);
        assert!(shown(Retry::No).ends_with("would fail again."));
        assert!(shown(Retry::Unknown).ends_with("check before you call it again."));
        let closed = RpcError::from(&Failure::new(Reason::Unauthorized, "not known here", Retry::No));
        assert!(failure(&closed).ends_with("with -H 'Authorization: Bearer ...' (or -H @FILE)."));
        let data = json!({ "reason": "unauthorized", "retryable": false, "header": "x-user" });
        let unnamed = failure(&RpcError::with_data(-31006, "not named", Some(&Json::from_value(&data))));
        assert!(unnamed.ends_with("give -H 'x-user: NAME' (or -H @FILE).") && !unnamed.contains("Bearer"), "{unnamed}");
        assert_eq!(failure(&RpcError::new(-1, "no")), "no (-1)");
    }
}
