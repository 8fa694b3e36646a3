//! Logs: text or JSON, on stderr. Bodies and credentials are never in them.

mod directives;

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

pub use directives::directives;

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
    /// The level of the configuration cannot be read.
    Filter(tracing_subscriber::filter::ParseError),
    /// There is no thread to write them.
    Thread(std::io::Error),
    /// Logs were started before.
    Started(tracing_subscriber::util::TryInitError),
}

/// Lines on stderr that nobody has to read: what is not taken in time is dropped. Hosts start us with a pipe for
/// stderr that some of them never read, and a log that waits for them would stop everything.
#[derive(Debug)]
pub struct Unread(SyncSender<Item>);

#[derive(Debug)]
enum Item {
    /// A line.
    Line(Vec<u8>),
    /// To be told when all lines before it are written.
    Mark(SyncSender<()>),
}

/// Lines that wait to be read.
const WAITING: usize = 1024;
/// How long the last lines may take to be read.
const LAST: Duration = Duration::from_millis(200);

/// Starts the logs of this process as [`start`] does, for a stderr that may not be read. The last lines are written
/// by [`Unread::finish`].
pub fn start_unread(format: LogFormat, level: &str) -> Result<Unread, TelemetryError> {
    let (lines, queue) = sync_channel(WAITING);
    let write = move || {
        for item in queue {
            match item {
                Item::Line(line) => {
                    // If it is gone, there is nobody left to tell.
                    let _ = std::io::stderr().write_all(&line);
                }
                Item::Mark(written) => {
                    let _ = written.try_send(());
                }
            }
        }
    };
    std::thread::Builder::new().name("raincheck-stderr".to_owned()).spawn(write).map_err(TelemetryError::Thread)?;
    let logs = Unread(lines.clone());
    start_on(format, level, move || Unread(lines.clone()))?;
    Ok(logs)
}

/// Starts the logs of this process, at `level` unless `RUST_LOG` is set; both are spelled alike. A `RUST_LOG` that
/// cannot be read is told on stderr, and counts as not set.
///
/// From then on a panic is logged with its place. Its message is left out unless it is a fixed text of the
/// program, since it may hold parts of a body.
pub fn start(format: LogFormat, level: &str) -> Result<(), TelemetryError> {
    start_on(format, level, std::io::stderr)
}

fn start_on<W>(format: LogFormat, level: &str, writer: W) -> Result<(), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let variable = of_variable();
    let chosen = variable.as_ref().map_or(level, |read| read.as_deref().unwrap_or(level));
    let filter = filter(chosen).map_err(TelemetryError::Filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).with_target(false).finish().try_init(),
        LogFormat::Json => logs.json().flatten_event(true).finish().try_init(),
    }
    .map_err(TelemetryError::Started)?;
    std::panic::set_hook(Box::new(log_panic));
    if let Some(Err(why)) = variable {
        let says = format!("RUST_LOG is not used, \"{level}\" is: {why}");
        if tracing::enabled!(tracing::Level::WARN) {
            tracing::warn!("{says}");
        } else {
            // Whoever set it wanted to see something. If stderr is gone, there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "raincheck: {says}");
        }
    }
    Ok(())
}

/// What `RUST_LOG` says, or what is wrong with it; `None` if it is not set.
fn of_variable() -> Option<Result<String, String>> {
    let text = std::env::var_os(EnvFilter::DEFAULT_ENV).filter(|text| !text.is_empty())?;
    Some(text.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(directives))
}

impl Write for Unread {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.try_send(Item::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Unread {
    /// Waits until what was logged is written, but not for long.
    pub fn finish(self) {
        let (written, wait) = sync_channel(1);
        if self.0.try_send(Item::Mark(written)).is_ok() {
            let _ = wait.recv_timeout(LAST);
        }
    }
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
            Self::Filter(_) => "the level of the logs (log.level) cannot be read",
            Self::Thread(_) => "no thread for the logs can be started",
            Self::Started(_) => "logs were started before",
        })
    }
}

impl std::error::Error for TelemetryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Filter(source) => Some(source),
            Self::Thread(source) => Some(source),
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
