//! What a store was before it was opened, so that one that is refused is byte for byte what it was.
//!
//! sled writes while it opens: it makes a new snapshot and removes the old ones, and overwrites or cuts off what it finds
//! no page in. Of a damaged store that may be most of it. So what it will overwrite is written to the file
//! `before-opening` first; when the store is refused, all of that is put back. A process that ends in between leaves the
//! file, and the next start puts it back before it does anything else.
//!
//! The file is a list of parts, each `kind, offset, length of the name, length, name, bytes`, and a checksum at its end.

mod bytes;
mod log;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::log::{SEGMENT, Unclear, read_up_to, untouched};
use super::directory::{DATABASE, MARKER, is_of_database, sync_directory};

/// What was kept, until it is put back or forgotten. If it is just dropped, the next start puts it back.
#[derive(Debug)]
pub(super) struct Original {
    directory: PathBuf,
}

/// Writes the parts.
struct Parts<W> {
    to: W,
    hasher: crc32fast::Hasher,
}

/// Reads them.
struct Kept {
    from: BufReader<File>,
    hasher: crc32fast::Hasher,
}

struct Part {
    kind: u8,
    offset: u64,
    name: String,
    bytes: Vec<u8>,
}

const SLEDS_BLOBS: &str = "blobs";
/// The file.
pub(super) const KEPT: &str = "before-opening";
/// The file while it is written.
pub(super) const UNFINISHED: &str = "before-opening.new";

const MARKED: u8 = b'm';
const WHOLE_FILE: u8 = b'f';
const PIECE: u8 = b'p';
const ZEROS: u8 = b'z';
const LENGTH: u8 = b'l';
const BLOBS: u8 = b'b';
const END: u8 = b'e';

/// Bytes in front of a name.
const HEAD: usize = 19;

/// How often, and how long in between, sled's lock is tried for.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

impl Original {
    /// Keeps what sled may change of the database in `directory`. Nothing else may have it open.
    pub(super) fn keep(directory: &Path) -> io::Result<Self> {
        let unfinished = directory.join(UNFINISHED);
        let written = write(directory, &unfinished).and_then(|()| {
            fs::rename(&unfinished, directory.join(KEPT))?;
            sync_directory(directory)
        });
        if written.is_err() {
            // The error that is told is the first.
            let _ = fs::remove_file(&unfinished);
        }
        written.map(|()| Self { directory: directory.to_owned() })
    }

    /// The store was opened: what it was is of no use.
    pub(super) fn forget(self) -> io::Result<()> {
        forget(&self.directory)
    }

    /// Makes the store what it was.
    pub(super) fn put_back(self) -> io::Result<()> {
        put_back(&self.directory)
    }
}

/// Makes the store what it was, if an earlier process ended while it opened it.
pub(super) fn put_back_left_over(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(UNFINISHED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if !directory.join(KEPT).exists() {
        return Ok(());
    }
    let marker = fs::read(directory.join(MARKER))?;
    let mut is_of_now = false;
    match parts(directory, |part| {
        is_of_now |= part.kind == MARKED && part.bytes == marker;
        Ok(())
    }) {
        Ok(()) if is_of_now => put_back(directory),
        // It was opened, or something else was put into its place.
        Ok(()) => forget(directory),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::warn!(file = KEPT, "what the store was before it was opened cannot be read");
            forget(directory)
        }
        Err(error) => Err(error),
    }
}

fn forget(directory: &Path) -> io::Result<()> {
    fs::remove_file(directory.join(KEPT))?;
    sync_directory(directory)
}

fn write(directory: &Path, to: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    let mut parts = Parts { to: BufWriter::with_capacity(1 << 16, file), hasher: crc32fast::Hasher::new() };
    parts.put(MARKED, 0, "", &fs::read(directory.join(MARKER))?)?;
    if directory.join(SLEDS_BLOBS).exists() {
        parts.put(BLOBS, 0, "", &[])?;
    }
    let mut newest = None;
    for name in names(directory)? {
        let bytes = fs::read(directory.join(&name))?;
        parts.put(WHOLE_FILE, 0, &name, &bytes)?;
        // One that is not finished is removed before sled looks for them.
        if name.starts_with("snap.")
            && !name.ends_with(".generating")
            && newest.as_ref().is_none_or(|(of, _)| *of < name)
        {
            newest = Some((name, bytes));
        }
    }
    let database = File::open(directory.join(DATABASE))?;
    let length = database.metadata()?.len();
    parts.put(LENGTH, length, "", &[])?;
    let untouched = match untouched(&database, newest.as_ref().map(|(_, bytes)| bytes.as_slice())) {
        Ok(untouched) => Some(untouched),
        Err(Unclear::Damaged) => None,
        Err(Unclear::Io(error)) => return Err(error),
    };
    let mut piece = vec![0; usize::try_from(SEGMENT).unwrap_or(1 << 19)];
    for number in 0..length.div_ceil(SEGMENT) {
        if untouched.as_ref().is_some_and(|untouched| untouched.contains(&number)) {
            continue;
        }
        let found = read_up_to(&database, &mut piece, number * SEGMENT)?;
        let found = piece.get(..found).unwrap_or_default();
        // Free parts are zeros, as a rule.
        if found.iter().all(|byte| *byte == 0) {
            parts.put(ZEROS, number * SEGMENT, "", &[])?;
        } else {
            parts.put(PIECE, number * SEGMENT, "", found)?;
        }
    }
    parts.put(END, 0, "", &[])?;
    let checksum = parts.hasher.finalize();
    parts.to.write_all(&checksum.to_be_bytes())?;
    parts.to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// The names of sled's small files.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if is_of_database(&name) && name != DATABASE {
            names.push(name.into_string().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?);
        }
    }
    Ok(names)
}

