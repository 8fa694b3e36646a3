//! What the calls of all three tools have in common: their arguments, and the job that they name.

use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::Companion;
use super::words::said_no;
use crate::protocol::{Call, Json, Outcome};
use crate::runner::Runner;
use crate::store::Committed;
use crate::task::{Owner, Task, TaskId};
use crate::tasks::handle;

/// The arguments of the tools. A model may add others, which mean nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Arguments {
    job: Option<serde_json::Value>,
    wait_seconds: Option<serde_json::Value>,
    pub(super) question: Option<String>,
    pub(super) action: Option<String>,
    /// As it is spelled.
    #[serde(skip)]
    pub(super) content: Option<Json>,
}

/// Why a wait for a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Changed,
    /// It has been long enough, or the proxy stops.
    Enough,
}

impl Arguments {
    /// Those of a call.
    pub(super) fn of(call: &Call) -> Result<Self, Outcome> {
        let Some(raw) = call.params.raw().member("arguments").filter(|raw| !raw.is_null()).map(unquoted) else {
            return Ok(Self::default());
        };
        if !raw.is_object() {
            return Err(said_no("The arguments must be an object with \"job\", the handle. Nothing was done."));
        }
        let read = raw.read::<Self>().map_err(|error| said_no(&format!("The arguments cannot be read: {error}.")))?;
        Ok(Self { content: raw.member("content").filter(|content| !content.is_null()).map(unquoted), ..read })
    }

    /// The wished for seconds. Models also spell numbers as strings.
    pub(super) fn wait_seconds(&self) -> Option<f64> {
        let written = self.wait_seconds.as_ref()?;
        let seconds = written.as_f64().or_else(|| written.as_str()?.trim().parse().ok())?;
        seconds.is_finite().then(|| seconds.max(0.0))
    }

    /// The job that they name. One of somebody else is as unknown as one that never was.
    pub(super) async fn job(&self, tool: &Companion, runner: &Runner, call: &Call) -> Result<Committed<Task>, Outcome> {
        let Some(written) = self.job.as_ref().and_then(|job| job.as_str()) else {
            return Err(said_no(
                "The argument \"job\" is missing: the handle, a string, as the tool that was called before gave it.",
            ));
        };
        let Some(id) = handle_in(written) else { return Err(unknown()) };
        let owner = runner.store().owner(&call.caller.principal);
        match runner.store().get(&owner, &id).await {
            Ok(Some(task)) => Ok(task),
            Ok(None) if tool.elsewhere.keeps_some() => Err(unknown_here()),
            Ok(None) => Err(unknown()),
            Err(error) => Err(handle::unreadable(&error)),
        }
    }
}

/// The one handle in a text: models copy words and marks around it too, and may spell it in capitals.
fn handle_in(text: &str) -> Option<TaskId> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric());
    let mut handles = words.filter_map(|word| word.to_ascii_lowercase().parse::<TaskId>().ok());
    let first = handles.next()?;
    handles.all(|other| other == first).then_some(first)
}

/// Models also spell objects as strings.
fn unquoted(content: Json) -> Json {
    let inside = content.read::<String>().ok().and_then(|text| Json::parse(text.into()).ok());
    inside.filter(Json::is_object).unwrap_or(content)
}

/// The job as it is now.
pub(super) async fn find(runner: &Runner, owner: &Owner, id: &TaskId) -> Result<Committed<Task>, Outcome> {
    match runner.store().get(owner, id).await {
        Ok(Some(task)) => Ok(task),
        Ok(None) => Err(unknown()),
        Err(error) => Err(handle::unreadable(&error)),
    }
}

/// The job once `is_enough` of it, or as it is at the deadline or when the proxy stops.
pub(super) async fn wait_for(
    runner: &Runner,
    task: Committed<Task>,
    deadline: Instant,
    is_enough: impl Fn(&Task) -> bool,
) -> Result<Committed<Task>, Outcome> {
    let owner = task.owner;
    // First the watch, then the look: no change is missed in between.
    let mut watch = runner.store().watch(&task.id);
    let mut task = find(runner, &owner, &task.id).await?;
    while !is_enough(&task) {
        let woken = tokio::select! {
            biased;
            () = watch.changed() => Woken::Changed,
            () = sleep_until(deadline) => Woken::Enough,
            () = runner.ending() => Woken::Enough,
        };
        task = find(runner, &owner, &task.id).await?;
        if woken == Woken::Enough {
            break;
        }
    }
    Ok(task)
}

/// The same for all that cannot be shown, so that nobody learns of handles that are not theirs.
fn unknown() -> Outcome {
    said_no(
        "There is no such job: the handle is wrong, or it belongs to somebody else, or the job ended so long ago that \
         its result is not kept any more. Nothing was done.",
    )
}

/// The same, where another process may know the job.
fn unknown_here() -> Outcome {
    said_no(
        "There is no such job here: it is kept by another Raincheck of this host that is still running or stopping (ask \
         again in 30 s), or the handle is wrong, or it belongs to somebody else, or the job ended so long ago that its \
         result is not kept any more. Nothing was done.",
    )
}
