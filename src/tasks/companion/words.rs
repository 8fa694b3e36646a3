//! What is said to a model.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::check::usual_wait;
use super::names::Names;
use super::questions;
use crate::policy::Policies;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{ClientSession, Json, Outcome, Rope};
use crate::runner::{Handed, Occasion, WriteHandle, view};
use crate::store::{Committed, INLINE};
use crate::task::Task;

/// Writes handles as normal results of tools.
#[derive(Debug)]
pub(super) struct Words {
    era: Era,
    names: Arc<Names>,
    policies: Policies,
}

/// The shape of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// 2025-11-25 and older.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// A result of a tool that is said in words.
#[derive(Debug)]
pub(super) struct Said {
    text: String,
    is_error: bool,
    /// `_meta`: the task, for programs.
    meta: Option<Json>,
    structured: Option<Rope>,
}

impl Era {
    /// That of a client with this session.
    pub(super) const fn of(session: &ClientSession) -> Self {
        match session {
            ClientSession::Legacy(_) => Self::Legacy,
            ClientSession::Stateless => Self::Modern,
        }
    }
}

impl Words {
    pub(super) fn new(era: Era, names: Arc<Names>, policies: Policies) -> Self {
        Self { era, names, policies }
    }
}

impl WriteHandle for Words {
    fn write(&self, handed: &Handed<'_>) -> Rope {
        let (task, names) = (handed.task, self.names.now());
        let (tool, id, check) = (&task.tool, task.id, &names.check);
        let mut text = match handed.occasion {
            Occasion::Made => format!(
                "This is not the result yet. The call of the tool `{tool}` was taken and goes on in the background as \
                 job {id}"
            ),
            Occasion::Joined => format!(
                "This is not the result yet. The same call of the tool `{tool}` was made before and still runs, so \
                 nothing was started again: this call joined it, as job {id}"
            ),
        };
        // Writing into a string cannot fail.
        if let Some(how_far) = view::status_message(task, handed.live, handed.now) {
            let _ = write!(text, " ({how_far})");
        }
        text.push('.');
        let _ = write!(
            text,
            " Do not call `{tool}` again for it: that would do the work a second time. To get the result, call \
             `{check}` with {{\"job\":\"{id}\"}}. It waits a while, {} at most, and returns as soon as the job has ended; \
             while it says that the job has not ended, call it again. To stop the job, call `{}`.",
            seconds(usual_wait(&self.policies, tool)),
            names.cancel
        );
        questions::add(&mut text, &names, task);
        Said::of(task, text).written(self.era)
    }
}

impl Said {
    /// Something about this job.
    pub(super) fn of(task: &Committed<Task>, text: String) -> Self {
        let mut meta = ObjectWriter::new();
        meta.string("dev.raincheck/taskId", task.id.as_str());
        meta.string("dev.raincheck/status", task.state.status());
        // How it ended is known to the record alone.
        if task.state.is_terminal()
            && let Some(facts) = view::facts(task, None, task.updated)
        {
            // What was just written is an object.
            let _ = meta.members_of(&facts, |_| true);
        }
        Self { text, is_error: false, meta: Some(meta.finish_json()), structured: None }
    }

    /// The same, of a call that came to nothing.
    pub(super) fn failed(self) -> Self {
        Self { is_error: true, ..self }
    }

    /// The same, with this for programs.
    pub(super) fn with(self, structured: Rope) -> Self {
        Self { structured: Some(structured), ..self }
    }

    /// The result, as a server would spell it.
    pub(super) fn outcome(self) -> Outcome {
        Outcome::Result(self.written(Era::Legacy).into_json())
    }

    /// The same, for a client of that era: what is large keeps its bytes, and with them its room.
    pub(super) fn outcome_for(self, era: Era) -> Outcome {
        let is_large = self.structured.as_ref().is_some_and(|structured| structured.len() > INLINE);
        if is_large { Outcome::Shaped(self.written(era)) } else { self.outcome() }
    }

    fn written(self, era: Era) -> Rope {
        let mut block = ObjectWriter::new();
        block.string("type", "text").string("text", &self.text);
        let mut result = ObjectWriter::new();
        if era == Era::Modern {
            result.string("resultType", "complete");
        }
        result.rope("content", array([block.finish()]));
        if let Some(structured) = self.structured {
            result.rope("structuredContent", structured);
        }
        result.boolean("isError", self.is_error);
        if let Some(meta) = &self.meta {
            result.raw("_meta", meta);
        }
        result.finish()
    }
}

/// `1 second`, `2.5 seconds`.
fn seconds(wait: Duration) -> String {
    let seconds = (wait.as_secs_f64() * 10.0).ceil() / 10.0;
    if wait.as_millis() == 1000 { "1 second".to_owned() } else { format!("{seconds} seconds") }
}

/// The result of a call that came to nothing before it was about any job.
pub(in crate::tasks) fn said_no(why: &str) -> Outcome {
    Said { text: why.to_owned(), is_error: true, meta: None, structured: None }.outcome()
}

/// An array of these.
pub(super) fn array(elements: impl IntoIterator<Item = Rope>) -> Rope {
    let mut array = Rope::from(Bytes::from_static(b"["));
    for (at, element) in elements.into_iter().enumerate() {
        if at > 0 {
            array.push(Bytes::from_static(b","));
        }
        array.append(element);
    }
    array.push(Bytes::from_static(b"]"));
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reshape;

    #[test]
    fn what_is_said_with_something_large_shares_its_bytes_and_looks_as_if_it_were_small() {
        let large = Json::string(&"x".repeat(INLINE));
        for era in [Era::Legacy, Era::Modern] {
            let said = || {
                let mut structured = ObjectWriter::new();
                structured.string("job", "j").raw("error", &large);
                let meta = Some(Json::empty_object());
                Said { text: "no".to_owned(), is_error: true, meta, structured: Some(structured.finish()) }
            };
            let Outcome::Result(small) = said().outcome() else { panic!() };
            let expected = match era {
                Era::Legacy => small,
                Era::Modern => reshape::complete(&small).unwrap().into_json(),
            };
            let Outcome::Shaped(shared) = said().outcome_for(era) else { panic!("it was copied") };
            assert!(
                shared.clone().into_pieces().iter().any(|piece| piece.as_ptr() == large.bytes().as_ptr()),
                "it was copied"
            );
            assert_eq!(shared.into_json(), expected);
        }
    }
}
