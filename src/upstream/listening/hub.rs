//! Those who listen to one server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::filter::Filter;
use crate::protocol::{Event, EventSender, Notification};
use crate::upstream::sessions::Audience;

/// Those who listen to one server. What any session of an audience says reaches all of that audience. Clones are the
/// same hub.
#[derive(Clone, Debug, Default)]
pub(in crate::upstream) struct Hub(Arc<Mutex<Listeners>>);

#[derive(Debug, Default)]
struct Listeners {
    next: u64,
    all: BTreeMap<u64, Listener>,
}

#[derive(Debug)]
struct Listener {
    audience: Audience,
    promised: Filter,
    events: EventSender,
}

/// Somebody who listens, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    hub: Hub,
    number: u64,
}

impl Hub {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on what is `promised` is sent to `events`.
    pub(super) fn add(&self, audience: Audience, promised: Filter, events: EventSender) -> Place {
        let mut listeners = self.listeners();
        let number = listeners.next;
        listeners.next += 1;
        listeners.all.insert(number, Listener { audience, promised, events });
        drop(listeners);
        Place { hub: self.clone(), number }
    }

    /// A session of `audience` said this.
    pub(in crate::upstream) fn publish(&self, audience: &Audience, said: &Notification) {
        for listener in self.listeners().all.values() {
            if listener.audience == *audience && listener.promised.wants(said) {
                listener.events.event(Event::Notification(said.clone()));
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _left = self.hub.listeners().all.remove(&self.number);
    }
}
