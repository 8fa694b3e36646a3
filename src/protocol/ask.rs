//! What a server asks the client in mid-call: elicitation, sampling, roots.

use std::fmt;

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::{RpcError, code};
use super::json::{Json, Members, Part};

/// What is asked, as it stands in `inputRequests` of 2026-07-28 and in requests of older servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What kind of question it is.
    pub kind: QuestionKind,
    /// Its parameters, as the server spelled them: an object, `{}` if it sent none.
    pub params: Json,
    /// The key that the server or the config wants for it, if any.
    pub key: Option<String>,
}

/// The kinds of questions. No other request of a server reaches a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuestionKind {
    /// `elicitation/create`: a form or a URL for the user.
    Elicitation,
    /// `sampling/createMessage`: a completion of the client's model.
    Sampling,
    /// `roots/list`: the client's folders.
    Roots,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The result, as the client spelled it.
    Result(Json),
    /// The client cannot or will not answer.
    Error(RpcError),
    /// The client does not declare that it can be asked this, although it did before. Whoever asked decides whether the
    /// call goes on without an answer or ends with this error (-32021).
    Undeclared(RpcError),
}

/// A question on its way to whoever can answer it. Dropping it refuses it.
#[derive(Debug)]
pub struct Ask {
    question: Question,
    bearer: Bearer,
    answer: oneshot::Sender<Answer>,
    withdrawn: CancellationToken,
}

/// Who waits for the answer, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bearer {
    /// The call in whose course it is asked.
    Call,
    /// The session: it comes with a call only since there is no other way to ask.
    Session,
}

/// The asking side of an [`Ask`], held by whoever speaks to the server. Dropping it withdraws the question.
#[derive(Debug)]
pub struct Asking {
    answer: oneshot::Receiver<Answer>,
    _withdraw: DropGuard,
}

/// What a client said it can be asked (2026-07-28 `clientCapabilities`, `capabilities` of `initialize`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    raw: Json,
    /// For each of [`QuestionKind::ALL`], whether an object is declared for it.
    declared: [bool; QuestionKind::ALL.len()],
}

impl QuestionKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Elicitation, Self::Sampling, Self::Roots];

    /// The kind that the method of a server's request asks; `None` for all that is no question to a client.
    pub fn of(method: &str) -> Option<Self> {
        match method {
            "elicitation/create" => Some(Self::Elicitation),
            "sampling/createMessage" => Some(Self::Sampling),
            "roots/list" => Some(Self::Roots),
            _ => None,
        }
    }

    /// The method.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// The capability that a client declares for it.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }
}

impl Question {
    /// Whether it is an elicitation that sends the user to a URL (2025-11-25, elicitation, URL mode).
    pub fn is_by_url(&self) -> bool {
        let mode = self.params.member("mode").and_then(|mode| mode.read::<String>().ok());
        mode.as_deref() == Some("url")
    }

    /// Whether it is a request for a completion with tools (2025-11-25, sampling, tools in sampling).
    pub fn has_tools(&self) -> bool {
        self.kind == QuestionKind::Sampling
            && (self.params.member("tools").is_some() || self.params.member("toolChoice").is_some())
    }
}

impl Ask {
    /// A question, and the side that waits for its answer.
    pub fn new(question: Question) -> (Self, Asking) {
        Self::of(question, Bearer::Call)
    }

    /// The same, for a question for which no call waits: what servers ask when a session begins.
    pub fn of_session(question: Question) -> (Self, Asking) {
        Self::of(question, Bearer::Session)
    }

    fn of(question: Question, bearer: Bearer) -> (Self, Asking) {
        let (answer, answered) = oneshot::channel();
        let withdrawn = CancellationToken::new();
        let asking = Asking { answer: answered, _withdraw: withdrawn.clone().drop_guard() };
        (Self { question, bearer, answer, withdrawn }, asking)
    }

    /// What is asked.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// Whether no call waits for its answer.
    pub fn is_of_session(&self) -> bool {
        self.bearer == Bearer::Session
    }

    /// Answers it.
    pub fn answer(self, answer: Answer) {
        // The server may have withdrawn it in this moment.
        let _ = self.answer.send(answer);
    }

    /// Tells that the client does not declare any more that it can be asked this.
    pub fn is_undeclared(self) {
        let error = RpcError::cannot_be_asked(&self.question);
        self.answer(Answer::Undeclared(error));
    }

    /// Resolves when the server does not want an answer any more.
    pub async fn withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }

    /// The token behind [`Ask::withdrawn`], to be watched apart from the question.
    pub fn withdrawal(&self) -> CancellationToken {
        self.withdrawn.clone()
    }

    /// Whether the server does not want an answer any more.
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.is_cancelled()
    }
}

impl Asking {
    /// The answer; `None` if the question was dropped, so that nobody has decided anything. Cancel safe.
    pub async fn given(&mut self) -> Option<Answer> {
        (&mut self.answer).await.ok()
    }

