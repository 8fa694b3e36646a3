//! Says how far a job is. Once it has ended this is its result, as the server spelled it.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;

use super::Companion;
use super::job::{self, Arguments};
use super::questions;
use super::words::{Era, Said};
use crate::clock::rough;
use crate::policy::Policies;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Call, Failure, Json, Outcome, Retry, RpcError, reshape};
use crate::runner::{Runner, view};
use crate::store::Committed;
use crate::task::{Canceller, Cause, State, Task};
use crate::tasks::handle;

/// How long a check waits if it does not say.
const USUAL: Duration = Duration::from_secs(20);
/// The longest wait where `hold` does not say how long a host waits.
const LONGEST: Duration = Duration::from_secs(25);

/// Bytes of the data of an error that a model is shown.
const MOST_DATA: usize = 4 << 10;

/// Waits for the job a while, and says what there is.
pub(super) async fn check(tool: &Companion, runner: &Runner, call: &Call) -> Result<Outcome, Outcome> {
    let arguments = Arguments::of(call)?;
    let task = arguments.job(tool, runner, call).await?;
    let longest = longest_wait(&tool.policies, &task.tool);
    let wanted = arguments.wait_seconds().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let deadline = Instant::now() + wanted.unwrap_or(USUAL).min(longest);
    let is_enough = |task: &Task| task.state.is_terminal() || !task.state.questions().is_empty();
    let task = job::wait_for(runner, task, deadline, is_enough).await?;
    Ok(shown(tool, runner, &task, Era::of(&call.caller.session)).await)
}

/// How long a check of a call of `tool` waits if it does not say.
pub(super) fn usual_wait(policies: &Policies, tool: &str) -> Duration {
    USUAL.min(longest_wait(policies, tool))
}

/// A host that waits as long for the tool waits as long for a check.
fn longest_wait(policies: &Policies, tool: &str) -> Duration {
    Some(policies.of(tool).hold).filter(|hold| !hold.is_zero()).unwrap_or(LONGEST)
}

/// What is to be said of the job, to a client of that era.
async fn shown(tool: &Companion, runner: &Runner, task: &Committed<Task>, era: Era) -> Outcome {
    match &task.state {
        State::Completed { .. } => match runner.store().outcome(task).await {
            Ok(result) => Outcome::Result(result),
            Err(error) => handle::unreadable(&error),
        },
        State::Queued | State::Running { .. } => working(tool, runner, task),
        State::InputRequired { questions, .. } => questions::asked(&tool.names, task, questions),
        State::Failed { cause: Cause::Ours(failure) } => failed(task, &view::told(task, failure), era),
        State::Failed { cause: Cause::Server { message, .. } } => match runner.store().outcome(task).await {
            Ok(error) => refused(task, error, message, era),
            Err(error) => handle::unreadable(&error),
        },
        State::Cancelled { by, sent } => {
            let by = match by {
                Canceller::Owner => "on request",
                Canceller::Operator => "by the operator",
            };
            let when = if *sent { "" } else { " before it was sent" };
            let text = format!("Job {} was cancelled {by}{when}. It has no result.", task.id);
            Said::of(task, text).failed().outcome()
        }
    }
}

fn working(tool: &Companion, runner: &Runner, task: &Committed<Task>) -> Outcome {
    let (now, live) = (runner.store().clock().now(), runner.live().get(&task.id));
    let how_far = view::status_message(task, live.as_deref(), now).unwrap_or_else(|| "working".to_owned());
    let text = format!(
        "Job {} of the tool `{}` has not ended: {how_far}. Call `{}` with the same job again. Do not call `{}` \
         again for it: that would do the work a second time. To stop the job, call `{}`.",
        task.id, task.tool, tool.names.check, task.tool, tool.names.cancel
    );
    Said::of(task, text).outcome()
}

fn failed(task: &Committed<Task>, failure: &Failure, era: Era) -> Outcome {
    let (why, again) = (&failure.message, again(failure).unwrap_or_default());
    let text = format!("Job {} of the tool `{}` failed: {why}.{again}", task.id, task.tool);
    with_error(task, text, RpcError::from(failure).raw(), era)
}

/// The server's own error: all of it for programs, and for a model what it can use. That may be what the data says, such as
/// a URL that is to be opened first.
fn refused(task: &Committed<Task>, spelled: Json, message: &str, era: Era) -> Outcome {
    let (mut text, spelled) = match (RpcError::from_server(spelled.clone()), era) {
        (Ok(error), Era::Modern) => (error.to_string(), spelled),
        (Ok(error), Era::Legacy) => {
            let error = reshape::legacy_error(error);
            (error.to_string(), error.raw().clone())
        }
        (Err(_), _) => (message.to_owned(), spelled),
    };
    if let Some(data) = spelled.member("data").filter(|data| !data.is_null() && data.len() <= MOST_DATA) {
        // Writing into a string cannot fail.
        let _ = write!(text, ", with this data: {}", data.as_str());
    }
    let text =
        format!("Job {} of the tool `{}` failed: the server answered with an error: {text}.", task.id, task.tool);
    with_error(task, text, &spelled, era)
}

/// The words, and the error as a client with tasks gets it, for programs.
fn with_error(task: &Committed<Task>, text: String, error: &Json, era: Era) -> Outcome {
    let mut structured = ObjectWriter::new();
    structured.string("job", task.id.as_str()).string("status", task.state.status());
    // Some hosts show a model nothing else of a result.
    structured.string("message", &text).raw("error", error);
    Said::of(task, text).failed().with(structured.finish()).outcome_for(era)
}

/// Whether the tool may be called again.
fn again(failure: &Failure) -> Option<String> {
    match failure.retry {
        Retry::Yes => Some(" The tool may be called again.".to_owned()),
        Retry::After(wait) => Some(format!(" The tool may be called again in {}.", rough(wait))),
        Retry::No => Some(" To call the tool again in the same way would not help.".to_owned()),
        Retry::Unknown => None,
    }
}
