//! The questions of a task, and the keys they go under.
//!
//! A key is never used twice in the life of a task (SEP-2663, task update requests).

use sha2::{Digest, Sha256};

use super::Refusal;
use crate::protocol::{Json, Question, QuestionKind};

/// A question that nobody has answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    /// Which question of the task it is, from 1.
    pub number: u32,
    /// Its key in `inputRequests`.
    pub key: String,
    /// What kind of question it is.
    pub kind: QuestionKind,
    /// Its parameters, as the server spelled them.
    pub params: Json,
}

/// What a task has asked so far: enough to know which keys are free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// How many questions.
    pub(crate) count: u32,
    /// Digests of the keys that were wished for; those that were counted need no memory.
    pub(crate) hinted: Vec<u64>,
}

/// Questions of a task that may be open at the same time.
pub const MOST_QUESTIONS: usize = 32;

/// Bytes of parameters of all open questions of a task.
pub const MOST_QUESTION_BYTES: usize = 256 << 10;

/// Keys that may be wished for in the life of a task; later ones are counted.
pub const MOST_HINTS: usize = 32;

/// Bytes of a key that was wished for.
const KEY: usize = 64;

/// What counted keys begin with.
const COUNTED: &str = "input-";

impl Asked {
    /// The next question, under the key that it wants if that is free.
    pub fn next(&self, question: &Question) -> OpenQuestion {
        let number = self.count.saturating_add(1);
        let hint = question.key.as_deref().filter(|key| is_hint(key) && self.has_place_for(key));
        let key = hint.map_or_else(|| format!("{COUNTED}{number}"), str::to_owned);
        OpenQuestion { number, key, kind: question.kind, params: question.params.clone() }
    }

    /// This, with `question` asked.
    pub fn with(&self, question: &OpenQuestion) -> Result<Self, Refusal> {
        // Numbers that were refused leave gaps.
        if question.number <= self.count {
            return Err(Refusal::KeyUsed);
        }
        let mut next = Self { count: question.number, hinted: self.hinted.clone() };
        if question.key != format!("{COUNTED}{}", question.number) {
            if !is_hint(&question.key) || !self.has_place_for(&question.key) {
                return Err(Refusal::KeyUsed);
            }
            next.hinted.push(digest(&question.key));
        }
        Ok(next)
    }

    fn has_place_for(&self, key: &str) -> bool {
        // Two keys with the same digest: the second is counted instead, which is no loss.
        self.hinted.len() < MOST_HINTS && !self.hinted.contains(&digest(key))
    }
}

/// Whether a key may be wished for. One that looks counted could meet a counted one.
fn is_hint(key: &str) -> bool {
    !key.is_empty() && key.len() <= KEY && !key.chars().any(char::is_control) && !key.starts_with(COUNTED)
}

fn digest(key: &str) -> u64 {
    let digest = Sha256::digest(key);
    digest.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// Whether a task may have these open at the same time.
pub(super) fn fit(questions: &[OpenQuestion]) -> bool {
    let bytes: usize = questions.iter().map(|question| question.params.len()).sum();
    questions.len() <= MOST_QUESTIONS && bytes <= MOST_QUESTION_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(key: Option<&str>) -> Question {
        Question { kind: QuestionKind::Elicitation, params: Json::empty_object(), key: key.map(str::to_owned) }
    }

    /// The keys under which questions with these wishes are asked, one after the other.
    fn keys(wishes: &[Option<&str>]) -> Vec<String> {
        let mut asked = Asked::default();
        let ask = |wish: Option<&str>| {
            let open = asked.next(&question(wish));
            asked = asked.with(&open).unwrap();
            open.key
        };
        wishes.iter().copied().map(ask).collect()
    }

    #[test]
    fn a_wish_is_granted_once_and_counted_keys_never_meet_it() {
        let wishes = [None, Some("name"), Some("name"), Some("input-5"), Some("input-6"), Some(""), Some("a\nb"), None];
        let expected = ["input-1", "name", "input-3", "input-4", "input-5", "input-6", "input-7", "input-8"];
        assert_eq!(keys(&wishes), expected);
        let long = "x".repeat(KEY + 1);
        assert_eq!(keys(&[Some(&long), Some(&long[..KEY])]), ["input-1", &long[..KEY]]);
    }

    #[test]
    fn wishes_are_remembered_up_to_a_number_and_counted_after_that() {
        let names: Vec<_> = (0..=MOST_HINTS).map(|number| format!("k{number}")).collect();
        let wishes: Vec<_> = names.iter().map(|name| Some(name.as_str())).collect();
        let keys = keys(&wishes);
        assert_eq!(keys[MOST_HINTS - 1], format!("k{}", MOST_HINTS - 1));
        assert_eq!(keys[MOST_HINTS], format!("input-{}", MOST_HINTS + 1));
    }

    #[test]
    fn a_key_that_was_used_or_is_out_of_turn_is_refused() {
        let asked = Asked::default();
        let first = asked.next(&question(Some("name")));
        let after = asked.with(&first).unwrap();
        assert_eq!(after.with(&first), Err(Refusal::KeyUsed));
        assert_eq!(after.with(&OpenQuestion { number: 2, ..first.clone() }), Err(Refusal::KeyUsed));
        assert_eq!(
            after.with(&OpenQuestion { number: 3, key: "input-2".to_owned(), ..first.clone() }),
            Err(Refusal::KeyUsed)
        );
        assert!(after.with(&OpenQuestion { number: 3, key: "input-3".to_owned(), ..first }).is_ok());
    }
}
