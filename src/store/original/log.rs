//! Which parts of its file sled 0.34.7 overwrites when it opens it, found out without changing anything.
//!
//! The file is a log in segments. At the start sled reads its newest snapshot of where each page lies, and the log from
//! there on. Then every segment in which no page lies is overwritten with zeros or cut off, and so is what stands behind
//! the end of the log. Of a damaged file that is much more than of a good one: what cannot be read is taken for not there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::bytes::{Bytes, Place};

/// Bytes of a segment.
pub(super) const SEGMENT: u64 = 512 << 10;
/// Bytes in front of its messages.
const HEADER: u64 = 20;
/// What a message's own header takes at most: none begins nearer to the end of a segment.
const MESSAGE_HEADER: u64 = 32;
/// More pages than any file has: a number above is damage.
const MOST_PAGES: u64 = 1 << 30;

/// Why it cannot be told what sled would do.
pub(super) enum Unclear {
    Io(io::Error),
    /// It would stop, or panic, or is something that we never have.
    Damaged,
}

/// Where the pages are, as far as it was read.
#[derive(Default)]
struct Pages {
    places: Vec<Option<Vec<Place>>>,
    /// The place in the log up to which this holds.
    stable: Option<i64>,
    /// Where the segment is that was being written.
    active: Option<u64>,
}

/// A message of the log that concerns a page.
struct Message {
    kind: Kind,
    page: u64,
    lsn: i64,
    offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Replace,
    Link,
    Free,
}

/// What stands at one place of a segment.
enum Read {
    Message(Kind, u64, u64),
    Nothing(u64),
    Batch(i64, u64),
    Cap,
    Corrupted,
    /// It goes beyond the end of the file.
    Short,
}

/// sled's own walk along the log.
struct Walk<'a> {
    file: &'a File,
    segments: BTreeMap<i64, u64>,
    base: Option<(u64, Vec<u8>)>,
    last: Option<i64>,
    now: Option<i64>,
    is_second: bool,
}

/// The numbers of the segments of `file` that sled leaves as they are when it opens it.
pub(super) fn untouched(file: &File, snapshot: Option<&[u8]>) -> Result<BTreeSet<u64>, Unclear> {
    let mut pages = match snapshot {
        Some(bytes) => Pages::read(bytes)?,
        None => Pages::default(),
    };
    let stable = pages.stable.unwrap_or(0);
    let first = segment_of(stable)?;
    let (segments, newest) = headers(file, first)?;
    let end = end_of_log(file, &segments, newest)?;
    let mut walk = Walk { file, segments, base: None, last: Some(end), now: None, is_second: true };
    while let Some(message) = walk.next()? {
        if message.lsn < pages.stable.unwrap_or(-1) {
            continue;
        }
        if message.lsn >= end {
            return Err(Unclear::Damaged);
        }
        pages.apply(&message)?;
    }
    let mut untouched = BTreeSet::new();
    for places in &pages.places {
        // A page that was never put anywhere makes sled panic.
        let places = places.as_ref().ok_or(Unclear::Damaged)?;
        untouched.extend(places.iter().map(|place| place.offset / SEGMENT));
    }
    // What is left was not read, and the last one that was read is cut off behind its last message.
    let written = walk.base.as_ref().map(|(offset, _)| offset);
    for offset in walk.segments.values().chain(written).chain(pages.active.as_ref()) {
        untouched.remove(&(offset / SEGMENT));
    }
    Ok(untouched)
}

fn segment_of(lsn: i64) -> Result<i64, Unclear> {
    let segment = signed(SEGMENT)?;
    Ok(lsn / segment * segment)
}

/// The segments with a good header from `first` on, and the newest place in the log that one of them calls stable.
fn headers(file: &File, first: i64) -> Result<(BTreeMap<i64, u64>, i64), Unclear> {
    let length = file.metadata()?.len();
    let count = length / SEGMENT + u64::from(length % SEGMENT >= HEADER);
    let (mut segments, mut newest) = (BTreeMap::new(), first);
    for number in 0..count {
        let (lsn, stable, is_good) = header(file, number * SEGMENT)?;
        if is_good && lsn >= first {
            newest = newest.max(stable);
            if segments.insert(lsn, number * SEGMENT).is_some() {
                return Err(Unclear::Damaged);
            }
        }
    }
    Ok((segments, newest))
}

