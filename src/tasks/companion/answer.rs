//! Answers a question of a job.

use super::Companion;
use super::job::{self, Arguments};
use super::words::{Said, said_no};
use crate::protocol::form::{faults, fields};
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
    let task = arguments.job(tool, runner, call).await?;
    let question = question(&arguments, &task, &tool.names.check)?;
    let action = action(&arguments)?;
    let given = given(question, action, arguments.content.as_ref())?;
    let counted = runner.answer(&task, Responses::one(&question.key, given)).await.map_err(Outcome::Failed)?;
    let (key, task) = (question.key.clone(), job::find(runner, &task.owner, &task.id).await?);
    if counted == 0 {
        let text = format!(
            "Question \"{key}\" of job {} is not open any more: somebody else has answered it in the same moment, the tool \
             has taken it back, or the job has ended. This answer was not given. `{}` says how far the job is.",
            task.id, tool.names.check
        );
        return Ok(Said::of(&task, text).failed().outcome());
    }
    let next = match task.state.questions().len() {
        0 => format!("The job goes on; `{}` waits for its result.", tool.names.check),
        left => format!("{left} of its questions are still open; `{}` shows them.", tool.names.check),
    };
    let text = format!("The answer to \"{key}\" was given to job {}. {next}", task.id);
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
        (QuestionKind::Roots, Action::Accept) => folders(object(content)?),
        (QuestionKind::Sampling | QuestionKind::Roots, Action::Decline | Action::Cancel) => {
            Ok(Answer::Error(RpcError::new(REJECTED, "User rejected the request")))
        }
    }
}

/// A form that is filled in. What does not fit is told to the model, and not to the tool.
fn form(question: &OpenQuestion, content: Option<&Json>) -> Result<Answer, Outcome> {
    if question.params.member("mode").is_some_and(|mode| mode.as_str() == "\"url\"") {
        return Ok(Answer::Result(acted("accept", None)));
    }
    let fields = fields(&question.params);
    let content = match content {
        None if !fields.iter().any(|field| field.is_required) => Json::empty_object(),
        content => object(content)?.clone(),
    };
    let wrong = match content.read() {
        // A schema that names no fields may take any.
        Ok(_) if fields.is_empty() => Vec::new(),
        Ok(content) => faults(&fields, &content),
        Err(error) => vec![error.to_string()],
    };
    if !wrong.is_empty() {
        let wrong = wrong.join("; ");
        return Err(said_no(&format!(
            "The content does not fit the question: {wrong}. Nothing was answered; call this again."
        )));
    }
    Ok(Answer::Result(acted("accept", Some(&content))))
}

/// A whole result of `sampling/createMessage`, or its text alone.
fn completion(content: &Json) -> Result<Answer, Outcome> {
    if content.member("role").is_some() && content.member("content").is_some() {
        return message(content);
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

fn message(content: &Json) -> Result<Answer, Outcome> {
    let text = |name: &str| content.member(name).and_then(|text| text.read::<String>().ok());
    let is_block = |block: Json| block.is_object() && block.member("type").is_some();
    let has_blocks = content.member("content").is_some_and(|blocks| match blocks.elements() {
        Ok(listed) => listed.iter().all(|block| is_block(Json::of(blocks.bytes(), block))),
        Err(_) => is_block(blocks),
    });
    if !matches!(text("role").as_deref(), Some("assistant" | "user")) || !has_blocks {
        return Err(said_no(
            "A whole message has \"role\" (\"assistant\") and \"content\" ({\"type\":\"text\",\"text\":\"...\"}); the content \
             {\"text\":\"...\"} is enough. Nothing was answered.",
        ));
    }
    if text("model").is_some() {
        return Ok(Answer::Result(content.detached()));
    }
    let mut whole = ObjectWriter::new();
    let named = whole.members_of(content, |name| name != "model").map(|whole| {
        whole.string("model", "unknown");
    });
    Ok(Answer::Result(if named.is_ok() { whole.finish_json() } else { content.detached() }))
}

fn folders(content: &Json) -> Result<Answer, Outcome> {
    let is_root = |root: Json| root.member("uri").is_some_and(|uri| uri.read::<String>().is_ok());
    let are_roots = content.member("roots").is_some_and(|roots| {
        roots.elements().is_ok_and(|listed| listed.iter().all(|root| is_root(Json::of(roots.bytes(), root))))
    });
    if are_roots {
        return Ok(Answer::Result(content.detached()));
    }
    Err(said_no("The content must have \"roots\", a list such as [{\"uri\":\"file:///path\"}]. Nothing was answered."))
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
