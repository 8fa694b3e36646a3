//! The jobs that stand between a caller and the service behind.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tower::ServiceExt as _;

use super::Shared;
use super::known::{Key, State, Whose};
use crate::protocol::{
    Call, Event, Failure, Json, McpService, Method, Notification, Outcome, Reason, Reply, ReplySender,
};

/// How long a new list is waited for where an old one is known.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is still waited for in the background after that.
const RENEWAL: Duration = Duration::from_mins(1);

/// Gets a list, or the last good one.
pub(super) async fn list<S: McpService>(shared: Arc<Shared>, inner: S, call: Call, key: Key, sender: ReplySender) {
    let cancellation = sender.cancellation();
    // A list that is not wanted any more is not worth an answer.
    let Some(mut reply) = before(cancellation.cancelled(), ask(inner, call)).await else { return };
    let patience = async {
        match shared.known.get(&key) {
            Some((_, State::Current)) => tokio::time::sleep(PATIENCE).await,
            // A list that the server calls outdated does not stand in for one that is only slow.
            Some((_, State::Changed)) | None => std::future::pending().await,
        }
    };
    let first = tokio::select! {
        biased;
        () = cancellation.cancelled() => return,
        first = outcome(&mut reply, Some(&sender)) => Some(first),
        () = patience => None,
    };
    if let Some(first) = first {
        return sender.done(shared.judge(key, first));
    }
    let Some((known, State::Current)) = shared.known.get(&key) else {
        // It changed in the meantime.
        let late = before(cancellation.cancelled(), outcome(&mut reply, Some(&sender))).await;
        if let Some(outcome) = late {
            sender.done(shared.judge(key, outcome));
        }
        return;
    };
    tracing::debug!(server = shared.server, list = %key.method(), "the server is slow; the last list was given out");
    sender.done(Outcome::Result(known));
    if shared.known.may_renew(&key) {
        let renewed = tokio::time::timeout(RENEWAL, outcome(&mut reply, None));
        let renewed = before(shared.jobs.stopping(), renewed).await;
        shared.known.renewed(&key);
        if let Some(Ok(outcome)) = renewed {
            shared.judge(key, outcome);
        }
    }
}

/// Passes on what belongs to no call, and takes note of lists that change.
pub(super) async fn session<S: McpService>(
    shared: Arc<Shared>,
    inner: S,
    whose: Whose,
    call: Call,
    mut sender: ReplySender,
) {
    let attached = call.method == Method::Attach && whose.is_of_a_session();
    let cancellation = sender.cancellation();
    let relayed = async {
        let mut reply = ask(inner, call).await;
        let mut is_cancelled = false;
        loop {
            let event = tokio::select! {
                biased;
                () = sender.abandoned() => return None,
                () = cancellation.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    reply.cancel();
                    continue;
                }
                event = reply.next() => event?,
            };
            match event {
                Event::Done(outcome) => return Some(outcome),
                Event::Notification(notification) => {
                    shared.note(&whose, &notification);
                    sender.event(Event::Notification(notification));
                }
                event => sender.event(event),
            }
        }
    };
    let outcome = relayed.await;
    if attached {
        shared.known.forget(&whose);
    }
    if let Some(outcome) = outcome {
        sender.done(outcome);
    }
}

/// What is read of a list of tools.
#[derive(Deserialize)]
struct Tools {
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
}

impl Shared {
    /// Keeps a good answer, and puts the last one in the place of a failure.
    fn judge(&self, key: Key, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Result(result) => {
                self.tell(&key, &result);
                self.known.put(key, &result);
                Outcome::Result(result)
            }
            Outcome::Failed(failure) if is_about_the_server(&failure) => match self.known.get(&key) {
                Some((known, _)) => {
                    let (server, list, reason) = (&self.server, key.method(), failure.reason);
                    tracing::info!(server, %list, %reason, "the server gave no list; the last one was given out");
                    Outcome::Result(known)
                }
                None => Outcome::Failed(failure),
            },
            other => other,
        }
    }

    /// Whose runs are counted by name.
    fn tell(&self, key: &Key, result: &Json) {
        if let (Some(meters), Method::ListTools) = (self.meters.get(), key.method())
            && let Ok(Tools { tools }) = result.read::<Tools>()
        {
            meters.know(&self.server, tools.iter().map(|tool| tool.name.as_str()));
        }
    }

    fn note(&self, whose: &Whose, notification: &Notification) {
        let lists: &[Method] = match notification.method.as_str() {
            "notifications/tools/list_changed" => &[Method::ListTools],
            "notifications/prompts/list_changed" => &[Method::ListPrompts],
            "notifications/resources/list_changed" => &[Method::ListResources, Method::ListResourceTemplates],
            _ => &[],
        };
        for method in lists {
            self.known.changed(whose, method);
        }
    }
}

/// Whether the server is busy or down, so that nothing says that the last list is wrong.
fn is_about_the_server(failure: &Failure) -> bool {
    match failure.reason {
        Reason::OutcomeUnknown
        | Reason::NotStarted
        | Reason::Timeout
        | Reason::QueueTimeout
        | Reason::Busy
        | Reason::QueueFull
        | Reason::IdleTimeout
        | Reason::BadAnswer => true,
        Reason::Unauthorized
        | Reason::TooLarge
        | Reason::Store
        | Reason::Stopping
        | Reason::InputTimeout
        | Reason::RateLimited
        | Reason::OverBudget
        | Reason::KeyReused => false,
    }
}

async fn ask<S: McpService>(inner: S, call: Call) -> Reply {
    let Ok(reply) = inner.oneshot(call).await;
    reply
}

/// The outcome; other events go to `sender`.
async fn outcome(reply: &mut Reply, sender: Option<&ReplySender>) -> Outcome {
    while let Some(event) = reply.next().await {
        match (event, sender) {
            (Event::Done(outcome), _) => return outcome,
            (event, Some(sender)) => sender.event(event),
            (
                Event::Progress(_)
                | Event::Log(_)
                | Event::Ask(_)
                | Event::Notification(_)
                | Event::Attached(_)
                | Event::Paused
                | Event::Anchored(_)
                | Event::Waits(_)
                | Event::Began,
                None,
            ) => {}
        }
    }
    Outcome::Failed(Failure::outcome_unknown("the reply ended without an outcome"))
}

/// What comes of `future`, unless `end` comes first.
async fn before<T>(end: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = end => None,
        value = future => Some(value),
    }
}
