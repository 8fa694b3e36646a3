//! Answers to the questions of a task (SEP-2663, task update requests).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{Live, Responses, Runner};
use crate::protocol::{Answer, Failure};
use crate::store::{ChangeError, Closing, Store};
use crate::task::{Refusal, Task, TaskId};

/// How often an answer is offered to a store that cannot take it, and how long at first to wait in between.
const TRIES: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(20);

impl Runner {
    /// Answers questions of `task`, whose owner the caller has checked, and says how many of these answers count. Each
    /// question is durably taken out of the record and then answered; keys that are not open are ignored, and so are
    /// answers to a question that somebody else has answered before. An error says that the store could not take
    /// all of them; those it took are answered, the others are still open.
    pub async fn answer(&self, task: &Task, responses: Responses) -> Result<usize, Failure> {
        let open = task.state.questions();
        let known: Vec<_> =
            responses.into_iter().filter(|(key, _)| open.iter().any(|question| question.key == *key)).collect();
        let Some(live) = self.live().get(&task.id).filter(|_| !known.is_empty()) else { return Ok(0) };
        let (id, store) = (task.id, self.store().clone());
        let (done, all_done) = oneshot::channel();
        // A caller who leaves must not take along an answer that the record does not ask for any more.
        self.0.jobs.spawn("answer questions", async move {
            let answering = known.into_iter().map(|(key, answer)| give(&store, &live, id, key, answer));
            let given = futures_util::future::join_all(answering).await;
            let counted = given.into_iter().map(|given| given.map(usize::from)).sum::<Result<usize, Failure>>();
            let _ = done.send(counted);
        });
        all_done.await.unwrap_or_else(|_| Err(Failure::outcome_unknown("the answers were lost inside Raincheck")))
    }
}

/// Answers one question; false if somebody else was first.
async fn give(store: &Store, live: &Arc<Live>, id: TaskId, key: String, answer: Answer) -> Result<bool, Failure> {
    let mut wait = FIRST_WAIT;
    let mut tries = 1;
    loop {
        match store.close_question(&id, &key, Closing::Answered).await {
            Ok(_) => break,
            // An earlier try, which was thought to have failed, may have done it.
            Err(ChangeError::Refused(Refusal::NotAsked, _)) if tries > 1 => break,
            // Answered by somebody else, withdrawn, or the task has ended.
            Err(ChangeError::Refused(..) | ChangeError::Unknown) => return Ok(false),
            Err(error) if error.is_final() || tries == TRIES => return Err(error.to_failure()),
            Err(error) => tracing::warn!(task = ?id, %error, "an answer waits for the store"),
        }
        sleep(wait).await;
        wait *= 2;
        tries += 1;
    }
    let Some(ask) = live.board().take(&key) else { return Ok(false) };
    ask.answer(answer);
    Ok(true)
}
