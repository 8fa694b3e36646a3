//! A retry with answers (2026-07-28, multi round-trip requests) whose run does not wait for it here: an earlier process has
//! asked, or the call has become a task since. If it has a record it is found by that.

use std::sync::Arc;

use tokio::time::Instant;

use super::wait::Waiter;
use super::{left_behind, not_read};
use crate::protocol::{Call, Failure, Outcome, Principal, ReplySender, Rope};
use crate::runner::parked::LONGEST;
use crate::runner::request_state::{AS_RECORDED, Claim, Subject};
use crate::runner::{Responses, Runner, Shared, Way, rounds};
use crate::store::Store;
use crate::task::{OpenQuestion, Task};

/// Who may come back with answers, and with which request.
#[derive(Debug)]
pub(in crate::runner) struct Retrier {
    pub(super) principal: Principal,
    pub(super) arrived: Instant,
    server: Arc<str>,
    subject: Subject,
}

impl Retrier {
    /// The caller of `call`, of the server with this name.
    pub(in crate::runner) fn of(call: &Call, server: &Arc<str>) -> Self {
        let (principal, arrived) = (call.caller.principal.clone(), call.arrived);
        Self { principal, arrived, server: Arc::clone(server), subject: Subject::of(call) }
    }

    /// The round that asks what the record of the task asks.
    pub(super) fn round(&self, store: &Store, task: &Task, questions: &[OpenQuestion]) -> Rope {
        let expires = store.clock().now().after(LONGEST);
        let claim = Claim { task: task.id, round: AS_RECORDED, expires };
        rounds::input_required(questions, &claim.sealed(store, &self.principal, &self.server, &self.subject))
    }
}

/// Goes on with the call of this claim, if it is in the store.
pub(in crate::runner) async fn rejoin(
    shared: Arc<Shared>,
    claim: Claim,
    responses: Responses,
    retrier: Retrier,
    way: Way,
    sender: ReplySender,
) {
    let (store, id) = (&shared.store, claim.task);
    let is_late = claim.expires <= store.clock().now();
    let failure = match store.get(&store.owner(&retrier.principal), &id).await {
        Ok(Some(task)) if !task.state.is_terminal() && shared.is_ending() && shared.live.get(&id).is_none() => {
            left_behind()
        }
        Ok(Some(task)) => {
            let responses = if is_late { Responses::default() } else { responses };
            let open = task.state.questions();
            let responses = match responses.checked(|key| open.iter().any(|question| question.key == key)) {
                Ok(responses) => responses,
                Err(error) => return sender.done(Outcome::Error(error)),
            };
            match Runner(Arc::clone(&shared)).answer(&task, responses).await {
                Ok(_) => return Waiter::of_retry(Arc::clone(&shared), id, sender, way, retrier).wait().await,
                Err(failure) => failure,
            }
        }
        Ok(None) if is_late => Failure::outcome_unknown("the answers came too late"),
        Ok(None) => Failure::outcome_unknown("the run that asked is gone"),
        Err(error) => not_read(&error),
    };
    sender.done(Outcome::Failed(failure));
}
