//! Questions of the server that the client has not answered yet, under ids of ours.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::protocol::{Answer, Ask, Json};

/// The open questions of one session.
#[derive(Debug, Default)]
pub(super) struct Questions {
    ids: QuestionIds,
    table: Mutex<Table>,
}

/// Gives ids out, each once, from 1. Sessions that follow each other on one connection share this: a late answer to what an
/// earlier one asked must not be taken for the answer to another question.
#[derive(Clone, Debug, Default)]
pub(in crate::front) struct QuestionIds(Arc<AtomicU64>);

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Ask>,
    client: Client,
}

/// Whether anybody can answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Client {
    #[default]
    Speaks,
    /// Nothing more comes from it.
    HasHungUp,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// It goes to the server.
    Taken,
    /// The question was answered or withdrawn before: a race that nobody is to blame for.
    Late,
    /// No such question was ever asked here.
    NeverAsked,
}

/// Questions that may be open at the same time in one session; more are refused.
const OPEN: usize = 64;

impl QuestionIds {
    /// Never 0: the TypeScript SDK 1.32 takes that for no id, and a question under it cannot be taken back.
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    fn was_given(&self, id: u64) -> bool {
        (1..=self.0.load(Ordering::Relaxed)).contains(&id)
    }
}

impl Questions {
    /// Questions under these ids.
    pub(super) fn new(ids: QuestionIds) -> Self {
        Self { ids, table: Mutex::default() }
    }

    /// Keeps a question until it is answered; its id. `None`, and the question refused, if too many are open or nobody can
    /// answer any more.
    pub(super) fn ask(&self, ask: Ask) -> Option<u64> {
        let mut table = self.lock();
        if table.open.len() >= OPEN || table.client == Client::HasHungUp {
            return None;
        }
        let id = self.ids.next();
        table.open.insert(id, ask);
        Some(id)
    }

    /// Gives the client's answer to the question that `id` names.
    pub(super) fn answer(&self, id: &Json, answer: Answer) -> Given {
        // Some clients give every id back as a string.
        let text = id.as_str();
        let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        // No other spelling than ours: `parse` takes "+0" too.
        let Some(number) = number.parse::<u64>().ok().filter(|read| read.to_string() == number) else {
            return Given::NeverAsked;
        };
        let ask = self.lock().open.remove(&number);
        match ask {
            Some(ask) => {
                ask.answer(answer);
                Given::Taken
            }
            None if self.ids.was_given(number) => Given::Late,
            None => Given::NeverAsked,
        }
    }

    /// Nothing more comes from the client: what is open is refused, and what is asked from now on.
    pub(super) fn hang_up(&self) {
        let refused = {
            let mut table = self.lock();
            table.client = Client::HasHungUp;
            std::mem::take(&mut table.open)
        };
        drop(refused);
    }

    /// Takes a question back; false if it was answered already.
    pub(super) fn withdraw(&self, id: u64) -> bool {
        self.lock().open.remove(&id).is_some()
    }

    /// The table is whole after every change, so a poisoned lock holds a good one.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Asking, Question, QuestionKind};

    fn ask() -> (Ask, Asking) {
        Ask::new(Question { kind: QuestionKind::Roots, params: Json::empty_object(), key: None })
    }

    fn id(text: &str) -> Json {
        Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
    }

    fn answer() -> Answer {
        Answer::Result(Json::empty_object())
    }

    #[tokio::test]
    async fn an_answer_finds_its_question_once() {
        let questions = Questions::default();
        let ((first, mut asking), (second, _second)) = (ask(), ask());
        assert_eq!((questions.ask(first), questions.ask(second)), (Some(1), Some(2)));
        assert_eq!(questions.answer(&id("\"1\""), answer()), Given::Taken);
        assert_eq!(asking.answer().await, answer());
        assert_eq!(questions.answer(&id("1"), answer()), Given::Late);
        assert!(questions.withdraw(2) && !questions.withdraw(2));
        assert_eq!(questions.answer(&id("2"), answer()), Given::Late);
        for unknown in
            ["0", "3", "-1", "1.5", "\"x\"", "null", "{}", "99999999999999999999", "\"+1\"", "\"01\"", "\" 1\"", "\"\""]
        {
            assert_eq!(questions.answer(&id(unknown), answer()), Given::NeverAsked, "{unknown}");
        }
    }

    #[tokio::test]
    async fn more_questions_than_the_bound_are_refused() {
        let questions = Questions::default();
        let asked: Vec<_> = (0..OPEN).map(|_| ask()).collect();
        let asking: Vec<_> = asked.into_iter().map(|(ask, asking)| (questions.ask(ask).unwrap(), asking)).collect();
        let (one_more, mut refused) = ask();
        assert_eq!(questions.ask(one_more), None);
        assert!(matches!(refused.answer().await, Answer::Error(_)));
        assert!(questions.withdraw(asking[0].0));
        assert_eq!(questions.ask(ask().0), Some(OPEN as u64 + 1));
    }
}
