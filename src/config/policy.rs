//! What the configuration says of tools, as it runs.

use std::fmt;
use std::time::Duration;

/// What the config says of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPolicy {
    /// When a call becomes a task.
    pub mode: Mode,
    /// How long a call may take before it becomes a task, from its arrival.
    pub after: Duration,
    /// Hard limit of a run.
    pub timeout: Duration,
    /// How long a run may go on without a sign of life of the tool; `None` for no limit but `timeout`.
    pub idle_timeout: Option<Duration>,
    /// How long a call may wait for a slot.
    pub queue_timeout: Duration,
    /// How long an outcome stays readable; `None` for ever.
    pub keep: Option<Duration>,
    /// Runs at the same time; `None` for no limit but the common one.
    pub max_running: Option<usize>,
    /// Calls that wait for a slot of this tool; `None` for no limit but the common one.
    pub max_queued: Option<usize>,
    /// How often runs may be started; `None` for as often as one likes.
    pub rate: Option<Rate>,
    /// The largest result in bytes; `None` for no limit but that of any message.
    pub max_result: Option<usize>,
    /// What a start costs.
    pub price: Cost,
    /// What a minute of a run costs.
    pub price_per_minute: Cost,
    /// What a client without Tasks gets.
    pub fallback: Fallback,
    /// How long a call is held before `Fallback::Handle` answers with a handle in words.
    pub hold: Duration,
    /// What a question of the tool does to a call that is no task yet.
    pub ask: AskPolicy,
    /// How long a question may wait for its answer.
    pub ask_timeout: Duration,
    /// What becomes of a run that was lost.
    pub on_lost: OnLost,
    /// When a call is taken for the repeat of an earlier one.
    pub dedupe: Dedupe,
    /// How long a repeat with a key of the caller's joins the first call at least, counted from its end.
    pub key_window: Duration,
}

/// What a question of the tool does to a call that may become a task and is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskPolicy {
    /// It makes the call a task at once.
    Task,
    /// The first one is asked in a multi round-trip result, before there is a task.
    First,
}

/// When a call becomes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    Sync,
    /// When it takes longer than `after`.
    Auto,
    /// At once.
    Task,
}

/// What a slow call of a client without Tasks gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It is held open, with keep-alives.
    Wait,
    /// After [`ToolPolicy::hold`], a normal result that names the handle in words. The tools that check, cancel and
    /// answer are listed beside those of the server.
    Handle,
    /// The experimental tasks of 2025-11-25, for clients that declare them; others are held as with `Wait`.
    LegacyTasks,
    /// -32021, before anything is sent. In mode `auto` a call cannot be known to be slow, so it waits.
    Refuse,
}

/// What becomes of a run that was lost: by a restart, a dead session or a dead connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// Its task fails as outcome unknown.
    Unknown,
    /// It is run again, once. For tools that may run twice.
    Rerun,
}

/// When a call without a key of the caller's is taken for the repeat of an earlier one of the same owner, tool and
/// arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedupe {
    /// Never.
    Off,
    /// While the earlier one runs.
    Running,
    /// While the earlier one runs, and this long after its start.
    Window(Duration),
}

/// So many in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many; above 0.
    pub count: u32,
    /// In which time.
    pub per: Duration,
}

/// An amount of whatever the operator counts in, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

/// A rule for the tools that a pattern matches.
#[derive(Clone, Debug)]
pub struct ToolRule {
    /// An exact name, or a pattern with `*`.
    pub pattern: String,
    /// The server that it applies to; `None` for all.
    pub server: Option<String>,
    /// The defaults with what the rule changes.
    pub policy: ToolPolicy,
}

impl Cost {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// So many millionths.
    pub const fn from_millionths(millionths: u64) -> Self {
        Self(millionths)
    }

    /// The amount in millionths.
    pub const fn millionths(self) -> u64 {
        self.0
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What `time` costs at this price for a minute.
    #[must_use]
    pub fn for_time(self, time: Duration) -> Self {
        let total = u128::from(self.0) * time.as_millis() / 60_000;
        Self(u64::try_from(total).unwrap_or(u64::MAX))
    }
}

/// As in the config: `0.25`, without zeros at the end.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        let part = format!("{part:06}");
        write!(f, "{whole}.{}", part.trim_end_matches('0'))
    }
}

/// As in the config: `30/1m`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, humantime::format_duration(self.per))
    }
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            after: Duration::from_secs(10),
            timeout: Duration::from_mins(30),
            idle_timeout: None,
            queue_timeout: Duration::from_hours(1),
            keep: Some(Duration::from_hours(24)),
            max_running: None,
            max_queued: None,
            rate: None,
            max_result: None,
            price: Cost::ZERO,
            price_per_minute: Cost::ZERO,
            fallback: Fallback::Wait,
            hold: Duration::from_secs(25),
            ask: AskPolicy::Task,
            ask_timeout: Duration::from_hours(24),
            on_lost: OnLost::Unknown,
            dedupe: Dedupe::Off,
            key_window: Duration::from_hours(24),
        }
    }
}