fn put_back(directory: &Path) -> io::Result<()> {
    let database =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(directory.join(DATABASE))?;
    await_lock(&database)?;
    // All of it is read once before anything is written: it is complete.
    parts(directory, |_| Ok(()))?;
    let (mut ends, mut had_blobs, mut whole) = (0, false, Vec::new());
    let zeros = vec![0; usize::try_from(SEGMENT).unwrap_or(1 << 19)];
    parts(directory, |part| {
        match part.kind {
            LENGTH => ends = part.offset,
            PIECE => database.write_all_at(&part.bytes, part.offset)?,
            ZEROS => database.write_all_at(&zeros, part.offset)?,
            BLOBS => had_blobs = true,
            WHOLE_FILE => whole.push((part.name, part.bytes)),
            _ => {}
        }
        Ok(())
    })?;
    database.set_len(ends)?;
    database.sync_all()?;
    for name in names(directory)? {
        if whole.iter().all(|(kept, _)| *kept != name) {
            fs::remove_file(directory.join(name))?;
        }
    }
    for (name, bytes) in whole {
        let path = directory.join(name);
        if fs::read(&path).is_ok_and(|found| found == bytes) {
            continue;
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
    }
    if !had_blobs {
        match fs::remove_dir(directory.join(SLEDS_BLOBS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_directory(directory)?;
    forget(directory)
}

/// Threads of a database that was given up may still write.
fn await_lock(database: &File) -> io::Result<()> {
    for _ in 0..TRIES {
        match database.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Gives each part of what was kept to `take`; an error of the kind `InvalidData` if it is not complete.
fn parts(directory: &Path, mut take: impl FnMut(Part) -> io::Result<()>) -> io::Result<()> {
    let file = File::open(directory.join(KEPT))?;
    let most = file.metadata()?.len();
    let mut kept = Kept { from: BufReader::with_capacity(1 << 16, file), hasher: crc32fast::Hasher::new() };
    loop {
        let part = kept.part(most)?;
        if part.kind == END {
            break;
        }
        take(part)?;
    }
    let mut checksum = [0; 4];
    kept.from.read_exact(&mut checksum).map_err(incomplete)?;
    if u32::from_be_bytes(checksum) == kept.hasher.finalize() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn incomplete(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::ErrorKind::InvalidData.into(),
        _ => error,
    }
}

impl<W: Write> Parts<W> {
    fn put(&mut self, kind: u8, offset: u64, name: &str, bytes: &[u8]) -> io::Result<()> {
        let name_length = u16::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut head = vec![kind];
        head.extend_from_slice(&offset.to_be_bytes());
        head.extend_from_slice(&name_length.to_be_bytes());
        head.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        head.extend_from_slice(name.as_bytes());
        for piece in [&head, bytes] {
            self.hasher.update(piece);
            self.to.write_all(piece)?;
        }
        Ok(())
    }
}

impl Kept {
    /// The next part; `most` bounds what is believed of a length.
    fn part(&mut self, most: u64) -> io::Result<Part> {
        let head = self.read(HEAD as u64, most)?;
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let (kind, rest) = head.split_first().ok_or_else(damaged)?;
        let (offset, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (name, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (length, _) = rest.split_first_chunk().ok_or_else(damaged)?;
        let name = self.read(u64::from(u16::from_be_bytes(*name)), most)?;
        let bytes = self.read(u64::from_be_bytes(*length), most)?;
        let name = String::from_utf8(name).map_err(|_| damaged())?;
        Ok(Part { kind: *kind, offset: u64::from_be_bytes(*offset), name, bytes })
    }

    fn read(&mut self, length: u64, most: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(length.min(most + 1)).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes).map_err(incomplete)?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::engine::{Engine, Writes};
    use crate::store::shelf::Shelf;

    /// A database with some history, and all that is in its directory.
    fn store() -> (tempfile::TempDir, BTreeMap<String, Vec<u8>>) {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..3 {
            write_some(directory.path(), round);
        }
        fs::write(directory.path().join(MARKER), "marker").unwrap();
        let found = contents(directory.path());
        (directory, found)
    }

    fn write_some(directory: &Path, round: u32) {
        let engine = Engine::open(directory, 6 << 20).unwrap();
        for batch in 0..20_u32 {
            let mut writes = Writes::default();
            for number in 0..100 {
                let name = ((batch * 100 + number) * (round + 1)).to_string();
                writes.shelve(Shelf::History, &name, Some(&[1; 900])).unwrap();
            }
            engine.commit(&writes).unwrap();
        }
    }

    /// What an opening does to a database, and a little more.
    fn open_and_end(directory: &Path) {
        let engine = Engine::open(directory, 6 << 20).unwrap();
        let mut writes = Writes::default();
        writes.shelve(Shelf::Budget, "name", Some(&[1; 900])).unwrap();
        engine.commit(&writes).unwrap();
    }

    fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
        let names = names(directory).unwrap().into_iter().chain([DATABASE.to_owned(), MARKER.to_owned()]);
        names.map(|name| (name.clone(), fs::read(directory.join(name)).unwrap())).collect()
    }

    #[test]
    fn what_an_opening_that_was_cut_short_has_changed_is_put_back_by_the_next() {
        let (directory, before) = store();
        drop(Original::keep(directory.path()).unwrap());
        open_and_end(directory.path());
        assert!(contents(directory.path()) != before);
        put_back_left_over(directory.path()).unwrap();
        assert!(contents(directory.path()) == before);
        assert!(!directory.path().join(KEPT).exists());
        open_and_end(directory.path());
    }

    #[test]
    fn a_store_that_was_opened_or_replaced_since_is_left_as_it_is() {
        let (directory, _) = store();
        drop(Original::keep(directory.path()).unwrap());
        open_and_end(directory.path());
        fs::write(directory.path().join(MARKER), "another").unwrap();
        let now = contents(directory.path());
        put_back_left_over(directory.path()).unwrap();
        assert!(contents(directory.path()) == now);
        assert!(!directory.path().join(KEPT).exists());
    }

    #[test]
    fn what_was_kept_in_part_only_is_not_put_back() {
        let (directory, before) = store();
        drop(Original::keep(directory.path()).unwrap());
        let kept = directory.path().join(KEPT);
        let length = fs::metadata(&kept).unwrap().len();
        for (name, length) in [(UNFINISHED, length / 2), (KEPT, length - 1), (KEPT, 30), (KEPT, 0)] {
            fs::rename(&kept, directory.path().join(name)).unwrap();
            OpenOptions::new().write(true).open(directory.path().join(name)).unwrap().set_len(length).unwrap();
            put_back_left_over(directory.path()).unwrap();
            assert!(contents(directory.path()) == before && names(directory.path()).unwrap().len() == 2);
            assert!(!directory.path().join(name).exists());
            drop(Original::keep(directory.path()).unwrap());
        }
    }

    #[test]
    fn what_was_kept_and_damaged_since_is_not_put_back() {
        let (directory, _) = store();
        drop(Original::keep(directory.path()).unwrap());
        open_and_end(directory.path());
        let (now, kept) = (contents(directory.path()), directory.path().join(KEPT));
        let mut bytes = fs::read(&kept).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&kept, bytes).unwrap();
        put_back_left_over(directory.path()).unwrap();
        assert!(contents(directory.path()) == now && !kept.exists());
    }

    #[test]
    fn what_was_free_and_what_was_not_there_is_so_again() {
        let (directory, _) = store();
        let (database, blobs) = (directory.path().join(DATABASE), directory.path().join(SLEDS_BLOBS));
        let file = OpenOptions::new().write(true).open(&database).unwrap();
        let end = file.metadata().unwrap().len().next_multiple_of(SEGMENT);
        file.set_len(end + SEGMENT).unwrap();
        fs::remove_dir(&blobs).unwrap();
        let before = contents(directory.path());
        drop(Original::keep(directory.path()).unwrap());
        file.write_all_at(&[7; 4096], end + 100).unwrap();
        fs::create_dir(&blobs).unwrap();
        put_back_left_over(directory.path()).unwrap();
        assert!(contents(directory.path()) == before && !blobs.exists());
    }

    #[test]
    fn little_is_kept_of_a_store_that_is_in_order() {
        let (directory, before) = store();
        drop(Original::keep(directory.path()).unwrap());
        let database = before.get(DATABASE).unwrap().len() as u64;
        let kept = fs::metadata(directory.path().join(KEPT)).unwrap().len();
        assert!(database > 5 * SEGMENT && kept < database / 2, "{kept} of {database}");
    }
}
