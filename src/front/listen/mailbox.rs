//! What waits for a client that listens. Bounded, whatever the server says and however slowly the client reads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::filter::text_member;
use crate::protocol::{Failure, Notification, Outcome, Reason, Retry};

/// What is in the box.
#[derive(Debug)]
pub(super) enum Mail {
    /// The client is to be told this.
    Notification(Notification),
    /// Nothing more comes. Given out once.
    End(Outcome),
}

/// The end that posts. Dropping it without [`Postman::end`] ends the mail as lost.
#[derive(Debug)]
pub(super) struct Postman(Arc<Mutex<State>>);

/// The end that takes.
#[derive(Debug)]
pub(super) struct Mailbox(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    end: End,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Waiting {
    about: About,
    notification: Notification,
}

/// What a notification is about: a newer one about the same takes its place, since all of these tell how things
/// stand and not what happened.
#[derive(Debug, PartialEq, Eq)]
enum About {
    /// A list, or one resource, or one task.
    State(String, Option<String>),
    /// Anything else, each for itself.
    Itself,
}

#[derive(Debug, Default)]
enum End {
    #[default]
    Open,
    Posted(Outcome),
    Taken,
}

/// Notifications that may wait; more are dropped.
const MOST: usize = 256;
/// Bytes of them, except for one that waits alone.
const MOST_BYTES: usize = 1 << 20;

/// A box, and the end that posts into it.
pub(super) fn mailbox() -> (Postman, Mailbox) {
    let state = Arc::new(Mutex::new(State::default()));
    (Postman(Arc::clone(&state)), Mailbox(state))
}

impl Postman {
    /// Posts a notification, in the place of an older one about the same. Dropped if too much waits.
    pub(super) fn post(&self, notification: Notification) {
        let mut state = lock(&self.0);
        let about = About::of(&notification);
        let older = state.waiting.iter().position(|waiting| about != About::Itself && waiting.about == about);
        let older = older.and_then(|at| Some((at, state.waiting.remove(at)?)));
        if let Some((_, older)) = &older {
            state.bytes = state.bytes.saturating_sub(size(&older.notification));
        }
        let bytes = state.bytes + size(&notification);
        if state.waiting.len() >= MOST || (bytes > MOST_BYTES && !state.waiting.is_empty()) {
            tracing::debug!("a client that listens is behind; a notification was dropped");
            return;
        }
        state.bytes = bytes;
        let waiting = Waiting { about, notification };
        match older {
            Some((at, _)) => state.waiting.insert(at, waiting),
            None => state.waiting.push_back(waiting),
        }
        wake(state);
    }

    /// Nothing more comes.
    pub(super) fn end(self, outcome: Outcome) {
        let mut state = lock(&self.0);
        state.end = End::Posted(outcome);
        wake(state);
    }
}

impl Drop for Postman {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        if let End::Open = state.end {
            let message = "the subscription broke inside Raincheck; subscribe again";
            state.end = End::Posted(Outcome::Failed(Failure::new(Reason::OutcomeUnknown, message, Retry::Yes)));
            wake(state);
        }
    }
}

impl Mailbox {
    /// What comes next. Never again after [`Mail::End`].
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Mail> {
        let mut state = lock(&self.0);
        if let Some(waiting) = state.waiting.pop_front() {
            state.bytes = state.bytes.saturating_sub(size(&waiting.notification));
            return Poll::Ready(Mail::Notification(waiting.notification));
        }
        match std::mem::replace(&mut state.end, End::Taken) {
            End::Posted(outcome) => return Poll::Ready(Mail::End(outcome)),
            end => state.end = end,
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// What comes next. Never again after [`Mail::End`].
    pub(super) async fn next(&mut self) -> Mail {
        std::future::poll_fn(|context| self.poll(context)).await
    }
}

impl About {
    fn of(notification: &Notification) -> Self {
        let state = |of: Option<String>| Self::State(notification.method.clone(), of);
        match notification.method.as_str() {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => state(None),
            "notifications/resources/updated" => {
                text_member(notification, "uri").map_or(Self::Itself, |it| state(Some(it)))
            }
            "notifications/tasks" => text_member(notification, "taskId").map_or(Self::Itself, |it| state(Some(it))),
            _ => Self::Itself,
        }
    }
}

fn size(notification: &Notification) -> usize {
    notification.method.len() + notification.params.as_ref().map_or(0, crate::protocol::Json::len)
}

/// Nothing in here panics with the lock held, so a poisoned state is still in order.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::Json;

    fn notification(method: &str, params: &str) -> Notification {
        let params = Some(Json::parse(Bytes::from(params.to_owned())).unwrap());
        Notification { method: format!("notifications/{method}"), params }
    }

    async fn taken(mailbox: &mut Mailbox) -> Vec<String> {
        let mut taken = Vec::new();
        while let Mail::Notification(notification) = mailbox.next().await {
            taken.push(format!("{} {}", notification.method, notification.params.unwrap().as_str()));
        }
        taken
    }

    #[tokio::test]
    async fn only_the_newest_state_of_each_thing_waits() {
        let (postman, mut mailbox) = mailbox();
        for round in 0..1000 {
            postman.post(notification("tools/list_changed", "{}"));
            postman.post(notification("tasks", &format!(r#"{{"taskId":"a","round":{round}}}"#)));
            postman.post(notification("tasks", &format!(r#"{{"taskId":"b","round":{round}}}"#)));
            postman.post(notification("resources/updated", r#"{"uri":"x"}"#));
            postman.post(notification("resources/updated", r#"{"uri":"y"}"#));
        }
        postman.end(Outcome::Result(Json::empty_object()));
        assert_eq!(
            taken(&mut mailbox).await,
            [
                "notifications/tools/list_changed {}",
                r#"notifications/tasks {"taskId":"a","round":999}"#,
                r#"notifications/tasks {"taskId":"b","round":999}"#,
                r#"notifications/resources/updated {"uri":"x"}"#,
                r#"notifications/resources/updated {"uri":"y"}"#,
            ]
        );
    }

    #[tokio::test]
    async fn what_waits_is_bounded_in_number_and_bytes() {
        let (postman, mut mailbox) = mailbox();
        (0..2 * MOST).for_each(|at| postman.post(notification("tasks", &format!(r#"{{"taskId":"{at}"}}"#))));
        drop(postman);
        assert_eq!(taken(&mut mailbox).await.len(), MOST);

        let (postman, mut mailbox) = super::mailbox();
        let large = "x".repeat(MOST_BYTES);
        // One alone is told, however large; the rest waits for room.
        (0..4).for_each(|at| postman.post(notification("tasks", &format!(r#"{{"taskId":"{at}","r":"{large}"}}"#))));
        drop(postman);
        assert_eq!(taken(&mut mailbox).await.len(), 1);
    }

    #[tokio::test]
    async fn a_postman_who_vanishes_ends_the_mail() {
        let (postman, mut mailbox) = mailbox();
        drop(postman);
        assert!(matches!(mailbox.next().await, Mail::End(Outcome::Failed(_))));
    }
}
