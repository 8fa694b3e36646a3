//! JSON text in pieces, so that a large result is put into an envelope without being copied.

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::json::{Json, JsonError, Part};

/// JSON text in pieces, to be written one after the other.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    pieces: Pieces,
    /// What stands behind the pieces and is not yet one: most texts are copied into another, for which they need not be.
    tail: Vec<u8>,
}

/// Pieces of a text, of which most have one.
pub type Pieces = SmallVec<[Bytes; 2]>;

/// Builds an object member by member, around values that stay where they are.
#[derive(Debug)]
pub struct ObjectWriter {
    rope: Rope,
    /// Text that is not yet a piece.
    open: Vec<u8>,
    first: bool,
}

/// Values up to this size are copied, since a piece of their own would cost more than the copy.
const COPIED: usize = 256;

/// Bytes that most objects of the protocol fit in.
const ROOM: usize = 256;

impl Rope {
    /// The pieces in order.
    pub fn into_pieces(mut self) -> Pieces {
        self.close();
        self.pieces
    }

    /// The same text, whose clones share all of it.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.close();
        self
    }

    /// How many bytes all pieces have.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.tail.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts `text` behind the rest.
    pub fn push(&mut self, text: Bytes) {
        if !text.is_empty() {
            self.close();
            self.pieces.push(text);
        }
    }

    /// Puts all pieces of `other` behind the rest.
    pub fn append(&mut self, other: Rope) {
        self.close();
        self.pieces.extend(other.pieces);
        self.tail = other.tail;
    }

    /// All pieces in one, as JSON. The rope must be the text of one value, as all that an [`ObjectWriter`] makes are.
    pub fn into_json(self) -> Json {
        Json::assume_valid(self.into_bytes())
    }

    /// All pieces in one, copied unless there is only one.
    pub fn into_bytes(mut self) -> Bytes {
        self.close();
        if self.pieces.len() == 1 {
            return self.pieces.pop().unwrap_or_default();
        }
        let mut whole = Vec::with_capacity(self.len());
        self.copy_to(&mut whole);
        Bytes::from(whole)
    }

    fn copy_to(&self, whole: &mut Vec<u8>) {
        for piece in &self.pieces {
            whole.extend_from_slice(piece);
        }
        whole.extend_from_slice(&self.tail);
    }

    /// Makes a piece of the tail.
    fn close(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }
}

impl From<Json> for Rope {
    fn from(json: Json) -> Self {
        Self::from(json.bytes().clone())
    }
}

impl From<Bytes> for Rope {
    fn from(text: Bytes) -> Self {
        Self { pieces: smallvec![text], tail: Vec::new() }
    }
}

impl Default for ObjectWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl ObjectWriter {
    /// An object without members.
    pub fn new() -> Self {
        let mut open = Vec::with_capacity(ROOM);
        open.push(b'{');
        Self { rope: Rope::default(), open, first: true }
    }

    /// Adds a member whose value is JSON text already.
    pub fn raw(&mut self, name: &str, value: &Json) -> &mut Self {
        self.name(name);
        if value.len() <= COPIED {
            self.open.extend_from_slice(value.bytes());
        } else {
            self.rope.push(Bytes::from(std::mem::take(&mut self.open)));
            self.rope.push(value.bytes().clone());
        }
        self
    }

    /// Adds a member whose value is a part of `whole`, which need not be kept for it if it is small.
    pub(super) fn part(&mut self, name: &str, whole: &Json, value: Part<'_>) -> &mut Self {
        if value.bytes().len() > COPIED {
            return self.raw(name, &Json::of(whole.bytes(), value));
        }
        self.name(name);
        self.open.extend_from_slice(value.bytes());
        self
    }

    /// Adds a member whose value is JSON text in pieces.
    pub fn rope(&mut self, name: &str, value: Rope) -> &mut Self {
        self.name(name);
        if value.len() <= COPIED {
            value.copy_to(&mut self.open);
        } else {
            self.rope.push(Bytes::from(std::mem::take(&mut self.open)));
            self.rope.append(value);
        }
        self
    }

