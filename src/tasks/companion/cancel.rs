//! Stops a job.

use std::time::Duration;

use tokio::time::Instant;

use super::Companion;
use super::job::{self, Arguments};
use super::words::Said;
use crate::protocol::{Call, Outcome};
use crate::runner::{Linger, Runner};
use crate::task::{Canceller, State, Task};

/// How long the end of the job is waited for: a result that is on its way may still win.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the job to stop, and says what became of it.
pub(super) async fn cancel(tool: &Companion, runner: &Runner, call: &Call) -> Result<Outcome, Outcome> {
    let task = Arguments::of(call)?.job(tool, runner, call).await?;
    let (id, check) = (task.id, &tool.names.check);
    if task.state.is_terminal() {
        let text = match task.state {
            State::Cancelled { .. } => format!("Job {id} was cancelled before. Nothing is left to stop."),
            _ => format!(
                "Job {id} had ended before ({}), so there was nothing to stop. `{check}` says what came of it.",
                task.state.status()
            ),
        };
        return Ok(Said::of(&task, text).outcome());
    }
    runner.cancel(&task, Canceller::Owner).await.map_err(Outcome::Failed)?;
    let ended = |task: &Task| task.state.is_terminal();
    let task = job::wait_for(runner, task, Instant::now() + PATIENCE, ended).await?;
    let text = match &task.state {
        State::Cancelled { sent: false, .. } => {
            format!("Job {id} is cancelled. Nothing was sent: `{}` has not run for it.", task.tool)
        }
        State::Cancelled { sent: true, .. } => {
            let left = match tool.linger {
                Linger::AtMost(_) | Linger::UntilTimeout => "The server was told to stop; part of the work of",
                Linger::Untold(_) => "The server is not told to stop and may go on to its end; all of the work of",
            };
            format!("Job {id} is cancelled. {left} `{}` may be done.", task.tool)
        }
        state if state.is_terminal() => {
            format!("Job {id} ended in the same moment ({}). `{check}` says what came of it.", state.status())
        }
        _ => format!("Job {id} was asked to stop and has not ended yet. `{check}` says when it has."),
    };
    Ok(Said::of(&task, text).outcome())
}
