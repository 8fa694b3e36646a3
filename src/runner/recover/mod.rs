//! Going on with what an earlier process left: tasks that wait are run, runs are found again at their server, or begun again
//! where the policy says so, and the rest is recorded as lost. Nothing is sent that may have been sent before, but for
//! the one second run of a policy.
//!
//! All of that goes on behind the start: clients can come while it does.

mod again;
mod anchoring;
mod found;
mod parcel;
mod waiting;

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::run::Run;
use super::seat::{HandleDelivery, Owned};
use super::settler::Settler;
use super::shown::Showing;
use super::wishes::{Wishes, forget};
use super::{Plan, Runner};
use crate::config::Cost;
use crate::protocol::{Abilities, Call, Caller, ClientSession, Credentials, McpService, Method, Params, TaskSupport};
use crate::protocol::{Failure, Json, Reason, Retry};
use crate::store::{Anchored, Committed, Ending};
use crate::task::{MOST_RERUNS, State, Task};

pub(super) use again::{Lost, is_lost};
pub(super) use anchoring::Anchoring;
pub(super) use parcel::Parcel;

/// What becomes of a task that an earlier process left.
#[derive(Debug)]
enum Fate {
    /// Its call is sent, as soon as there is a slot.
    Send,
    /// Its run may go on at the server.
    Find(Anchored),
    /// Its run is lost, and is begun again.
    Again,
    /// It ends so.
    End(Ending),
}

/// Lost tasks that are settled at the same time: enough for one group commit, few enough for the store's queue.
const AT_ONCE: usize = 64;

/// Lost tasks that one line of the log names.
const SHOWN: usize = 16;

impl Runner {
    /// Goes on with tasks that an earlier process left open, on the server `inner`, each as its plan says. To be called
    /// before clients can come. Returns at once.
    pub fn recover<S: McpService>(&self, inner: &S, left: Vec<(Committed<Task>, Plan)>) {
        let (mut lost, wishes) = (Vec::new(), Wishes::read(&self.0.store));
        for (task, plan) in left {
            let wish = wishes.of(&task.id);
            let fate = match (self.fate(&task, &plan), wish) {
                (Fate::Send | Fate::Again | Fate::End(_), Some(by)) => Fate::End(Ending::cancelled(by)),
                // It may not know of the cancel, and is told once it is found.
                (fate @ Fate::Find(_), _) | (fate, None) => fate,
            };
            tracing::debug!(task = ?task.id, tool = task.tool, ?fate, "a task was left by an earlier process");
            let principal = self.0.admission.who(&task.owner);
            let plan = self.0.admission.bounded(&principal, plan);
            let run = Run {
                shared: Arc::clone(&self.0),
                principal,
                plan,
                parcel: Parcel::Stored,
                reruns: task.reruns,
                spent: Cost::ZERO,
                arrived: Instant::now(),
                showing: Showing::default(),
            };
            let inner = inner.clone();
            match fate {
                Fate::Send => {
                    let owned = self.take_up(&task);
                    self.0.jobs.spawn("run a task that was left", run.send_left(inner, owned, task));
                }
                Fate::Again => {
                    let owned = self.take_up(&task);
                    self.0.jobs.spawn("run a lost task again", run.send_again(inner, owned, task));
                }
                Fate::Find(anchored) => {
                    let owned = self.take_up(&task);
                    if let Some(by) = wish {
                        owned.live.cancel_as_kept(by);
                    }
                    self.0.jobs.spawn("find a run again", run.find(inner, owned, task, anchored));
                }
                Fate::End(ending) => lost.push((task, ending)),
            }
        }
        self.end_lost(lost);
    }

    /// Ends tasks of an earlier process whose server is not in the configuration any more, and forgets what it left of cancels
    /// that had their effect. To be called after [`Runner::recover`]. Returns at once.
    pub fn abandon(&self, left: Vec<Committed<Task>>) {
        let why = "its server is not in the configuration any more";
        let wishes = Wishes::read(&self.0.store);
        let ended = |task: Committed<Task>| {
            if let Some(by) = wishes.of(&task.id) {
                return (task, Ending::cancelled(by));
            }
            let failure = match task.state {
                State::Queued if task.reruns == 0 => not_started(why),
                _ => Failure::outcome_unknown(&format!("Raincheck was restarted during the run, and {why}")),
            };
            (task, Ending::Failed(failure))
        };
        self.end_lost(left.into_iter().map(ended).collect());
        self.forget_cancels();
    }

