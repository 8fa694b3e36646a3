//! What a task asks, put to a client that waits in `tasks/result` (2025-11-25, tasks, input required status).

use std::collections::BTreeMap;
use std::future::pending;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::tied;
use crate::protocol::{Abilities, Answer, Ask, Event, Question, ReplySender};
use crate::task::{OpenQuestion, Task};

/// The questions of one task that this client was asked.
#[derive(Default)]
pub(super) struct Asked {
    /// Those that are open in the record, by their key. Dropping the guard takes the question back.
    open: BTreeMap<String, DropGuard>,
    answers: FuturesUnordered<BoxFuture<'static, Option<(String, Answer)>>>,
}

impl Asked {
    /// Asks what is new, and takes back what is not asked any more, since somebody else has answered it or the tool has
    /// taken it back.
    pub(super) fn follow(&mut self, task: &Task, abilities: &Abilities, events: &ReplySender) {
        let questions = task.state.questions();
        self.open.retain(|key, _| questions.iter().any(|question| question.key == *key));
        for question in questions {
            if !self.open.contains_key(&question.key) {
                self.ask(question, task, abilities, events);
            }
        }
    }

    fn ask(&mut self, open: &OpenQuestion, task: &Task, abilities: &Abilities, events: &ReplySender) {
        let Ok(params) = tied(&open.params, task.id) else { return };
        let question = Question { kind: open.kind, params: params.into_json(), key: None };
        // Another client of the same owner can, who made the task.
        if !abilities.covers(&question) {
            return;
        }
        let (ask, mut asking) = Ask::new(question);
        let (key, closed) = (open.key.clone(), CancellationToken::new());
        self.open.insert(key.clone(), closed.clone().drop_guard());
        let answered = async move {
            tokio::select! {
                // `None` if the client has left: the question stays open for whoever comes next.
                answer = asking.given() => answer.map(|answer| (key, answer)),
                () = closed.cancelled() => None,
            }
        };
        self.answers.push(answered.boxed());
        events.event(Event::Ask(ask));
    }

    /// The next answer, with the key of its question. Cancel safe.
    pub(super) async fn next(&mut self) -> (String, Answer) {
        while let Some(answered) = self.answers.next().await {
            if let Some(answer) = answered {
                return answer;
            }
        }
        pending().await
    }

    /// The question is to be asked again: its answer could not be taken.
    pub(super) fn again(&mut self, key: &str) {
        self.open.remove(key);
    }
}
