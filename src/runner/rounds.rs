//! Rounds of questions before there is a task (2026-07-28, multi round-trip requests): the caller is sent away with
//! questions, the run is parked, and goes on when the call is retried with answers.

use tokio::time::Instant;

use super::attend::Attendance;
use super::desk::Desk;
use super::form::{Form, Occasion};
use super::joining::Round;
use super::parked::{LONGEST, Resume};
use super::responses::Responses;
use super::run::Run;
use super::seat::{Held, Owned, Parked, Seat, Standing, passed_on, size};
use super::twin::{self, Twin};
use super::{Promotion, Questions, view};
use crate::protocol::rope::ObjectWriter;
use crate::protocol::{Abilities, Failure, Outcome, Question, Reason, Retry, Rope};
use crate::task::{OpenQuestion, TaskId};

/// Callers who may wait for the outcome of the same retry.
const MOST_JOINED: usize = 8;

impl Attendance {
    /// Sends the caller away with the questions that are open, to come back with answers.
    pub(super) fn put_to_caller(&mut self, held: Held) -> Seat {
        let shared = &self.run.shared;
        let (Some(desk), Some(subject)) = (&mut self.desk, &self.subject) else { return Seat::Held(held) };
        let mut not_asked = Held { promote_at: desk.promote_at.take(), ..held };
        let mut questions = desk.board.questions();
        let can_be_asked = |twin: &Twin| twin::covers_all(&twin.way.abilities, &questions);
        if !not_asked.joined.iter().any(can_be_asked) {
            // Nobody else can be asked all of it.
            drop_undeclared(desk, &self.way.abilities);
            questions = desk.board.questions();
        }
        if questions.is_empty() {
            return Seat::Held(not_asked);
        }
        let now = shared.store.clock().now();
        let id = not_asked.record().unwrap_or_else(|| TaskId::generate(now));
        let counter = desk.counter.get_or_insert_with(|| shared.parked.open(id));
        counter.round = counter.round.saturating_add(1);
        desk.is_parked = true;
        let patience = self.run.plan.policy.ask_timeout.min(LONGEST);
        counter.expires = now.after(patience);
        let state = counter.claim().sealed(&shared.store, &self.run.principal, &self.run.plan.server, subject);
        let result = input_required(&questions, &state);
        let record = not_asked.take_record().map(Box::new);
        if let Some(record) = &record {
            let questions = questions.clone();
            record.live.party().set_round(Some(Round { result: result.clone(), questions }));
        }
        for twin in not_asked.joined {
            twin.asked(&questions, &result);
        }
        not_asked.sender.done(twin::round_for(&self.way.abilities, &questions, &result));
        Seat::Parked(Parked { until: Instant::now() + patience, ended: None, record })
    }

    /// Keeps the outcome of a parked run for the retry, which may still come.
    pub(super) async fn keep(&mut self, mut parked: Parked, outcome: Outcome) -> Parked {
        if let Some(desk) = &self.desk {
            desk.board.clear();
        }
        self.permits = None;
        let outcome = match parked.record.take() {
            Some(record) => record.settled(outcome).await,
            None => outcome,
        };
        let ended =
            match self.run.shared.shares.room(&self.run.shared.admission.sharer(&self.run.principal), size(&outcome)) {
                Some(room) => {
                    self.kept = Some(room);
                    outcome
                }
                None => Outcome::Failed(Failure::new(
                    Reason::TooLarge,
                    "the tool has run, but its result was too large to be kept until the call was retried",
                    Retry::No,
                )),
            };
        Parked { ended: Some(ended), ..parked }
    }

    /// Somebody came back.
    pub(super) async fn resume(&mut self, seat: Seat, resume: Resume) -> Option<Seat> {
        let Some(desk) = &mut self.desk else { return Some(seat) };
        let Resume { sender, round, responses, arrived, way } = resume;
        // A late copy must not use up what a newer round asks: it is asked again.
        let is_stale = desk.counter.as_ref().is_some_and(|counter| counter.round != round);
        let responses = if is_stale { Responses::default() } else { responses };
        if let (true, Seat::Parked(Parked { ended: Some(_), .. })) = (is_stale, &seat) {
            sender.done(Outcome::Failed(earlier()));
            return Some(seat);
        }
        let responses = match responses.checked(|key| desk.board.has(key)) {
            Ok(responses) => responses,
            Err(error) => {
                sender.done(Outcome::Error(error));
                return Some(seat);
            }
        };
        desk.is_parked = false;
        match seat {
            Seat::Parked(Parked { ended: Some(outcome), .. }) => {
                self.end(Seat::Held(Held::alone(sender, None)), outcome).await;
                None
            }
            Seat::Parked(Parked { ended: None, record, .. }) => {
                if let Some(record) = &record {
                    record.live.party().set_round(None);
                }
                answer(desk, responses);
                drop_undeclared(desk, &way.abilities);
                self.way = way;
                let standing = record.map_or(Standing::Plain, Standing::Recorded);
                Some(Seat::Held(self.seated(Held { standing, ..Held::alone(sender, None) }, arrived)))
            }
            Seat::Held(mut held) => {
                answer(desk, responses);
                held.joined.retain(|joined| !joined.sender.is_cancelled());
                if held.joined.len() < MOST_JOINED {
                    held.joined.push(Twin { sender, way });
                } else {
                    sender.done(Outcome::Failed(too_many()));
                }
                Some(Seat::Held(held))
            }
            Seat::Task(owned) => {
                self.run.show_again(&owned, Twin { sender, way }).await;
                Some(Seat::Task(owned))
            }
        }
    }

