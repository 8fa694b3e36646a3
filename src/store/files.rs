//! Outcomes that are too large for sled: `outcomes/ab/ID.REVISION`, complete and durable before a record names them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::directory::sync_directory;
use crate::shared_map::SharedMap;
use crate::task::{Stored, TaskId};

/// The files of a store.
#[derive(Debug)]
pub(super) struct OutcomeFiles {
    root: PathBuf,
    revision: AtomicU32,
    /// Files whose record is not committed yet, so that the sweep leaves them alone.
    in_flight: Arc<SharedMap<FileName, ()>>,
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileName {
    pub(super) id: TaskId,
    pub(super) revision: u32,
}

/// A file that no record names yet. Dropping this leaves it to the sweep.
#[derive(Debug)]
pub(super) struct InFlight {
    name: FileName,
    in_flight: Arc<SharedMap<FileName, ()>>,
}

/// The folder in that of the store.
pub(super) const FOLDER: &str = "results";

impl OutcomeFiles {
    pub(super) fn new(store: &Path) -> Self {
        // Revisions start anywhere, so that a file left by an earlier process is hardly ever met; if
        // it is, it is replaced as a whole.
        let revision = AtomicU32::new(rand::random());
        Self { root: store.join(FOLDER), revision, in_flight: Arc::default() }
    }

    /// A new name for an outcome of `id`.
    pub(super) fn reserve(&self, id: TaskId) -> InFlight {
        let name = FileName { id, revision: self.revision.fetch_add(1, Ordering::Relaxed) };
        self.in_flight.insert(name, ());
        InFlight { name, in_flight: Arc::clone(&self.in_flight) }
    }

    /// Writes a file; it is durable on return. Blocks.
    pub(super) fn write(&self, name: FileName, text: &[u8]) -> io::Result<()> {
        let folder = self.folder(name.id);
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            sync_directory(&self.root)?;
            if let Some(store) = self.root.parent() {
                sync_directory(store)?;
            }
        }
        let path = folder.join(name.to_string());
        let temporary = path.with_extension(format!("{}.new", name.revision));
        let written = write_durably(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
        if written.is_err() {
            // It may not even be there; what is left over is swept.
            let _ = fs::remove_file(&temporary);
        }
        written?;
        sync_directory(&folder)
    }

    /// Reads a file whole. Blocks.
    pub(super) fn read(&self, name: FileName, stored: Stored) -> io::Result<Vec<u8>> {
        let file = File::open(self.folder(name.id).join(name.to_string()))?;
        // The length on the disk, so that a damaged record cannot ask for any amount of memory.
        let length = file.metadata()?.len();
        if length != stored.len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = Vec::with_capacity(usize::try_from(length).map_err(io::Error::other)?);
        file.take(length).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Removes a file; one that is not there is removed already. Blocks.
    pub(super) fn remove(&self, name: FileName) {
        let path = self.folder(name.id).join(name.to_string());
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a file of an outcome could not be removed; the next sweep tries again");
        }
    }

    /// Removes every file that is not `wanted` by a record, and every temporary one; returns how many. Blocks.
    pub(super) fn sweep(&self, wanted: impl Fn(FileName) -> bool) -> io::Result<u64> {
        let mut removed = 0;
        let folders = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            folders => folders?,
        };
        for folder in folders {
            let folder = folder?.path();
            if !folder.is_dir() {
                continue;
            }
            for file in fs::read_dir(&folder)? {
                let file = file?;
                let text = file.file_name();
                let text = text.to_string_lossy();
                let (name, is_temporary) = match text.strip_suffix(".new") {
                    Some(name) => (FileName::parse(name), true),
                    None => (FileName::parse(&text), false),
                };
                // What is not of our making is left alone.
                let Some(name) = name else { continue };
                if self.in_flight.get(&name).is_some() || (!is_temporary && wanted(name)) {
                    continue;
                }
                fs::remove_file(file.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Ids start with the time, so their last characters spread them over the folders.
    fn folder(&self, id: TaskId) -> PathBuf {
        self.root.join(id.as_str().get(34..).unwrap_or_default())
    }
}

impl FileName {
    fn parse(text: &str) -> Option<Self> {
        let (id, revision) = text.split_once('.')?;
        Some(Self { id: id.parse().ok()?, revision: revision.parse().ok()? })
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.id, self.revision)
    }
}

impl InFlight {
    pub(super) const fn name(&self) -> FileName {
        self.name
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.in_flight.remove(&self.name);
    }
}

fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_data()
}
