//! Numbers in the text format of Prometheus (0.0.4). Labels are bounded: tools that are listed, configured or have given
//! a result have their own, what callers make up is one.

use std::fmt::Write as _;

use crate::history::{BOUNDS, End, Meter};
use crate::runner::Runner;
use crate::store::{Health, Status};
use crate::upstream::{SessionFigures, Upstream};

/// The media type.
pub(super) const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text in the making. Writing to a string cannot fail, so results of `write!` are dropped.
#[derive(Default)]
struct Text(String);

pub(super) fn write(runner: &Runner, servers: &[Upstream]) -> String {
    let mut text = Text::default();
    let (store, history) = (runner.store(), runner.history());
    text.head("raincheck_up", "gauge", "1 while the process answers.");
    text.line("raincheck_up", "", "1");
    let health = store.health();
    text.head("raincheck_store_health", "gauge", "1 for how the store is.");
    for (name, is_so) in [
        ("ready", matches!(health, Health::Ready)),
        ("low_space", matches!(health, Health::LowSpace(_))),
        ("full", matches!(health, Health::Full { .. })),
        ("failed", matches!(health, Health::Failed(_))),
        ("closed", matches!(health, Health::Closed)),
    ] {
        text.line("raincheck_store_health", &format!("{{health=\"{name}\"}}"), if is_so { "1" } else { "0" });
    }
    let figures = store.figures();
    text.head("raincheck_store_commits_total", "counter", "Commits of the store since it was made.");
    text.line("raincheck_store_commits_total", "", &figures.commits.to_string());
    text.head("raincheck_store_tasks", "gauge", "Tasks in the store, ended ones too.");
    text.line("raincheck_store_tasks", "", &figures.tasks.to_string());
    text.head("raincheck_tasks_open", "gauge", "Tasks that have not ended, by state.");
    for status in [Status::Queued, Status::Running, Status::InputRequired] {
        let open = figures.open(status);
        text.line("raincheck_tasks_open", &format!("{{state=\"{}\"}}", status.name()), &open.to_string());
    }
    text.head("raincheck_live_tasks", "gauge", "Tasks whose runs go on in this process.");
    text.line("raincheck_live_tasks", "", &runner.live().len().to_string());
    text.head("raincheck_calls_waiting", "gauge", "Calls that wait for a slot, tasks or not.");
    text.line("raincheck_calls_waiting", "", &runner.waiting().to_string());
    text.head("raincheck_calls_running", "gauge", "Slots of limits.calls that are taken, by tasks or other calls.");
    text.line("raincheck_calls_running", "", &runner.running().to_string());
    let help =
        "Of those: runs that were stopped and keep their slot until the server has answered, or for cancel_grace.";
    text.head("raincheck_runs_lingering", "gauge", help);
    text.line("raincheck_runs_lingering", "", &runner.lingering().to_string());
    text.head("raincheck_calls_held", "gauge", "Held calls that are no tasks and wait, ask, or have run for a second.");
    text.line("raincheck_calls_held", "", &runner.held().len().to_string());
    text.head("raincheck_draining", "gauge", "1 while the proxy stops.");
    text.line("raincheck_draining", "", if runner.is_draining() { "1" } else { "0" });
    let figures: Vec<_> = servers.iter().map(|server| (server.name(), server.sessions())).collect();
    sessions(&mut text, &figures);
    runs(&mut text, &history.meters().all());
    text.0
}

fn sessions(text: &mut Text, all: &[(&str, SessionFigures)]) {
    let mut series = |name: &str, kind: &str, help: &str, of: fn(&SessionFigures) -> u64| {
        text.head(name, kind, help);
        for (server, figures) in all {
            text.line(name, &format!("{{server=\"{}\"}}", escaped(server)), &of(figures).to_string());
        }
    };
    let of = "Sessions or processes with the server";
    series("raincheck_upstream_sessions", "gauge", &format!("{of} that are open."), |figures| figures.open);
    let name = "raincheck_upstream_sessions_opened_total";
    series(name, "counter", &format!("{of} that were opened."), |figures| figures.opened);
    let name = "raincheck_upstream_sessions_refused_total";
    series(name, "counter", &format!("{of} that could not be opened."), |figures| figures.refused);
    let name = "raincheck_upstream_sessions_lost_total";
    let help = "Of the opened: those that ended by themselves, so that the next call opens another.";
    series(name, "counter", help, |figures| figures.lost);
}

fn runs(text: &mut Text, all: &[(String, String, Meter)]) {
    let labels = |server: &str, tool: &str| format!("server=\"{}\",tool=\"{}\"", escaped(server), escaped(tool));
    text.head("raincheck_runs_total", "counter", "Runs of tools that have ended, by how.");
    for (server, tool, meter) in all {
        for (end, count) in End::ALL.iter().zip(meter.ends) {
            let labels = format!("{{{},outcome=\"{}\"}}", labels(server, tool), end.name());
            text.line("raincheck_runs_total", &labels, &count.to_string());
        }
    }
    let name = "raincheck_run_seconds";
    text.head(name, "histogram", "How long the runs took that the tool ended, without waits for input.");
    for (server, tool, meter) in all {
        let labels = labels(server, tool);
        let mut sum = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(meter.took) {
            sum += count;
            text.line(&format!("{name}_bucket"), &format!("{{{labels},le=\"{bound}\"}}"), &sum.to_string());
        }
        text.line(&format!("{name}_sum"), &format!("{{{labels}}}"), &meter.seconds.to_string());
        text.line(&format!("{name}_count"), &format!("{{{labels}}}"), &sum.to_string());
    }
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: &str) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_rises_to_the_count_and_labels_cannot_break_out() {
        let mut meter = Meter { ends: [2, 0, 0, 0, 0, 1], seconds: 1.5, ..Meter::default() };
        meter.took[1] = 1;
        meter.took[BOUNDS.len()] = 1;
        let mut text = Text::default();
        runs(&mut text, &[("s".to_owned(), "a\"}\n\\".to_owned(), meter)]);
        let labels = "server=\"s\",tool=\"a\\\"}\\n\\\\\"";
        for line in [
            format!("raincheck_runs_total{{{labels},outcome=\"completed\"}} 2"),
            format!("raincheck_runs_total{{{labels},outcome=\"failed\"}} 1"),
            format!("raincheck_run_seconds_bucket{{{labels},le=\"0.05\"}} 0"),
            format!("raincheck_run_seconds_bucket{{{labels},le=\"0.25\"}} 1"),
            format!("raincheck_run_seconds_bucket{{{labels},le=\"86400\"}} 1"),
            format!("raincheck_run_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("raincheck_run_seconds_sum{{{labels}}} 1.5"),
            format!("raincheck_run_seconds_count{{{labels}}} 2"),
        ] {
            assert!(text.0.lines().any(|found| found == line), "{line} in {}", text.0);
        }
    }
}
