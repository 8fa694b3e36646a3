//! Asking after a task of the server until it has an end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::state::{State, Status};
use super::{Leg, Manners, unknown};
use crate::config::ForwardCancel;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Call, Event, Failure, Json, Method, Outcome, Params, Progress, Reply, ReplySender, Retry, TaskSupport,
};
use crate::upstream::questions::{Seat, Verdict};

/// A task of the server that a call of ours became.
pub(super) struct Watch<'a, L> {
    pub(super) leg: &'a L,
    /// The call whose task it is.
    pub(super) call: &'a Call,
    pub(super) sender: &'a mut ReplySender,
    /// What the server says of the task when the call has its answer.
    later: Option<Reply>,
    /// The place of the task among those on whose behalf the server asks.
    seat: Option<Seat>,
    /// There is more to be known than the server was asked for.
    stirred: Arc<Notify>,
    manners: Manners,
    id: Json,
    interval: Duration,
    /// Requests in a row that failed.
    failures: u32,
    last_failure: String,
    message: Option<String>,
    report: Report,
    wish: Wish,
}

/// How the caller is told what the server is doing.
#[derive(Debug)]
enum Report {
    /// So many messages were passed on as progress, under their own numbers. To `Passed` when the server reports progress.
    Counted(u64),
    /// The server reports progress. What it says without a number goes with the next one: numbers must grow.
    Passed,
}

/// What the caller wants.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// The outcome.
    Outcome,
    /// That the server stops, which it was asked to. The outcome is waited for until then; `None` for as long as
    /// somebody listens.
    Stop(Option<Instant>),
}

/// What ended a wait.
#[derive(Debug)]
pub(super) enum Wake<T> {
    /// What was waited for.
    Ready(T),
    /// The call is over with this outcome; `None` if nobody waits for it any more.
    Over(Option<Outcome>),
}

/// What the server says of a task without being asked.
#[derive(Debug)]
enum News {
    /// It got on with it.
    Progress(Progress),
    /// How a task stands; any of the session.
    Status(State),
}

/// What came of a poll.
#[derive(Debug)]
pub(super) enum Polled {
    /// The task, and all that the server says of it.
    Task(State, Json),
    /// Nothing; another poll may say more.
    Nothing,
    /// The task is lost.
    Lost(Outcome),
}

/// Requests in a row that may fail: with the waits in between about two minutes.
const FAILURES: u32 = 8;
/// The longest wait between two requests of which the first failed.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long one request may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long the server may take to acknowledge a cancel.
const CANCEL: Duration = Duration::from_secs(5);

impl<'a, L: Leg> Watch<'a, L> {
    /// Watches the task that `call` became.
    pub(super) fn new(
        leg: &'a L,
        call: &'a Call,
        sender: &'a mut ReplySender,
        manners: Manners,
        created: &State,
    ) -> Self {
        let mut watch = Self {
            leg,
            call,
            sender,
            later: None,
            seat: None,
            stirred: Arc::default(),
            manners,
            id: Json::string(&created.id),
            interval: created.interval,
            failures: 0,
            last_failure: String::new(),
            message: None,
            report: Report::Counted(0),
            wish: Wish::Outcome,
        };
        watch.report(created);
        watch
    }

    /// The same, of a task of 2025-11-25, of which the server speaks out of `later` too. It may ask at any time.
    pub(super) fn of_old_server(self, later: Reply) -> Self {
        let seat = self.leg.floor().map(|floor| floor.enter_task(self.call, &self.id, self.sender.events()));
        Self { later: Some(later), seat, ..self }
    }

    /// A request about the task. `more` are other members of its parameters.
    pub(super) fn request(&self, method: Method, more: Option<(&str, Json)>) -> Call {
        let mut params = ObjectWriter::new();
        params.raw("taskId", &self.id);
        if let Some((name, value)) = &more {
            params.raw(name, value);
        }
        let params = Params::read(&method, Some(params.finish_json()));
        let mut caller = self.call.caller.clone();
        caller.tasks = TaskSupport::Declared;
        caller.progress_token = None;
        // An object that we wrote can be read.
        let params = params.unwrap_or_else(|_| self.call.params.clone());
        Call { method, params, caller, arrived: Instant::now() }
    }

    /// Waits for `ready`, and has the server stopped when that is wanted.
    pub(super) async fn wait<T>(&mut self, ready: impl Future<Output = T>) -> Wake<T> {
        let mut ready = std::pin::pin!(ready);
        let stop = self.sender.cancellation();
        loop {
            let (stopping, deadline) = match self.wish {
                Wish::Outcome => (false, None),
                Wish::Stop(deadline) => (true, deadline),
            };
            tokio::select! {
                biased;
                () = self.sender.abandoned() => {
                    self.cancel().await;
                    return Wake::Over(None);
                }
                () = stop.cancelled(), if !stopping => {
                    if let Some(seat) = &self.seat {
                        seat.cancelled();
                    }
                    self.cancel().await;
                    let patience = match self.manners.forward {
                        ForwardCancel::Forward | ForwardCancel::Never => Some(Instant::now() + self.manners.grace),
                        ForwardCancel::Ignored => None,
                    };
                    self.wish = Wish::Stop(patience);
                }
                verdict = verdict(self.seat.as_ref()) => {
                    self.cancel().await;
                    return Wake::Over(Some(verdict.outcome()));
                }
                Some(news) = news_of(&mut self.later) => match news {
                    News::Progress(progress) => self.pass(progress),
                    News::Status(state) => self.told(&state),
                },
                value = &mut ready => return Wake::Ready(value),
                () = sleep_until(deadline) => {
                    return Wake::Over(Some(unknown("the server was asked to stop its task and did not in time")));
                }
            }
        }
    }

