//! Where a run is at its server, so that its answer can be found again when this process is gone.

use std::fmt;

use bytes::Bytes;

/// Where a run is at its server: words of the upstream that made it, which nobody else reads. It may be kept, and
/// handed to the same server's upstream in another process as [`Method::Resume`](super::Method::Resume). No credentials
/// are in it, but whoever has it may listen in.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Anchor(Bytes);

impl Anchor {
    /// An anchor in the words of an upstream.
    pub fn new(words: impl Into<Bytes>) -> Self {
        Self(words.into())
    }

    /// The words.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Anchor({} bytes)", self.0.len())
    }
}