    /// Forgets cancels whose tasks had ended before their process did.
    fn forget_cancels(&self) {
        let store = self.0.store.clone();
        let forget = async move {
            match Wishes::read(&store).fulfilled(&store) {
                Ok(ended) => stream::iter(ended).for_each_concurrent(AT_ONCE, |id| forget(&store, id)).await,
                Err(error) => tracing::warn!(%error, "old cancels cannot be looked at"),
            }
        };
        self.0.jobs.spawn("forget old cancels", forget);
    }

    fn fate(&self, task: &Task, plan: &Plan) -> Fate {
        let store = &self.0.store;
        let has_call = store.has_dispatch(&task.id);
        match &task.state {
            State::Queued if has_call => Fate::Send,
            State::Queued if task.reruns == 0 => Fate::End(Ending::Failed(not_started(
                "what was needed to send it, such as its caller's credentials, is not kept",
            ))),
            State::Running { .. } | State::InputRequired { .. } => match store.anchored(&task.id) {
                Ok(Some(anchored)) => Fate::Find(anchored),
                Ok(None) | Err(_) if has_call && may_run_again(task, plan) => Fate::Again,
                Ok(None) | Err(_) => Fate::End(lost("Raincheck was restarted during the run")),
            },
            State::Queued | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } => {
                Fate::End(lost("Raincheck was restarted before the run was begun again"))
            }
        }
    }

    /// From here on the task is live: it can be cancelled.
    fn take_up(&self, task: &Task) -> Owned {
        let shared = &self.0;
        let live = shared.live.add_left(task.id, shared.store.clock().now().since(task.created));
        let settler = Settler::new(task.id, shared.store.clone(), shared.live.clone(), shared.jobs.clone());
        Owned { settler, live, delivery: HandleDelivery::Out }
    }

    fn end_lost(&self, lost: Vec<(Committed<Task>, Ending)>) {
        if lost.is_empty() {
            return;
        }
        let (count, first) = (lost.len(), lost.iter().map(|(task, _)| task.id).take(SHOWN).collect::<Vec<_>>());
        tracing::warn!(tasks = count, ?first, "tasks were lost with the last process; they are settled");
        let store = self.0.store.clone();
        let end = move |(task, ending): (Committed<Task>, Ending)| {
            let store = store.clone();
            async move {
                let was_cancelled = !matches!(ending, Ending::Failed(_));
                if let Err(error) = store.settle(&task.id, ending).await {
                    tracing::error!(task = ?task.id, %error, "a lost task could not be settled");
                } else if was_cancelled {
                    forget(&store, task.id).await;
                }
            }
        };
        self.0.jobs.spawn("settle lost tasks", stream::iter(lost).for_each_concurrent(AT_ONCE, end));
    }
}

fn may_run_again(task: &Task, plan: &Plan) -> bool {
    plan.policy.on_lost == crate::config::OnLost::Rerun && task.reruns < MOST_RERUNS
}

fn lost(how: &str) -> Ending {
    Ending::Failed(Failure::outcome_unknown(how))
}

fn not_started(why: &str) -> Failure {
    let text =
        format!("Raincheck was restarted before the call was sent, and {why}; nothing was run, call the tool again");
    Failure::new(Reason::NotStarted, text, Retry::Yes)
}

/// A call on behalf of a task that was left.
fn call(method: Method, params: Json, abilities: Abilities, run: &Run) -> Option<Call> {
    let params = Params::read(&method, Some(params)).ok()?;
    let principal = run.principal.clone();
    let caller = Caller {
        abilities,
        tasks: TaskSupport::Declared,
        session: ClientSession::Stateless,
        ..Caller::of_modern(&params, principal, Credentials::default())
    };
    Some(Call { method, params, caller, arrived: tokio::time::Instant::now() })
}
