//! The record of a call with a key, which is there before anything is sent.

use std::sync::Arc;

use super::key_reused;
use super::places::Reservation;
use super::wait::Waiter;
use crate::protocol::Outcome;
use crate::runner::live::Phase;
use crate::runner::promote::{Seed, Why};
use crate::runner::run::Run;
use crate::runner::seat::{Held, Recorded, Seat, Standing};
use crate::runner::settler::Settler;
use crate::store::{Claimed, CommitError, Committed, Luggage};
use crate::task::{State, Task};

/// Why a call was not made a task.
#[derive(Debug)]
pub(in crate::runner) enum NotMade {
    /// The store cannot take it now; it stays as it was.
    NotNow(Held, CommitError),
    /// An earlier call has its key: the caller was answered, or waits for that one.
    Joined,
}

impl Run {
    /// Records a call that has a key, before it is sent; `None` if it was refused, or joins an earlier one.
    pub(in crate::runner) async fn record_intent(&self, held: Held, reservation: Box<Reservation>) -> Option<Seat> {
        let state = State::Running { started: self.shared.store.clock().now() };
        let seed = Seed::silent(state, Phase::Running { progress: None }, Why::Key);
        let held = Held { standing: Standing::Reserved(reservation), ..held };
        match self.commit(held, seed).await {
            Ok((held, recorded, _)) => {
                Some(Seat::Held(Held { standing: Standing::Recorded(Box::new(recorded)), ..held }))
            }
            Err(NotMade::NotNow(held, error)) => {
                held.done(Outcome::Failed(error.to_failure()));
                None
            }
            Err(NotMade::Joined) => None,
        }
    }

    /// The caller of a call with a key left, and the call goes on. If it waits and has no record yet, it gets one, by which a
    /// repeat finds it; `None` if it got none, and is not sent.
    pub(in crate::runner) async fn goes_on_without_caller(&self, seat: Seat, phase: Phase) -> Option<Seat> {
        let Seat::Held(mut held) = seat else { return Some(seat) };
        if let Some(recorded) = held.take_record() {
            return Some(Seat::Task(recorded.without_caller()));
        }
        match self.commit(held, Seed::silent(State::Queued, phase, Why::Key)).await {
            Ok((_, recorded, _)) => Some(Seat::Task(recorded.without_caller())),
            Err(NotMade::NotNow(_, error)) => {
                let tool = self.plan.what.name();
                tracing::warn!(tool, %error, "a call whose caller left before it was sent could not be recorded, and is not sent");
                None
            }
            Err(NotMade::Joined) => None,
        }
    }

    /// Commits the record of a call; who was held comes back if that fails.
    pub(in crate::runner) async fn commit(
        &self,
        mut held: Held,
        seed: Seed,
    ) -> Result<(Held, Recorded, Committed<Task>), NotMade> {
        let shared = &self.shared;
        let reservation = match std::mem::replace(&mut held.standing, Standing::Plain) {
            Standing::Reserved(reservation) => Some(reservation),
            Standing::Plain | Standing::Recorded(_) => None,
        };
        let repeat = reservation.as_ref().map(|reservation| *reservation.repeat());
        let task = self.record(&seed, shared.store.clock().now(), repeat);
        let (id, waits) = (task.id, matches!(task.state, State::Queued));
        let dispatch = self.parcel.luggage(waits, self.may_run_again());
        let luggage = Luggage { dispatch, anchored: seed.anchored, newcomer: self.principal.newcomer().cloned() };
        // Before the record can be seen, so that an answer finds its question.
        let live = shared.live.add(id, seed.phase, seed.board);
        let claimed = match repeat {
            None => shared.store.create_with(task, luggage).await.map(Claimed::Made),
            Some(repeat) => shared.store.claim_with(task, repeat.key, repeat.claim, luggage).await,
        };
        match claimed {
            Ok(Claimed::Made(task)) => {
                if let Some(reservation) = &reservation {
                    reservation.recorded(id);
                }
                let settler = Settler::new(id, shared.store.clone(), shared.live.clone(), shared.jobs.clone());
                Ok((held, Recorded { settler: settler.holding(reservation), live }, task))
            }
            Err(error) => {
                shared.live.remove(&id);
                held.standing = reservation.map_or(Standing::Plain, Standing::Reserved);
                Err(NotMade::NotNow(held, error))
            }
            // Decided in the store: another process has written there since this one looked.
            Ok(Claimed::Earlier(task)) => {
                shared.live.remove(&id);
                drop(reservation);
                let waiter = Waiter::new(self, task.id, held.sender);
                let shared = Arc::clone(shared);
                shared.jobs.spawn("wait for an earlier call", waiter.wait());
                Err(NotMade::Joined)
            }
            Ok(Claimed::Differs) => {
                shared.live.remove(&id);
                held.done(Outcome::Failed(key_reused()));
                Err(NotMade::Joined)
            }
        }
    }
}
