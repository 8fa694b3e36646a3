//! What a question of the server does: it is passed on, it makes the call a task, it is gathered with others for the
//! caller, it goes into the record of the task, or it is refused.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attend::Attendance;
use super::desk::{Desk, DeskEvent, Write, refuse};
use super::given_up::unanswered;
use super::promote::Why;
use super::seat::{Held, Owned, Seat};
use super::{Promotion, Questions};
use crate::protocol::error::code;
use crate::protocol::{Answer, Ask, Event, RpcError};
use crate::store::{ChangeError, Closing, CommitError};
use crate::task::{MOST_QUESTIONS, Refusal};

/// How long a write of the record waits until it is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

impl Attendance {
    /// The server asks; `None` if the run is over.
    pub(super) async fn ask(&mut self, seat: Seat, ask: Ask) -> Option<Seat> {
        // Questions are written to the store, for which the server must not have to wait.
        self.running.send_to_background();
        if let (Seat::Held(held), Questions::PassOn) = (&seat, self.way.questions) {
            self.pass_on(held, ask);
            return Some(seat);
        }
        if let (Seat::Held(_), Questions::Refuse) = (&seat, self.way.questions) {
            refuse_method(ask);
            return Some(seat);
        }
        let is_asked_in_rounds = matches!(self.way.questions, Questions::RoundTrip | Questions::First { .. });
        let covered =
            self.way.abilities.covers(ask.question()) || (is_asked_in_rounds && seat.has_twin_for(ask.question()));
        if !covered {
            ask.is_undeclared();
            return Some(seat);
        }
        if self.nobody_is_left(&seat) {
            refuse(ask, "the caller has left, and nobody else can answer");
            return Some(seat);
        }
        if seat.is_stopping() || self.run.shared.draining.is_cancelled() {
            refuse(ask, "the call is being stopped");
            return Some(seat);
        }
        if let (Seat::Held(_), Some(answer)) =
            (&seat, ask.question().key.as_deref().and_then(|key| self.ahead.take(key)))
        {
            ask.answer(answer);
            return Some(seat);
        }
        if matches!((&seat, self.way.questions), (Seat::Held(_), Questions::Promote)) && ask.is_of_session() {
            // The tool does not wait for it, so it is no reason to make a task.
            if self.put_off.len() < MOST_QUESTIONS {
                self.put_off.push(ask);
            }
            return Some(seat);
        }
        let limit = self.run.plan.policy.ask_timeout;
        let desk = self.desk.get_or_insert_with(|| {
            let board = match &seat {
                Seat::Task(owned) => Arc::clone(owned.live.board()),
                Seat::Held(held) => held.board().unwrap_or_default(),
                Seat::Parked(_) => Arc::default(),
            };
            Box::new(Desk::new(board, limit, self.asked_before.clone()))
        });
        let sharer = self.run.shared.admission.sharer(&self.run.principal);
        let Some(question) = desk.post(ask, &self.run.shared.shares, &sharer) else { return Some(seat) };
        Some(match seat {
            Seat::Task(owned) => {
                desk.writes.push_back(Write::Open(question));
                self.write(&owned).await;
                Seat::Task(owned)
            }
            Seat::Held(mut held) => match self.way.questions {
                Questions::RoundTrip | Questions::First { .. } => {
                    desk.gather();
                    // The caller is asked first.
                    desk.promote_at = held.promote_at.take().or(desk.promote_at);
                    Seat::Held(held)
                }
                Questions::Promote | Questions::PassOn | Questions::Refuse => {
                    match self.promote(held, Why::Question).await? {
                        Seat::Held(held) => Seat::Held(self.without_store(held)),
                        seat => seat,
                    }
                }
            },
            // It is asked in the next round.
            Seat::Parked(parked) => Seat::Parked(parked),
        })
    }

    /// The call has become a task, which can ask what was no reason to make it one.
    pub(super) async fn ask_put_off(&mut self, seat: &Seat) {
        let Seat::Task(owned) = seat else { return };
        if self.put_off.is_empty() {
            return;
        }
        let (limit, board) = (self.run.plan.policy.ask_timeout, Arc::clone(owned.live.board()));
        let desk = self.desk.get_or_insert_with(|| Box::new(Desk::new(board, limit, self.asked_before.clone())));
        let sharer = self.run.shared.admission.sharer(&self.run.principal);
        for ask in std::mem::take(&mut self.put_off).into_iter().filter(|ask| !ask.is_withdrawn()) {
            if let Some(question) = desk.post(ask, &self.run.shared.shares, &sharer) {
                desk.writes.push_back(Write::Open(question));
            }
        }
        self.write(owned).await;
    }

    /// Asks the legacy client who is held. The question is kept: its time does not count for the run, and a call that
    /// becomes a task goes on asking there, since by then the client waits for nothing any more.
    fn pass_on(&mut self, held: &Held, ask: Ask) {
        let limit = self.run.plan.policy.ask_timeout;
        let board = held.board().unwrap_or_default();
        let desk = self.desk.get_or_insert_with(|| Box::new(Desk::new(board, limit, self.asked_before.clone())));
        let sharer = self.run.shared.admission.sharer(&self.run.principal);
        if let Some(copy) = desk.post_and_copy(ask, &self.run.shared.shares, &sharer) {
            held.sender.event(Event::Ask(copy));
        }
    }