    /// Hands over how the run ended, also to those whose retry came in this moment, and keeps it for those that come later.
    pub(super) async fn end(&mut self, seat: Seat, outcome: Outcome) {
        let outcome = if matches!(seat, Seat::Held(_)) { passed_on(outcome) } else { outcome };
        let seat = match (seat, self.desk.as_mut().and_then(|desk| desk.counter.as_mut())) {
            (Seat::Held(mut held), Some(counter)) => {
                let (shared, round) = (&self.run.shared, counter.round);
                shared.outcomes.keep(counter.claim(), &self.run.principal, &outcome, shared.store.clock().now());
                // Who finds this closed looks among the outcomes.
                counter.close();
                let late = std::iter::from_fn(|| counter.waiting()).filter(|late| late.round == round);
                held.joined.extend(late.map(|late| Twin { sender: late.sender, way: late.way }));
                Seat::Held(held)
            }
            (seat, _) => seat,
        };
        seat.end(outcome).await;
    }

    /// How a caller who came back is held: until what is still open is asked again, or as any caller.
    fn seated(&mut self, held: Held, arrived: Instant) -> Held {
        let Some(desk) = &mut self.desk else { return held };
        let answered = desk.board.is_empty();
        if let (true, Questions::First { then }) = (answered, self.way.questions) {
            self.way.questions = Questions::Promote;
            self.way.promotion = then;
        }
        let promote_at = match self.way.questions {
            Questions::RoundTrip | Questions::First { .. } | Questions::PassOn | Questions::Refuse if !answered => {
                desk.gather();
                None
            }
            Questions::First { .. } | Questions::PassOn | Questions::Refuse => None,
            Questions::RoundTrip | Questions::Promote => match self.way.promotion {
                Promotion::Never => None,
                Promotion::After(after) if answered => Some(arrived + after),
                Promotion::After(_) | Promotion::AtOnce => Some(arrived),
            },
        };
        Held { promote_at, ..held }
    }
}

impl Run {
    /// A retry whose call has become a task for another copy of it gets the same handle.
    async fn show_again(&self, owned: &Owned, twin: Twin) {
        let store = &self.shared.store;
        let principal = store.owner(&self.principal);
        let outcome = match store.get(&principal, &owned.settler.id()).await {
            Ok(Some(task)) => {
                let write = |form: &Form| self.shared.handle(form, &task, Some(&owned.live), Occasion::Made);
                // Whether it arrives does not matter: the first copy decides that.
                drop(twin.handed(&write));
                return;
            }
            Ok(None) | Err(_) => Failure::outcome_unknown("the call goes on as a task that cannot be read"),
        };
        twin.sender.done(Outcome::Failed(outcome));
    }
}

/// The `InputRequiredResult` with these questions.
pub(super) fn input_required(questions: &[OpenQuestion], state: &str) -> Rope {
    let mut result = ObjectWriter::new();
    result.string("resultType", "input_required").rope("inputRequests", view::input_requests(questions));
    result.string("requestState", state);
    result.finish()
}

/// Gives the answers to those who asked. Keys that are not open are ignored: they were answered, or never asked.
fn answer(desk: &mut Desk, responses: Responses) {
    for (key, answer) in responses {
        if let Some(ask) = desk.board.take(&key) {
            ask.answer(answer);
        }
    }
}

/// Takes back what the caller does not declare any more that it can be asked: it said so once, and each request counts
/// alone (2026-07-28, capabilities).
fn drop_undeclared(desk: &Desk, abilities: &Abilities) {
    for OpenQuestion { number, kind, params, .. } in desk.board.questions() {
        if abilities.covers(&Question { kind, params, key: None }) {
            continue;
        }
        if let Some((_, ask)) = desk.board.take_number(number) {
            ask.is_undeclared();
        }
    }
}

/// The run has ended, and this was not its last round.
pub(super) fn earlier() -> Failure {
    Failure::outcome_unknown("this requestState was answered in an earlier round; go on with the newest one")
}

pub(super) fn too_many() -> Failure {
    let message = "too many copies of this retry wait for its outcome; the call itself goes on";
    Failure::new(Reason::Busy, message, Retry::No)
}
