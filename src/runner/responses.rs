//! The answers in a request: `inputResponses` of `tasks/update` and of a retry.

use crate::protocol::error::code;
use crate::protocol::{Answer, Json, RpcError};

/// Answers under the keys of their questions, in the order of the request.
#[derive(Clone, Debug, Default)]
pub struct Responses(Vec<(String, Answer)>);

impl Responses {
    /// Reads the `inputResponses` of `params`; `None` if there are none.
    ///
    /// They are an object of objects (2026-07-28, multi round-trip requests); anything else is refused as a whole, with
    /// -32602. What a response says is for the server to read.
    pub fn read(params: &Json) -> Result<Option<Self>, RpcError> {
        let invalid = |why: &str| RpcError::new(code::INVALID_PARAMS, format!("Invalid params: inputResponses {why}"));
        let Some(responses) = params.member("inputResponses") else { return Ok(None) };
        if !responses.is_object() {
            return Err(invalid("must be an object: the answer to each question under its key"));
        }
        let members = responses.members().map_err(|error| invalid(&format!("cannot be read: {error}")))?;
        let mut answers = Vec::with_capacity(members.len());
        for (key, response) in members.iter() {
            let response = Json::of(responses.bytes(), response);
            if !response.is_object() {
                let key: String = key.chars().take(64).collect();
                return Err(invalid(&format!("has no object under \"{}\"", key.escape_debug())));
            }
            answers.push((key.to_owned(), Answer::Result(response)));
        }
        Ok(Some(Self(answers)))
    }

    /// One answer.
    pub fn one(key: &str, answer: Answer) -> Self {
        Self(vec![(key.to_owned(), answer)])
    }

    /// Takes out the answer under `key`.
    pub(super) fn take(&mut self, key: &str) -> Option<Answer> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.swap_remove(at).1)
    }
}

impl IntoIterator for Responses {
    type Item = (String, Answer);
    type IntoIter = std::vec::IntoIter<(String, Answer)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_an_object_of_objects_and_nothing_else() {
        let read = |text: &str| {
            let params = Json::parse(bytes::Bytes::from(text.to_owned())).unwrap();
            Responses::read(&params).map(|read| read.map(|responses| responses.0))
        };
        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(read(r#"{"inputResponses":{}}"#).unwrap(), Some(vec![]));
        let raw = r#"{"action":"accept","content":{"n":1E2},"x": 1}"#;
        let answers = read(&format!(r#"{{"inputResponses":{{"b":{raw},"a":{{}}}}}}"#)).unwrap().unwrap();
        assert_eq!(answers.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert!(matches!(&answers[0].1, Answer::Result(result) if result.as_str() == raw));
        for bad in ["null", "[]", "1", r#"{"a":1}"#, r#"{"a":{},"b":null}"#, r#"{"a":{},"a":{}}"#, r#"{"a":[]}"#] {
            let error = read(&format!(r#"{{"inputResponses":{bad}}}"#)).unwrap_err();
            assert_eq!(error.code(), code::INVALID_PARAMS, "{bad}");
        }
    }
}
