//! What a task costs.

use std::time::Duration;

use crate::config::Cost;

/// What a task costs, in whatever the operator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// What the start costs.
    pub price: Cost,
    /// What each minute of the run costs.
    pub per_minute: Cost,
    /// What it has cost in runs that are over.
    pub total: Cost,
}

impl Charge {
    /// What a start and each minute cost.
    pub const fn new(price: Cost, per_minute: Cost) -> Self {
        Self { price, per_minute, total: Cost::ZERO }
    }

    /// Whether it costs nothing, however long it runs.
    pub fn is_free(&self) -> bool {
        *self == Self::default()
    }

    /// What it costs with a run of that time. The price is of the call, however often that runs.
    pub fn with_run(&self, ran: Duration) -> Cost {
        self.total.max(self.price).plus(self.per_minute.for_time(ran))
    }
}
