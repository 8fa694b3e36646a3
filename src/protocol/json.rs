//! JSON text carried as the bytes it came in.
//!
//! Only the few members that matter are looked at; number spelling, key order and unknown members
//! survive, since nothing is decoded and encoded again (field cases 64 and 66).

use std::fmt;

use bytes::Bytes;
use serde::de::Deserialize;
use serde_json::value::RawValue;

use super::parts;
pub use super::parts::{Elements, Members, Part};

/// One valid JSON value as it was spelled, without white space around it. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

/// Why a text is not the JSON that was wanted.
#[derive(Debug)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON at all (or not UTF-8).
    Syntax(serde_json::Error),
    /// A member's name appears twice, so two readers could read two different values.
    DuplicateKey(String),
    /// Nested deeper than the limit.
    TooDeep {
        /// The limit, in levels of arrays and objects.
        limit: usize,
    },
    /// More members or elements than [`MOST`], which would take many times the memory of the text.
    TooMany,
}

/// What some writers put in front of a text in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Members of an object or elements of an array that are looked at one by one. Arguments and contents, which are
/// not, may have any number.
pub const MOST: usize = 1 << 16;

/// The text without a byte order mark in front, which readers may pass over (RFC 8259, 8.1).
pub fn without_mark(text: Bytes) -> Bytes {
    if text.starts_with(BYTE_ORDER_MARK) { text.slice(BYTE_ORDER_MARK.len()..) } else { text }
}

impl Json {
    /// Checks that `text` is exactly one JSON value, and keeps its bytes without copying them.
    pub fn parse(text: Bytes) -> Result<Self, JsonError> {
        let part = valid(&text)?;
        Ok(Self::within(&text, part.as_bytes()))
    }

    /// The part of `text` that `part` was borrowed from, without copying it.
    ///
    /// `part` must have been read from `text`; otherwise it is copied.
    pub fn of(text: &Bytes, part: Part<'_>) -> Self {
        Self::within(text, part.bytes())
    }

    fn within(text: &Bytes, part: &[u8]) -> Self {
        let whole = text.as_ptr_range();
        let inside = part.as_ptr_range();
        if whole.start <= inside.start && inside.end <= whole.end {
            Self(text.slice_ref(part))
        } else {
            Self(Bytes::copy_from_slice(part))
        }
    }

    /// Text that the caller has just written as JSON, so it is not read again.
    pub(super) fn assume_valid(text: Bytes) -> Self {
        debug_assert!(serde_json::from_slice::<&RawValue>(&text).is_ok(), "text that is no JSON");
        Self(text)
    }

    /// The same text, as bytes that lie in the same place but keep something else alive; other bytes are not taken.
    #[must_use]
    pub(crate) fn carried_by(self, bytes: Bytes) -> Self {
        if bytes.as_ptr_range() == self.0.as_ptr_range() { Self(bytes) } else { self }
    }

    /// The JSON text of a value of ours.
    pub fn from_value(value: &serde_json::Value) -> Self {
        Self(Bytes::from(value.to_string()))
    }

    /// `{}`.
    pub const fn empty_object() -> Self {
        Self::word("{}")
    }

    /// `null`.
    pub const fn null() -> Self {
        Self::word("null")
    }

    /// The same text in memory of its own: a small part of a large text keeps all of it alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// JSON text that stands in the program.
    pub(super) const fn word(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The JSON text of a string.
    pub fn string(text: &str) -> Self {
        Self::from_value(&serde_json::Value::from(text))
    }

    /// The JSON text of a whole number.
    pub fn number(number: u64) -> Self {
        Self(Bytes::from(number.to_string()))
    }

    /// The whole text, as a part.
    pub fn part(&self) -> Part<'_> {
        Part::whole(&self.0)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Every way to make a `Json` has checked the text, so the fallback is never taken.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// The bytes of the text.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The raw value, to be put into a serde structure.
    pub fn raw(&self) -> &RawValue {
        self.read().unwrap_or(RawValue::NULL)
    }

    /// Reads the value into a type of ours.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// The members, if this is an object. A repeated name is an error.
    pub fn members(&self) -> Result<Members<'_>, JsonError> {
        Members::of(&self.0)
    }

    /// The elements, if this is an array.
    pub fn elements(&self) -> Result<Elements<'_>, JsonError> {
        Elements::of(&self.0)
    }

    /// One member of an object, without copying it; `None` if this is no object or has no such member.
    pub fn member(&self, name: &str) -> Option<Json> {
        let members = self.members().ok()?;
        members.get(name).map(|part| Self::of(&self.0, part))
    }

    /// Whether this is an object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        self.0.as_ref() == b"null"
    }

    /// How many bytes the text has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: the shortest JSON text has one byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Shows the size only: bodies never reach the logs.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// Reads the members of the object that `text` is. Nothing but the names is decoded.