    /// The answer; an error if the question was dropped. Cancel safe.
    pub async fn answer(&mut self) -> Answer {
        let refused = || Answer::Error(RpcError::new(code::INTERNAL, "nobody answered the question"));
        self.given().await.unwrap_or_else(refused)
    }
}

impl Abilities {
    /// What the capabilities of a client say; nothing if they are no object.
    pub fn of(capabilities: Json) -> Self {
        match capabilities.members() {
            Ok(members) => Self::among(&capabilities, &members),
            Err(_) if capabilities.is_object() => Self { raw: capabilities.clone(), ..Self::none() },
            Err(_) => Self::none(),
        }
    }

    /// What these members of the capabilities of a client say.
    pub(super) fn among(capabilities: &Json, members: &Members<'_>) -> Self {
        let is_object = |part: Part<'_>| part.bytes().first() == Some(&b'{');
        let declared = QuestionKind::ALL.map(|kind| members.get(kind.capability()).is_some_and(is_object));
        Self { raw: capabilities.clone(), declared }
    }

    /// Nothing at all.
    pub fn none() -> Self {
        Self { raw: Json::empty_object(), declared: [false; QuestionKind::ALL.len()] }
    }

    /// The capabilities as the client spelled them.
    pub fn raw(&self) -> &Json {
        &self.raw
    }

    /// The kinds of questions that it can be asked, each with the settings that the client spelled for it.
    pub fn questions(&self) -> Vec<(QuestionKind, Json)> {
        let kinds = QuestionKind::ALL.into_iter().filter(|kind| self.has(*kind));
        kinds.filter_map(|kind| Some((kind, self.raw.member(kind.capability())?))).collect()
    }

    /// Whether questions of this kind may be put to the client at all.
    pub fn has(&self, kind: QuestionKind) -> bool {
        QuestionKind::ALL.iter().zip(self.declared).any(|(declared, is)| is && *declared == kind)
    }

    /// Whether this very question may be put to the client: an elicitation by URL needs `elicitation.url`, one by
    /// form `elicitation.form` or an empty `elicitation` (2025-11-25 and 2026-07-28, elicitation, capabilities), and a
    /// completion with tools `sampling.tools` (sampling, capabilities).
    pub fn covers(&self, question: &Question) -> bool {
        let Some(settings) = self.raw.member(question.kind.capability()).filter(Json::is_object) else { return false };
        let has = |name: &str| settings.member(name).is_some_and(|it| it.is_object());
        match question.kind {
            QuestionKind::Roots => true,
            QuestionKind::Sampling => !question.has_tools() || has("tools"),
            QuestionKind::Elicitation => {
                if question.is_by_url() {
                    has("url")
                } else {
                    has("form") || !has("url")
                }
            }
        }
    }
}

impl fmt::Display for QuestionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.method())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(bytes::Bytes::from(text.to_owned())).unwrap()
    }

    fn question(kind: QuestionKind, params: &str) -> Question {
        Question { kind, params: json(params), key: None }
    }

    #[test]
    fn only_what_was_declared_may_be_asked() {
        use QuestionKind::{Elicitation, Roots, Sampling};
        let cases = [
            ("{}", Elicitation, "{}", false),
            (r#"{"elicitation":{}}"#, Elicitation, "{}", true),
            (r#"{"elicitation":{}}"#, Elicitation, r#"{"mode":"form"}"#, true),
            (r#"{"elicitation":{}}"#, Elicitation, r#"{"mode":"url"}"#, false),
            (r#"{"elicitation":{"url":{}}}"#, Elicitation, r#"{"mode":"url"}"#, true),
            (r#"{"elicitation":{"url":{}}}"#, Elicitation, "{}", false),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, Elicitation, r#"{"mode":"form"}"#, true),
            (r#"{"sampling":{}}"#, Sampling, "{}", true),
            (r#"{"sampling":{}}"#, Sampling, r#"{"tools":[]}"#, false),
            (r#"{"sampling":{}}"#, Sampling, r#"{"toolChoice":{}}"#, false),
            (r#"{"sampling":{"tools":{}}}"#, Sampling, r#"{"tools":[]}"#, true),
            (r#"{"sampling":null}"#, Sampling, "{}", false),
            (r#"{"roots":{"listChanged":true}}"#, Roots, "{}", true),
            ("[]", Roots, "{}", false),
        ];
        for (declared, kind, params, expected) in cases {
            let abilities = Abilities::of(json(declared));
            assert_eq!(abilities.covers(&question(kind, params)), expected, "{declared} {kind} {params}");
        }
    }

    #[tokio::test]
    async fn a_question_that_is_dropped_is_refused_and_one_that_is_not_wanted_is_withdrawn() {
        let (ask, mut asking) = Ask::new(question(QuestionKind::Roots, "{}"));
        drop(ask);
        assert!(matches!(asking.answer().await, Answer::Error(error) if error.code() == code::INTERNAL));
        let (ask, asking) = Ask::new(question(QuestionKind::Roots, "{}"));
        assert!(!ask.is_withdrawn());
        drop(asking);
        ask.withdrawn().await;
        ask.answer(Answer::Result(json("{}")));
    }
}
