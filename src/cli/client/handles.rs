//! The file that keeps every handle, since no server helps to find a lost one (SEP-2663 has no list).
//!
//! One JSON object a line: when, at which URL, of which tool, and the handle. Never credentials.

use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{env, fmt};

use serde::{Deserialize, Serialize};

/// One handle, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handle {
    /// When it was received, RFC 3339.
    pub(crate) at: String,
    /// The endpoint, without credentials and without a query.
    pub(crate) url: String,
    /// The tool that was called.
    pub(crate) tool: String,
    /// The handle itself.
    #[serde(rename = "taskId")]
    pub(crate) task: String,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Handles {
    path: PathBuf,
}

/// What went wrong with the file, and which one it is.
#[derive(Debug)]
pub(crate) struct HandlesError {
    path: PathBuf,
    cause: HandlesFault,
}

#[derive(Debug)]
enum HandlesFault {
    NoPlace,
    Io(io::Error),
    Unknown(String),
    Ambiguous { prefix: String, count: usize },
}

/// What stands for the newest handle.
pub(crate) const LAST: &str = "last";

/// A line longer than this was not written here.
const LONGEST_LINE: u64 = 64 * 1024;

impl Handles {
    /// The file of this user: `RAINCHECK_HANDLES`, or `raincheck/handles.jsonl` below `XDG_STATE_HOME` or
    /// `~/.local/state`.
    pub(crate) fn of_user() -> Result<Self, HandlesError> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = set("RAINCHECK_HANDLES").or_else(|| {
            // The standard wants relative paths ignored.
            let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
            let state = state.or_else(|| Some(set("HOME")?.join(".local/state")))?;
            Some(state.join("raincheck/handles.jsonl"))
        });
        let no_place = || HandlesError { path: PathBuf::new(), cause: HandlesFault::NoPlace };
        path.map(|path| Self { path }).ok_or_else(no_place)
    }

    /// The file at `path`.
    #[cfg(test)]
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Writes a handle down. When this returns it survives a power cut.
    pub(crate) fn keep(&self, handle: &Handle) -> Result<(), HandlesError> {
        self.try_keep(handle).map_err(|error| self.failed(error))
    }

    fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }

    fn try_keep(&self, handle: &Handle) -> io::Result<()> {
        make_durably(self.directory())?;
        // Another process may be about to put a shorter file in the place of this one.
        let directory = File::open(self.directory())?;
        directory.lock()?;
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
        let mut line = Vec::new();
        if ends_in_mid_line(&mut file)? {
            // A crash has cut the last line; it must not swallow this one.
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, handle)?;
        line.push(b'\n');
        // One write, so that lines of several processes do not mix.
        file.write_all(&line)?;
        file.sync_all()?;
        directory.sync_all()
    }

    /// Takes these handles out of the file. Other lines stay as they are.
    pub(crate) fn forget(&self, handles: &[Handle]) -> Result<(), HandlesError> {
        self.try_forget(handles).map_err(|error| self.failed(error))
    }

    fn try_forget(&self, handles: &[Handle]) -> io::Result<()> {
        let directory = File::open(self.directory())?;
        directory.lock()?;
        let mut path = self.path.clone().into_os_string();
        path.push(".new");
        let mut kept = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let mut reader = BufReader::new(File::open(&self.path)?);
        let mut line = Vec::new();
        while reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? > 0 {
            let is_meant = |handle: Handle| handles.iter().any(|it| it.task == handle.task && it.url == handle.url);
            if !serde_json::from_slice(&line).is_ok_and(is_meant) {
                kept.write_all(&line)?;
            }
            line.clear();
        }
        kept.sync_all()?;
        std::fs::rename(&path, &self.path)?;
        directory.sync_all()
    }

    /// The newest `most` handles, oldest first, each once: a call that is repeated with its key gives the same one again.
    /// Lines that cannot be read are left out.
    pub(crate) fn newest(&self, most: usize) -> Result<Vec<Handle>, HandlesError> {
        let (mut newest, mut places) = (BTreeMap::new(), HashMap::new());
        let mut place = 0_u64;
        self.each(|handle| {
            place += 1;
            if let Some(before) = places.insert((handle.task.clone(), handle.url.clone()), place) {
                newest.remove(&before);
            }
            newest.insert(place, handle);
            if newest.len() > most
                && let Some((_, oldest)) = newest.pop_first()
            {
                places.remove(&(oldest.task, oldest.url));
            }
        })?;
        Ok(newest.into_values().collect())
    }

    /// The handle that begins with `prefix`, or the newest for `last`.
    pub(crate) fn find(&self, prefix: &str) -> Result<Handle, HandlesError> {
        if prefix == LAST {
            let newest = self.newest(1)?.pop();
            return newest.ok_or_else(|| self.fault(HandlesFault::Unknown(prefix.to_owned())));
        }
        let mut found = BTreeMap::new();
        self.each(|handle| {
            if handle.task.starts_with(prefix) {
                found.insert(handle.task.clone(), handle);
            }
        })?;
        if let Some(exact) = found.remove(prefix) {
            return Ok(exact);
        }
        match (found.len(), found.pop_first()) {
            (1, Some((_, handle))) => Ok(handle),
            (0, _) => Err(self.fault(HandlesFault::Unknown(prefix.to_owned()))),
            (count, _) => Err(self.fault(HandlesFault::Ambiguous { prefix: prefix.to_owned(), count })),
        }
    }

    fn each(&self, mut with: impl FnMut(Handle)) -> Result<(), HandlesError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.failed(error)),
        };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
            if read.map_err(|error| self.failed(error))? == 0 {
                return Ok(());
            }
            if let Ok(handle) = serde_json::from_slice(&line) {
                with(handle);
            }
        }
    }

    fn failed(&self, error: io::Error) -> HandlesError {
        self.fault(HandlesFault::Io(error))
    }

    fn fault(&self, cause: HandlesFault) -> HandlesError {
        HandlesError { path: self.path.clone(), cause }
    }
}

