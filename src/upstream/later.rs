//! Progress of calls that have their answer and go on as tasks of 2025-11-25: the token of the call stays good for as long
//! as the task lasts (2025-11-25, tasks, progress).

use crate::protocol::{Event, EventSender, Json, Notification, Progress};
use crate::shared_map::SharedMap;

/// Who hears of the progress of such calls, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Later(SharedMap<u64, EventSender>);

/// Entries from which on those whose reader has left are thrown out with each new one.
const MANY: usize = 64;

impl Later {
    /// From now on progress under `token` that comes after its answer goes to `later`, until nobody reads it.
    pub(super) fn add(&self, token: u64, later: EventSender) {
        if self.0.len() >= MANY {
            self.0.retain(|_, later| !later.is_closed());
        }
        self.0.insert(token, later);
    }

    /// Takes progress in for a call that is over.
    pub(super) fn progress(&self, token: u64, progress: Progress) {
        self.0.with(&token, |later| later.event(Event::Progress(progress)));
    }

    /// Takes the `params` of a `notifications/tasks/status` in. Whose task it is each reader knows.
    pub(super) fn status(&self, method: &str, params: &Json) {
        self.0.for_each(|_, later| {
            let said = Notification { method: method.to_owned(), params: Some(params.clone()) };
            later.event(Event::Notification(said));
        });
    }
}
