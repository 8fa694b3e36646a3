//! `subscriptions/listen` with `taskIds` (SEP-2663, task status notifications), beside what the server itself has to tell.
//!
//! Whoever reads slowly sees the latest state of each task and misses those before it: a state is read only when the
//! one before it was taken, so nothing piles up.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::sleep;
use tower::ServiceExt;

use super::handle;
use crate::protocol::error::code;
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{
    ACKNOWLEDGED, Call, Event, Json, JsonError, McpService, Notification, Outcome, Reply, ReplySender, RpcError, Said,
    TaskSupport,
};
use crate::runner::Runner;
use crate::store::Watch;
use crate::task::{Owner, TaskId};

/// A stream of task states.
struct Listening {
    runner: Runner,
    owner: Owner,
    /// Each resolves when its task has changed.
    changes: FuturesUnordered<BoxFuture<'static, Watch>>,
    /// Tasks whose latest state was not sent yet, each once.
    due: VecDeque<Watch>,
    /// What the server has to tell, if it was asked.
    server: Option<Reply>,
}

/// What happens next on a stream.
enum Next {
    /// The client left.
    Left,
    /// The proxy stops.
    Ending,
    Server(Option<Event>),
    Changed(Watch),
    /// The next state can be sent.
    Room,
}

/// Tasks that one stream may watch.
const MOST: usize = 256;

/// How long a state that cannot be read now waits until it is read again.
const AGAIN: Duration = Duration::from_secs(1);

/// The stream that `call` asks for.
pub(super) fn listen<S: McpService>(
    runner: &Runner,
    inner: S,
    call: Call,
) -> BoxFuture<'static, Result<Reply, Infallible>> {
    let filter = call.params.raw().member("notifications");
    let Some(ids) = filter.as_ref().and_then(|filter| filter.member("taskIds")) else {
        return inner.oneshot(call).boxed();
    };
    let refused = |error| std::future::ready(Ok(Reply::ready(Outcome::Error(error)))).boxed();
    if call.caller.tasks == TaskSupport::Undeclared {
        return refused(RpcError::tasks_not_declared());
    }
    let ids = match ids.read::<Vec<String>>() {
        Ok(ids) if ids.len() <= MOST => ids,
        Ok(_) => {
            return refused(RpcError::new(
                code::INVALID_PARAMS,
                format!("Invalid params: one stream may watch {MOST} taskIds; open another one for more"),
            ));
        }
        Err(_) => {
            return refused(RpcError::new(
                code::INVALID_PARAMS,
                "Invalid params: notifications.taskIds must be an array of strings",
            ));
        }
    };
    let (sender, reply) = Reply::channel();
    let listening = Listening {
        runner: runner.clone(),
        owner: runner.store().owner(&call.caller.principal),
        changes: FuturesUnordered::new(),
        due: VecDeque::new(),
        server: None,
    };
    // A client that wants to hear of tasks only is not told that the server is down.
    let asks_server = filter.and_then(|filter| filter.members().ok().map(|members| members.len() > 1)) == Some(true);
    runner.spawn("listen to tasks", async move {
        listening.run(inner, asks_server.then_some(call), ids, sender).await;
    });
    std::future::ready(Ok(reply)).boxed()
}

impl Listening {
    async fn run<S: McpService>(mut self, inner: S, to_server: Option<Call>, ids: Vec<String>, sender: ReplySender) {
        self.watch(ids).await;
        let opened = tokio::select! {
            () = sender.cancelled() => return,
            opened = self.open(inner, to_server) => opened,
        };
        let acknowledged = match opened {
            Ok(honoured) => self.acknowledgement(honoured.as_ref()),
            Err(outcome) => return sender.done(outcome),
        };
        sender.event(notification(ACKNOWLEDGED, acknowledged));
        loop {
            match self.next(&sender).await {
                Next::Left => return,
                Next::Ending => return sender.done(ended()),
                Next::Server(Some(event)) => match Said::of(event) {
                    Some(Said::Notification(said)) => sender.event(Event::Notification(said)),
                    Some(Said::Done(outcome)) => return sender.done(outcome),
                    None => {}
                },
                Next::Server(None) => self.server = None,
                Next::Changed(watch) => self.due.push_back(watch),
                Next::Room => self.send_one(&sender).await,
            }
        }
    }

