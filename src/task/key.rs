//! What stands for the key of a call in the store.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A keyed digest of an owner, a server, a tool and the key that the caller gave (or that was made from the arguments):
/// it finds the task of an earlier call, and tells nothing to whoever reads the store. Digests are the same whatever
/// their source.
#[derive(Clone, Copy)]
pub struct KeyDigest {
    digest: [u8; 32],
    source: KeySource,
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The caller gave it. So are all in records of before it was recorded.
    Caller,
    /// It was made from the arguments, and the call is joined while it runs (`dedupe = "running"`).
    Running,
    /// The same, and a call that ended is repeated that long after its start.
    Window(Duration),
}

impl KeyDigest {
    /// A digest that was made before, of a key that a caller gave.
    pub const fn from_bytes(digest: [u8; 32]) -> Self {
        Self { digest, source: KeySource::Caller }
    }

    /// The same digest, of a key from there.
    #[must_use]
    pub const fn from_source(self, source: KeySource) -> Self {
        Self { source, ..self }
    }

    /// The digest, to be put into the store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Where the key comes from.
    pub const fn source(&self) -> KeySource {
        self.source
    }
}

impl PartialEq for KeyDigest {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for KeyDigest {}

impl Hash for KeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(..)")
    }
}