/// Makes a directory and those above it, each durably.
fn make_durably(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_durably(parent)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

fn ends_in_mid_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

impl fmt::Display for HandlesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            HandlesFault::NoPlace => {
                f.write_str("there is no place to keep handles: neither RAINCHECK_HANDLES nor HOME is set")
            }
            HandlesFault::Io(_) => write!(f, "the file of handles {path} cannot be used"),
            HandlesFault::Unknown(prefix) if prefix == LAST => {
                write!(f, "no handle is kept in {path} yet: raincheck call URL TOOL --detach makes one")
            }
            HandlesFault::Unknown(prefix) => {
                write!(
                    f,
                    "no handle in {path} begins with \"{}\"; for one that is not there give the whole handle, and its server with --url (get, answer, cancel)",
                    prefix.escape_debug()
                )
            }
            HandlesFault::Ambiguous { prefix, count } => {
                write!(f, "{count} handles in {path} begin with \"{}\"; write more of it", prefix.escape_debug())
            }
        }
    }
}

impl std::error::Error for HandlesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            HandlesFault::Io(source) => Some(source),
            HandlesFault::NoPlace | HandlesFault::Unknown(_) | HandlesFault::Ambiguous { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn handle(task: &str) -> Handle {
        Handle { at: "2026-07-28T10:30:00Z".into(), url: "http://h/mcp".into(), tool: "t".into(), task: task.into() }
    }

    #[test]
    fn handles_are_kept_in_order_for_this_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/handles.jsonl");
        let handles = Handles::at(path.clone());
        assert_eq!(handles.newest(5).unwrap(), []);
        for task in ["one", "two", "three"] {
            handles.keep(&handle(task)).unwrap();
        }
        let newest: Vec<_> = handles.newest(2).unwrap().into_iter().map(|handle| handle.task).collect();
        assert_eq!(newest, ["two", "three"]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_handle_that_came_again_is_listed_once_as_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let handles = Handles::at(directory.path().join("handles.jsonl"));
        for task in ["one", "two", "one", "three", "one"] {
            handles.keep(&handle(task)).unwrap();
        }
        handles.keep(&Handle { url: "http://other/mcp".into(), ..handle("one") }).unwrap();
        let newest = |most| -> Vec<_> { handles.newest(most).unwrap().into_iter().map(|it| it.task).collect() };
        assert_eq!(newest(9), ["two", "three", "one", "one"]);
        assert_eq!(newest(2), ["one", "one"]);
    }

    #[test]
    fn a_line_that_a_crash_has_cut_harms_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("handles.jsonl");
        let handles = Handles::at(path.clone());
        handles.keep(&handle("one")).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"at\":\"20").unwrap();
        handles.keep(&handle("two")).unwrap();
        let kept: Vec<_> = handles.newest(9).unwrap().into_iter().map(|handle| handle.task).collect();
        assert_eq!(kept, ["one", "two"]);
    }

    #[test]
    fn a_handle_is_found_by_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let handles = Handles::at(directory.path().join("handles.jsonl"));
        for task in ["abc1", "abc2", "xyz", "xyz", "abc"] {
            handles.keep(&handle(task)).unwrap();
        }
        assert_eq!(handles.find("x").unwrap().task, "xyz");
        assert_eq!(handles.find("abc").unwrap().task, "abc");
        assert_eq!(handles.find("abc2").unwrap().task, "abc2");
        assert_eq!(handles.find("last").unwrap().task, "abc");
        assert!(handles.find("ab").unwrap_err().to_string().starts_with("3 handles"));
        assert!(handles.find("q").unwrap_err().to_string().contains("no handle"));
    }
}
