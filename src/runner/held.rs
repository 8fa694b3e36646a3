//! A call whose caller is on the line, and which may be in the store already: when it goes on without that caller, and
//! how it ends for all.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::board::Board;
use super::form::Form;
use super::joining::Reservation;
use super::seat::{HandleDelivery, Held, Owned, Recorded, Standing, Wish, copy, ending};
use super::view::told_under;
use crate::jobs::Jobs;
use crate::protocol::{Outcome, ReplySender, Rope};
use crate::task::TaskId;

/// How long an outcome waits for the store before it is given to the caller.
const PATIENCE: Duration = Duration::from_secs(5);

impl Held {
    /// A caller who is alone on the line, with a key.
    pub(super) fn reserved(sender: ReplySender, promote_at: Option<Instant>, reservation: Reservation) -> Self {
        Self { standing: Standing::Reserved(Box::new(reservation)), ..Self::alone(sender, promote_at) }
    }

    pub(super) async fn wish(&self, jobs: &Jobs) -> Wish {
        let promotion = async {
            match self.promote_at {
                Some(at) => jobs.alarm(at).await,
                None => pending().await,
            }
        };
        let left = async {
            self.sender.cancelled().await;
            for joined in &self.joined {
                joined.sender.cancelled().await;
            }
        };
        let cancelled = async {
            match &self.standing {
                Standing::Recorded(recorded) => recorded.live.cancelled().await,
                Standing::Plain | Standing::Reserved(_) => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = left => if self.goes_on() { Wish::GoOn } else { Wish::Stop },
            () = cancelled => Wish::Stop,
            () = promotion => Wish::Promote,
        }
    }

    pub(super) fn is_deserted(&self) -> bool {
        self.sender.is_cancelled() && self.joined.iter().all(|joined| joined.sender.is_cancelled())
    }

    /// Whether the call goes on without those on the line: others wait for it, or they left and will come back.
    pub(super) fn goes_on(&self) -> bool {
        match &self.standing {
            Standing::Plain => false,
            Standing::Reserved(reservation) => reservation.repeat().outlives_caller() && !self.sender.is_called_off(),
            Standing::Recorded(recorded) => {
                let comes_back = recorded.settler.outlives_caller() && !self.sender.is_called_off();
                comes_back || recorded.live.party().is_awaited()
            }
        }
    }

    /// The board that questions of the call go up on, if it has one already.
    pub(super) fn board(&self) -> Option<Arc<Board>> {
        match &self.standing {
            Standing::Plain | Standing::Reserved(_) => None,
            Standing::Recorded(recorded) => Some(Arc::clone(recorded.live.board())),
        }
    }

    /// The task in the store.
    pub(super) fn record(&self) -> Option<TaskId> {
        match &self.standing {
            Standing::Plain | Standing::Reserved(_) => None,
            Standing::Recorded(recorded) => Some(recorded.settler.id()),
        }
    }

    /// Takes the record out.
    pub(super) fn take_record(&mut self) -> Option<Recorded> {
        match std::mem::replace(&mut self.standing, Standing::Plain) {
            Standing::Recorded(recorded) => Some(*recorded),
            other => {
                self.standing = other;
                None
            }
        }
    }

    /// Ends the call, in the store first if it is there: a repeat must not hear of another end.
    pub(super) async fn end(mut self, outcome: Outcome) {
        match self.take_record() {
            None => self.done(outcome),
            // Boxed, as all that is rare.
            Some(recorded) => Box::pin(self.end_recorded(recorded, outcome)).await,
        }
    }

    async fn end_recorded(self, recorded: Recorded, outcome: Outcome) {
        let kept = ending(copy(&outcome));
        let outcome = match outcome {
            // Who repeats the call is told that too, in its own words.
            Outcome::Failed(failure) => Outcome::Failed(told_under(recorded.settler.key(), &failure)),
            other => other,
        };
        let mut settled = Box::pin(recorded.settler.settle(kept));
        if timeout(PATIENCE, &mut settled).await.is_ok() {
            return self.done(outcome);
        }
        self.done(outcome);
        settled.await;
    }
}

impl Recorded {
    /// Ends the call in the store, and gives the outcome back.
    pub(super) async fn settled(self, outcome: Outcome) -> Outcome {
        self.settler.settle(ending(copy(&outcome))).await;
        outcome
    }

    /// The task, of which nobody on the line knows any more.
    pub(super) fn without_caller(self) -> Owned {
        let delivery = if self.settler.outlives_caller() { HandleDelivery::Out } else { HandleDelivery::Left };
        Owned { settler: self.settler, live: self.live, delivery }
    }

    /// The task, whose handle is given to all who are on the line.
    pub(super) fn handed_over(mut self, held: Held, form: &Form, write: &dyn Fn(&Form) -> Rope) -> Owned {
        self.settler.told();
        let delivery = held.hand_over(form, write);
        // The caller finds it again, whether or not the handle arrives.
        let delivery = if self.settler.outlives_caller() { HandleDelivery::Out } else { delivery };
        Owned { settler: self.settler, live: self.live, delivery }
    }
}

impl Owned {
    /// Without whether the handle is out.
    pub(super) fn into_record(self) -> Recorded {
        Recorded { settler: self.settler, live: self.live }
    }

    pub(super) async fn wish(&mut self) -> Wish {
        loop {
            match &mut self.delivery {
                HandleDelivery::Under(delivered) => tokio::select! {
                    biased;
                    delivered = delivered => match delivered {
                        Ok(_) => self.delivery = HandleDelivery::Out,
                        Err(_) if self.live.party().is_awaited() => self.delivery = HandleDelivery::Left,
                        Err(_) => return Wish::Stop,
                    },
                    () = self.live.cancelled() => return Wish::Stop,
                },
                HandleDelivery::Left => tokio::select! {
                    () = self.live.cancelled() => return Wish::Stop,
                    () = self.live.party().deserted() => return Wish::Stop,
                },
                HandleDelivery::Out => {
                    self.live.cancelled().await;
                    return Wish::Stop;
                }
            }
        }
    }
}
