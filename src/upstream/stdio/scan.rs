//! Finds out whose answer or request a line is without reading it as JSON: for lines that are too long to keep or
//! too broken to read. Bounded memory, any split into chunks.

use bytes::Bytes;

use crate::protocol::Json;

/// What is known so far of a line that arrives in chunks.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    depth: usize,
    /// Whether the outermost value is an object.
    object: bool,
    place: Place,
    escaped: bool,
    /// The text of the member name or of the value of `id` that is being read, up to [`KEPT`] bytes.
    text: Vec<u8>,
    /// Whether the value that follows is that of the member `id`.
    at_id: bool,
    seen: Seen,
}

/// Members of the outermost object that have been seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    id: Option<Vec<u8>>,
    method: bool,
    jsonrpc: bool,
    /// `result` or `error`.
    outcome: bool,
}

/// Where in the outermost object the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before a member's name.
    #[default]
    BeforeName,
    /// In a member's name.
    InName,
    /// Behind a member's name, before its value.
    BeforeValue,
    /// In a value that is a string, at any depth.
    InString,
    /// In any other value, or between values of a nested one.
    InValue,
}

/// Whom a line is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Addressee {
    /// An answer, under this id.
    Call(Json),
    /// An answer perhaps, but it names no call.
    Unnamed,
    /// A request, under this id, or a notification.
    Us(Option<Json>),
    /// It is no JSON-RPC message.
    Nobody,
}

/// Longer names are none of ours, and longer ids are cut. A quoted UUID fits.
const KEPT: usize = 64;

impl Scan {
    /// Reads on.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while let Some((byte, behind)) = rest.split_first() {
            self.step(*byte);
            rest = behind;
            // Long lines are long because of their strings, whose inside does not matter.
            if self.place == Place::InString && !self.escaped && !(self.at_id && self.depth == 1) {
                let inside = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                rest = rest.get(inside..).unwrap_or_default();
            }
        }
    }

    fn step(&mut self, byte: u8) {
        match self.place {
            Place::InName | Place::InString => self.step_in_string(byte),
            Place::BeforeName | Place::BeforeValue | Place::InValue => self.step_outside(byte),
        }
    }

    fn step_in_string(&mut self, byte: u8) {
        let ends = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        if self.place == Place::InName {
            if ends {
                self.named();
            } else {
                self.keep(byte);
            }
            return;
        }
        if self.at_id && self.depth == 1 {
            self.keep(byte);
        }
        if ends {
            self.place = Place::InValue;
        }
    }

    fn step_outside(&mut self, byte: u8) {
        match byte {
            b'"' if self.place == Place::BeforeName && self.depth == 1 => {
                self.text.clear();
                self.place = Place::InName;
            }
            b'"' => {
                if self.at_id && self.depth == 1 {
                    self.keep(byte);
                }
                self.place = Place::InString;
            }
            b':' if self.place == Place::BeforeValue => self.place = Place::InValue,
            b'{' | b'[' => {
                if self.depth == 0 {
                    self.object = byte == b'{';
                }
                self.depth += 1;
                self.place = if self.depth == 1 && self.object { Place::BeforeName } else { Place::InValue };
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.value_ends();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.depth == 1 && self.object => {
                self.value_ends();
                self.place = Place::BeforeName;
            }
            _ if self.at_id && self.depth == 1 && self.place == Place::InValue && !byte.is_ascii_whitespace() => {
                self.keep(byte);
            }
            _ => {}
        }
    }

    fn named(&mut self) {
        match self.text.as_slice() {
            b"id" => self.at_id = true,
            b"method" => self.seen.method = true,
            b"jsonrpc" => self.seen.jsonrpc = true,
            b"result" | b"error" => self.seen.outcome = true,
            _ => {}
        }
        self.text.clear();
        self.place = Place::BeforeValue;
    }

    fn value_ends(&mut self) {
        if self.at_id {
            self.seen.id = Some(std::mem::take(&mut self.text));
            self.at_id = false;
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.text.len() < KEPT {
            self.text.push(byte);
        }
    }

    /// Whom the line is for, as far as it was read.
    pub(crate) fn addressee(&self) -> Addressee {
        let id = self.seen.id.clone().and_then(|id| Json::parse(Bytes::from(id)).ok());
        if self.seen.method {
            return Addressee::Us(id);
        }
        match id {
            Some(id) => Addressee::Call(id),
            None if self.seen.jsonrpc => Addressee::Unnamed,
            None => Addressee::Nobody,
        }
    }

    /// The same for a line that is not at its end yet: some servers put the result first and all else behind it.
    pub(crate) fn likely_addressee(&self) -> Addressee {
        match self.addressee() {
            Addressee::Nobody if self.seen.outcome => Addressee::Unnamed,
            known => known,
        }
    }

    /// Whether the line has a result or an error, and so is meant as an answer if it is for a call.
    pub(crate) fn has_outcome(&self) -> bool {
        self.seen.outcome
    }

    /// Whether the line calls itself JSON-RPC.
    pub(crate) fn is_rpc(&self) -> bool {
        self.seen.jsonrpc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str, split: usize) -> Addressee {
        let mut scan = Scan::default();
        let (one, two) = text.as_bytes().split_at(split);
        scan.feed(one);
        scan.feed(two);
        scan.addressee()
    }

    fn call(id: &str) -> Addressee {
        Addressee::Call(Json::parse(Bytes::from(id.to_owned())).unwrap())
    }

    #[test]
    fn the_addressee_of_a_line_is_found_wherever_its_id_stands_and_however_it_is_split() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":5,"result":{"id":7}}"#, call("5")),
            (r#"{"result":{"x":"\"id\":9,","id":7,"a":[{"id":8}]},"jsonrpc":"2.0", "id" : 5 }"#, call("5")),
            (r#"{"jsonrpc":"2.0","id":"a\"b","error":{}}"#, call(r#""a\"b""#)),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, call("null")),
            (r#"{"jsonrpc":"2.0","result":{"id":1}}"#, Addressee::Unnamed),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"id":1}}"#, Addressee::Us(None)),
            (r#"{"id":1,"method":"ping","jsonrpc":"2.0"}"#, Addressee::Us(Some(Json::from_value(&1.into())))),
            (r#"{"level":"info","msg":"\"jsonrpc\""}"#, Addressee::Nobody),
            ("Server started: {id}", Addressee::Nobody),
            (r#"["id",1,"jsonrpc"]"#, Addressee::Nobody),
            (r#"{"jsonrpc":"2.0","id":5,"result":{"cut":"of"#, call("5")),
            (
                r#"{"jsonrpc":"2.0","id":1234567890123456789012345678901234567890123456789012345678901234567890,"result":{}}"#,
                call("1234567890123456789012345678901234567890123456789012345678901234"),
            ),
        ];
        for (text, expected) in cases {
            for split in 0..=text.len() {
                assert_eq!(scan(text, split), expected, "{text} split at {split}");
            }
        }
    }

    #[test]
    fn what_is_kept_of_a_line_is_bounded() {
        let mut scan = Scan::default();
        scan.feed(br#"{"id":""#);
        for _ in 0..10_000 {
            scan.feed(&[b'x'; 100]);
        }
        assert!(scan.text.capacity() <= 64);
    }
}
