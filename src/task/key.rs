//! What stands for the key of a call in the store.

use std::fmt;

/// A keyed digest of an owner, a server, a tool and the key that the caller gave (or that was made from the arguments):
/// it finds the task of an earlier call, and tells nothing to whoever reads the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// A digest that was made before.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest, to be put into the store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(..)")
    }
}