    /// Waits until it is time to ask again.
    pub(super) async fn pause(&mut self) -> Wake<()> {
        let (wait, stirred, leg) = (self.next_poll(), Arc::clone(&self.stirred), self.leg);
        self.wait(async move {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stirred.notified() => {}
                () = leg.over() => {}
            }
        })
        .await
    }

    /// How long to wait before the next poll.
    pub(super) fn next_poll(&self) -> Duration {
        let backed_off = self.interval.saturating_mul(2_u32.saturating_pow(self.failures));
        if self.failures == 0 { self.interval } else { backed_off.min(LONGEST_WAIT.max(self.interval)) }
    }

    /// Sends a request and waits for what comes of it; its events are dropped.
    pub(super) async fn ask(&mut self, call: Call) -> Wake<Outcome> {
        let reply = self.leg.send(call);
        self.wait(async {
            let late = |_| unknown("the server did not answer");
            tokio::time::timeout(PATIENCE, reply.outcome()).await.unwrap_or_else(late)
        })
        .await
    }

    /// Asks how the task stands.
    pub(super) async fn poll(&mut self) -> Wake<Polled> {
        let outcome = match self.ask(self.request(Method::GetTask, None)).await {
            Wake::Ready(outcome) => outcome,
            Wake::Over(outcome) => return Wake::Over(outcome),
        };
        Wake::Ready(match outcome {
            Outcome::Result(task) => match State::read(&task) {
                Some(state) => {
                    self.failures = 0;
                    self.interval = state.interval;
                    self.report(&state);
                    Polled::Task(state, task)
                }
                None => self.failed("its answer to tasks/get is none"),
            },
            Outcome::Error(error) if matches!(error.code(), code::INVALID_PARAMS | code::METHOD_NOT_FOUND) => {
                Polled::Lost(unknown(&format!("the server does not know its task any more: {error}")))
            }
            Outcome::Error(error) => self.failed(&error.to_string()),
            Outcome::Failed(failure) => {
                if let Retry::After(wait) = failure.retry {
                    self.interval = self.interval.max(wait.min(LONGEST_WAIT));
                }
                self.failed(&failure.message)
            }
            Outcome::Shaped(_) | Outcome::Task(_) => self.failed("its answer to tasks/get is none"),
        })
    }

    /// Counts a request that failed.
    pub(super) fn failed(&mut self, why: &str) -> Polled {
        self.failures += 1;
        why.clone_into(&mut self.last_failure);
        let is_over = self.leg.over().now_or_never().is_some();
        if self.failures < FAILURES && !is_over {
            return Polled::Nothing;
        }
        Polled::Lost(unknown(&format!("the server has a task for the call, and could not be asked after it: {why}")))
    }

    /// Tells the caller what the server says it is doing.
    fn report(&mut self, state: &State) {
        if state.message.is_none() || state.message == self.message {
            return;
        }
        self.message.clone_from(&state.message);
        let Report::Counted(count) = &mut self.report else { return };
        *count += 1;
        let progress = Json::from_value(&(*count).into());
        self.sender.event(Event::Progress(Progress { progress, total: None, message: state.message.clone() }));
    }

    /// The server says of itself how the task stands. It may never do so, and is asked in any case (2025-11-25, tasks, status
    /// notifications).
    fn told(&mut self, state: &State) {
        if Json::string(&state.id) != self.id {
            return;
        }
        self.report(state);
        if state.status != Status::Working {
            self.stirred.notify_one();
        }
    }

    /// Passes on what the server reports under the token of the call.
    fn pass(&mut self, progress: Progress) {
        self.report = Report::Passed;
        let message = progress.message.clone().or_else(|| self.message.clone());
        self.sender.event(Event::Progress(Progress { message, ..progress }));
    }

    /// Asks the server to stop the task (2025-11-25, tasks; SEP-2663, task cancellation).
    pub(super) async fn cancel(&mut self) {
        if self.manners.forward == ForwardCancel::Never {
            return;
        }
        let reply: Reply = self.leg.send(self.request(Method::CancelTask, None));
        if tokio::time::timeout(CANCEL, reply.outcome()).await.is_err() {
            tracing::debug!("a server did not acknowledge that its task is to be cancelled");
        }
    }

    /// The outcome of a task that the server cancelled.
    pub(super) fn cancelled(&self) -> Outcome {
        let said = self.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        Outcome::Failed(Failure::outcome_unknown(&format!("the server cancelled its task{said}")))
    }
}

/// What comes next; `None` if no more comes. Cancel safe.
async fn news_of(later: &mut Option<Reply>) -> Option<News> {
    loop {
        match later.as_mut()?.next().await? {
            Event::Progress(progress) => return Some(News::Progress(progress)),
            Event::Notification(said) => {
                if let Some(state) = said.params.as_ref().and_then(State::read) {
                    return Some(News::Status(state));
                }
            }
            Event::Log(_)
            | Event::Ask(_)
            | Event::Attached(_)
            | Event::Paused
            | Event::Anchored(_)
            | Event::Waits(_)
            | Event::Began => {}
            Event::Done(_) => return None,
        }
    }
}

/// Resolves when the call must end, with the reason.
async fn verdict(seat: Option<&Seat>) -> Verdict {
    match seat {
        Some(seat) => seat.fate().verdict().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
