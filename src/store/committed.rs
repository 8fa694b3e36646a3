//! The proof that something is durable.

use std::ops::Deref;
use std::sync::Arc;

/// Something that the store holds. Only the store makes one, after the write is durable, so whoever
/// has one may show it to a client. Cloning is cheap.
#[derive(Debug)]
pub struct Committed<T>(Arc<T>);

impl<T> Committed<T> {
    /// To be called when `value` is durable, and never before.
    pub(super) const fn new(value: Arc<T>) -> Self {
        Self(value)
    }

    /// The value, shared.
    pub(super) fn share(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T> Clone for Committed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Committed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
