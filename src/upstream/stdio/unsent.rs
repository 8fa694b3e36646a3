//! Requests that wait to be written, whose lines go with those who wait for them.

use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::Rope;

/// A request to be written.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    line: Arc<Unsent>,
}

/// The line of a request, until it is taken to be written.
#[derive(Debug)]
struct Unsent(Mutex<Option<Rope>>);

/// Held by whoever waits for the request: with it the line goes, however many requests of a server that does not read
/// wait to be written.
pub(super) struct Wanted(Arc<Unsent>);

impl Request {
    /// Its line, unless nobody waits for it any more.
    pub(super) fn take(&self) -> Option<Rope> {
        self.line.take()
    }
}

impl Unsent {
    fn take(&self) -> Option<Rope> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Wanted {
    pub(super) fn new(line: Rope) -> Self {
        Self(Arc::new(Unsent(Mutex::new(Some(line)))))
    }

    /// What is to be written.
    pub(super) fn request(&self, id: u64) -> Request {
        Request { id, line: Arc::clone(&self.0) }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.take();
    }
}
