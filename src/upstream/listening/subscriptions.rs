//! What one session is subscribed to, counted over all who listen.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::protocol::Outcome;
use crate::protocol::rope::ObjectWriter;
use crate::upstream::sessions::Speak;

/// What one session is subscribed to.
#[derive(Debug)]
pub(in crate::upstream) struct Subscriptions {
    counts: Mutex<BTreeMap<String, usize>>,
    /// The right to change it, so that no `unsubscribe` overtakes the `subscribe` of the next one.
    turn: Semaphore,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { counts: Mutex::default(), turn: Semaphore::new(1) }
    }
}

impl Subscriptions {
    /// Subscribes to `uri`. Whether the server does that.
    pub(super) async fn add<S: Speak>(&self, session: &S, uri: &str) -> bool {
        let Ok(_turn) = self.turn.acquire().await else { return false };
        if self.is_subscribed(uri) || send(session, "resources/subscribe", uri).await {
            *self.counts().entry(uri.to_owned()).or_default() += 1;
            return true;
        }
        false
    }

    /// Takes one subscription to `uri` back.
    pub(super) async fn remove<S: Speak>(&self, session: &S, uri: &str) {
        let Ok(_turn) = self.turn.acquire().await else { return };
        let last = {
            let mut counts = self.counts();
            let left = counts.get_mut(uri).map(|count| {
                *count = count.saturating_sub(1);
                *count
            });
            left == Some(0) && counts.remove(uri).is_some()
        };
        if last && !session.is_over() {
            send(session, "resources/unsubscribe", uri).await;
        }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_subscribed(&self, uri: &str) -> bool {
        self.counts().contains_key(uri)
    }
}

async fn send<S: Speak>(session: &S, method: &'static str, uri: &str) -> bool {
    let mut params = ObjectWriter::new();
    params.string("uri", uri);
    match session.request(method, params.finish()).await {
        Outcome::Result(_) => true,
        other => {
            tracing::debug!(method, outcome = ?other, "a server did not take a change of subscriptions");
            false
        }
    }
}
