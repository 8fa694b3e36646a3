//! Where the questions of one run are kept until they are answered, and what is still to be done about them.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::board::Board;
use super::parked::{Counter, Resume};
use super::shares::{Part, Shares};
use crate::protocol::error::code;
use crate::protocol::{Answer, Ask, Principal, RpcError};
use crate::task::{Asked, OpenQuestion};

/// The questions of one run.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) board: Arc<Board>,
    /// What was asked so far.
    pub(super) asked: Asked,
    /// Each resolves when its question is withdrawn, or is over in another way.
    withdrawals: FuturesUnordered<BoxFuture<'static, u32>>,
    /// Each resolves when the question that it was passed on with has an answer.
    passed: FuturesUnordered<BoxFuture<'static, Option<(u32, Answer)>>>,
    /// What the record of the task does not say yet, in order.
    pub(super) writes: VecDeque<Write>,
    /// When those are tried again.
    pub(super) write_at: Option<Instant>,
    /// When what was asked so far is put to the caller; `None` while nothing is gathered.
    pub(super) gather_until: Option<Instant>,
    /// When the caller was to get a handle before it was to be asked.
    pub(super) promote_at: Option<Instant>,
    /// Where retries come in, once the run was parked.
    pub(super) counter: Option<Counter>,
    /// How long a question may be open.
    limit: Duration,
    /// The place of the run among those that wait for input, while it does.
    pub(super) place: Option<Part>,
    /// Whether the caller is away: then the limit of the parked run counts.
    pub(super) is_parked: bool,
}

/// A change of a task's record.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Open(OpenQuestion),
    /// The question with this key was withdrawn.
    Close(String),
}

/// What happens at a desk.
#[derive(Debug)]
pub(super) enum DeskEvent {
    /// The question with this number is not wanted any more, or was over already.
    Withdrawn(u32),
    /// Something was taken off the board.
    Taken,
    /// The caller has answered the question with this number, which was passed on to it.
    Answered(u32, Answer),
    /// It is time to write.
    Write,
    /// No question came for a while.
    Gathered,
    /// The oldest question has been open for too long.
    TooLong,
    /// A retry came.
    Called(Resume),
}

/// How long no other question may come before those that came are put to the caller: servers ask several at once.
pub(super) const QUIET: Duration = Duration::from_millis(60);

impl Desk {
    /// The desk of a run whose questions go up on `board`, and may be open for `limit`. An earlier run has asked `asked`.
    pub(super) fn new(board: Arc<Board>, limit: Duration, asked: Asked) -> Self {
        Self {
            board,
            asked,
            withdrawals: FuturesUnordered::new(),
            passed: FuturesUnordered::new(),
            writes: VecDeque::new(),
            write_at: None,
            gather_until: None,
            promote_at: None,
            counter: None,
            limit,
            place: None,
            is_parked: false,
        }
    }

    /// Puts a question of this principal's call up, under a key of its own; refuses it if there is too much.
    pub(super) fn post(&mut self, ask: Ask, shares: &Shares, who: &Principal) -> Option<OpenQuestion> {
        let Some(place) = self.place.take().or_else(|| shares.place(who)) else {
            refuse(
                ask,
                "too many calls of this caller, or of all, wait for answers in Raincheck; answer some of them first",
            );
            return None;
        };
        self.place = Some(place);
        let mut question = self.asked.next(ask.question());
        // The text is a part of a message that may be far larger.
        question.params = question.params.detached();
        let Some(room) = shares.room(who, question.params.len()) else {
            refuse(ask, "too many questions wait for answers in Raincheck; try again later");
            return None;
        };
        let (number, withdrawal) = (question.number, ask.withdrawal());
        if let Err(ask) = self.board.post(question.clone(), ask, room) {
            refuse(ask, "the call has asked too much at once: 32 questions with 256 KiB in all may be open");
            return None;
        }
        // A number that is new is never refused.
        self.asked = self.asked.with(&question).unwrap_or_default();
        self.withdrawals.push(async move { withdrawal.cancelled().await }.map(move |()| number).boxed());
        Some(question)
    }

    /// Puts a question up and gives a copy of it out, for the caller who is held to be asked.
    pub(super) fn post_and_copy(&mut self, ask: Ask, shares: &Shares, who: &Principal) -> Option<Ask> {
        let withdrawal = ask.withdrawal();
        let (copy, mut asking) = Ask::new(ask.question().clone());
        let number = self.post(ask, shares, who)?.number;
        let answered = async move {
            tokio::select! {
                answer = asking.answer() => Some((number, answer)),
                // With this the copy is withdrawn too.
                () = withdrawal.cancelled() => None,
            }
        };
        self.passed.push(answered.boxed());
        Some(copy)
    }

    /// Takes the copies back, and gives out the answers that came before. Other questions stay on the board.
    pub(super) fn take_back(&mut self) -> Vec<(u32, Answer)> {
        let mut answers = Vec::new();
        while let Some(Some(passed)) = self.passed.next().now_or_never() {
            // An error may say no more than that the caller is held no longer.
            answers.extend(passed.filter(|(_, answer)| matches!(answer, Answer::Result(_))));
        }
        self.passed.clear();
        answers
    }

    /// Waits a while for more questions.
    pub(super) fn gather(&mut self) {
        self.gather_until = Some(Instant::now() + QUIET);
    }

    /// What happens next. Cancel safe.
    pub(super) async fn next(&mut self) -> DeskEvent {
        let Self { board, withdrawals, passed, write_at, gather_until, counter, limit, is_parked, .. } = self;
        let too_long = board.oldest().filter(|_| !*is_parked).map(|oldest| oldest + *limit);
        tokio::select! {
            biased;
            Some(number) = withdrawals.next(), if !withdrawals.is_empty() => DeskEvent::Withdrawn(number),
            Some(Some((number, answer))) = passed.next(), if !passed.is_empty() => DeskEvent::Answered(number, answer),
            () = board.taken() => DeskEvent::Taken,
            call = called(counter.as_mut()) => DeskEvent::Called(call),
            () = at(*write_at) => DeskEvent::Write,
            () = at(*gather_until) => DeskEvent::Gathered,
            () = at(too_long) => DeskEvent::TooLong,
        }
    }
}

/// Resolves at `time`; never for none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

async fn called(counter: Option<&mut Counter>) -> Resume {
    match counter {
        Some(counter) => counter.next().await,
        None => pending().await,
    }
}

/// Tells the server that a question will not be answered, and why.
pub(super) fn refuse(ask: Ask, why: &str) {
    ask.answer(Answer::Error(RpcError::new(code::INTERNAL, why)));
}
