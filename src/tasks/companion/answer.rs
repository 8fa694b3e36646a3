//! Answers a question of a job.

use super::Companion;
use super::job::{self, Arguments};
use super::words::{Said, said_no};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Answer, Call, Json, Outcome, QuestionKind, RpcError};
use crate::runner::{Responses, Runner};
use crate::store::Committed;
use crate::task::{OpenQuestion, Task};

/// What is done with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Accept,
    Decline,
    Cancel,
}

/// -1 is what the specification's own example says of a user who refuses (2025-11-25, sampling, error handling).
const REJECTED: i64 = -1;

/// Answers the question, and says what comes next.
pub(super) async fn answer(tool: &Companion, runner: &Runner, call: &Call) -> Result<Outcome, Outcome> {
    let arguments = Arguments::of(call)?;
    let task = arguments.job(runner, call).await?;
    let question = question(&arguments, &task, &tool.names.check)?;
    let action = action(&arguments)?;
    let given = given(question, action, arguments.content.as_ref())?;
    runner.answer(&task, Responses::one(&question.key, given)).await.map_err(Outcome::Failed)?;
    let task = job::find(runner, &task.owner, &task.id).await?;
    let next = match task.state.questions().len() {
        0 => format!("The job goes on; `{}` waits for its result.", tool.names.check),
        left => format!("{left} of its questions are still open; `{}` shows them.", tool.names.check),
    };
    let text = format!("The answer to \"{}\" was given to job {}. {next}", question.key, task.id);
    Ok(Said::of(&task, text).outcome())
}

/// The question that is meant: the only one need not be named.
fn question<'a>(arguments: &Arguments, task: &'a Committed<Task>, check: &str) -> Result<&'a OpenQuestion, Outcome> {
    let open = task.state.questions();
    let keys = || open.iter().map(|question| format!("\"{}\"", question.key)).collect::<Vec<_>>().join(", ");
    let no = |text: String| Err(Said::of(task, text).failed().outcome());
    match (&arguments.question, open) {
        (_, []) => no(format!(
            "Job {} asks nothing now (it may have been answered, or the job has ended); `{check}` says how far it is.",
            task.id
        )),
        (None, [only]) => Ok(only),
        (None, _) => no(format!("The argument \"question\" is missing. Open are: {}.", keys())),
        (Some(key), open) => match open.iter().find(|question| question.key == *key) {
            Some(question) => Ok(question),
            None => no(format!("No question of the job with this name is open. Open are: {}.", keys())),
        },
    }
}

fn action(arguments: &Arguments) -> Result<Action, Outcome> {
    match arguments.action.as_deref() {
        None | Some("accept") => Ok(Action::Accept),
        Some("decline") => Ok(Action::Decline),
        Some("cancel") => Ok(Action::Cancel),
        Some(_) => Err(said_no("The argument \"action\" must be accept, decline or cancel. Nothing was answered.")),
    }
}

/// The answer, in the shape that the question's kind wants.
fn given(question: &OpenQuestion, action: Action, content: Option<&Json>) -> Result<Answer, Outcome> {
    match (question.kind, action) {
        (QuestionKind::Elicitation, Action::Accept) => form(question, content),
        (QuestionKind::Elicitation, Action::Decline) => Ok(Answer::Result(acted("decline", None))),
        (QuestionKind::Elicitation, Action::Cancel) => Ok(Answer::Result(acted("cancel", None))),
        (QuestionKind::Sampling, Action::Accept) => completion(object(content)?),
        (QuestionKind::Roots, Action::Accept) => {
            let content = object(content)?;
            if content.member("roots").is_none_or(|roots| roots.elements().is_err()) {
                return Err(said_no("The content must have \"roots\", a list. Nothing was answered."));
            }
            Ok(Answer::Result(content.detached()))
        }
        (QuestionKind::Sampling | QuestionKind::Roots, Action::Decline | Action::Cancel) => {
            Ok(Answer::Error(RpcError::new(REJECTED, "User rejected the request")))
        }
    }
}

/// A form that is filled in. What is plainly missing is told to the model, and not to the tool.
fn form(question: &OpenQuestion, content: Option<&Json>) -> Result<Answer, Outcome> {
    if question.params.member("mode").is_some_and(|mode| mode.as_str() == "\"url\"") {
        return Ok(Answer::Result(acted("accept", None)));
    }
    let schema = question.params.member("requestedSchema");
    let required = schema.as_ref().and_then(|schema| schema.member("required"));
    let required: Vec<String> = required.and_then(|required| required.read().ok()).unwrap_or_default();
    let content = match content {
        None if required.is_empty() => Json::empty_object(),
        content => object(content)?.clone(),
    };
    let missing: Vec<_> = required.iter().filter(|name| content.member(name).is_none()).cloned().collect();
    if !missing.is_empty() {
        return Err(said_no(&format!("The content lacks {}. Nothing was answered.", missing.join(", "))));
    }
    Ok(Answer::Result(acted("accept", Some(&content))))
}

/// A whole result of `sampling/createMessage`, or its text alone.
fn completion(content: &Json) -> Result<Answer, Outcome> {
    if content.member("role").is_some() && content.member("content").is_some() {
        return Ok(Answer::Result(content.detached()));
    }
    let Some(text) = content.member("text").filter(|text| text.read::<String>().is_ok()) else {
        return Err(said_no("The content must have \"text\", a string: the completion. Nothing was answered."));
    };
    let mut block = ObjectWriter::new();
    block.string("type", "text").raw("text", &text);
    let mut message = ObjectWriter::new();
    message.string("role", "assistant").rope("content", block.finish());
    message.string("model", "unknown").string("stopReason", "endTurn");
    Ok(Answer::Result(message.finish_json()))
}

fn object(content: Option<&Json>) -> Result<&Json, Outcome> {
    content.filter(|content| content.is_object()).ok_or_else(|| {
        said_no("The argument \"content\" must be an object, as the question describes it. Nothing was answered.")
    })
}

fn acted(action: &str, content: Option<&Json>) -> Json {
    let mut result = ObjectWriter::new();
    result.string("action", action);
    if let Some(content) = content {
        result.raw("content", content);
    }
    result.finish_json()
}
