//! The questions of a job, in words and for programs.

use std::fmt::Write as _;

use super::words::{Said, array};
use crate::config::CompanionNames;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Outcome, QuestionKind};
use crate::store::Committed;
use crate::task::{OpenQuestion, Task};

/// What is said of a job that waits for answers.
pub(super) fn asked(names: &CompanionNames, task: &Committed<Task>, questions: &[OpenQuestion]) -> Outcome {
    let mut text = format!("Job {} of the tool `{}` has not ended: it waits for an answer.", task.id, task.tool);
    add(&mut text, names, task);
    let list = array(questions.iter().map(|question| {
        let mut one = ObjectWriter::new();
        one.string("question", &question.key).string("method", question.kind.method()).raw("params", &question.params);
        one.finish()
    }));
    let mut structured = ObjectWriter::new();
    structured.string("job", task.id.as_str()).string("status", task.state.status());
    // Some hosts show a model nothing else of a result.
    structured.string("message", &text).rope("questions", list);
    Said::of(task, text).with(structured.finish()).outcome()
}

/// Adds what the job asks, if it does, and how to answer.
pub(super) fn add(text: &mut String, names: &CompanionNames, task: &Task) {
    for question in task.state.questions() {
        // Writing into a string cannot fail.
        let _ = write!(text, "\n\nQuestion \"{}\": {}", question.key, described(question));
        let _ = write!(
            text,
            "\nTo answer, call `{}` with {{\"job\":\"{}\",\"question\":\"{}\",\"action\":\"accept\"{}}}",
            names.answer,
            task.id,
            question.key,
            example(question)
        );
        text.push_str(" (or \"decline\" or \"cancel\" in the place of \"accept\", without content).");
    }
}

fn described(question: &OpenQuestion) -> String {
    let member = |name: &str| question.params.member(name);
    let text = |name: &str| member(name).and_then(|text| text.read::<String>().ok()).unwrap_or_default();
    match question.kind {
        QuestionKind::Elicitation if text("mode") == "url" => format!(
            "{}\nThe user is to open this address and finish there: {} . Accept means that the user agrees to that.",
            text("message"),
            text("url")
        ),
        QuestionKind::Elicitation => {
            let schema = member("requestedSchema").map_or_else(|| "{}".to_owned(), |schema| schema.as_str().to_owned());
            format!("{}\nThe content of the answer is an object of this JSON schema: {schema}", text("message"))
        }
        QuestionKind::Sampling => format!(
            "the tool wants a completion of a language model, which you may write yourself. The request \
             (sampling/createMessage): {}",
            question.params.as_str()
        ),
        QuestionKind::Roots => "the tool wants to know which folders it may work on.".to_owned(),
    }
}

/// The content that an answer wants, after a comma.
fn example(question: &OpenQuestion) -> &'static str {
    let by_url = question.params.member("mode").is_some_and(|mode| mode.as_str() == "\"url\"");
    match question.kind {
        QuestionKind::Elicitation if by_url => "",
        QuestionKind::Elicitation => ",\"content\":{…}",
        QuestionKind::Sampling => ",\"content\":{\"text\":\"the completion\"}",
        QuestionKind::Roots => ",\"content\":{\"roots\":[{\"uri\":\"file:///path\",\"name\":\"a name\"}]}",
    }
}