pub fn members(text: &[u8]) -> Result<Members<'_>, JsonError> {
    Members::of(valid(text)?.as_bytes())
}

/// The same, where nothing may be nested deeper than `limit` levels. That is found out in passing, and is the error of
/// a deep text that is broken as well.
pub fn members_within(text: &[u8], limit: usize) -> Result<Members<'_>, JsonError> {
    match valid(text) {
        Ok(valid) => Members::within(valid.as_bytes(), limit),
        Err(error) => Err(check_depth(text, limit).err().unwrap_or(error)),
    }
}

/// Reads the elements of the array that `text` is.
pub fn elements(text: &[u8]) -> Result<Elements<'_>, JsonError> {
    Elements::of(valid(text)?.as_bytes())
}

fn valid(text: &[u8]) -> Result<&str, JsonError> {
    serde_json::from_slice(text).map(RawValue::get).map_err(JsonError::Syntax)
}

/// Refuses text that is nested deeper than `limit`. Looks at brackets only, so it is cheap and
/// can be run before anything else reads the text.
pub fn check_depth(text: &[u8], limit: usize) -> Result<(), JsonError> {
    if parts::is_flat(text, limit) { Ok(()) } else { Err(JsonError::TooDeep { limit }) }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(_) => f.write_str("not the JSON that was expected"),
            Self::DuplicateKey(key) => write!(f, "the member \"{}\" appears twice", key.escape_debug()),
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit} levels"),
            Self::TooMany => write!(f, "more than {MOST} members or elements in one place"),
        }
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Syntax(source) => Some(source),
            Self::DuplicateKey(_) | Self::TooDeep { .. } | Self::TooMany => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_the_spelling_of_every_value() {
        let json =
            Json::parse(Bytes::from_static(br#" {"a":9007199254740995,"b":1E2,"c":1e400,"d":{"z": 1.0}} "#)).unwrap();
        let members = json.members().unwrap();
        let shown: Vec<_> = members.iter().map(|(key, value)| (key, value.get())).collect();
        assert_eq!(shown, [("a", "9007199254740995"), ("b", "1E2"), ("c", "1e400"), ("d", r#"{"z": 1.0}"#)]);
    }

    #[test]
    fn a_member_shares_the_bytes_of_its_object() {
        let json = Json::parse(Bytes::from_static(br#"{"a":[1,2]}"#)).unwrap();
        let member = json.member("a").unwrap();
        assert!(json.bytes().as_ptr_range().contains(&member.bytes().as_ptr()));
    }

    #[test]
    fn a_name_is_a_duplicate_in_any_spelling() {
        let text = br#"{"name":1,"\u006eame":2}"#;
        assert!(matches!(members(text), Err(JsonError::DuplicateKey(key)) if key == "name"));
    }

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        assert!(check_depth(br#"{"a":"[[[[\"[[["}"#, 1).is_ok());
        assert!(matches!(check_depth(b"[[1],[[2]]]", 2), Err(JsonError::TooDeep { limit: 2 })));
    }

    #[test]
    fn a_crowd_of_parts_is_refused_before_it_takes_many_times_its_memory() {
        let object = |count: usize| {
            let members: Vec<_> = (0..count).map(|at| format!("\"{at}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert_eq!(members(object(MOST).as_bytes()).unwrap().len(), MOST);
        assert!(matches!(members(object(MOST + 1).as_bytes()), Err(JsonError::TooMany)));
        let array = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert_eq!(elements(array(MOST).as_bytes()).unwrap().iter().count(), MOST);
        assert!(matches!(elements(array(MOST + 1).as_bytes()), Err(JsonError::TooMany)));
        let broken = array(MOST + 1).replace(']', "");
        assert!(matches!(elements(broken.as_bytes()), Err(JsonError::Syntax(_))));
        let arguments = Json::parse(Bytes::from(format!("{{\"arguments\":{}}}", array(MOST + 1)))).unwrap();
        assert!(arguments.member("arguments").is_some());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "nul", "{}{}", "\u{feff}{}", "[1,]", "\"\\ud800"] {
            assert!(Json::parse(Bytes::from(text.to_owned())).is_err(), "{text:?}");
        }
        assert!(Json::parse(Bytes::from_static(b"\"\xff\"")).is_err());
    }
}
