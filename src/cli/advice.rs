//! What the measured times of a tool advise: how it is run, after which time it becomes a task, when it is given up.

use std::fmt::Write as _;
use std::time::Duration;

use crate::history::Measured;

/// Fewer runs say too little about the tail.
pub(super) const LEAST: u32 = 20;

/// Under this a plain call is nicer than a task.
const NICE: Duration = Duration::from_secs(10);
/// Over this a task is.
const LONG: Duration = Duration::from_secs(30);
/// The longest time that any client can be expected to wait for a plain call.
const PATIENT: Duration = Duration::from_secs(25);

/// How a tool is best run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) mode: &'static str,
    /// For mode `auto`.
    pub(super) after: Option<Duration>,
    pub(super) timeout: Duration,
    pub(super) why: &'static str,
}

/// What is advised of one tool; `None` after too few runs.
pub(super) fn of(tool: &Measured) -> Option<Advice> {
    if tool.samples < LEAST {
        return None;
    }
    let [p50, p95, p99, longest] = [tool.p50_ms, tool.p95_ms, tool.p99_ms, tool.max_ms].map(Duration::from_millis);
    // A run that was stopped could have taken any time, so more room is left above what was seen.
    let room = if tool.timeouts > 0 { 6 } else { 3 };
    let timeout = round_up((p99 * room).max(longest * 2).max(Duration::from_mins(1)));
    let (mode, after, why) = if p50 >= LONG {
        ("task", None, "half of the runs take longer than any client should be held: the handle comes at once")
    } else if p99 <= NICE {
        ("auto", Some(NICE), "nearly all runs end as plain calls; what hangs becomes a task")
    } else if p95 <= PATIENT * 4 / 5 {
        let after = round_up(p95 + p95 / 5).min(PATIENT);
        ("auto", Some(after), "95 of 100 runs end as plain calls before that; the tail becomes tasks")
    } else {
        let after = round_up(p50 + p50 / 4).clamp(Duration::from_secs(2), NICE);
        ("auto", Some(after), "what is not over by then belongs to a long tail, and waits better as a task")
    };
    Some(Advice { mode, after, timeout, why })
}

/// All tools, as a text that may be put into a configuration.
pub(super) fn text(tools: &[Measured]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for tool in tools {
        let shown = |millis| about(Duration::from_millis(millis));
        let name = super::terminal::one_line(&tool.tool, 80);
        let Some(advice) = of(tool) else {
            let _ = writeln!(text, "# {name}: too few runs for advice, {} of {LEAST}\n", tool.samples);
            continue;
        };
        let _ = writeln!(
            text,
            "# {name}: {} runs, p50 {}, p95 {}, p99 {}, longest {}{}",
            tool.samples,
            shown(tool.p50_ms),
            shown(tool.p95_ms),
            shown(tool.p99_ms),
            shown(tool.max_ms),
            if tool.timeouts > 0 {
                format!(", {} more stopped by their timeout", tool.timeouts)
            } else {
                String::new()
            },
        );
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let _ = writeln!(text, "# {}", advice.why);
        let _ = writeln!(text, "[[tool]]\nserver = {}\nmatch = {}", quoted(&tool.server), quoted(&tool.tool));
        let _ = writeln!(text, "mode = \"{}\"", advice.mode);
        if let Some(after) = advice.after {
            let _ = writeln!(text, "after = \"{}\"", humantime::format_duration(after));
        }
        let _ = writeln!(text, "timeout = \"{}\"\n", humantime::format_duration(advice.timeout));
    }
    if tools.is_empty() {
        text.push_str("# no tool has given a result yet: there is nothing to advise\n");
    }
    text
}

/// To the next time that people write.
fn round_up(span: Duration) -> Duration {
    let seconds = span.as_millis().div_ceil(1000);
    let step = match seconds {
        0..=15 => 1,
        16..=60 => 5,
        61..=600 => 60,
        601..=7200 => 300,
        _ => 3600,
    };
    Duration::from_secs(u64::try_from(seconds.div_ceil(step) * step).unwrap_or(u64::MAX))
}

/// Three digits are enough.
fn about(span: Duration) -> humantime::FormattedDuration {
    let rounded = match span.as_millis() {
        0..10_000 => Duration::from_millis(u64::try_from(span.as_millis() / 10 * 10).unwrap_or_default()),
        _ => Duration::from_secs(span.as_secs()),
    };
    humantime::format_duration(if rounded.is_zero() { span } else { rounded })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured([p50, p95, p99, longest]: [u64; 4], samples: u32, timeouts: u32) -> Measured {
        let (server, tool) = ("s".to_owned(), "a\"*".to_owned());
        Measured { server, tool, samples, p50_ms: p50, p95_ms: p95, p99_ms: p99, max_ms: longest, timeouts }
    }

    #[test]
    fn the_tail_decides_what_is_advised() {
        let secs = Duration::from_secs;
        let table = [
            // Quick: 10s as by default, and a minute is plenty.
            ([120, 400, 900, 1_500], 0, "auto", Some(secs(10)), secs(60)),
            // Half of them are long.
            ([41_000, 125_000, 190_000, 240_000], 0, "task", None, secs(600)),
            // Middling, with a short tail: worth waiting for.
            ([8_000, 12_000, 14_000, 15_000], 0, "auto", Some(secs(15)), secs(60)),
            ([15_000, 20_000, 24_000, 25_000], 0, "auto", Some(secs(25)), secs(120)),
            // Quick mostly, with a long tail.
            ([1_000, 60_000, 100_000, 200_000], 0, "auto", Some(secs(2)), secs(420)),
            ([20_000, 60_000, 100_000, 200_000], 0, "auto", Some(secs(10)), secs(420)),
            // Nobody knows how long the stopped ones would have taken.
            ([1_000, 60_000, 100_000, 200_000], 2, "auto", Some(secs(2)), secs(600)),
        ];
        for (times, timeouts, mode, after, timeout) in table {
            let advice = of(&measured(times, LEAST, timeouts)).unwrap();
            assert_eq!((advice.mode, advice.after, advice.timeout), (mode, after, timeout), "{times:?}");
        }
        assert_eq!(of(&measured([1; 4], LEAST - 1, 0)), None);
    }

    #[test]
    fn the_text_is_a_configuration() {
        let text = text(&[measured([41_000, 125_000, 190_000, 240_000], 812, 3), measured([1; 4], 3, 0)]);
        assert!(text.contains("812 runs, p50 41s, p95 2m 5s, p99 3m 10s, longest 4m, 3 more stopped"), "{text}");
        assert!(text.contains("too few runs for advice, 3 of 20"), "{text}");
        let whole = format!("{text}[[server]]\nname = \"s\"\nurl = \"http://127.0.0.1:1/mcp\"\n");
        let config = crate::config::parse(&whole, &crate::config::Environment::of([])).unwrap();
        assert_eq!((config.tools.len(), config.tools[0].policy.timeout), (1, Duration::from_mins(20)));
    }
}
