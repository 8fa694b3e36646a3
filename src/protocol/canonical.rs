//! One spelling for all JSON texts that say the same (RFC 8785), so that a digest can tell whether they do.
//!
//! Apart from the RFC, numbers stay what they are however large or exact: where it writes the nearest double, two
//! different numbers would become one. The text is compared and never shown, so their spelling is free: the digits
//! without zeros at either end, and an exponent.

use std::cmp::Ordering;
use std::ops::Range;

use super::json::Json;

/// The canonical text of `json`: members in the order of their names, no white space, one spelling of each string and
/// number. Texts differ if the values do; what cannot be decoded (half of a surrogate pair) counts as it is spelled.
pub fn canonical(json: &Json) -> Vec<u8> {
    let mut text = Text { bytes: json.bytes(), at: 0, unsorted: Vec::new() };
    let mut written = Vec::with_capacity(json.len());
    text.value(&mut written);
    let mut unsorted = text.unsorted;
    if unsorted.is_empty() {
        return written;
    }
    unsorted.sort_unstable_by_key(|object| object.open);
    let mut out = Vec::with_capacity(written.len());
    put_sorted(&written, 0..written.len(), &unsorted, &mut out);
    out
}

/// Copies a part of what was written, with the members of its objects in order. Each byte is copied once, however deep
/// it stands: else depth and size would let a caller make each level dear.
fn put_sorted(written: &[u8], part: Range<usize>, unsorted: &[Unsorted], out: &mut Vec<u8>) {
    let mut at = part.start;
    let next = |at: usize| unsorted.get(unsorted.partition_point(|object| object.open < at));
    while let Some(object) = next(at).filter(|object| object.open < part.end) {
        out.extend_from_slice(written.get(at..=object.open).unwrap_or_default());
        for (place, member) in object.members.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            put_sorted(written, member.clone(), unsorted, out);
        }
        at = object.close;
    }
    out.extend_from_slice(written.get(at..part.end).unwrap_or_default());
}

/// A valid JSON text, and how far it was read. No text of a caller is nested deeper than the front allows.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The objects that came in another order.
    unsorted: Vec<Unsorted>,
}

/// An object that was written as it came: where its braces are, and its members in order.
struct Unsorted {
    open: usize,
    close: usize,
    members: Vec<Range<usize>>,
}

/// A member of an object: its name in UTF-16, as the RFC orders them, and where it was written.
struct Member {
    name: Vec<u16>,
    text: Range<usize>,
}

impl<'a> Text<'a> {
    fn value(&mut self, out: &mut Vec<u8>) {
        match self.peek() {
            Some(b'{') => self.object(out),
            Some(b'[') => self.array(out),
            Some(b'"') => {
                let raw = self.string();
                out.extend_from_slice(&string(raw).0);
            }
            Some(b'-' | b'0'..=b'9') => number(self.word(), out),
            Some(_) => out.extend_from_slice(self.word()),
            None => {}
        }
    }

    fn object(&mut self, out: &mut Vec<u8>) {
        self.at += 1;
        let open = out.len();
        out.push(b'{');
        let mut members = Vec::new();
        while matches!(self.peek(), Some(byte) if byte != b'}') {
            if !members.is_empty() {
                out.push(b',');
            }
            let from = out.len();
            let (text, name) = string(self.string());
            out.extend_from_slice(&text);
            out.push(b':');
            self.peek();
            self.at += 1;
            self.value(out);
            members.push(Member { name, text: from..out.len() });
            self.pass(b',');
        }
        self.at += 1;
        if !members.is_sorted_by(|one, next| one.name <= next.name) {
            // A name that appears twice keeps its order: two readers could read two different values.
            members.sort_by(Member::compare);
            let members = members.into_iter().map(|member| member.text).collect();
            self.unsorted.push(Unsorted { open, close: out.len(), members });
        }
        out.push(b'}');
    }

    fn array(&mut self, out: &mut Vec<u8>) {
        self.at += 1;
        out.push(b'[');
        let mut is_first = true;
        while matches!(self.peek(), Some(byte) if byte != b']') {
            if !is_first {
                out.push(b',');
            }
            is_first = false;
            self.value(out);
            self.pass(b',');
        }
        self.at += 1;
        out.push(b']');
    }

    /// The string that comes next, with its quotes.
    fn string(&mut self) -> &'a [u8] {
        self.peek();
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let mut end = 1;
        loop {
            match rest.get(end..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
                Some(to) if rest.get(end + to) == Some(&b'"') => {
                    end += to + 1;
                    break;
                }
                Some(to) => end += to + 2,
                None => {
                    end = rest.len();
                    break;
                }
            }
        }
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// The number or word that comes next.
    fn word(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
        // What is no word at all must not be looked at for ever.
        let end = rest.iter().position(is_end).unwrap_or(rest.len()).max(1);
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// The next byte that is no white space; goes there.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn pass(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.at += 1;
        }
    }
}

impl Member {
    fn compare(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

/// The canonical text of a string, and what it says in UTF-16.
fn string(raw: &[u8]) -> (Vec<u8>, Vec<u16>) {
    let utf16 = |text: &str| text.encode_utf16().collect();
    if memchr::memchr(b'\\', raw).is_none() {
        let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
        return (raw.to_vec(), utf16(&String::from_utf8_lossy(inner)));
    }
    let decoded: Option<String> = serde_json::from_slice(raw).ok();
    match decoded.and_then(|text| Some((serde_json::to_vec(&text).ok()?, utf16(&text)))) {
        Some(both) => both,
        None => (raw.to_vec(), utf16(&String::from_utf8_lossy(raw))),
    }
}

/// The canonical text of a number: `0`, or its digits without zeros at either end, and the exponent of ten.
fn number(raw: &[u8], out: &mut Vec<u8>) {
    let (is_negative, unsigned) = match raw.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, raw),
    };
    let (mantissa, exponent) = match unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (unsigned.get(..at), unsigned.get(at + 1..)),
        None => (Some(unsigned), Some(&b"0"[..])),
    };
    let (mantissa, exponent) = (mantissa.unwrap_or_default(), exponent.unwrap_or_default());
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    let Some(first) = digits.iter().position(|digit| *digit != b'0') else {
        out.push(b'0');
        return;
    };
    let last = digits.iter().rposition(|digit| *digit != b'0').unwrap_or(first);
    let exponent = std::str::from_utf8(exponent).ok().and_then(|exponent| exponent.parse::<i64>().ok());
    // Behind the last digit that counts.
    let shift = i64::try_from(point).ok().zip(i64::try_from(last + 1).ok()).map(|(point, end)| point - end);
    let Some(exponent) = exponent.zip(shift).and_then(|(exponent, shift)| exponent.checked_add(shift)) else {
        // Beyond any use: it counts as it is spelled.
        return out.extend_from_slice(raw);
    };
    if is_negative {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(first..=last).unwrap_or_default());
    if exponent != 0 {
        out.push(b'e');
        out.extend_from_slice(exponent.to_string().as_bytes());
    }
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
