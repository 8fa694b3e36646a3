//! Requests of a client that have no answer yet.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::protocol::RequestId;

/// What is done with a second request under an id that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::front) enum SameId {
    /// It is refused: on one stream of messages nobody could tell the answers apart.
    Refused,
    /// It runs: over HTTP each answer has an exchange of its own, and a large client sends every request with id 1
    /// (field case 29).
    Runs,
}

/// The requests of one session that are in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    flights: HashMap<RequestId, Vec<(u64, CancellationToken)>>,
}

/// One request in flight. Dropping it lands it.
pub(super) struct Flight {
    of: InFlight,
    id: RequestId,
    number: u64,
    cancel: CancellationToken,
}

impl InFlight {
    /// Takes note of a request; `None` if its id is taken.
    pub(super) fn take_off(&self, id: &RequestId, same: SameId) -> Option<Flight> {
        let mut table = self.lock();
        if same == SameId::Refused && table.flights.contains_key(id) {
            return None;
        }
        let number = table.next;
        table.next += 1;
        let cancel = CancellationToken::new();
        table.flights.entry(id.clone()).or_default().push((number, cancel.clone()));
        Some(Flight { of: self.clone(), id: id.clone(), number, cancel })
    }

    /// Cancels the request under this id; false if there is none, or more than one, since to stop the wrong one does
    /// more harm than to stop none.
    pub(super) fn cancel(&self, id: &RequestId) -> bool {
        match self.lock().flights.get(id).map(Vec::as_slice) {
            Some([(_, cancel)]) => {
                cancel.cancel();
                true
            }
            _ => false,
        }
    }

    /// Whether nothing is in flight.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().flights.is_empty()
    }

    /// The table is whole after every change, so a poisoned lock holds a good one.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Cancelled when the client cancels the request.
    pub(super) fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut table = self.of.lock();
        let Some(flights) = table.flights.get_mut(&self.id) else { return };
        flights.retain(|(number, _)| *number != self.number);
        if flights.is_empty() {
            table.flights.remove(&self.id);
        }
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RequestId {
        RequestId::from_number(number)
    }

    #[test]
    fn an_id_is_free_again_when_its_request_has_landed() {
        let in_flight = InFlight::default();
        let first = in_flight.take_off(&id(1), SameId::Refused).unwrap();
        assert!(in_flight.take_off(&id(1), SameId::Refused).is_none());
        assert!(in_flight.take_off(&id(2), SameId::Refused).is_some());
        assert!(in_flight.cancel(&id(1)) && first.cancellation().is_cancelled());
        drop(first);
        assert!(in_flight.is_empty() && !in_flight.cancel(&id(1)));
        assert!(in_flight.take_off(&id(1), SameId::Refused).is_some());
    }

    #[test]
    fn of_two_requests_under_one_id_none_is_cancelled() {
        let in_flight = InFlight::default();
        let first = in_flight.take_off(&id(1), SameId::Runs).unwrap();
        let second = in_flight.take_off(&id(1), SameId::Runs).unwrap();
        assert!(!in_flight.cancel(&id(1)));
        drop(first);
        assert!(in_flight.cancel(&id(1)) && second.cancellation().is_cancelled());
    }
}
