//! The wait of a caller who has joined an earlier call: for its outcome, a handle, or the questions that it asks.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::left_behind;
use super::outcome;
use super::party::Guest;
use super::rejoin::Retrier;
use crate::protocol::reply::Delivery;
use crate::protocol::{Failure, Handle, Outcome, ReplySender, Rope};
use crate::runner::run::Run;
use crate::runner::{Form, Live, Occasion, Promotion, Questions, Shared, Way, twin};
use crate::store::Committed;
use crate::task::{Owner, State, Task, TaskId};

/// How long a run may take to end or to be left when the proxy stops, before those who have joined it are told without.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A caller who has joined an earlier call.
#[derive(Debug)]
pub(in crate::runner) struct Waiter {
    shared: Arc<Shared>,
    owner: Owner,
    id: TaskId,
    sender: ReplySender,
    way: Way,
    /// When this caller came: the record of what it has joined may be younger.
    arrived: Instant,
    /// How this caller can come back with answers, if it can.
    retrier: Option<Box<Retrier>>,
}

impl Waiter {
    /// The caller of `run`, who joins the task `id`.
    pub(in crate::runner) fn new(run: &Run, id: TaskId, sender: ReplySender) -> Self {
        let shared = Arc::clone(&run.shared);
        let owner = shared.store.owner(&run.principal);
        Self { shared, owner, id, sender, way: run.plan.way.clone(), arrived: run.arrived, retrier: None }
    }

    /// A retry of an earlier call.
    pub(super) fn of_retry(shared: Arc<Shared>, id: TaskId, sender: ReplySender, way: Way, retrier: Retrier) -> Self {
        let owner = shared.store.owner(&retrier.principal);
        let arrived = retrier.arrived;
        Self { shared, owner, id, sender, way, arrived, retrier: Some(Box::new(retrier)) }
    }

    /// The same, for a caller who can come back with answers.
    pub(super) fn retried_by(self, retrier: Retrier) -> Self {
        Self { retrier: Some(Box::new(retrier)), ..self }
    }

    /// Waits, and answers. A caller who leaves meanwhile changes nothing for the others.
    pub(in crate::runner) async fn wait(self) {
        let store = self.shared.store.clone();
        // Before the first look, so that no change is missed.
        let mut watch = store.watch(&self.id);
        let guest = self.shared.live.get(&self.id).map(Guest::of);
        let mut stopped = pin!(stopped(Arc::clone(&self.shared), guest.is_some()));
        loop {
            let changes = guest.as_ref().map(|guest| guest.live().party().changes());
            // Before the look: what has ended here is in the store by then.
            let is_over = guest.as_ref().is_some_and(|guest| guest.live().party().is_over());
            let task = match store.get(&self.owner, &self.id).await {
                Ok(Some(task)) => task,
                Ok(None) => return self.fail("the earlier call with this key cannot be found any more"),
                Err(error) => return self.fail(&format!("the earlier call with this key cannot be read ({error})")),
            };
            if task.state.is_terminal() {
                let outcome = if self.has_handle(&task) {
                    self.handle(&task)
                } else {
                    outcome::of(&store, &task, &self.way.session).await
                };
                return self.sender.done(outcome);
            }
            if let Some(round) = guest.as_ref().and_then(|guest| self.round(guest)) {
                return self.sender.done(Outcome::Shaped(outcome::of_round(round)));
            }
            let age = guest.as_ref().map(|guest| guest.live().age());
            let due = self.due(&task, age.unwrap_or_else(|| store.clock().now().since(task.created)));
            if due.is_none() && guest.as_ref().is_some_and(|guest| asks_nobody(guest.live(), &task)) {
                return match self.round_of_record(&task) {
                    Some(round) => self.sender.done(Outcome::Shaped(round)),
                    None => self
                        .fail("the earlier call asks since Raincheck was restarted, and this caller cannot be asked"),
                };
            }
            if due == Some(Duration::ZERO) {
                if let Some(guest) = guest {
                    guest.leaves_with_handle();
                }
                let handle = self.handle(&task);
                return self.sender.done(handle);
            }
            if is_over {
                if self.shared.is_ending() {
                    return self.sender.done(Outcome::Failed(left_behind()));
                }
                return self.fail("the outcome of the earlier call could not be kept");
            }
            tokio::select! {
                biased;
                () = self.sender.cancelled() => return,
                () = watch.changed() => {}
                () = changed(changes) => {}
                () = self.elapsed(due) => {}
                () = &mut stopped => return match guest {
                    Some(_) => self.fail("Raincheck was stopped during the run"),
                    // Whoever takes it up is the next process.
                    None => self.sender.done(Outcome::Failed(left_behind())),
                },
            }
        }
    }