fn header(file: &File, offset: u64) -> Result<(i64, i64, bool), Unclear> {
    let mut header = [0; 20];
    file.read_exact_at(&mut header, offset)?;
    let mut bytes = Bytes(&header);
    let checksum = bytes.u32()? ^ u32::MAX;
    let is_good = checksum == crc32fast::hash(bytes.0);
    Ok((bytes.i64()? ^ i64::MAX, bytes.i64()? ^ i64::MAX, is_good))
}

/// The place of the last byte that can be read without a gap behind what is stable.
fn end_of_log(file: &File, segments: &BTreeMap<i64, u64>, newest: i64) -> Result<i64, Unclear> {
    let lowest = segment_of(newest)?.max(0);
    let step = signed(SEGMENT)?;
    let (mut expected, mut gap, mut tail) = (lowest, None, BTreeMap::new());
    for (lsn, offset) in segments.range(lowest..) {
        if *lsn != expected {
            gap = Some(expected);
            break;
        }
        expected += step;
        tail.insert(*lsn, *offset);
    }
    let mut walk = Walk { file, segments: tail, base: None, last: gap, now: None, is_second: false };
    while walk.next()?.is_some() {}
    Ok(walk.now.unwrap_or(0) - 1)
}

impl Walk<'_> {
    fn next(&mut self) -> Result<Option<Message>, Unclear> {
        loop {
            let within = u64::try_from(self.now.unwrap_or(0)).map_err(|_| Unclear::Damaged)? % SEGMENT;
            if !(HEADER..=SEGMENT - MESSAGE_HEADER).contains(&within) {
                self.base = None;
            }
            if self.base.is_none() && !self.read_segment()? {
                return Ok(None);
            }
            let (Some(now), Some((base, bytes))) = (self.now, &self.base) else { return Err(Unclear::Damaged) };
            if self.last.is_some_and(|last| now > last) {
                return Ok(None);
            }
            let at = u64::try_from(now).map_err(|_| Unclear::Damaged)?;
            let offset = base + at % SEGMENT;
            match read_message(bytes, at % SEGMENT, at / SEGMENT)? {
                Read::Message(kind, page, length) => {
                    self.now = Some(now + signed(length)?);
                    return Ok(Some(Message { kind, page, lsn: now, offset }));
                }
                Read::Batch(last, _) if self.last.is_some_and(|end| last > end) => return Ok(None),
                Read::Nothing(length) | Read::Batch(_, length) => self.now = Some(now + signed(length)?),
                Read::Corrupted if !self.is_second => return Ok(None),
                Read::Cap | Read::Corrupted => self.base = None,
                Read::Short => return Ok(None),
            }
        }
    }

    /// Whether there was another one.
    fn read_segment(&mut self) -> Result<bool, Unclear> {
        let Some((&lsn, &offset)) = self.segments.first_key_value() else { return Ok(false) };
        if self.last.is_some_and(|last| lsn > last) {
            return Ok(false);
        }
        if lsn + signed(SEGMENT)? < self.now.unwrap_or(0) || segment_of(lsn)? != lsn {
            return Err(Unclear::Damaged);
        }
        if header(self.file, offset)?.0 != lsn {
            return Ok(false);
        }
        let mut bytes = vec![0; usize::try_from(SEGMENT).map_err(|_| Unclear::Damaged)?];
        let length = read_up_to(self.file, &mut bytes, offset)?;
        bytes.truncate(length);
        self.now = Some(lsn + signed(HEADER)?);
        self.base = Some((offset, bytes));
        self.segments.remove(&lsn);
        Ok(true)
    }
}

/// Fills `bytes` from `offset` on, as far as the file goes.
pub(super) fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn signed(length: u64) -> Result<i64, Unclear> {
    i64::try_from(length).map_err(|_| Unclear::Damaged)
}

