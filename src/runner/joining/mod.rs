//! A call with a key joins the first call that has it: one run, however often it is asked for.
//!
//! The first takes the key here, then in the store, with a record that is there before anything is sent. A repeat that
//! comes meanwhile waits for that record, and from then on for the task, as any repeat does that comes later, also
//! after a restart. Whether the first caller got a handle makes no difference to the others.

mod claim;
mod digests;
mod outcome;
mod party;
mod places;
mod rejoin;
mod repeat;
mod wait;

pub(super) use claim::NotMade;
pub(super) use digests::Digests;
pub(super) use outcome::{JOINED, cancelled};
pub(super) use party::{Party, Round};
pub(super) use places::{Joining, Reservation};
pub(super) use rejoin::{Retrier, rejoin};
pub(super) use repeat::{Repeat, Sought};
pub(super) use wait::Waiter;

use self::digests::LARGE;
use self::places::{Entry, Outlook, Stage};
use self::repeat::{Arguments, arguments};
use super::run::Run;
use super::seat::Held;
use super::{Promotion, stopping};
use crate::protocol::{Call, Failure, McpService, Outcome, Reason, ReplySender, Retry};
use crate::store::{Claimed, ReadError};
use crate::task::TaskId;

/// Where a repeat goes.
enum Found {
    /// Nowhere: it is the first.
    First(Held),
    /// To the task of the first, or it was answered.
    Joined,
}

/// Sees a call with a key through: runs it, or joins the call that has the key.
pub(super) async fn enter<S: McpService>(run: Run, sought: Sought, inner: S, call: Call, sender: ReplySender) {
    let found = Box::pin(look(&run, sought, &call, sender)).await;
    if let Found::First(held) = found {
        Box::pin(run.drive_held(inner, call, held)).await;
    }
}

async fn look(run: &Run, sought: Sought, call: &Call, sender: ReplySender) -> Found {
    let (store, server) = (&run.shared.store, &run.plan.server);
    let arguments = if call.params.raw().len() < LARGE {
        arguments(store, run.plan.what.name(), &call.params)
    } else {
        tokio::select! {
            biased;
            () = sender.cancelled() => return Found::Joined,
            arguments = of_large(run, call) => match arguments {
                Some(arguments) => arguments,
                None => return answered(sender, not_compared()),
            },
            () = run.shared.jobs.stopping() => return answered(sender, stopping()),
        }
    };
    find(run, &Repeat::of(store, server, call, sought, arguments), call, sender).await
}

/// The digest of what a large call asks for.
async fn of_large(run: &Run, call: &Call) -> Option<Arguments> {
    let (store, tool, params) = (run.shared.store.clone(), run.plan.what.name().to_owned(), call.params.clone());
    run.shared.digests.of(&run.principal, move || arguments(&store, &tool, &params)).await
}

async fn find(run: &Run, repeat: &Repeat, call: &Call, sender: ReplySender) -> Found {
    let shared = &run.shared;
    let owner = shared.store.owner(&run.principal);
    loop {
        let mut stage = match shared.joining.enter(repeat) {
            Entry::Differs => return answered(sender, key_reused()),
            Entry::Joins(stage) => stage,
            Entry::First(reservation) => match shared.store.earlier(&owner, &repeat.key, &repeat.claim).await {
                Ok(None) if run.shared.is_ending() => return answered(sender, stopping()),
                Ok(None) => {
                    let promote_at = match run.plan.way.promotion {
                        Promotion::Never | Promotion::AtOnce => None,
                        Promotion::After(after) => Some(call.arrived + after),
                    };
                    return Found::First(Held::reserved(sender, promote_at, reservation));
                }
                Ok(Some(Claimed::Earlier(task) | Claimed::Made(task))) => {
                    drop(reservation);
                    if shared.is_ending() && !task.state.is_terminal() && shared.live.get(&task.id).is_none() {
                        return answered(sender, left_behind());
                    }
                    return join(run, call, task.id, sender).await;
                }
                Ok(Some(Claimed::Differs)) => return answered(sender, key_reused()),
                Err(error) => return answered(sender, not_read(&error)),
            },
        };
        let ready = tokio::select! {
            biased;
            () = sender.cancelled() => return Found::Joined,
            ready = ready(run, repeat, &mut stage) => ready,
            () = shared.jobs.stopping() => return answered(sender, stopping()),
        };
        match ready {
            Outlook::Recorded(id) if shared.is_ending() && shared.live.get(&id).is_none() => {
                return answered(sender, left_behind());
            }
            Outlook::Recorded(id) => return join(run, call, id, sender).await,
            Outlook::Ended(failure) => return answered(sender, failure),
            Outlook::Free => {}
        }
    }
}

/// Waits until there is a task to join, or there will be none.
async fn ready(run: &Run, repeat: &Repeat, stage: &mut Stage) -> Outlook {
    let id = match stage.settled().await {
        Outlook::Recorded(id) => id,
        other @ (Outlook::Ended(_) | Outlook::Free) => return other,
    };
    let store = &run.shared.store;
    // A caller who gave no key does not want a run that is being stopped.
    if repeat.claim.within.is_some() && run.shared.live.get(&id).is_some_and(|live| live.is_cancelled()) {
        stage.gone().await;
        return Outlook::Free;
    }
    // It may have ended a moment ago, so that a repeat is a call of its own.
    match store.get(&store.owner(&run.principal), &id).await {
        Ok(Some(task)) if !repeat.claim.joins(&task, store.clock().now()) => {
            stage.gone().await;
            Outlook::Free
        }
        _ => Outlook::Recorded(id),
    }
}

async fn join(run: &Run, call: &Call, id: TaskId, sender: ReplySender) -> Found {
    let retrier = Retrier::of(call, &run.plan.server);
    Box::pin(Waiter::new(run, id, sender).retried_by(retrier).wait()).await;
    Found::Joined
}

fn answered(sender: ReplySender, failure: Failure) -> Found {
    sender.done(Outcome::Failed(failure));
    Found::Joined
}

/// The arguments could not be looked at.
fn not_compared() -> Failure {
    let message = "the call could not be compared with earlier ones, and was not sent";
    Failure::new(Reason::NotStarted, message, Retry::SOON)
}

/// The key was used for something else.
pub(super) fn key_reused() -> Failure {
    let message = "this idempotency key belongs to an earlier call, of another tool or with other arguments; nothing \
                   was sent; a new call needs a new key, and a repeat the same tool and arguments";
    Failure::new(Reason::KeyReused, message, Retry::No)
}

/// The call goes on in the next process.
pub(super) fn left_behind() -> Failure {
    let message = "Raincheck is stopping; the call is left to the next process, which goes on with it: send it again \
                   then, with the same key if it has one, and it joins that run";
    Failure::new(Reason::Stopping, message, Retry::SOON)
}

/// The store cannot say now whether there was an earlier call; nothing was sent.
fn not_read(error: &ReadError) -> Failure {
    let message = format!("{error}; whether this repeats an earlier call cannot be known now, so nothing was sent");
    Failure::new(Reason::Store, message, Retry::SOON)
}
