//! Logs: text or JSON, on stderr. Bodies and credentials are never in them.

use std::fmt;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text each.
    Text,
    /// One JSON object each.
    Json,
}

/// Why no logs can be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum TelemetryError {
    /// `RUST_LOG` (or the level of the configuration) cannot be read.
    Filter(tracing_subscriber::filter::ParseError),
    /// Logs were started before.
    Started(tracing_subscriber::util::TryInitError),
}

/// Starts the logs of this process, at `level` unless `RUST_LOG` is set; both are spelled alike.
///
/// From then on a panic is logged with its place. Its message is left out unless it is a fixed text of the
/// program, since it may hold parts of a body.
pub fn start(format: LogFormat, level: &str) -> Result<(), TelemetryError> {
    let directives = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|text| !text.is_empty());
    let filter = filter(directives.as_deref().unwrap_or(level)).map_err(TelemetryError::Filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).with_target(false).finish().try_init(),
        LogFormat::Json => logs.json().flatten_event(true).finish().try_init(),
    }
    .map_err(TelemetryError::Started)?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// sled speaks only where it is asked for by name: the store says the same in words of its own, once.
fn filter(directives: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    let filter = EnvFilter::builder().parse(directives)?;
    Ok(if directives.contains("sled") { filter } else { filter.add_directive("sled=off".parse()?) })
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    tracing::error!(place, thread = thread.name().unwrap_or_default(), "{}", fixed_text(panic.payload()));
}

/// The message of a panic if it stands in the program; one that was put together may hold anything.
fn fixed_text(payload: &dyn std::any::Any) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("a panic; its message is left out, it may hold data")
}

impl fmt::Display for TelemetryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filter(_) => "the level of the logs (RUST_LOG, or log.level) cannot be read",
            Self::Started(_) => "logs were started before",
        })
    }
}

impl std::error::Error for TelemetryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Filter(source) => Some(source),
            Self::Started(source) => Some(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_panic_is_shown_only_if_it_stands_in_the_program() {
        let fixed = std::panic::catch_unwind(|| panic!("fixed")).unwrap_err();
        let made = std::panic::catch_unwind(|| panic!("{}", String::from("s3cret"))).unwrap_err();
        assert_eq!(fixed_text(fixed.as_ref()), "fixed");
        assert!(!fixed_text(made.as_ref()).contains("s3cret"));
    }
}