fn read_message(segment: &[u8], at: u64, number: u64) -> Result<Read, Unclear> {
    let Some(rest) = usize::try_from(at).ok().and_then(|at| segment.get(at..)) else { return Ok(Read::Short) };
    // Behind the end of the file sled sees zeros here.
    let mut start = [0; 128];
    for (to, from) in start.iter_mut().zip(rest) {
        *to = *from;
    }
    let mut bytes = Bytes(&start);
    let (checksum, kind) = (bytes.u32()?, bytes.u8()?);
    let (length, segment_number, page) = (bytes.number()?, bytes.number()?, bytes.number()?);
    let header = start.len() - bytes.0.len();
    let begins = at + header as u64;
    if begins > SEGMENT {
        return Err(Unclear::Damaged);
    }
    if length > SEGMENT - begins || !(1..=11).contains(&kind) {
        return Ok(Read::Corrupted);
    }
    let length = usize::try_from(length).map_err(|_| Unclear::Damaged)?;
    let body = match rest.get(header..header + length) {
        Some(body) => body,
        None if length > bytes.0.len() => return Ok(Read::Short),
        None => bytes.0.get(..length).ok_or(Unclear::Damaged)?,
    };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(start.get(4..header).ok_or(Unclear::Damaged)?);
    if hasher.finalize() ^ u32::MAX != checksum || segment_number != number {
        return Ok(Read::Corrupted);
    }
    let whole = (header + length) as u64;
    match kind {
        1 => Ok(Read::Nothing(whole)),
        2 => Ok(Read::Cap),
        3 => Ok(Read::Batch(Bytes(body).i64()?, whole)),
        4 => Ok(Read::Message(Kind::Free, page, whole)),
        5 | 6 | 8 => Ok(Read::Message(Kind::Replace, page, whole)),
        10 => Ok(Read::Message(Kind::Link, page, whole)),
        // The rest are in files of their own, which a store never has.
        _ => Err(Unclear::Damaged),
    }
}

impl Pages {
    /// Reads what is in a snapshot, its checksum included.
    fn read(snapshot: &[u8]) -> Result<Self, Unclear> {
        let (body, end) = snapshot.split_last_chunk::<12>().ok_or(Unclear::Damaged)?;
        let (_, checksum) = end.split_last_chunk::<4>().ok_or(Unclear::Damaged)?;
        if body.is_empty() || u32::from_le_bytes(*checksum) != crc32fast::hash(body) {
            return Err(Unclear::Damaged);
        }
        let mut bytes = Bytes(body);
        let stable = match bytes.i64()? {
            0 => None,
            lsn if lsn < 0 => Some(lsn),
            lsn => Some(lsn - 1),
        };
        let active = bytes.number()?.checked_sub(1);
        let mut places = Vec::new();
        while !bytes.0.is_empty() {
            places.push(Some(bytes.places()?));
        }
        Ok(Self { places, stable, active })
    }

    fn apply(&mut self, message: &Message) -> Result<(), Unclear> {
        if message.page >= MOST_PAGES {
            return Err(Unclear::Damaged);
        }
        let page = usize::try_from(message.page).map_err(|_| Unclear::Damaged)?;
        let is_new = self.places.len() <= page;
        if is_new {
            self.places.resize(page + 1, None);
        }
        let place = Place { lsn: message.lsn, offset: message.offset, is_free: message.kind == Kind::Free };
        let Some(places) = self.places.get_mut(page) else { return Err(Unclear::Damaged) };
        match (message.kind, places) {
            (Kind::Replace | Kind::Free, places) => *places = Some(vec![place]),
            (Kind::Link, Some(places)) if places.iter().all(|place| !place.is_free) => {
                if places.last().is_none_or(|last| last.lsn < place.lsn) {
                    places.push(place);
                }
            }
            // Of a page that was put elsewhere later.
            (Kind::Link, _) if is_new => drop(self.places.pop()),
            (Kind::Link, _) => {}
        }
        Ok(())
    }
}

impl From<io::Error> for Unclear {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
