//! The parts of a JSON text that is known to be valid: members of an object, elements of an array.
//!
//! The text was read by `serde_json` when it came in. Here it is only cut up, level by level as far as anybody looks,
//! which takes a fraction of the time of reading it again.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use smallvec::SmallVec;

use super::json::{JsonError, MOST};

/// One value, as it was spelled, without white space around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a>(&'a [u8]);

/// The members of an object, in order, each value as raw text. Never more than [`MOST`].
///
/// Names are kept as the bytes of valid text, and read as text only for whoever wants that.
#[derive(Debug, Default)]
pub struct Members<'a>(SmallVec<[(Cow<'a, [u8]>, Part<'a>); USUAL]>);

/// The elements of an array, each as raw text. Never more than [`MOST`].
#[derive(Debug, Default)]
pub struct Elements<'a>(Vec<Part<'a>>);

/// A place in a valid text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    /// How deep values may be nested from here.
    room: usize,
    /// Whether one was deeper.
    is_deep: bool,
}

/// Why a value has no end.
enum Endless {
    /// The text ends first.
    Open,
    /// It is nested too deep.
    Deep,
}

/// How many members most objects of the protocol have at most.
const USUAL: usize = 8;

/// Strings of the protocol are short: so many bytes are looked through eight at a time, which costs less than the call
/// of a search that is made for long texts.
const NEAR: usize = 64;

impl<'a> Part<'a> {
    /// All of the valid JSON `text`.
    pub(super) fn whole(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The text.
    pub fn get(self) -> &'a str {
        // It is cut out of text that was checked, at bytes that are no part of a longer character.
        std::str::from_utf8(self.0).unwrap_or("null")
    }

    /// The bytes of the text.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// What the text says if it is a string, without copying where nothing is escaped; `None` for all else.
    pub fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        if memchr::memchr(b'\\', inner).is_none() {
            return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
        }
        serde_json::from_slice(self.0).ok().map(Cow::Owned)
    }
}

impl<'a> Members<'a> {
    /// Cuts up the object that the valid JSON `text` is. A name that appears twice is an error.
    pub(super) fn of(text: &'a [u8]) -> Result<Self, JsonError> {
        Self::within(text, usize::MAX)
    }

    /// The same, where nothing may be nested deeper than `limit`.
    pub(super) fn within(text: &'a [u8], limit: usize) -> Result<Self, JsonError> {
        let mut members = SmallVec::new();
        let mut cursor = Cursor::at_the_start(text, limit.saturating_sub(1));
        if cursor.open(b'{') {
            loop {
                let name = cursor.name().ok_or_else(|| unreadable(text))?;
                cursor.pass(b':');
                let value = match cursor.value() {
                    Some(value) => value,
                    None if cursor.is_deep => return Err(JsonError::TooDeep { limit }),
                    None => return Err(unreadable(text)),
                };
                if members.len() == MOST {
                    return Err(JsonError::TooMany);
                }
                members.push((name, Part(value)));
                if !cursor.pass(b',') {
                    break;
                }
            }
        } else if cursor.peek() != Some(b'}') {
            return Err(unreadable(text));
        }
        let members = Self(members);
        match members.repeated() {
            None => Ok(members),
            Some(key) => Err(JsonError::DuplicateKey(String::from_utf8_lossy(key).into_owned())),
        }
    }

    /// The raw value of the member `name`.
    pub fn get(&self, name: &str) -> Option<Part<'a>> {
        self.0.iter().find(|(key, _)| key.as_ref() == name.as_bytes()).map(|(_, value)| *value)
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Part<'a>)> {
        // It was cut out of valid text, or decoded from it.
        self.entries().map(|(key, value)| (std::str::from_utf8(key).unwrap_or_default(), value))
    }

    /// The members in order, each name as bytes.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], Part<'a>)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A name that appears twice. Envelopes are small, where comparing pairs is cheapest; the set
    /// keeps a hostile object from costing the square of its size.
    fn repeated(&self) -> Option<&[u8]> {
        if self.0.len() <= 16 {
            let mut keys = self.0.iter().enumerate();
            return keys
                .find(|(at, (key, _))| self.0.iter().take(*at).any(|(other, _)| other == key))
                .map(|(_, (key, _))| key.as_ref());
        }
        let mut seen = HashSet::with_capacity(self.0.len());
        self.0.iter().map(|(key, _)| key.as_ref()).find(|key| !seen.insert(*key))
    }
}

