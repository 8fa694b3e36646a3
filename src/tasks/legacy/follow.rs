//! What a client is told of its tasks while it does not ask: their status when it changes, and the progress of their runs
//! under the token of the call (2025-11-25, tasks, task progress notifications; progress, behavior requirements).
//!
//! It goes to the stream of the session in which the task was made, or of the `tasks/result` that waits for it there:
//! never to both. Of progress the newest is told; what the client does not read in time is dropped.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::seen;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    Caller, ClientSession, Event, EventSender, Json, Notification, Outcome, Progress, Reply, meta_key,
};
use crate::runner::{Handed, Live, Phase, Runner};
use crate::shared_map::SharedMap;
use crate::store::{Committed, Watch};
use crate::task::{Owner, Task, TaskId};

/// The open sessions of legacy clients, and their tasks that have not ended. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(in crate::tasks) struct Sessions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    streams: SharedMap<u64, EventSender>,
    followed: SharedMap<(u64, TaskId), Arc<Followed>>,
}

/// An open session. Dropping it closes it.
#[derive(Debug)]
pub(in crate::tasks) struct OpenSession {
    sessions: Sessions,
    number: u64,
}

/// How the client that makes a task is told of it.
#[derive(Debug)]
pub(super) struct Follow {
    runner: Runner,
    sessions: Sessions,
    session: ClientSession,
    token: Option<Json>,
}

/// A task of a session.
#[derive(Debug)]
struct Followed {
    id: TaskId,
    /// The progress token of the call; nothing is said of progress without.
    token: Option<Json>,
    /// How many `tasks/result` wait for it in this session.
    waits: AtomicUsize,
}

/// A job that follows a task. Dropping it ends that.
struct Following {
    runner: Runner,
    sessions: Sessions,
    session: u64,
    owner: Owner,
    followed: Arc<Followed>,
    stream: EventSender,
}

/// A `tasks/result` that waits for a task of its session.
#[derive(Debug)]
pub(super) struct Waits(Arc<Followed>);

/// Tasks of one session that are followed; of more the client is not told unless it asks.
const MOST: usize = 1024;

impl Sessions {
    /// A session whose stream `reply` is. `None` if it is none, or did not open.
    pub(in crate::tasks) fn open(&self, session: &ClientSession, reply: &Reply) -> Option<OpenSession> {
        let ClientSession::Legacy(number) = *session else { return None };
        self.0.streams.insert(number, reply.events()?);
        Some(OpenSession { sessions: self.clone(), number })
    }

    /// From now until what comes back is dropped, the client is told of the task where it waits.
    pub(super) fn wait(&self, session: &ClientSession, id: &TaskId) -> Option<Waits> {
        let ClientSession::Legacy(number) = *session else { return None };
        let followed = self.0.followed.get(&(number, *id))?;
        followed.waits.fetch_add(1, Ordering::Relaxed);
        Some(Waits(followed))
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.sessions.0.streams.remove(&self.number);
    }
}

impl Follow {
    /// For a task of this caller.
    pub(super) fn new(runner: &Runner, sessions: &Sessions, caller: &Caller) -> Self {
        let (session, token) = (caller.session.clone(), caller.progress_token.clone());
        Self { runner: runner.clone(), sessions: sessions.clone(), session, token }
    }

    /// Tells the client of this task until it has ended or the session has. Progress from now on counts.
    pub(super) fn begin(&self, handed: &Handed<'_>) {
        let Self { runner, sessions, .. } = self;
        let ClientSession::Legacy(session) = self.session else { return };
        let Some(stream) = sessions.0.streams.get(&session) else { return };
        let id = handed.task.id;
        if handed.task.state.is_terminal() || sessions.0.followed.len() >= MOST {
            return;
        }
        let token = self.token.as_ref().map(Json::detached);
        let followed = Arc::new(Followed { id, token, waits: AtomicUsize::new(0) });
        let mine = Arc::clone(&followed);
        let kept = sessions.0.followed.update_or_insert((session, id), || mine, |kept| Arc::clone(kept));
        if !Arc::ptr_eq(&kept, &followed) {
            // The repeat of a call: its first token stays.
            return;
        }
        let (watch, news) = (runner.store().watch(&id), handed.live.map(Live::news));
        let (sessions, owner) = (sessions.clone(), handed.task.owner);
        let following = Following { runner: runner.clone(), sessions, session, owner, followed, stream };
        let told = handed.task.state.status();
        runner.spawn("follow a task", async move {
            tokio::select! {
                biased;
                () = following.runner.ending() => {}
                () = following.run(watch, news, told) => {}
            }
        });
    }
}

impl Following {
    async fn run(&self, mut watch: Watch, mut news: Option<watch::Receiver<()>>, mut told: &'static str) {
        loop {
            tokio::select! {
                biased;
                () = watch.changed() => {
                    let found = self.runner.store().get(&self.owner, &self.followed.id).await;
                    let Ok(Some(task)) = found else { return };
                    if task.state.status() != told && self.is_alone() {
                        // One that cannot be read now is seen by who asks.
                        if let Ok(status) = status(&self.runner, &task).await {
                            self.stream.event(status);
                        }
                    }
                    told = task.state.status();
                    if task.state.is_terminal() {
                        return;
                    }
                }
                () = changed(&mut news) => {
                    if let Some(progress) = self.followed.progress(&self.runner).filter(|_| self.is_alone()) {
                        self.stream.event(progress);
                    }
                }
            }
            if self.stream.is_closed() {
                return;
            }
        }
    }

    /// Whether nobody waits for the result in this session.
    fn is_alone(&self) -> bool {
        self.followed.waits.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.sessions.0.followed.remove(&(self.session, self.followed.id));
    }
}

impl Followed {
    /// The notification of how far the task is; `None` if it has ended, or if nobody wants to know.
    fn progress(&self, runner: &Runner) -> Option<Event> {
        let token = self.token.as_ref()?;
        let Phase::Running { progress: Some((progress, _)) } = runner.live().get(&self.id)?.phase() else {
            return None;
        };
        Some(notification(token, &progress, self.id))
    }
}

impl Waits {
    /// As for who does not wait.
    pub(super) fn progress(&self, runner: &Runner) -> Option<Event> {
        self.0.progress(runner)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Resolves when something is new; never without anything that could be. Cancel safe.
pub(super) async fn changed(news: &mut Option<watch::Receiver<()>>) {
    if let Some(receiver) = news
        && receiver.changed().await.is_ok()
    {
        return;
    }
    *news = None;
    pending::<()>().await;
}

/// The notification of what a task is now (2025-11-25, tasks, task status notification).
pub(super) async fn status(runner: &Runner, task: &Committed<Task>) -> Result<Event, Outcome> {
    let params = Some(seen::task(runner, task).await?.into_json());
    Ok(Event::Notification(Notification { method: "notifications/tasks/status".to_owned(), params }))
}

fn notification(token: &Json, progress: &Progress, id: TaskId) -> Event {
    let mut task = ObjectWriter::new();
    task.string("taskId", id.as_str());
    let mut meta = ObjectWriter::new();
    meta.rope(meta_key::RELATED_TASK, task.finish());
    let mut params = ObjectWriter::new();
    progress.write(token, &mut params);
    params.rope("_meta", meta.finish());
    Event::Notification(Notification {
        method: "notifications/progress".to_owned(),
        params: Some(params.finish_json()),
    })
}
