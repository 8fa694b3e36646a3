//! A task looked at until its end: polls, back-off, time limit, Ctrl-C.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::endpoint::{Ask, Endpoint};
use super::error::ClientError;
use super::person::Person;
use super::show::Display;
use super::view::{Status, TaskView};
use crate::protocol::Json;

/// How a task is followed.
pub(crate) struct Follow<'a, I> {
    /// Where it is.
    pub(crate) endpoint: &'a Endpoint,
    /// Who is shown how far it is.
    pub(crate) display: &'a mut Display,
    /// Who may answer questions.
    pub(crate) person: &'a mut Person,
    /// When to stop waiting.
    pub(crate) deadline: Option<Instant>,
    /// Waits for the next Ctrl-C.
    pub(crate) interrupt: I,
    /// What that means.
    pub(crate) at_interrupt: AtInterrupt,
}

/// What Ctrl-C means to who follows a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtInterrupt {
    /// The call is not wanted any more.
    Cancel,
    /// Nobody waits any more; the task goes on.
    Leave,
}

/// Why following ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The task has ended.
    Ended(TaskView),
    /// It waits for answers that this client cannot give.
    NeedsInput(TaskView),
    /// The time limit; the task goes on.
    TimedOut,
    /// Ctrl-C; the task goes on.
    Left,
    /// Ctrl-C: a cancel was sent, and this is what is known of the task since.
    Interrupted(Option<TaskView>),
    /// The server cannot be asked any more.
    Lost(ClientError),
}

/// What one step of waiting ended with.
enum Step<T> {
    Done(T),
    TimedOut,
    Interrupted,
}

/// How long one question about a task may take; it is sent again then.
const PATIENCE: Duration = Duration::from_secs(30);
/// The waits between questions that fail.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// A server that is away longer than this is not waited for.
const GIVE_UP: Duration = Duration::from_mins(5);
/// How long a cancel may take to show.
const CANCEL: Duration = Duration::from_secs(5);
const CANCEL_POLL: Duration = Duration::from_millis(200);

impl<I: AsyncFnMut()> Follow<'_, I> {
    /// The task as it is first found, also where its server is away for a while.
    pub(crate) async fn find(&mut self, id: &str) -> ControlFlow<End, TaskView> {
        let look = self.endpoint.look(id, self.display);
        match step(self.deadline, &mut self.interrupt, look).await {
            Step::Done(Ok(task)) => ControlFlow::Continue(task),
            Step::Done(Err(error)) => ControlFlow::Break(End::Lost(error)),
            Step::TimedOut => ControlFlow::Break(End::TimedOut),
            Step::Interrupted => ControlFlow::Break(self.interrupted(id).await),
        }
    }

    /// Polls until the task ends, at the pace that the server asks for.
    pub(crate) async fn run(mut self, mut task: TaskView) -> End {
        let mut answered = HashSet::new();
        loop {
            self.display.task(&task);
            if task.is_terminal() {
                return End::Ended(task);
            }
            let open = match &task.status {
                Status::InputRequired(asked) => {
                    asked.iter().filter(|asked| !answered.contains(&asked.key)).cloned().collect()
                }
                _ => Vec::new(),
            };
            if !open.is_empty() && !self.person.can_answer(&open) {
                return End::NeedsInput(task);
            }
            let next = async {
                if open.is_empty() {
                    sleep(task.poll).await;
                } else {
                    self.display.pause();
                    let responses = self.person.answer(&open).await;
                    self.display.resume();
                    self.endpoint.update(&task.id, &responses).await?;
                }
                self.endpoint.look(&task.id, self.display).await
            };
            let next = match step(self.deadline, &mut self.interrupt, next).await {
                Step::Done(Ok(next)) => next,
                Step::Done(Err(error)) => return End::Lost(error),
                Step::TimedOut => return End::TimedOut,
                Step::Interrupted => {
                    self.display.resume();
                    return self.interrupted(&task.id).await;
                }
            };
            // Some servers still show a question for a while after its answer.
            answered.extend(open.into_iter().map(|asked| asked.key));
            task = next;
        }
    }

    async fn interrupted(&mut self, id: &str) -> End {
        match self.at_interrupt {
            AtInterrupt::Cancel => End::Interrupted(self.cancel(id).await),
            AtInterrupt::Leave => End::Left,
        }
    }

    /// Asks the server to stop the task, and waits a little for it to be seen. Another Ctrl-C ends the wait.
    async fn cancel(&mut self, id: &str) -> Option<TaskView> {
        self.display.note("cancelling; Ctrl-C again to leave at once");
        let endpoint = self.endpoint;
        let until = Some(Instant::now() + CANCEL);
        let cancelled = async {
            endpoint.cancel(id).await?;
            loop {
                let task = endpoint.get(id).await?;
                if task.is_terminal() {
                    return Ok::<_, ClientError>(task);
                }
                sleep(CANCEL_POLL).await;
            }
        };
        match step(until, &mut self.interrupt, cancelled).await {
            Step::Done(Ok(task)) => Some(task),
            Step::Done(Err(error)) => {
                self.display.note(&format!("the cancel failed: {}", super::super::terminal::chain(&error)));
                None
            }
            Step::TimedOut | Step::Interrupted => None,
        }
    }
}

async fn step<T>(
    deadline: Option<Instant>,
    interrupt: &mut impl AsyncFnMut(),
    work: impl Future<Output = T>,
) -> Step<T> {
    let expired = async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = interrupt() => Step::Interrupted,
        done = work => Step::Done(done),
        () = expired => Step::TimedOut,
    }
}

impl Endpoint {
    /// The task as it is now.
    pub(crate) async fn get(&self, task: &str) -> Result<TaskView, ClientError> {
        TaskView::read(self.ask(&Ask::Get { task }, &HeaderMap::new(), &mut |_| {}).await?)
    }

    /// Answers questions of the task.
    pub(crate) async fn update(&self, task: &str, responses: &Json) -> Result<(), ClientError> {
        self.ask(&Ask::Update { task, responses }, &HeaderMap::new(), &mut |_| {}).await.map(drop)
    }

    /// Asks the server to stop the task. It may take a while to show, or never.
    pub(crate) async fn cancel(&self, task: &str) -> Result<(), ClientError> {
        self.ask(&Ask::Cancel { task }, &HeaderMap::new(), &mut |_| {}).await.map(drop)
    }

    /// The task as it is once the server can be asked: reading changes nothing, so it is done again.
    async fn look(&self, task: &str, display: &mut Display) -> Result<TaskView, ClientError> {
        let begun = Instant::now();
        let mut wait = FIRST_RETRY;
        loop {
            let error = match timeout(PATIENCE, self.get(task)).await {
                Ok(Ok(task)) => return Ok(task),
                Ok(Err(error)) => error,
                Err(_) => ClientError::Broken("no answer came within 30 seconds".into()),
            };
            if !error.is_passing() || begun.elapsed() > GIVE_UP {
                return Err(error);
            }
            if wait == FIRST_RETRY {
                let (why, most) = (super::super::terminal::chain(&error), humantime::format_duration(GIVE_UP));
                display.note(&format!("{why}; the task may go on, asking again for {most} at most"));
            }
            display.away(begun.elapsed());
            sleep(wait.max(error.wait())).await;
            wait = (wait * 2).min(LONGEST_RETRY);
        }
    }
}