impl<'a> Elements<'a> {
    /// Cuts up the array that the valid JSON `text` is.
    pub(super) fn of(text: &'a [u8]) -> Result<Self, JsonError> {
        let mut elements = Vec::new();
        let mut cursor = Cursor::at_the_start(text, usize::MAX);
        if cursor.open(b'[') {
            loop {
                let element = cursor.value().ok_or_else(|| unreadable(text))?;
                if elements.len() == MOST {
                    return Err(JsonError::TooMany);
                }
                elements.push(Part(element));
                if !cursor.pass(b',') {
                    break;
                }
            }
        } else if cursor.peek() != Some(b']') {
            return Err(unreadable(text));
        }
        Ok(Self(elements))
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Part<'a>> {
        self.0.iter().copied()
    }
}

impl<'a> Cursor<'a> {
    fn at_the_start(text: &'a [u8], room: usize) -> Self {
        Self { text, at: 0, room, is_deep: false }
    }

    /// Goes into an object or array; whether anything is in it.
    fn open(&mut self, bracket: u8) -> bool {
        self.pass(bracket) && !matches!(self.peek(), None | Some(b'}' | b']'))
    }

    /// Goes past this byte and the white space around it, if it comes next.
    fn pass(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        if here {
            self.at += 1;
            self.peek();
        }
        here
    }

    /// The next byte that is no white space; goes there.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Goes past the next name.
    fn name(&mut self) -> Option<Cow<'a, [u8]>> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let begin = self.at;
        let first = next_mark(self.text, begin + 1)?;
        if self.text.get(first) == Some(&b'"') {
            self.at = first + 1;
            return self.text.get(begin + 1..first).map(Cow::Borrowed);
        }
        let length = string(self.text.get(begin..)?)?;
        self.at = begin + length;
        let decoded: String = serde_json::from_slice(self.text.get(begin..self.at)?).ok()?;
        Some(Cow::Owned(decoded.into_bytes()))
    }

    /// Goes past the next value.
    fn value(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let begin = self.at;
        let rest = self.text.get(begin..)?;
        let length = match first {
            b'"' => string(rest),
            b'{' | b'[' => match nested(rest, self.room) {
                Ok(length) => Some(length),
                Err(Endless::Open) => None,
                Err(Endless::Deep) => {
                    self.is_deep = true;
                    return None;
                }
            },
            _ => rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\t' | b'\n' | b'\r')),
        };
        self.at = length.map_or(self.text.len(), |length| begin + length);
        self.text.get(begin..self.at).filter(|value| !value.is_empty())
    }
}

/// The length of the string that the text begins with; `None` if it does not end.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at = next_mark(text, at)?;
        if text.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Where the next quote or backslash is, from `from` on.
fn next_mark(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while at - from < NEAR
        && let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk::<8>)
    {
        let word = u64::from_le_bytes(*word);
        let marks = zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c));
        if marks != 0 {
            return Some(at + (marks.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    memchr::memchr2(b'"', b'\\', text.get(at..)?).map(|further| at + further)
}

/// A word whose bytes are all one.
const ONES: u64 = u64::from_le_bytes([1; 8]);

/// A word whose lowest set bit is in the lowest byte of `word` that is zero.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// The length of the object or array that the text begins with, which is nested no deeper than `limit`.
fn nested(text: &[u8], limit: usize) -> Result<usize, Endless> {
    let (mut at, mut depth) = (0_usize, 0_usize);
    loop {
        match text.get(at).ok_or(Endless::Open)? {
            b'"' => {
                at += text.get(at..).and_then(string).ok_or(Endless::Open)?;
                continue;
            }
            b'{' | b'[' => {
                if depth == limit {
                    return Err(Endless::Deep);
                }
                depth += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// The deepest nesting of any text, valid or not, is at most `limit`.
pub(super) fn is_flat(text: &[u8], limit: usize) -> bool {
    let (mut at, mut depth) = (0_usize, 0_usize);
    while let Some(byte) = text.get(at) {
        at += match byte {
            b'"' => string(text.get(at..).unwrap_or_default()).unwrap_or(text.len()),
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return false;
                }
                1
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                1
            }
            _ => 1,
        };
    }
    true
}

/// The error with its place, as a reader that decodes every name reports it.
#[cold]
fn unreadable(text: &[u8]) -> JsonError {
    let read = serde_json::from_slice::<Decoded>(text);
    JsonError::Syntax(read.err().unwrap_or_else(|| serde_json::Error::custom("not of the kind that was expected")))
}

/// An object, each name of which was decoded.
struct Decoded;

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Decoded;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Decoded, A::Error> {
                while map.next_entry::<String, IgnoredAny>()?.is_some() {}
                Ok(Decoded)
            }
        }
        deserializer.deserialize_map(Read)
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
