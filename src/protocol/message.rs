//! JSON-RPC messages, read without decoding what Raincheck need not understand.

use std::fmt;

use bytes::Bytes;

use super::error::{RpcError, code};
use super::json::{self, Json, JsonError, Part};
use super::rope::{ObjectWriter, Rope};

/// One JSON-RPC 2.0 message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// To be given back byte for byte.
        id: RequestId,
        /// The method's name.
        method: String,
        /// An object, if there is one.
        params: Option<Json>,
    },
    /// Wants none.
    Notification {
        /// The method's name.
        method: String,
        /// An object, if there is one.
        params: Option<Json>,
    },
    /// A successful answer.
    Result {
        /// The id as the answerer spelled it.
        id: Json,
        /// What was asked for.
        result: Json,
    },
    /// A failed answer.
    Error {
        /// The id as the answerer spelled it; `None` or `null` if it could not read the request.
        id: Option<Json>,
        /// Why.
        error: RpcError,
    },
}

/// The id of a request, as its sender spelled it: a string or a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Json);

/// Why bytes are not a message.
#[derive(Debug)]
pub struct MessageError {
    /// The id of the request, where it could be read, so that the answer finds its way. None for what names no method: an
    /// answer has the id of another side's request, under which its sender may have asked something else.
    pub id: Option<RequestId>,
    /// The id of the request that this answers in a broken way, as far as that can be told: it names no method and has
    /// no parameters.
    pub answers: Option<Json>,
    /// What is wrong.
    pub cause: MessageFault,
}

/// What is wrong with a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum MessageFault {
    /// Not JSON, nested too deep, or with a repeated name in the envelope.
    Json(JsonError),
    /// An array: batches exist in 2025-03-26 only.
    Batch,
    /// JSON, but no JSON-RPC 2.0 message; the text says why.
    NotAMessage(&'static str),
    /// A request or notification of JSON-RPC 2.0 that is none of MCP.
    BadRequest {
        /// What it is to a server whose request it is.
        code: i64,
        /// What is wrong.
        why: &'static str,
    },
}

impl RequestId {
    /// The id that `token` spells; `None` if it is neither a string nor a number.
    pub fn read(token: Json) -> Option<Self> {
        let first = token.bytes().first().copied()?;
        (first == b'"' || first == b'-' || first.is_ascii_digit()).then_some(Self(token))
    }

    /// Whether it is a string or an integer, as MCP has it; 1.0 and 1e0 are integers (JSON Schema 2020-12, 6.1.1).
    pub fn is_integral(&self) -> bool {
        let text = self.0.as_str();
        if text.starts_with('"') {
            return true;
        }
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = || whole.bytes().chain(part.bytes()).rev();
        if digits().all(|digit| matches!(digit, b'0' | b'-')) {
            return true;
        }
        let zeros = digits().take_while(|digit| *digit == b'0').count();
        let Ok(exponent) = exponent.trim_start_matches('+').parse::<i64>() else { return !exponent.starts_with('-') };
        let behind_the_point = i64::try_from(part.len()).unwrap_or(i64::MAX).saturating_sub(exponent);
        i64::try_from(zeros).is_ok_and(|zeros| zeros >= behind_the_point)
    }

    /// An id of ours.
    pub fn from_number(number: u64) -> Self {
        Self(Json::number(number))
    }

