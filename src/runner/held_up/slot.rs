//! The slot of a call that waits for its server: others may have it meanwhile.

use tokio::time::Instant;

use super::super::Sends;
use super::super::admission::Entry;
use super::super::attend::Attendance;
use super::super::run::{Permits, Run};
use super::super::seat::Seat;
use crate::protocol::{Failure, WaitsFor};

impl Attendance {
    /// Gives the slot back for now, if there is one. Refused where no more may wait.
    pub(super) fn gives_slot_back(&mut self, what: WaitsFor) -> Result<(), Failure> {
        let Run { shared, principal, plan, .. } = &self.run;
        match &mut self.permits {
            // Who has the turn at such a server is not to wait for a slot, or the server would wait with it.
            Some(permits) if plan.sends != Sends::InTurn => shared.admission.set_aside(principal, plan, permits, what),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits until a call that has given its slot back has one again; `None` if it has ended.
    pub(super) async fn has_slot_again(&mut self, seat: Seat) -> Option<Seat> {
        let Some(permits) = self.permits.take() else { return Some(seat) };
        let (seat, permits) = self.run.wait_again(seat, permits.come_back(), self.until).await?;
        self.permits = Some(permits);
        Some(seat)
    }
}

impl Run {
    /// Waits for the slots of a call whose server would take it now.
    async fn wait_again(&self, seat: Seat, entry: Entry, until: Instant) -> Option<(Seat, Permits)> {
        if let (Entry::Wait(ticket), Some(live)) = (&entry, seat.live()) {
            live.queued(ticket.watcher());
        }
        self.wait(seat, entry, until).await
    }
}
