//! Calls that are repeated with the same key: every state of the first, every kind of caller that comes second.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test ends where it fails")]

#[path = "../support/mod.rs"]
mod support;

mod callers;
mod derived;
mod ended;
mod leaving;
mod questions;
mod running;
mod same;
