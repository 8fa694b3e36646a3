//! Numbers that only rise, for whoever watches the proxy: how runs ended, and how long they took.

use std::sync::Arc;
use std::time::Duration;

use crate::shared_map::SharedMap;

/// Counts runs by tool. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Meters(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_name: SharedMap<String, Meter>,
    /// Tools that are known to be there.
    known: SharedMap<String, ()>,
}

/// The runs of one tool since the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meter {
    /// By [`End`], in the order of [`End::ALL`].
    pub ends: [u64; End::ALL.len()],
    /// Runs by how long they took: each bound of [`BOUNDS`], then those that took longer.
    pub took: [u64; BOUNDS.len() + 1],
    /// Seconds that all of these took together.
    pub seconds: f64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a result.
    Completed,
    /// With a result that has `isError`.
    ToolError,
    /// With a JSON-RPC error of the server.
    ServerError,
    /// It was stopped: by the owner, an operator, or a caller that hung up.
    Cancelled,
    /// It took too long.
    Timeout,
    /// With another failure of ours.
    Failed,
}

/// Seconds.
pub const BOUNDS: [f64; 13] = [0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

/// Tools with counts of their own. Those that come later share one: whoever calls made-up names must not fill the
/// memory.
const MOST: usize = 1024;
/// Of them: such as are neither listed nor configured, but have given a result.
const UNLISTED: usize = 256;

impl End {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Completed, Self::ToolError, Self::ServerError, Self::Cancelled, Self::Timeout, Self::Failed];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::ToolError => "tool_error",
            Self::ServerError => "server_error",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
        }
    }

    /// Whether the tool ended the run, well or not.
    pub const fn is_the_tools(self) -> bool {
        matches!(self, Self::Completed | Self::ToolError | Self::ServerError)
    }
}

impl Meters {
    /// These tools of a server are there: it lists them, or the config names them. All others are counted together
    /// until they have given a result.
    pub fn know<'a>(&self, server: &str, tools: impl IntoIterator<Item = &'a str>) {
        for tool in tools {
            let name = super::name(server, tool);
            if name.len() > super::LONGEST_NAME || self.0.known.get(name.as_str()).is_some() {
                continue;
            }
            if self.0.known.len() >= MOST {
                return;
            }
            self.0.known.insert(name, ());
        }
    }

    pub(super) fn count(&self, name: &str, end: End, took: Duration) {
        let change = |meter: &mut Meter| meter.count(end, took);
        let counts = &self.0.by_name;
        if counts.update(name, change).is_some() {
            return;
        }
        // Callers can make names up: those of tools that nobody has seen are not to take the places of the others.
        let is_known = self.0.known.get(name).is_some();
        let has_place = is_known || (end == End::Completed && counts.len() < UNLISTED);
        let name = if has_place && counts.len() < MOST { name } else { super::OTHER };
        counts.update_or_insert(name.to_owned(), Meter::default, change);
    }

    /// The counts of each server and tool, in the order of their names.
    pub fn all(&self) -> Vec<(String, String, Meter)> {
        let mut all = Vec::new();
        self.0.by_name.for_each(|name, meter| {
            let (server, tool) = super::parts(name);
            all.push((server.to_owned(), tool.to_owned(), meter.clone()));
        });
        all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        all
    }
}

impl Meter {
    fn count(&mut self, end: End, took: Duration) {
        if let Some(count) = End::ALL.iter().position(|other| *other == end).and_then(|at| self.ends.get_mut(at)) {
            *count += 1;
        }
        if !end.is_the_tools() {
            return;
        }
        let seconds = took.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.took.get_mut(at) {
            *count += 1;
        }
        self.seconds += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_end_and_by_what_they_took() {
        let meters = Meters::default();
        for (end, millis) in [(End::Completed, 250), (End::Completed, 251), (End::ToolError, 1), (End::Timeout, 9)] {
            meters.count(&crate::history::name("s", "t"), end, Duration::from_millis(millis));
        }
        let all = meters.all();
        let (server, tool, meter) = &all[0];
        assert_eq!((server.as_str(), tool.as_str(), all.len()), ("s", "t", 1));
        assert_eq!(meter.ends, [2, 1, 0, 0, 1, 0]);
        assert_eq!(meter.took[..4], [1, 1, 1, 0]);
        assert!((meter.seconds - 0.502).abs() < 1e-9);
    }

    #[test]
    fn made_up_names_share_one_place_and_take_none_from_tools_that_are_there() {
        let meters = Meters::default();
        let count = |tool: &str, end| meters.count(&crate::history::name("s", tool), end, Duration::ZERO);
        for at in 0..5000 {
            count(&format!("made-up-{at}"), End::ServerError);
        }
        assert_eq!((meters.all().len(), meters.all()[0].2.ends[2]), (1, 5000));
        // Even by a server that gives a result to whatever is called.
        for at in 0..5000 {
            count(&format!("answered-{at}"), End::Completed);
        }
        assert_eq!(meters.all().len(), UNLISTED, "with the one for all others");
        meters.know("s", ["listed"]);
        count("listed", End::Timeout);
        let all = meters.all();
        assert!(all.iter().any(|(_, tool, meter)| tool == "listed" && meter.ends[4] == 1));
        let many: Vec<_> = (0..5000).map(|at| format!("listed-{at}")).collect();
        meters.know("s", many.iter().map(String::as_str));
        for tool in &many {
            count(tool, End::Completed);
        }
        assert!(meters.all().len() <= MOST + 1 && meters.0.known.len() <= MOST);
    }
}
