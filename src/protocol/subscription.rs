//! What a stream of `subscriptions/listen` says (2026-07-28, subscriptions).

use super::reply::{Event, Notification, Outcome};

/// The notification that a stream begins with.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// What a stream says.
#[derive(Debug)]
pub enum Said {
    /// Something happened, or this is the acknowledgement.
    Notification(Notification),
    /// The end.
    Done(Outcome),
}

impl Said {
    /// What `event` says on a stream; `None` for whatever belongs to a call, which has no place there.
    pub fn of(event: Event) -> Option<Self> {
        match event {
            Event::Notification(notification) => Some(Self::Notification(notification)),
            Event::Done(outcome) => Some(Self::Done(outcome)),
            Event::Progress(_)
            | Event::Log(_)
            | Event::Ask(_)
            | Event::Attached(_)
            | Event::Paused
            | Event::Anchored(_)
            | Event::Waits(_)
            | Event::Began => None,
        }
    }
}
