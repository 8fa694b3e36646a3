//! The answers in a request: `inputResponses` of `tasks/update` and of a retry.

use crate::protocol::error::code;
use crate::protocol::{Answer, Json, RpcError};

/// Answers under the keys of their questions, in the order of the request.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    answers: Vec<(String, Answer)>,
    /// Keys with something under them that is no answer.
    malformed: Vec<String>,
}

impl Responses {
    /// Reads the `inputResponses` of `params`; `None` if there are none.
    ///
    /// They are an object (2026-07-28, multi round-trip requests); anything else is refused as a whole, with -32602. What
    /// a response says is for the server to read.
    pub fn read(params: &Json) -> Result<Option<Self>, RpcError> {
        let Some(responses) = params.member("inputResponses") else { return Ok(None) };
        if !responses.is_object() {
            return Err(invalid("must be an object: the answer to each question under its key"));
        }
        let members = responses.members().map_err(|error| invalid(&format!("cannot be read: {error}")))?;
        let mut read = Self { answers: Vec::with_capacity(members.len()), malformed: Vec::new() };
        for (key, response) in members.iter() {
            let response = Json::of(responses.bytes(), response);
            if response.is_object() {
                read.answers.push((key.to_owned(), Answer::Result(response)));
            } else {
                read.malformed.push(key.to_owned());
            }
        }
        Ok(Some(read))
    }

    /// These, unless one of the questions that are open has no object under its key: then they are refused as a whole,
    /// with -32602. Whatever stands under any other key is to be ignored (SEP-2663, task update requests).
    pub(crate) fn checked(self, is_open: impl Fn(&str) -> bool) -> Result<Self, RpcError> {
        let Some(key) = self.malformed.iter().find(|key| is_open(key)) else { return Ok(self) };
        Err(invalid(&format!("has no object under \"{}\"", key.escape_debug())))
    }

    /// One answer.
    pub fn one(key: &str, answer: Answer) -> Self {
        Self { answers: vec![(key.to_owned(), answer)], malformed: Vec::new() }
    }

    /// Takes out the answer under `key`.
    pub(super) fn take(&mut self, key: &str) -> Option<Answer> {
        let at = self.answers.iter().position(|(name, _)| name == key)?;
        Some(self.answers.swap_remove(at).1)
    }
}

impl IntoIterator for Responses {
    type Item = (String, Answer);
    type IntoIter = std::vec::IntoIter<(String, Answer)>;

    fn into_iter(self) -> Self::IntoIter {
        self.answers.into_iter()
    }
}

fn invalid(why: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("Invalid params: inputResponses {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(responses: &str) -> Result<Option<Responses>, RpcError> {
        Responses::read(&Json::parse(bytes::Bytes::from(format!(r#"{{"inputResponses":{responses}}}"#))).unwrap())
    }

    #[test]
    fn responses_are_an_object_and_nothing_else() {
        assert!(Responses::read(&Json::empty_object()).unwrap().is_none());
        assert!(read("{}").unwrap().unwrap().answers.is_empty());
        let raw = r#"{"action":"accept","content":{"n":1E2},"x": 1}"#;
        let answers = read(&format!(r#"{{"b":{raw},"a":{{}}}}"#)).unwrap().unwrap().answers;
        assert_eq!(answers.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert!(matches!(&answers[0].1, Answer::Result(result) if result.as_str() == raw));
        for bad in ["null", "[]", "1", r#"{"a":{},"a":{}}"#] {
            assert_eq!(read(bad).unwrap_err().code(), code::INVALID_PARAMS, "{bad}");
        }
    }

    #[test]
    fn what_is_no_answer_matters_only_under_the_key_of_a_question_that_is_open() {
        for bad in ["1", "null", "[]", r#""yes""#] {
            let responses = || read(&format!(r#"{{"a":{{}},"b":{bad}}}"#)).unwrap().unwrap();
            let ignored = responses().checked(|key| key == "a").unwrap();
            assert_eq!(ignored.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), ["a"], "{bad}");
            let refused = responses().checked(|key| key == "b").unwrap_err();
            assert_eq!(refused.code(), code::INVALID_PARAMS, "{bad}");
            assert!(refused.message().contains("\"b\""), "{}", refused.message());
        }
    }
}
