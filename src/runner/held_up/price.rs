//! The price of a call that waits for its server: spent when the call is let go (`Run::begin_and_pay`), and no sooner.

use super::super::attend::Attendance;
use crate::config::Cost;

impl Attendance {
    /// Whether the call costs anything, if only its record says so.
    pub(super) fn is_charged(&self) -> bool {
        let policy = &self.run.plan.policy;
        self.fare.is_some() || policy.price != Cost::ZERO || policy.price_per_minute != Cost::ZERO
    }

    /// The call was let go and could not be sent after all: its price is given back until it is let go again.
    pub(super) fn price_is_given_back(&mut self) {
        // What a lost run has cost is not given back.
        if let Some(fare) = self.fare.as_mut().filter(|_| self.run.reruns == 0) {
            fare.held_up();
        }
    }

    /// The call is let go: what was paid is spent.
    pub(super) fn price_is_spent(&mut self) {
        if let Some(fare) = &mut self.fare {
            fare.sent();
        }
    }
}
