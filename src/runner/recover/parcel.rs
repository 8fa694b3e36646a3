//! What another process needs to send the call of a run.

use super::super::{Carries, Plan, Promotion, Questions};
use crate::clock::Timestamp;
use crate::config::OnLost;
use crate::protocol::Call;
use crate::store::Dispatch;

/// What another process needs to send the call of a run.
#[derive(Debug)]
pub(in crate::runner) enum Parcel {
    /// Another process cannot send it, or never needs to.
    None,
    /// To be kept beside the record of the task, as soon as there is one.
    Here(Box<Dispatch>),
    /// It is in the store.
    Stored,
}

impl Parcel {
    /// What is to be kept of `call`, which arrived at `arrived`. One with a key may have a record whether or not it may be a
    /// task, also while it waits.
    pub(in crate::runner) fn of(plan: &Plan, call: &Call, arrived: Timestamp, has_key: bool) -> Self {
        let may_be_task = match (plan.way.promotion, plan.way.questions) {
            (Promotion::After(_) | Promotion::AtOnce, _) | (_, Questions::Promote | Questions::First { .. }) => true,
            (Promotion::Never, Questions::PassOn | Questions::RoundTrip | Questions::Refuse) => false,
        };
        if !(may_be_task || has_key) || plan.carries == Carries::Credentials {
            return Self::None;
        }
        Self::Here(Box::new(Dispatch {
            arrived,
            abilities: call.caller.abilities.clone(),
            params: call.params.raw().clone(),
            again: plan.policy.on_lost == OnLost::Rerun,
        }))
    }

    /// What is put beside a new record: of a task that waits, and of one that may run again.
    pub(in crate::runner) fn luggage(&self, waits: bool, may_run_again: bool) -> Option<Dispatch> {
        match self {
            Self::Here(dispatch) if waits || (may_run_again && dispatch.again) => Some(Dispatch::clone(dispatch)),
            Self::Here(_) | Self::None | Self::Stored => None,
        }
    }

    /// What is put beside the record of a task that was to be sent, and waits again.
    pub(in crate::runner) fn again(&self) -> Option<Dispatch> {
        match self {
            Self::Here(dispatch) => Some(Dispatch::clone(dispatch)),
            Self::None | Self::Stored => None,
        }
    }

    /// Whether another process can send the call of a task that waits.
    pub(in crate::runner) fn is_kept(&self) -> bool {
        match self {
            Self::None => false,
            Self::Here(_) | Self::Stored => true,
        }
    }
}