    /// The token, as it was spelled.
    pub fn token(&self) -> &Json {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl Message {
    /// Reads one message of a client: [`Message::parse`], but no request whose id is a number that is no integer.
    pub fn of_client(text: &Bytes, max_depth: usize) -> Result<Self, MessageError> {
        match Self::parse(text, max_depth)? {
            Self::Request { id, .. } if !id.is_integral() => {
                let cause = MessageFault::NotAMessage("the member \"id\" must be a string or an integer");
                Err(MessageError { id: None, answers: None, cause })
            }
            message => Ok(message),
        }
    }

    /// Reads one message. `max_depth` bounds the nesting of the whole text.
    pub fn parse(text: &Bytes, max_depth: usize) -> Result<Self, MessageError> {
        let fault = |cause| MessageError { id: None, answers: None, cause };
        let check_depth = || json::check_depth(text, max_depth).map_err(|error| fault(MessageFault::Json(error)));
        match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => {}
            Some(b'[') => {
                check_depth()?;
                json::elements(text).map_err(|error| fault(MessageFault::Json(error)))?;
                return Err(fault(MessageFault::Batch));
            }
            _ => {
                check_depth()?;
                Json::parse(text.clone()).map_err(|error| fault(MessageFault::Json(error)))?;
                return Err(fault(MessageFault::NotAMessage("a message is an object")));
            }
        }
        let members = json::members_within(text, max_depth).map_err(|error| fault(MessageFault::Json(error)))?;
        let kept = |part| Json::of(text, part);
        let id = members.get("id").map(kept);
        let method = members.get("method");
        let wrong = |why| {
            let answers = id.clone().filter(|_| method.is_none() && members.get("params").is_none());
            let readable = id.clone().and_then(RequestId::read).filter(|_| method.is_some());
            MessageError { id: readable, answers, cause: MessageFault::NotAMessage(why) }
        };
        let bad = |code, why| MessageError { cause: MessageFault::BadRequest { code, why }, ..wrong(why) };
        if members.get("jsonrpc").map(Part::bytes) != Some(b"\"2.0\"") {
            return Err(wrong("the member \"jsonrpc\" must be \"2.0\""));
        }
        if let Some(method) = method {
            let not_named = || bad(code::INVALID_REQUEST, "the member \"method\" must be a string");
            let method = method.string().ok_or_else(not_named)?.into_owned();
            // As some write where they have none.
            let params = members.get("params").map(kept).filter(|params| !params.is_null());
            if params.as_ref().is_some_and(|params| !params.is_object()) {
                return Err(bad(code::INVALID_PARAMS, "the member \"params\" must be an object"));
            }
            return match id.clone().map(RequestId::read) {
                None => Ok(Self::Notification { method, params }),
                Some(Some(id)) => Ok(Self::Request { id, method, params }),
                Some(None) => Err(wrong("the member \"id\" must be a string or a number")),
            };
        }
        match (members.get("result").map(kept), members.get("error").map(kept)) {
            (Some(result), None) => match id {
                Some(id) => Ok(Self::Result { id, result }),
                None => Err(wrong("an answer needs an \"id\"")),
            },
            (None, Some(error)) => match RpcError::from_server(error) {
                Ok(error) => Ok(Self::Error { id, error }),
                Err(_) => Err(wrong("the member \"error\" must be an object without repeated names")),
            },
            _ => Err(wrong("a message needs a \"method\", or else one of \"result\" and \"error\"")),
        }
    }
}

/// The text of a request of ours.
pub fn request(id: &RequestId, method: &str, params: Option<Rope>) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("jsonrpc", "2.0").raw("id", id.token()).string("method", method);
    if let Some(params) = params {
        writer.rope("params", params);
    }
    writer.finish()
}

/// The text of a notification of ours.
pub fn notification(method: &str, params: Option<Rope>) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("jsonrpc", "2.0").string("method", method);
    if let Some(params) = params {
        writer.rope("params", params);
    }
    writer.finish()
}

/// The text of a successful answer.
pub fn result(id: &RequestId, result: Rope) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("jsonrpc", "2.0").raw("id", id.token()).rope("result", result);
    writer.finish()
}

/// The text of a failed answer; without an id if the request's could not be read.
pub fn error(id: Option<&RequestId>, error: &RpcError) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("jsonrpc", "2.0");
    if let Some(id) = id {
        writer.raw("id", id.token());
    }
    writer.raw("error", error.raw());
    writer.finish()
}

/// The same, where `null` stands for an id that could not be read (JSON-RPC 2.0, response object).
pub fn error_or_null(id: Option<&RequestId>, error: &RpcError) -> Rope {
    let mut writer = ObjectWriter::new();
    writer.string("jsonrpc", "2.0").raw("id", id.map_or(&Json::null(), RequestId::token)).raw("error", error.raw());
    writer.finish()
}

impl MessageError {
    /// What is put in the place of a broken answer, so that whoever asked is not left waiting.
    pub fn to_answer(&self) -> Option<Message> {
        let error = RpcError::new(code::INTERNAL, format!("the client's answer cannot be read: {self}"));
        Some(Message::Error { id: Some(self.answers.clone()?), error })
    }

    /// The answer that a server gets to a request of its own; `None` for what is no request of JSON-RPC 2.0, such as a line
    /// of a log.
    pub fn to_refusal(&self) -> Option<Rope> {
        let MessageFault::BadRequest { code, why } = self.cause else { return None };
        Some(error(Some(self.id.as_ref()?), &RpcError::new(code, format!("Invalid request: {why}"))))
    }

