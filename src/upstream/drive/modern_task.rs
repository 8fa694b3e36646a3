//! A task of a server of 2026-07-28 (SEP-2663), seen through to its end.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::input::{self, Questions};
use super::state::{State, Status};
use super::watch::{Polled, Wake, Watch};
use super::{Leg, malformed, unknown};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Answer, Asking, Json, Method, Outcome, QuestionKind, RpcError, reshape};

/// The questions of a task, by their keys, which never repeat in it.
#[derive(Default)]
struct Asked {
    /// All that were ever put.
    known: BTreeSet<String>,
    /// Those that wait: cancelled when the server does not want an answer any more.
    open: BTreeMap<String, CancellationToken>,
    answers: FuturesUnordered<BoxFuture<'static, (String, QuestionKind, Option<Answer>)>>,
}

/// Questions that one task may ask in all.
const QUESTIONS: usize = 1024;

/// Sees the task through. `created` is how it stood when it was made.
pub(super) async fn see_through<L: Leg>(mut watch: Watch<'_, L>, created: Status) -> Option<Outcome> {
    let mut asked = Asked::default();
    let (mut status, mut task) = (Status::Working, Json::empty_object());
    if created != Status::Working {
        // What it asks, or its end, stands in the answer to tasks/get only.
        match poll(&mut watch).await {
            Wake::Over(outcome) => return outcome,
            Wake::Ready(None) => {}
            Wake::Ready(Some((state, said))) => (status, task) = (state.status, said),
        }
    }
    loop {
        match status {
            Status::Working => asked.withdraw(&BTreeSet::new()),
            Status::InputRequired => {
                if let Err(outcome) = asked.put(&task, &watch) {
                    watch.cancel().await;
                    return Some(outcome);
                }
            }
            Status::Completed => return Some(completed(&task)),
            Status::Failed => return Some(failed(&task)),
            Status::Cancelled => return Some(watch.cancelled()),
        }
        match next(&mut watch, &mut asked).await {
            Wake::Over(outcome) => return outcome,
            Wake::Ready(None) => {}
            Wake::Ready(Some((state, said))) => (status, task) = (state.status, said),
        }
    }
}

/// Waits for an answer or the next poll.
async fn next<L: Leg>(watch: &mut Watch<'_, L>, asked: &mut Asked) -> Wake<Option<(State, Json)>> {
    let wait = watch.next_poll();
    let answered = async {
        tokio::select! {
            answered = asked.next() => Some(answered),
            () = tokio::time::sleep(wait) => None,
        }
    };
    let answered = match watch.wait(answered).await {
        Wake::Over(outcome) => return Wake::Over(outcome),
        Wake::Ready(answered) => answered,
    };
    if let Some((key, kind, answer)) = answered {
        asked.open.remove(&key);
        let Some(answer) = answer else { return Wake::Ready(None) };
        let response = match input::response(kind, answer) {
            Ok(response) => response,
            Err(error) => {
                watch.cancel().await;
                return Wake::Over(Some(Outcome::Error(error)));
            }
        };
        let mut responses = ObjectWriter::new();
        responses.raw(&key, &response);
        let update = watch.request(Method::UpdateTask, Some(("inputResponses", responses.finish_json())));
        match watch.ask(update).await {
            Wake::Over(outcome) => return Wake::Over(outcome),
            Wake::Ready(Outcome::Result(_)) => {}
            // Whatever it means, the next poll tells; a question that is still there is asked again.
            Wake::Ready(other) => {
                tracing::debug!(?other, "a server did not take an answer to a question of its task");
                asked.known.remove(&key);
            }
        }
    }
    poll(watch).await
}

async fn poll<L: Leg>(watch: &mut Watch<'_, L>) -> Wake<Option<(State, Json)>> {
    match watch.poll().await {
        Wake::Over(outcome) => Wake::Over(outcome),
        Wake::Ready(Polled::Lost(outcome)) => Wake::Over(Some(outcome)),
        Wake::Ready(Polled::Nothing) => Wake::Ready(None),
        Wake::Ready(Polled::Task(state, said)) => Wake::Ready(Some((state, said))),
    }
}

impl Asked {
    /// Puts what is new among the questions of `task`, and takes back what it does not ask any more.
    fn put<L: Leg>(&mut self, task: &Json, watch: &Watch<'_, L>) -> Result<(), Outcome> {
        let requests = task.member("inputRequests").unwrap_or_else(Json::empty_object);
        let questions = Questions::read(&requests).ok_or_else(|| malformed("its task asks what cannot be asked"))?;
        questions.check(&watch.call.caller.abilities).map_err(Outcome::Error)?;
        self.withdraw(&questions.0.iter().map(|(key, _)| key.clone()).collect());
        for (key, question) in questions.0 {
            if !self.known.insert(key.clone()) {
                continue;
            }
            if self.known.len() > QUESTIONS {
                return Err(malformed("its task asks without end"));
            }
            let (kind, asking) = input::put(question, watch.sender);
            let withdrawn = CancellationToken::new();
            self.open.insert(key.clone(), withdrawn.clone());
            self.answers.push(Box::pin(wait_for(key, kind, asking, withdrawn)));
        }
        Ok(())
    }

    /// Takes all questions back but these.
    fn withdraw(&mut self, wanted: &BTreeSet<String>) {
        self.open.retain(|key, withdrawn| {
            let keep = wanted.contains(key);
            if !keep {
                withdrawn.cancel();
            }
            keep
        });
    }

    /// The next question that was answered, or taken back. Never if none is open.
    async fn next(&mut self) -> (String, QuestionKind, Option<Answer>) {
        match self.answers.next().await {
            Some(answered) => answered,
            None => std::future::pending().await,
        }
    }
}

async fn wait_for(
    key: String,
    kind: QuestionKind,
    mut asking: Asking,
    withdrawn: CancellationToken,
) -> (String, QuestionKind, Option<Answer>) {
    let answer = tokio::select! {
        answer = asking.answer() => Some(answer),
        () = withdrawn.cancelled() => None,
    };
    (key, kind, answer)
}

fn completed(task: &Json) -> Outcome {
    match task.member("result").filter(Json::is_object) {
        Some(result) => Outcome::Result(result),
        None => malformed("its task is completed and has no result"),
    }
}

fn failed(task: &Json) -> Outcome {
    match task.member("error").filter(Json::is_object).map(RpcError::from_server) {
        // The call was taken: it is not the protocol that says no.
        Some(Ok(error)) => Outcome::Error(reshape::set_aside(error)),
        Some(Err(_)) | None => unknown("the server's task failed without saying why"),
    }
}