    /// Adds a member whose value is a string.
    pub fn string(&mut self, name: &str, value: &str) -> &mut Self {
        self.name(name);
        self.quoted(value);
        self
    }

    /// Adds a member whose value is a whole number.
    pub fn number(&mut self, name: &str, value: i64) -> &mut Self {
        self.name(name);
        self.open.extend_from_slice(value.to_string().as_bytes());
        self
    }

    /// Adds a member whose value is a whole number that may be unknown (`null`).
    pub fn number_or_null(&mut self, name: &str, value: Option<u64>) -> &mut Self {
        self.name(name);
        match value {
            Some(value) => self.open.extend_from_slice(value.to_string().as_bytes()),
            None => self.open.extend_from_slice(b"null"),
        }
        self
    }

    /// Adds a member that is true or false.
    pub fn boolean(&mut self, name: &str, value: bool) -> &mut Self {
        self.name(name);
        self.open.extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    /// Adds all members of the object `json` whose names `keep` accepts.
    pub fn members_of(&mut self, json: &Json, keep: impl Fn(&str) -> bool) -> Result<&mut Self, JsonError> {
        let members = json.members()?;
        for (name, raw) in members.iter().filter(|(name, _)| keep(name)) {
            self.part(name, json, raw);
        }
        Ok(self)
    }

    /// Closes the object.
    pub fn finish(mut self) -> Rope {
        self.open.push(b'}');
        self.rope.close();
        self.rope.tail = self.open;
        self.rope
    }

    /// Closes the object and joins its pieces.
    pub fn finish_json(self) -> Json {
        self.finish().into_json()
    }

    fn name(&mut self, name: &str) {
        if self.first {
            self.first = false;
        } else {
            self.open.push(b',');
        }
        self.quoted(name);
        self.open.push(b':');
    }

    fn quoted(&mut self, text: &str) {
        // Names hardly ever need an escape; looking is far cheaper than writing them byte by byte. All bytes are looked
        // at, since that is done for many at once.
        let is_odd = |byte: u8| u8::from(byte < b' ') | u8::from(byte == b'"') | u8::from(byte == b'\\');
        if text.bytes().fold(0, |odd, byte| odd | is_odd(byte)) == 0 {
            self.open.reserve(text.len() + 2);
            self.open.push(b'"');
            self.open.extend_from_slice(text.as_bytes());
            self.open.push(b'"');
            return;
        }
        // Writing a string into a vector cannot fail.
        let _ = serde_json::to_writer(&mut self.open, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_written_around_values_that_stay_where_they_are() {
        let large = Json::parse(Bytes::from(format!("[\"{}\"]", "x".repeat(1000)))).unwrap();
        let mut writer = ObjectWriter::new();
        writer.string("a", "\"\n").raw("b", &large).number("c", -7).number_or_null("d", None).boolean("e", true);
        let rope = writer.finish();
        assert!(rope.clone().into_pieces().iter().any(|piece| piece.as_ptr() == large.bytes().as_ptr()));
        let text = rope.into_bytes();
        let expected = format!(r#"{{"a":"\"\n","b":{},"c":-7,"d":null,"e":true}}"#, large.as_str());
        assert_eq!(std::str::from_utf8(&text).unwrap(), expected);
    }

    #[test]
    fn members_are_taken_over_as_they_are_spelled() {
        let from = Json::parse(Bytes::from_static(br#"{"x": 1E2, "task": {}, "y":"\u2028"}"#)).unwrap();
        let mut writer = ObjectWriter::new();
        writer.members_of(&from, |name| name != "task").unwrap();
        assert_eq!(writer.finish_json().as_str(), r#"{"x":1E2,"y":"\u2028"}"#);
    }
}