    /// Watches those of the tasks that are the owner's. A foreign one is left out like an unknown one.
    async fn watch(&mut self, ids: Vec<String>) {
        for id in ids {
            let Ok(id) = id.parse::<TaskId>() else { continue };
            if self.due.iter().any(|watch| watch.id() == id) {
                continue;
            }
            let store = self.runner.store();
            // First the watch, then the look: no change is missed in between.
            let watch = store.watch(&id);
            if let Ok(Some(_)) = store.get(&self.owner, &id).await {
                self.due.push_back(watch);
            }
        }
    }

    /// What the server honours: `None` if it was not asked, or knows no such streams.
    async fn open<S: McpService>(&mut self, inner: S, call: Option<Call>) -> Result<Option<Json>, Outcome> {
        let Some(call) = call else { return Ok(None) };
        let Ok(mut reply) = inner.oneshot(call).await;
        loop {
            let Some(event) = reply.next().await else { return Ok(None) };
            match Said::of(event) {
                Some(Said::Notification(said)) if said.method == ACKNOWLEDGED => {
                    self.server = Some(reply);
                    return Ok(said.params);
                }
                Some(Said::Done(Outcome::Error(error))) if error.code() == code::METHOD_NOT_FOUND => return Ok(None),
                Some(Said::Done(outcome)) => return Err(outcome),
                // Nothing comes before the acknowledgement.
                Some(Said::Notification(_)) | None => {}
            }
        }
    }

    /// The `params` of the acknowledgement: what the server honours, and the tasks.
    fn acknowledgement(&self, honoured: Option<&Json>) -> Json {
        let ids: Vec<String> = self.due.iter().map(|watch| watch.id().to_string()).collect();
        let ids = Json::from_value(&ids.into());
        honoured.and_then(|params| merged(params, &ids).ok()).unwrap_or_else(|| {
            let mut filter = ObjectWriter::new();
            filter.raw("taskIds", &ids);
            let mut params = ObjectWriter::new();
            params.rope("notifications", filter.finish());
            params.finish_json()
        })
    }

    async fn next(&mut self, sender: &ReplySender) -> Next {
        let Self { runner, changes, due, server, .. } = self;
        let told = async {
            match server {
                Some(server) => server.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = sender.cancelled() => Next::Left,
            () = runner.ending() => Next::Ending,
            event = told => Next::Server(event),
            Some(watch) = changes.next(), if !changes.is_empty() => Next::Changed(watch),
            () = sender.drained(), if !due.is_empty() => Next::Room,
        }
    }

    /// Sends the latest state of the task that has waited longest. One that has ended is not watched any more.
    async fn send_one(&mut self, sender: &ReplySender) {
        let Some(mut watch) = self.due.pop_front() else { return };
        let Ok(Some(task)) = self.runner.store().get(&self.owner, &watch.id()).await else { return };
        let sent = handle::notification(&self.runner, &task).await;
        let is_over = sent.is_some() && task.state.is_terminal();
        let again = sent.is_none().then_some(AGAIN);
        if let Some(params) = sent {
            sender.event(notification("notifications/tasks", params.into_json()));
        }
        if is_over {
            return;
        }
        let next = async move {
            match again {
                Some(wait) => sleep(wait).await,
                None => watch.changed().await,
            }
            watch
        };
        self.changes.push(next.boxed());
    }
}

/// The acknowledgement of the server with the tasks in it.
fn merged(params: &Json, ids: &Json) -> Result<Json, JsonError> {
    let filter = params.member("notifications").filter(Json::is_object).unwrap_or_else(Json::empty_object);
    let mut with_tasks = ObjectWriter::new();
    with_tasks.members_of(&filter, |name| name != "taskIds")?.raw("taskIds", ids);
    let mut whole = ObjectWriter::new();
    whole.members_of(params, |name| name != "notifications")?.rope("notifications", with_tasks.finish());
    Ok(whole.finish_json())
}

fn notification(method: &str, params: Json) -> Event {
    Event::Notification(Notification { method: method.to_owned(), params: Some(params) })
}

/// The stream ended well (2026-07-28, subscriptions, graceful closure).
fn ended() -> Outcome {
    let mut result = ObjectWriter::new();
    result.string("resultType", "complete");
    Outcome::Shaped(result.finish())
}