    /// What the caller was asked while it was held goes on in the task; it may have answered in this moment.
    pub(super) async fn take_back(&mut self, seat: &Seat) {
        let (Seat::Task(owned), Some(desk)) = (seat, &mut self.desk) else { return };
        for (number, answer) in desk.take_back() {
            self.answered(Some(owned), number, answer).await;
        }
    }

    /// The caller, who was asked while it was held, has answered.
    pub(super) async fn answered(&mut self, owned: Option<&Owned>, number: u32, answer: Answer) {
        let Some(desk) = &mut self.desk else { return };
        let Some((key, ask)) = desk.board.take_number(number) else { return };
        if let Some(owned) = owned {
            desk.writes.push_back(Write::Close(key));
            self.write(owned).await;
        }
        ask.answer(answer);
    }

    /// The store cannot take the task now. The caller is asked by a multi round-trip result: to hold it until there is
    /// room would leave the question without anybody to answer it.
    fn without_store(&mut self, mut held: Held) -> Held {
        if let Some(desk) = &mut self.desk {
            desk.gather();
            desk.promote_at = held.promote_at.take().or(desk.promote_at);
        }
        held
    }

    /// Whether the caller has left a call that goes on, so that nobody can be asked before somebody comes back.
    fn nobody_is_left(&self, seat: &Seat) -> bool {
        // One who gets a handle in words answers with that.
        match (seat, self.way.questions) {
            (Seat::Task(owned), Questions::PassOn | Questions::RoundTrip) if self.way.promotion == Promotion::Never => {
                !owned.live.party().has_handle()
            }
            (Seat::Held(_) | Seat::Task(_) | Seat::Parked(_), _) => false,
        }
    }

    /// Something happened at the desk; `None` when the run is over.
    pub(super) async fn at_desk(&mut self, seat: Seat, event: DeskEvent) -> Option<Seat> {
        let Some(desk) = &mut self.desk else { return Some(seat) };
        match event {
            DeskEvent::Taken => {}
            DeskEvent::Answered(number, answer) => {
                let owned = if let Seat::Task(owned) = &seat { Some(owned) } else { None };
                self.answered(owned, number, answer).await;
            }
            DeskEvent::Withdrawn(number) => {
                // It may have been answered.
                let Some((key, _)) = desk.board.take_number(number) else { return Some(seat) };
                if let Seat::Task(owned) = &seat {
                    desk.writes.push_back(Write::Close(key));
                    self.write(owned).await;
                }
            }
            DeskEvent::Write => {
                desk.write_at = None;
                if let Seat::Task(owned) = &seat {
                    self.write(owned).await;
                }
            }
            DeskEvent::Gathered => {
                desk.gather_until = None;
                if let Seat::Held(held) = seat {
                    return Some(self.put_to_caller(held));
                }
            }
            DeskEvent::TooLong => {
                desk.board.clear();
                self.give_up(seat, unanswered(self.run.plan.policy.ask_timeout, self.run.plan.linger)).await;
                return None;
            }
            DeskEvent::Called(resume) => return self.resume(seat, resume).await,
        }
        Some(seat)
    }

    /// Writes into the record of the task what it does not say yet.
    pub(super) async fn write(&mut self, owned: &Owned) {
        let (id, store) = (owned.settler.id(), &self.run.shared.store);
        let Some(desk) = &mut self.desk else { return };
        while let Some(write) = desk.writes.front().cloned() {
            let written = match &write {
                Write::Open(question) => store.open_question(&id, question.clone()).await,
                Write::Close(key) => store.close_question(&id, key, Closing::Withdrawn).await,
            };
            match written {
                // An earlier try, which was thought to have failed, may have done it.
                Ok(_) | Err(ChangeError::Refused(Refusal::KeyUsed | Refusal::NotAsked, _)) => {}
                Err(error) if error.is_final() => {
                    let too_much = matches!(
                        error,
                        ChangeError::Refused(Refusal::TooMuchAsked, _)
                            | ChangeError::Commit(CommitError::TooLarge { .. })
                    );
                    if let Write::Open(question) = &write
                        && let Some((_, ask)) = desk.board.take_number(question.number)
                    {
                        refuse(ask, if too_much { "the task asks too much at once" } else { "the task has ended" });
                    }
                }
                Err(error) => {
                    tracing::warn!(task = ?id, %error, "a question waits for the store");
                    desk.write_at = Some(Instant::now() + WRITE_AGAIN);
                    return;
                }
            }
            desk.writes.pop_front();
        }
    }
}

/// A call of this method cannot ask.
fn refuse_method(ask: Ask) {
    let kind = ask.question().kind;
    let message = format!("this client cannot be asked {kind} in this request");
    ask.answer(Answer::Error(RpcError::new(code::METHOD_NOT_FOUND, message)));
}