    /// How long until this caller is to get a handle; `None` for never. Its own wait counts too: a call gets its record when
    /// it is sent, or when its first caller has waited for `after`.
    fn due(&self, task: &Task, age: Duration) -> Option<Duration> {
        match (self.way.promotion, &task.state) {
            (Promotion::Never, _) => None,
            // Its questions are answered by who has a handle.
            (Promotion::AtOnce, _) | (Promotion::After(_), State::InputRequired { .. }) => Some(Duration::ZERO),
            (Promotion::After(after), _) => Some(after.saturating_sub(age.max(self.arrived.elapsed()))),
        }
    }

    /// Whether a task that has ended was one for this caller: it took long enough.
    fn has_handle(&self, task: &Task) -> bool {
        if let Form::Other(writer) = &self.way.form
            && !writer.is_for_ended()
        {
            return false;
        }
        match self.way.promotion {
            Promotion::Never => false,
            Promotion::AtOnce => true,
            Promotion::After(after) => task.created.after(after) <= task.updated,
        }
    }

    fn handle(&self, task: &Committed<Task>) -> Outcome {
        let live = self.shared.live.get(&self.id);
        let created = self.shared.handle(&self.way.form, task, live.as_deref(), Occasion::Joined);
        // Whether it arrives does not matter: it can be had again.
        let (delivery, _) = Delivery::new();
        Outcome::Task(Handle { created, delivery })
    }

    /// The questions that the first caller was sent away with, if this one may be too.
    fn round(&self, guest: &Guest) -> Option<Rope> {
        match self.way.questions {
            Questions::PassOn | Questions::Refuse => None,
            Questions::Promote | Questions::First { .. } | Questions::RoundTrip => {
                guest.live().party().round(&self.way.abilities)
            }
        }
    }

    /// What a run asks that was found again, for a caller who can come back with answers.
    fn round_of_record(&self, task: &Task) -> Option<Rope> {
        match self.way.questions {
            Questions::PassOn | Questions::Refuse => None,
            Questions::Promote | Questions::First { .. } | Questions::RoundTrip => {
                let questions = task.state.questions();
                let can_be_asked = twin::covers_all(&self.way.abilities, questions);
                self.retrier.as_ref().filter(|_| can_be_asked).map(|it| it.round(&self.shared.store, task, questions))
            }
        }
    }

    async fn elapsed(&self, due: Option<Duration>) {
        match due {
            Some(due) => self.shared.jobs.alarm(Instant::now() + due).await,
            None => pending().await,
        }
    }

    fn fail(self, how: &str) {
        self.sender.done(Outcome::Failed(Failure::outcome_unknown(how)));
    }
}

/// Resolves when nothing more is started; if the call runs here, when its run was to end and has had the time for that.
async fn stopped(shared: Arc<Shared>, runs_here: bool) {
    if runs_here {
        shared.jobs.stopping().await;
        sleep(LAST_WORDS).await;
    } else {
        tokio::select! {
            () = shared.draining.cancelled() => {}
            () = shared.jobs.stopping() => {}
        }
    }
}

/// Whether a run of an earlier process waits for an answer: nobody else can ask those who are held.
fn asks_nobody(live: &Live, task: &Task) -> bool {
    live.is_left() && matches!(task.state, State::InputRequired { .. })
}

async fn changed(changes: Option<impl Future<Output = ()>>) {
    match changes {
        Some(changes) => changes.await,
        None => pending().await,
    }
}