    /// The error that its sender gets, a client.
    pub fn to_rpc(&self) -> RpcError {
        match &self.cause {
            MessageFault::Json(JsonError::Syntax(error)) => {
                let place = format!("line {} column {}", error.line(), error.column());
                RpcError::new(code::PARSE, format!("Parse error: the body is not valid JSON ({place})"))
            }
            MessageFault::Json(error) => RpcError::new(code::INVALID_REQUEST, format!("Invalid request: {error}")),
            MessageFault::Batch => RpcError::new(
                code::INVALID_REQUEST,
                "Invalid request: batches are not part of this revision; send each message alone",
            ),
            MessageFault::NotAMessage(why) | MessageFault::BadRequest { why, .. } => {
                RpcError::new(code::INVALID_REQUEST, format!("Invalid request: {why}"))
            }
        }
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            MessageFault::Json(_) => f.write_str("not a JSON-RPC message"),
            MessageFault::Batch => f.write_str("a batch"),
            MessageFault::NotAMessage(why) | MessageFault::BadRequest { why, .. } => f.write_str(why),
        }
    }
}

impl std::error::Error for MessageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            MessageFault::Json(source) => Some(source),
            MessageFault::Batch | MessageFault::NotAMessage(_) | MessageFault::BadRequest { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Message, MessageError> {
        Message::parse(&Bytes::from(text.to_owned()), 64)
    }

    #[test]
    fn an_id_keeps_its_spelling() {
        for id in ["1", "-7", "1e2", "9007199254740995", r#""a\u0062""#, r#""""#, "0"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            let Ok(Message::Request { id: read, .. }) = parse(&text) else { panic!("{text}") };
            assert_eq!(read.token().as_str(), id);
        }
    }

    #[test]
    fn what_a_server_asks_in_a_wrong_way_is_answered_only_if_it_is_a_request() {
        let told =
            |text: &str| parse(text).unwrap_err().to_refusal().map(|answer| answer.into_json().as_str().to_owned());
        assert_eq!(
            told(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":[1]}"#).unwrap(),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32602,"message":"Invalid request: the member \"params\" must be an object"}}"#
        );
        assert!(told(r#"{"jsonrpc":"2.0","id":1,"method":1}"#).unwrap().contains(r#""id":1,"error":{"code":-32600,"#));
        for text in [
            r#"{"jsonrpc":"2.0","method":"m","params":[1]}"#,
            r#"{"id":1,"method":"GET","params":7}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
            "[]",
            "x",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_right_code() {
        let cases = [
            ("", code::PARSE),
            ("{", code::PARSE),
            ("nonsense", code::PARSE),
            ("[]", code::INVALID_REQUEST),
            ("[1]", code::INVALID_REQUEST),
            ("[", code::PARSE),
            ("1", code::INVALID_REQUEST),
            (r#"{"id":1,"method":"m"}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1}"#, code::INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#, code::INVALID_REQUEST),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err().to_rpc().code(), expected, "{text}");
        }
    }

    #[test]
    fn parameters_that_are_null_are_none() {
        let Ok(Message::Request { params: None, .. }) =
            parse(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list","params":null}"#)
        else {
            panic!()
        };
    }

    #[test]
    fn only_what_may_be_a_request_is_refused_under_its_id() {
        let cases = [
            (r#"{"id":1,"method":"m"}"#, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1}"#, None),
            (r#"{"id":1,"result":{}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, None),
        ];
        for (text, id) in cases {
            assert_eq!(parse(text).unwrap_err().id.as_ref().map(|id| id.token().as_str()), id, "{text}");
        }
    }

    #[test]
    fn a_deep_text_is_refused_before_it_is_read() {
        let text = "[".repeat(100_000);
        assert_eq!(parse(&text).unwrap_err().to_rpc().code(), code::INVALID_REQUEST);
    }

    #[test]
    fn a_servers_error_is_kept_word_for_word() {
        let text = r#"{"jsonrpc":"2.0","id":5,"error":{"message":"no","code":-32000,"data":{"n":1.0},"x":1}}"#;
        let Ok(Message::Error { error, .. }) = parse(text) else { panic!() };
        assert_eq!(error.code(), -32000);
        assert_eq!(error.raw().as_str(), r#"{"message":"no","code":-32000,"data":{"n":1.0},"x":1}"#);
    }

    #[test]
    fn a_servers_malformed_error_still_reads_as_one() {
        let text = r#"{"jsonrpc":"2.0","id":5,"error":{"code":"bad_thing","data":1}}"#;
        let Ok(Message::Error { error, .. }) = parse(text) else { panic!() };
        assert_eq!(error.code(), code::INTERNAL);
        assert!(error.raw().as_str().ends_with(r#""data":1}"#));
    }
}
